"""Readers of SKOS thesauri in RDF/XML, N-Triples and Turtle: the statements that make a hierarchy."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from io import BufferedReader
from typing import Any, Literal, NamedTuple, cast
from urllib.parse import urljoin
from xml.parsers import expat

from longtail.data.streams import ByteReader, decoded, read_text
from longtail.errors import InputError

AnyPath = str | os.PathLike[str]
Syntax = Literal["xml", "ntriples", "turtle"]

LINKS = ("broader", "narrower", "topConceptOf", "hasTopConcept")
TEXTS = ("prefLabel", "notation")
_SKOS = "http://www.w3.org/2004/02/skos/core#"
_RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
_XML = "http://www.w3.org/XML/1998/namespace"


class Statement(NamedTuple):
    """One statement: `property` is one of `LINKS`, with a resource as value, or one of `TEXTS`, with a text."""

    subject: str
    property: str
    value: str
    language: str
    line: int


def read_statements(path: AnyPath, syntax: Syntax) -> Iterator[Statement]:
    """Yield the statements of a plain or compressed file with a property in `LINKS` or `TEXTS`.

    Ids of blank nodes begin with ``_:``.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "towns.ttl")
    >>> _ = path.write_text('''@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
    ... @prefix ex: <http://example.org/> .
    ... ex:rome a skos:Concept ; skos:broader ex:italy ; skos:prefLabel "Roma"@it .''')
    >>> for statement in read_statements(path, "turtle"):
    ...     print(*statement)
    http://example.org/rome broader http://example.org/italy  3
    http://example.org/rome prefLabel Roma it 3
    """
    readers = {"xml": _xml_statements, "ntriples": _ntriples_statements, "turtle": _turtle_statements}
    return readers[syntax](path)


class _Statements:
    """The statements found so far, and numbers for blank nodes without an id."""

    def __init__(self) -> None:
        self.found: list[Statement] = []
        self.n_blanks = 0

    def add(self, subject: str, about: str, value: str, language: str | None, line: int) -> None:
        """Keep a statement if its property is needed; `language` is None if the value is a resource."""
        name = about.removeprefix(_SKOS)
        if name != about and name in (LINKS if language is None else TEXTS):
            self.found.append(Statement(subject, name, value, (language or "").lower(), line))

    def blank(self) -> str:
        self.n_blanks += 1
        return f"_:[{self.n_blanks}]"

    def drain(self) -> Iterator[Statement]:
        yield from self.found
        self.found.clear()


def _resolved(iri: str, base: str) -> str:
    if iri.startswith("#"):  # urljoin drops a "#" with nothing after it
        return base.partition("#")[0] + iri
    return urljoin(base, iri) if base and ":" not in iri.partition("/")[0] else iri


# N-Triples: one statement per line, so that files of any size are read in little memory.

_TRIPLE = re.compile(
    r'\s*(?:<([^<>]*)>|(_:\S+))\s*<([^<>]*)>\s*(?:<([^<>]*)>|(_:[^\s.]+)|"((?:[^"\\]|\\.)*)"'
    r"(?:@([A-Za-z0-9-]+)|\^\^<[^<>]*>)?)\s*\.\s*(?:#.*)?"
)


def _ntriples_statements(path: AnyPath) -> Iterator[Statement]:
    statements = _Statements()
    with ByteReader(path) as raw, BufferedReader(raw) as stream:
        for line, data in enumerate(stream, 1):
            if b"skos/core#" not in data or data.lstrip().startswith(b"#"):
                continue
            triple = _TRIPLE.fullmatch(decoded(data, path, line).rstrip())
            if triple is None:
                raise InputError(
                    "is not a statement: it must be subject, property, value and a dot.", path=path, line=line
                )
            iri, blank, about, linked, linked_blank, text, language = triple.groups()
            value = next(part for part in (text, linked, linked_blank) if part is not None)
            subject = blank if iri is None else _unescape(iri, path, line)
            language = None if text is None else language or ""
            statements.add(subject, about, _unescape(value, path, line), language, line)
            yield from statements.drain()


_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|.)", re.DOTALL)
_ESCAPES = {"t": "\t", "b": "\b", "n": "\n", "r": "\r", "f": "\f"}


def _unescape(text: str, path: AnyPath, line: int) -> str:
    """Replace the escape sequences of a text by their characters."""
    try:
        return _ESCAPE.sub(_character, text) if "\\" in text else text
    except (ValueError, OverflowError):
        raise InputError("has an invalid escape sequence.", path=path, line=line) from None


def _character(escape: re.Match[str]) -> str:
    code = escape[1]
    return chr(int(code[1:], 16)) if len(code) > 1 else _ESCAPES.get(code, code)


# Turtle: read into memory and split into tokens.

_NAME_PART = r"(?:[\w:]|%[0-9A-Fa-f]{2}|\\[-_~.!$&'()*+,;=/?#@%])"
_NAME_MIDDLE = r"(?:[\w:.-]|%[0-9A-Fa-f]{2}|\\[-_~.!$&'()*+,;=/?#@%])"
_TOKEN = re.compile(
    r"(?P<space>(?:\s+|\#[^\n]*)+)"
    r"|(?P<iri><[^<>\s]*>)"
    r'|(?P<long>"""(?:[^"\\]|\\.|""?(?!"))*"""|\'\'\'(?:[^\'\\]|\\.|\'\'?(?!\'))*\'\'\')'
    r'|(?P<text>"[^"\\\n]*(?:\\.[^"\\\n]*)*"|\'[^\'\\\n]*(?:\\.[^\'\\\n]*)*\')'
    r"|(?P<at>@[A-Za-z]+(?:-[A-Za-z0-9]+)*)"
    r"|(?P<type>\^\^)"
    r"|(?P<blank>_:\w(?:[\w.-]*[\w-])?)"
    rf"|(?P<name>(?:[^\W\d_](?:[\w.-]*[\w-])?)?:(?:{_NAME_PART}(?:{_NAME_MIDDLE}*(?:(?<!\.)|(?<=\\\.)))?)?)"
    r"|(?P<number>[+-]?(?:\d*\.\d+|\d+)(?:[eE][+-]?\d+)?)"
    r"|(?P<word>[A-Za-z]+)"
    r"|(?P<mark>[\[\]().;,])",
    re.DOTALL,
)


def _turtle_statements(path: AnyPath) -> Iterator[Statement]:
    try:
        yield from _Turtle(read_text(path), path).read()
    except RecursionError:
        raise InputError("is nested too deeply: it has too many brackets inside brackets.", path=path) from None


class _Turtle:
    """Parser of one Turtle file: recursive descent with one token of look-ahead."""

    def __init__(self, text: str, path: AnyPath) -> None:
        self.text, self.path = text, path
        self.prefixes: dict[str, str] = {}
        self.base = ""
        self.statements = _Statements()
        self.start = self.end = 0  # of the current token
        self.counted_to, self.line = 0, 1
        self.kind = self.token = ""
        self.advance()

    def read(self) -> Iterator[Statement]:
        while self.kind:
            directive = self.token.lower()
            if directive in ("@prefix", "@base", "prefix", "base"):
                self.directive(directive)
            else:
                is_blank = self.is_mark("[")
                subject = self.resource()
                if not (is_blank and self.is_mark(".")):
                    self.properties(subject)
                self.end_statement()
            yield from self.statements.drain()

    def directive(self, directive: str) -> None:
        self.advance()
        prefix = ""
        if directive.endswith("prefix"):
            prefix = self.token
            if self.kind != "name" or prefix.index(":") < len(prefix) - 1:
                raise self.wrong("a prefix with a colon")
            self.advance()
        if self.kind != "iri":
            raise self.wrong("an address in <>")
        address = self.resource()
        if prefix:
            self.prefixes[prefix[:-1]] = address
        else:
            self.base = address
        if directive.startswith("@"):
            self.end_statement()

    def properties(self, subject: str) -> None:
        while True:
            if self.token == "a" and self.kind == "word":
                self.advance()
                about = ""  # a type, which is not needed
            else:
                about = self.resource()
            self.value(subject, about)
            while self.take(","):
                self.value(subject, about)
            if not self.is_mark(";"):
                return
            while self.take(";"):
                pass
            if not self.kind or self.is_mark(".") or self.is_mark("]"):
                return

    def value(self, subject: str, about: str) -> None:
        line = self.line_number()
        if self.kind in ("iri", "name", "blank", "mark"):
            self.statements.add(subject, about, self.resource(), None, line)
            return
        if self.kind not in ("text", "long", "number", "word"):
            raise self.wrong("a value")
        text, language = self.token, ""
        if self.kind in ("text", "long"):
            quotes = 3 if self.kind == "long" else 1
            text = _unescape(text[quotes:-quotes], self.path, line)
        self.advance()
        if self.kind == "at":
            language = self.token[1:]
            self.advance()
        elif self.kind == "type":
            self.advance()
            self.resource()
        self.statements.add(subject, about, text, language, line)

    def resource(self) -> str:
        if self.kind == "iri":
            found = _resolved(_unescape(self.token[1:-1], self.path, self.line_number()), self.base)
        elif self.kind == "name":
            prefix, _, local = self.token.partition(":")
            if prefix not in self.prefixes:
                raise self.wrong("a name with a declared prefix")
            found = self.prefixes[prefix] + local.replace("\\", "")
        elif self.kind == "blank":
            found = self.token
        elif self.is_mark("[") or self.is_mark("("):
            return self.nested()
        else:
            raise self.wrong("a resource")
        self.advance()
        return found

    def nested(self) -> str:
        """Read a blank node with its properties, or a list, whose members are ignored."""
        blank = self.statements.blank()
        if self.take("("):
            while not self.take(")"):
                self.value(blank, "")
        else:
            self.advance()
            if not self.is_mark("]"):
                self.properties(blank)
            if not self.take("]"):
                raise self.wrong("]")
        return blank

    def is_mark(self, mark: str) -> bool:
        return self.token == mark and self.kind == "mark"

    def take(self, mark: str) -> bool:
        """Skip the mark and return whether it is the current token."""
        found = self.is_mark(mark)
        if found:
            self.advance()
        return found

    def end_statement(self) -> None:
        if not self.take("."):
            raise self.wrong("a dot")

    def advance(self) -> None:
        """Move to the next token."""
        self.kind = "space"
        while self.kind == "space":
            self.start = self.end
            match = _TOKEN.match(self.text, self.end)
            if match is None:
                self.kind = self.token = ""
                if self.end < len(self.text):
                    self.token = self.text[self.end :][:40].split()[0]
                    raise self.wrong("a token of Turtle")
                return
            self.end = match.end()
            self.kind, self.token = cast(str, match.lastgroup), match[0]

    def line_number(self) -> int:
        """Return the line of the current token."""
        self.line += self.text.count("\n", self.counted_to, self.start)
        self.counted_to = self.start
        return self.line

    def wrong(self, wanted: str) -> InputError:
        found = repr(self.token[:40]) if self.token else "its end"
        return InputError(f"has {found} where {wanted} is expected.", path=self.path, line=self.line_number())


# RDF/XML: elements are alternately resources and their properties.

_PIECE = 1 << 16


def _xml_statements(path: AnyPath) -> Iterator[Statement]:
    parser = _RdfXml()
    with ByteReader(path) as stream:
        piece: bytes | None = b" "
        while piece:
            piece = stream.read(_PIECE)
            parser.feed(piece or b"", path)
            yield from parser.statements.drain()


class _Element(NamedTuple):
    kind: Literal["resource", "property", "other"]
    about: str  # id of a resource, name of a property
    language: str
    base: str
    text: list[str]


class _RdfXml:
    """Event handlers of an XML parser that gather statements."""

    def __init__(self) -> None:
        self.statements = _Statements()
        self.stack: list[_Element] = []
        self.parser = expat.ParserCreate(namespace_separator=" ")
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self.start
        self.parser.EndElementHandler = self.end
        self.parser.CharacterDataHandler = self.characters

    def feed(self, piece: bytes, path: AnyPath) -> None:
        try:
            self.parser.Parse(piece, not piece)
        except expat.ExpatError as error:
            reason = expat.ErrorString(error.code)
            raise InputError(f"is not XML: {reason}.", path=path, line=error.lineno) from None
        except (LookupError, ValueError) as error:  # encodings
            raise InputError(f"can't be read: {error}.", path=path) from None

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        above = self.stack[-1] if self.stack else None
        language = attributes.get(f"{_XML} lang", above.language if above else "")
        base = attributes.get(f"{_XML} base", above.base if above else "")
        name = tag.replace(" ", "", 1)
        kind: Literal["resource", "property", "other"]
        if name == _RDF + "RDF" and above is None:
            kind, about = "property", ""
        elif above is not None and above.kind == "other":
            kind, about = "other", ""
        elif above is not None and above.kind == "resource":
            kind, about = self.start_property(above.about, name, attributes, base)
        else:
            kind, about = "resource", self.identified(attributes, base)
            if above is not None:
                self.add(self.stack[-2].about if len(self.stack) > 1 else "", above.about, about, None)
                above.text.append("")  # the value of this property is a resource and not a text
            for attribute, text in attributes.items():
                self.add(about, attribute.replace(" ", "", 1), text, language)
        self.stack.append(_Element(kind, about, language, base, []))

    def start_property(self, subject: str, name: str, attributes: dict[str, str], base: str) -> Any:
        form = attributes.get(f"{_RDF} parseType")
        if form == "Resource":
            blank = self.statements.blank()
            self.add(subject, name, blank, None)
            return "resource", blank
        if form is not None:  # Literal or Collection
            return "other", ""
        if (linked := attributes.get(f"{_RDF} resource")) is not None:
            self.add(subject, name, _resolved(linked, base), None)
            return "other", ""
        if (linked := attributes.get(f"{_RDF} nodeID")) is not None:
            self.add(subject, name, "_:" + linked, None)
            return "other", ""
        return "property", name

    def end(self, tag: str) -> None:
        element = self.stack.pop()
        if element.kind == "property" and self.stack and "" not in element.text:
            self.add(self.stack[-1].about, element.about, "".join(element.text), element.language)

    def characters(self, text: str) -> None:
        if self.stack[-1].kind == "property":
            self.stack[-1].text.append(text)

    def identified(self, attributes: dict[str, str], base: str) -> str:
        if (about := attributes.get(f"{_RDF} about")) is not None:
            return _resolved(about, base)
        if (own := attributes.get(f"{_RDF} ID")) is not None:
            return base.partition("#")[0] + "#" + own
        node = attributes.get(f"{_RDF} nodeID")
        return self.statements.blank() if node is None else "_:" + node

    def add(self, subject: str, about: str, value: str, language: str | None) -> None:
        self.statements.add(subject, about, value, language, self.parser.CurrentLineNumber)

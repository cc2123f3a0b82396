"""Small readers of SKOS thesauri in RDF/XML, N-Triples and Turtle: the statements that make a hierarchy."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from io import BufferedReader
from typing import Any, Literal, NamedTuple, cast
from urllib.parse import urljoin
from xml.parsers import expat

from longtail.corpus.streams import ByteReader
from longtail.errors import InputError

Path = str | os.PathLike[str]
Form = Literal["xml", "ntriples", "turtle"]

LINKS = ("broader", "narrower", "topConceptOf", "hasTopConcept")
TEXTS = ("prefLabel", "notation")
_SKOS = "http://www.w3.org/2004/02/skos/core#"
_RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
_XML = "http://www.w3.org/XML/1998/namespace"


class Statement(NamedTuple):
    """One statement: `property` is one of `LINKS`, with the id of a resource, or of `TEXTS`, with a text."""

    subject: str
    property: str
    value: str
    language: str
    line: int


def read_statements(path: Path, form: Form) -> Iterator[Statement]:
    """Yield the statements of a file, plain or compressed, that say what stands under what and how it is called.

    Blank nodes have ids that start with ``_:``. All other statements are passed over.

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
    return readers[form](path)


def _told(subject: str, about: str, value: str, language: str | None, line: int) -> Iterator[Statement]:
    """Yield a statement if it is of interest; `language` is None where the value is a resource."""
    name = about.removeprefix(_SKOS)
    if name != about and name in (LINKS if language is None else TEXTS):
        yield Statement(subject, name, value, (language or "").lower(), line)


def _resolved(iri: str, base: str) -> str:
    if iri.startswith("#"):  # urljoin drops a "#" with nothing after it
        return base.partition("#")[0] + iri
    return urljoin(base, iri) if base and ":" not in iri.partition("/")[0] else iri


# N-Triples: a statement on each line, so that files of any size are read in little memory.

_TRIPLE = re.compile(
    r'\s*(?:<([^<>]*)>|(_:\S+))\s*<([^<>]*)>\s*(?:<([^<>]*)>|(_:[^\s.]+)|"((?:[^"\\]|\\.)*)"'
    r"(?:@([A-Za-z0-9-]+)|\^\^<[^<>]*>)?)\s*\.\s*(?:#.*)?"
)


def _ntriples_statements(path: Path) -> Iterator[Statement]:
    with ByteReader(path) as raw, BufferedReader(raw) as stream:
        for line, data in enumerate(stream, 1):
            if b"skos/core#" not in data or data.lstrip().startswith(b"#"):
                continue
            triple = _TRIPLE.fullmatch(_decoded(data, path, line).rstrip())
            if triple is None:
                raise InputError(
                    "is no statement: it must be subject, property, value and a dot.", path=path, line=line
                )
            iri, blank, about, linked, linked_blank, text, language = triple.groups()
            is_text = text is not None
            value = text if is_text else linked_blank if linked is None else linked
            yield from _told(
                _plain(iri, path, line) if iri is not None else blank,
                about,
                _plain(value, path, line),
                (language or "") if is_text else None,
                line,
            )


def _decoded(data: bytes, path: Path, line: int = 1) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line += data.count(b"\n", 0, error.start)
        raise InputError("is not UTF-8: convert the file.", path=path, line=line) from None


_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|.)", re.DOTALL)
_ESCAPES = {"t": "\t", "b": "\b", "n": "\n", "r": "\r", "f": "\f"}


def _plain(text: str, path: Path, line: int) -> str:
    """Take the escapes out of a text."""
    try:
        return _ESCAPE.sub(_unescaped, text) if "\\" in text else text
    except (ValueError, OverflowError):
        raise InputError("has an escape that stands for no character.", path=path, line=line) from None


def _unescaped(escape: re.Match[str]) -> str:
    code = escape[1]
    return chr(int(code[1:], 16)) if len(code) > 1 else _ESCAPES.get(code, code)


# Turtle: read whole, cut into tokens.

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


def _turtle_statements(path: Path) -> Iterator[Statement]:
    with ByteReader(path) as stream:
        text = _decoded(stream.readall(), path)
    try:
        yield from _Turtle(text, path).read()
    except RecursionError:
        raise InputError("has brackets in brackets without end.", path=path) from None


class _Turtle:
    """The statements of one Turtle file, by recursive descent with one token of look-ahead."""

    def __init__(self, text: str, path: Path) -> None:
        self.text, self.path = text, path
        self.prefixes: dict[str, str] = {}
        self.base = ""
        self.n_blanks = 0
        self.statements: list[Statement] = []
        self.start = self.end = 0  # of the token at hand
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
            yield from self.statements
            self.statements.clear()

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
                about = _RDF + "type"
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
        line = self.place()
        if self.kind in ("iri", "name", "blank", "mark"):
            self.statements.extend(_told(subject, about, self.resource(), None, line))
            return
        if self.kind not in ("text", "long", "number", "word"):
            raise self.wrong("a value")
        text, language = self.token, ""
        if self.kind in ("text", "long"):
            quotes = 3 if self.kind == "long" else 1
            text = _plain(text[quotes:-quotes], self.path, line)
        self.advance()
        if self.kind == "at":
            language = self.token[1:]
            self.advance()
        elif self.kind == "type":
            self.advance()
            self.resource()
        self.statements.extend(_told(subject, about, text, language, line))

    def resource(self) -> str:
        if self.kind == "iri":
            found = _resolved(_plain(self.token[1:-1], self.path, self.place()), self.base)
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
        """Read a blank node with its properties, or a list, whose members are of no interest."""
        self.n_blanks += 1
        blank = f"_:[{self.n_blanks}]"
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
        """Pass over a mark if it is at hand."""
        found = self.is_mark(mark)
        if found:
            self.advance()
        return found

    def end_statement(self) -> None:
        if not self.take("."):
            raise self.wrong("a dot")

    def advance(self) -> None:
        """Go to the next token."""
        self.kind = "space"
        while self.kind == "space":
            self.start = self.end
            match = _TOKEN.match(self.text, self.end)
            if match is None:
                self.kind = self.token = ""
                if self.end < len(self.text):
                    self.token = self.text[self.end :][:40].split()[0]
                    raise self.wrong("something of Turtle")
                return
            self.end = match.end()
            self.kind, self.token = cast(str, match.lastgroup), match[0]

    def place(self) -> int:
        """Line of the token at hand."""
        self.line += self.text.count("\n", self.counted_to, self.start)
        self.counted_to = self.start
        return self.line

    def wrong(self, wanted: str) -> InputError:
        found = repr(self.token[:40]) if self.token else "its end"
        return InputError(f"has {found} where {wanted} must stand.", path=self.path, line=self.place())


# RDF/XML: elements are in turns resources and their properties.

_PIECE = 1 << 16


def _xml_statements(path: Path) -> Iterator[Statement]:
    handler = _RdfXml()
    with ByteReader(path) as stream:
        is_open = True
        while is_open:
            piece = stream.read(_PIECE) or b""
            is_open = bool(piece)
            handler.feed(piece, path)
            yield from handler.statements
            handler.statements.clear()


class _Element(NamedTuple):
    kind: Literal["resource", "property", "other"]
    about: str  # of a resource its id, of a property its name
    language: str
    base: str
    text: list[str]


class _RdfXml:
    """Gathers statements while the parser goes through the elements."""

    def __init__(self) -> None:
        self.statements: list[Statement] = []
        self.stack: list[_Element] = []
        self.n_blanks = 0
        self.parser = expat.ParserCreate(namespace_separator=" ")
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self.start
        self.parser.EndElementHandler = self.end
        self.parser.CharacterDataHandler = self.characters

    def feed(self, piece: bytes, path: Path) -> None:
        try:
            self.parser.Parse(piece, not piece)
        except expat.ExpatError as error:
            reason = expat.ErrorString(error.code)
            raise InputError(f"is no XML: {reason}.", path=path, line=error.lineno) from None
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
                self.tell(self.stack[-2].about if len(self.stack) > 1 else "", above.about, about, None)
                above.text.append("")  # what has a resource for its value has no text
            for attribute, text in attributes.items():
                self.tell(about, attribute.replace(" ", "", 1), text, language)
        self.stack.append(_Element(kind, about, language, base, []))

    def start_property(self, subject: str, name: str, attributes: dict[str, str], base: str) -> Any:
        form = attributes.get(f"{_RDF} parseType")
        if form == "Resource":
            blank = self.blank()
            self.tell(subject, name, blank, None)
            return "resource", blank
        if form is not None:  # Literal or Collection
            return "other", ""
        if (linked := attributes.get(f"{_RDF} resource")) is not None:
            self.tell(subject, name, _resolved(linked, base), None)
            return "other", ""
        if (linked := attributes.get(f"{_RDF} nodeID")) is not None:
            self.tell(subject, name, "_:" + linked, None)
            return "other", ""
        return "property", name

    def end(self, tag: str) -> None:
        element = self.stack.pop()
        if element.kind == "property" and self.stack and "" not in element.text:
            self.tell(self.stack[-1].about, element.about, "".join(element.text), element.language)

    def characters(self, text: str) -> None:
        if self.stack[-1].kind == "property":
            self.stack[-1].text.append(text)

    def identified(self, attributes: dict[str, str], base: str) -> str:
        if (about := attributes.get(f"{_RDF} about")) is not None:
            return _resolved(about, base)
        if (own := attributes.get(f"{_RDF} ID")) is not None:
            return base.partition("#")[0] + "#" + own
        node = attributes.get(f"{_RDF} nodeID")
        return self.blank() if node is None else "_:" + node

    def blank(self) -> str:
        self.n_blanks += 1
        return f"_:[{self.n_blanks}]"

    def tell(self, subject: str, about: str, value: str, language: str | None) -> None:
        self.statements.extend(_told(subject, about, value, language, self.parser.CurrentLineNumber))

"""Hierarchies of concepts, such as thesauri and label trees: how they are read, and which concepts are labels."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from longtail.data.concept_matching import last_part, match_concepts, unescaped
from longtail.data.cycles import cycle_reason, find_cycle
from longtail.data.label_index import id_of_text
from longtail.data.readers.pairs import iter_pairs
from longtail.data.readers.skos import Syntax, read_statements
from longtail.data.streams import ByteReader, read_text, split_suffix
from longtail.errors import InputError, truncated
from longtail.kernels.types import Int32

_FORMS = {
    ".tsv": "pairs", ".csv": "pairs", ".tab": "pairs", ".json": "json", ".rdf": "xml", ".xml": "xml", ".owl": "xml",
    ".nt": "ntriples", ".ttl": "turtle", ".turtle": "turtle", ".n3": "turtle",
}  # fmt: skip
_HEADERS = (("child", "parent"), ("narrower", "broader"))
_NO_HIERARCHY = (
    'is JSON, but not a hierarchy: give {"name": ..., "children": [...]}, {child: parent or [parents]} or '
    "[[child, parent], ...]"
)
# Usual keys of a nested hierarchy: an object with only such keys is not read as {child: parent}.
_NODE_KEYS = {
    "name", "id", "children", "parent", "parents", "title", "label", "text", "key", "value", "uri", "url", "type",
    "kind", "size", "count", "description", "broader", "narrower", "nodes", "items",
}  # fmt: skip
_MIN_ROWS = 5


@dataclass(frozen=True, eq=False)
class Hierarchy:
    """Concepts and the concepts above them.

    Attributes
    ----------
    names : tuple of str
        Id of each concept: its URI in SKOS, else its name in the file.
    titles : tuple of (str or None)
        Name of each concept for people: the preferred label in SKOS, the name beside an id in JSON.
    parents : ndarray of int32, shape (m, 2)
        Pairs (child, parent) of indices into `names`. A concept may have several parents, the first of them first.
    notations : tuple of (str or None)
        Codes of the concepts in SKOS; empty if there are none.
    path : str or None
        The file, for messages.

    Examples
    --------
    >>> towns = Hierarchy(("ex:1", "ex:2"), ("Italy", "Rome"), np.array([[1, 0]], np.int32))
    >>> towns.pairs(["rome", "cats"])
    [(0, 'ex:1')]
    """

    names: tuple[str, ...]
    titles: tuple[str | None, ...]
    parents: Int32
    notations: tuple[str | None, ...] = ()
    path: str | None = None

    def match(self, label_names: Sequence[str]) -> Int32:
        """Return the label id of each concept, -1 for concepts that are not labels.

        A label name is compared with the id of a concept, its title, the last part of its URI (after the last ``#``,
        ``/`` or, in a URN, ``:``; also percent-decoded) and its notation, in this order: first exactly, then in
        Unicode's composed form (NFC), then ignoring case, where ambiguous names match nothing. A concept is at most one
        label; a label may be several concepts that match equally well. If no name matches, integers are label ids.

        Parameters
        ----------
        label_names : sequence of str
            A name per label; for labels without names, their ids as text.
        """
        parts = [last_part(name) for name in self.names]
        keys = (self.names, self.titles, parts, [unescaped(part) for part in parts], self.notations)
        found = match_concepts(keys, label_names, self.path)
        numbers = [name for name in self.names if name.isdecimal()]
        if found is None and all(id_of_text(name, len(label_names)) is not None for name in numbers):
            found = match_concepts((self.names,), list(map(str, range(len(label_names)))), self.path)
        if found is None:
            title = self.titles[0] if self.titles else None
            such = f", such as {self.names[0]!r}" + (f" ({title!r})" if title else "") if self.names else ""
            label = f", such as {label_names[0]!r}" if len(label_names) else ""
            raise InputError(
                f"none of its {len(self.names):,} concepts{such} is one of the {len(label_names):,} labels{label}: "
                "label names must equal a concept's id, its title, the last part of its URI or its notation.",
                path=self.path,
            )
        return found

    def pairs(self, label_names: Sequence[str]) -> list[tuple[int | str, int | str]]:
        """Return the pairs (child, parent) with label ids for the concepts that are labels; see `match`.

        Where a label is several concepts, those with children stay concepts, with the label as a child of each.

        Raises
        ------
        InputError
            If no concept is a label.
        """
        found = self.match(label_names)
        repeated = np.bincount(found[found >= 0])[found] > 1
        repeated &= (found >= 0) & np.isin(np.arange(len(found)), self.parents[:, 1])
        concepts: list[int | str] = [
            name if label < 0 or is_node else label
            for name, label, is_node in zip(self.names, found.tolist(), repeated.tolist(), strict=True)
        ]
        pairs = [(concepts[child], concepts[parent]) for child, parent in self.parents.tolist()]
        pairs += [(int(found[node]), self.names[node]) for node in np.flatnonzero(repeated)]
        return list(dict.fromkeys(pairs))


def read_hierarchy(path: str | os.PathLike[str], *, language: str = "en") -> Hierarchy:
    """Read a thesaurus or label tree from a plain or compressed file (.gz, .xz, .zst).

    The form follows from the suffix, or else from the first bytes:

    - Pairs (.tsv, .csv): child and parent per line, separated by a tab, comma or semicolon. A header ``child``,
      ``parent`` is skipped; a concept without a parent is at the top.
    - JSON (.json): ``{"name": ..., "children": [...]}``, nested, with ``id`` in place of ``name`` or beside it, where a
      child may be just a name; or a list of these; or ``{child: parent, child: [parents]}``; or
      ``[[child, parent], ...]``.
    - JSON lines of annotated rows, ``{"labels": [...], "labels_all": [...]}``, where the second list also has all
      concepts above the first. Concepts above a label are those above it in all of its rows, if it has at least five.
    - SKOS in RDF/XML (.rdf, .xml, .owl), N-Triples (.nt) or Turtle (.ttl), by ``skos:broader`` and ``skos:narrower``. A
      scheme is above those of its top concepts that have nothing broader.

    Parameters
    ----------
    path : path-like
    language : str
        Language of the titles in SKOS; preferred labels without a language come next, then those in any other.

    Raises
    ------
    InputError
        If the file is not in one of these forms or has a cycle; with the line, except for JSON.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "towns.json")
    >>> _ = path.write_text('{"name": "Italy", "children": ["Rome", "Venice"]}')
    >>> read_hierarchy(path).pairs(["Rome", "Venice"])
    [(0, 'Italy'), (1, 'Italy')]
    """
    if not isinstance(language, str):
        raise InputError(f"The language of titles must be a code such as 'en', got {language!r}.")
    builder = _Builder(path)
    form = _form(path)
    if form == "pairs":
        builder.add_pairs()
    elif form == "json":
        builder.add_json()
    elif form == "rows":
        builder.add_rows()
    else:
        builder.add_skos(form, language.lower())  # type: ignore[arg-type]
    return builder.hierarchy()


@dataclass
class _Builder:
    """Concepts and pairs of one file, gathered by the reader of its form."""

    path: str | os.PathLike[str]
    numbers: dict[str, int] = field(default_factory=dict)
    titles: dict[int, str] = field(default_factory=dict)
    notations: dict[int, str] = field(default_factory=dict)
    pairs: dict[tuple[int, int], int | None] = field(default_factory=dict)  # with the first line of each

    def number(self, name: str) -> int:
        return self.numbers.setdefault(name, len(self.numbers))

    def add(self, child: str, parent: str, line: int | None = None) -> None:
        if child == parent:
            raise InputError(cycle_reason([child, child]), path=self.path, line=line)
        self.pairs.setdefault((self.number(child), self.number(parent)), line)

    def hierarchy(self) -> Hierarchy:
        if not self.pairs:
            raise InputError("has no concept with a parent: it is not a hierarchy.", path=self.path)
        names = tuple(self.numbers)
        parents = np.array(list(self.pairs), np.int32).reshape(-1, 2)
        cycle = find_cycle(parents, len(names))
        if cycle:
            lines = [line for pair in pairwise(cycle) if (line := self.pairs[pair]) is not None]
            raise InputError(
                cycle_reason([names[number] for number in cycle]), path=self.path, line=max(lines, default=None)
            )
        numbers = range(len(names))
        notations = tuple(map(self.notations.get, numbers)) if self.notations else ()
        return Hierarchy(names, tuple(map(self.titles.get, numbers)), parents, notations, os.fspath(self.path))

    def add_pairs(self) -> None:
        is_first = True
        for line, child, parent in iter_pairs(self.path, "a child and its parent", second_optional=True):
            is_header = is_first and (child.casefold(), parent.casefold()) in _HEADERS
            is_first = False
            if parent and not is_header:
                self.add(child, parent, line)
            elif not is_header:
                self.number(child)

    def add_rows(self) -> None:
        above: dict[str, set[str]] = {}
        n_rows: Counter[str] = Counter()
        for line, text in enumerate(read_text(self.path).split("\n"), 1):
            if not text.strip():
                continue
            try:
                row = json.loads(text)
                labels, closed = (set(map(self.name, _listed(row[key]))) for key in ("labels", "labels_all"))
            except (ValueError, KeyError, TypeError, RecursionError):
                raise InputError(
                    "must be a JSON object with lists 'labels' and 'labels_all' of names.", path=self.path, line=line
                ) from None
            n_rows.update(labels)
            for name in labels:
                above[name] = above.get(name, closed) & closed - labels
        for name, parents in above.items():
            for parent in sorted(parents) if n_rows[name] >= _MIN_ROWS else ():
                self.add(name, parent)

    def add_json(self) -> None:
        try:
            found = json.loads(read_text(self.path), object_pairs_hook=self.without_duplicates)
        except InputError:
            raise
        except json.JSONDecodeError as error:
            raise InputError(
                f"is not JSON: {error.msg.removesuffix(' at')}.", path=self.path, line=error.lineno
            ) from None
        except RecursionError:
            raise InputError("is nested too deeply: give pairs of child and parent.", path=self.path) from None
        except ValueError:  # an integer of thousands of digits
            raise InputError("has an integer with too many digits: shorten it.", path=self.path) from None
        if isinstance(found, list) and not any(isinstance(item, dict) for item in found):
            for pair in found:
                if not isinstance(pair, list) or len(pair) != 2:
                    raise InputError(f"{_NO_HIERARCHY}; got {_short(pair)}.", path=self.path)
                self.add(self.name(pair[0]), self.name(pair[1]))
        elif isinstance(found, list) or _is_nested(found):
            self.add_nested(found if isinstance(found, list) else [found])
        elif isinstance(found, dict):
            for child, above in found.items():
                self.number(self.name(child))
                for parent in above if isinstance(above, list) else [] if above is None else [above]:
                    self.add(self.name(child), self.name(parent))
        else:
            raise InputError(f"{_NO_HIERARCHY}.", path=self.path)

    def add_nested(self, tops: list[Any]) -> None:
        waiting: list[tuple[Any, str | None]] = [(top, None) for top in reversed(tops)]
        while waiting:
            node, parent = waiting.pop()
            if not isinstance(node, dict):
                node = {"name": node}
            children = [] if node.get("children") is None else node["children"]
            if not isinstance(children, list):
                raise InputError(
                    f'has {_short(children)} for "children", which must be a list: give '
                    '{"name": ..., "children": [...]} or [[child, parent], ...].',
                    path=self.path,
                )
            if not ("name" in node or "id" in node):
                raise InputError(f'{_NO_HIERARCHY}; got {_short(node)}, without "name" or "id".', path=self.path)
            name = self.name(node["id"] if "id" in node else node["name"])
            number = self.number(name)
            if "id" in node and "name" in node:
                self.titles.setdefault(number, self.name(node["name"]))
            if parent is not None:
                self.add(name, parent)
            waiting += [(child, name) for child in reversed(children)]

    def add_skos(self, syntax: Syntax, language: str) -> None:
        schemes: list[tuple[str, str, int]] = []
        ranks: dict[int, int] = {}
        for subject, about, value, spoken, line in read_statements(self.path, syntax):
            if about == "broader":
                self.add(subject, value, line)
            elif about == "narrower":
                self.add(value, subject, line)
            elif about == "topConceptOf":
                schemes.append((subject, value, line))
            elif about == "hasTopConcept":
                schemes.append((value, subject, line))
            elif about == "notation":
                self.notations.setdefault(self.number(subject), value.strip())
            else:
                number = self.number(subject)
                rank = 0 if spoken == language or spoken.startswith(language + "-") else 2 if spoken else 1
                if rank < ranks.get(number, 3):
                    ranks[number], self.titles[number] = rank, value.strip()
        if not (self.numbers or schemes):
            raise InputError("has no SKOS concepts: it is not a thesaurus.", path=self.path)
        have_parents = {child for child, _ in self.pairs}
        for child, scheme, line in schemes:
            if self.number(child) not in have_parents:
                self.add(child, scheme, line)

    def name(self, value: Any) -> str:
        """Return a name or an integer of a JSON file as text."""
        if isinstance(value, bool) or not isinstance(value, str | int) or not str(value).strip():
            raise InputError(f"{_NO_HIERARCHY}; got {_short(value)} for a name.", path=self.path)
        return str(value).strip()

    def without_duplicates(self, items: Iterable[tuple[str, Any]]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, value in items:
            if key in result:
                raise InputError(f"has {key!r} twice in one object: give a list of its parents.", path=self.path)
            result[key] = value
        return result


def _form(path: str | os.PathLike[str]) -> str:
    named = _FORMS.get(os.path.splitext(split_suffix(path)[0])[1].lower())
    with ByteReader(path) as stream:
        head = stream.read(1 << 16) or b""
    start = re.sub(rb"\A(?:\s+|#[^\n]*)+", b"", head.removeprefix(b"\xef\xbb\xbf"))
    if not start:
        raise InputError("is empty: it must have pairs of child and parent, JSON or SKOS.", path=path)
    key = rb'"labels_all"\s*:' if named == "json" else rb'"labels(_all)?"\s*:'
    if start.startswith(b"{") and re.search(key, start.partition(b"\n")[0]):
        return "rows"
    if named is not None:
        return named
    if start[:1] in b"{[":
        return "json"
    if re.match(rb"@?(?:prefix|base)\s", start, re.IGNORECASE):
        return "turtle"
    if re.match(rb"(?:<[^<>\s]*>|_:\S+)\s+<", start):
        return "ntriples"
    return "xml" if start.startswith(b"<") else "pairs"


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError
    return value


def _is_nested(node: Any) -> bool:
    """Return whether JSON is meant as a concept with its children, well-formed or not."""
    if not isinstance(node, dict):
        return False
    return node.keys() <= _NODE_KEYS or ("children" in node and ("name" in node or "id" in node))


def _short(value: Any) -> str:
    return truncated(json.dumps(value, ensure_ascii=False))

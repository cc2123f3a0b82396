"""A thesaurus or label tree as people have it: which concept stands under which, and which of them are labels."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from longtail.corpus.matching import last_part, match_concepts, unescaped
from longtail.corpus.skos import Form, read_statements
from longtail.corpus.streams import ByteReader, split_suffix
from longtail.errors import InputError

Path = str | os.PathLike[str]

_FORMS = {
    ".tsv": "pairs", ".csv": "pairs", ".tab": "pairs", ".json": "json", ".rdf": "xml", ".xml": "xml", ".owl": "xml",
    ".nt": "ntriples", ".ttl": "turtle", ".turtle": "turtle", ".n3": "turtle",
}  # fmt: skip
_HEADERS = (("child", "parent"), ("narrower", "broader"))
_NO_HIERARCHY = (
    'is JSON, but no hierarchy: give {"name": ..., "children": [...]}, {child: parent or [parents]} or '
    "[[child, parent], ...]"
)
# What people call the parts of a nested hierarchy: an object with such keys alone is not read as {child: parent}.
_NODE_KEYS = {
    "name", "id", "children", "parent", "parents", "title", "label", "text", "key", "value", "uri", "url", "type",
    "kind", "size", "count", "description", "broader", "narrower", "nodes", "items",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Hierarchy:
    """Concepts and what stands under what.

    Attributes
    ----------
    names : tuple of str
        Id of each concept: the URI in SKOS, else what the file calls it.
    titles : tuple of (str or None)
        What people call each concept: the preferred label in SKOS, the name beside an id in JSON.
    parents : ndarray of int32, shape (m, 2)
        Pairs (child, parent) of places in `names`. A concept may have several parents; the first one comes first.
    notations : tuple of (str or None)
        Codes of the concepts, which SKOS may have; empty where there are none.
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
    parents: npt.NDArray[np.int32]
    notations: tuple[str | None, ...] = ()
    path: str | None = None

    def match(self, label_names: Sequence[str]) -> npt.NDArray[np.int32]:
        """Find the label that each concept is.

        A concept is the label that has its id as a name; or its title; or the last part of its id, where that is a URI
        (what follows the last ``#``, ``/`` or, in a URN, ``:``), as it is or with its percent signs read; or its
        notation. These are tried one after the other, first letter by letter, then in Unicode's composed form (NFC),
        then without regard to case; there, a name that differs from another by that alone is passed over. A concept is
        one label at most. A label may be several concepts, where it fits these equally well: two of one title, say.

        For labels without names, give their ids as text.

        Parameters
        ----------
        label_names : sequence of str
            A name for each label id.

        Returns
        -------
        ndarray of int32, shape (len(names),)
            Label ids, -1 for concepts that are no label.
        """
        parts = [last_part(name) for name in self.names]
        keys = (self.names, self.titles, parts, [unescaped(part) for part in parts], self.notations)
        found = match_concepts(keys, label_names, self.path)
        if found is None:
            raise InputError(self._nothing_found(label_names), path=self.path)
        return found

    def pairs(self, label_names: Sequence[str]) -> list[tuple[int | str, int | str]]:
        """Give the pairs (child, parent) with the ids of labels for concepts that are labels, and other ids as text.

        `match` says which concept is which label. Where a label is several concepts, those of them with others under
        them stay concepts, with the label under each; so the label stands under the parents of all, and what is under
        one of them stays there.

        Parameters
        ----------
        label_names : sequence of str
            A name for each label id.

        Returns
        -------
        list of pairs of (int or str)
            In the order of `parents`.

        Raises
        ------
        InputError
            If no concept is a label.
        """
        found = self.match(label_names)
        repeated = np.bincount(found[found >= 0])[found] > 1
        repeated &= (found >= 0) & np.isin(np.arange(len(found)), self.parents[:, 1])
        nodes = repeated.tolist()
        concepts: list[int | str] = [
            name if label < 0 or is_node else label
            for name, label, is_node in zip(self.names, found.tolist(), nodes, strict=True)
        ]
        pairs = [(concepts[child], concepts[parent]) for child, parent in self.parents.tolist()]
        pairs += [(int(found[node]), self.names[node]) for node in np.flatnonzero(repeated)]
        return list(dict.fromkeys(pairs))

    def _nothing_found(self, label_names: Sequence[str]) -> str:
        title = self.titles[0] if self.titles else None
        such = f", such as {self.names[0]!r}" + (f" ({title!r})" if title else "") if self.names else ""
        label = f", such as {label_names[0]!r}" if len(label_names) else ""
        return (
            f"none of its {len(self.names):,} concepts{such} is one of the {len(label_names):,} labels{label}: "
            "labels must be called by a concept's id, its title, the last part of its URI or its notation."
        )


def read_hierarchy(path: Path, *, language: str = "en") -> Hierarchy:
    """Read a thesaurus or label tree, plain or compressed (.gz, .xz, .zst).

    The form is told by the name, and by the first bytes where the name says nothing:

    - Pairs (.tsv, .csv): child and parent on each line, with a tab, comma or semicolon between. A first line ``child``,
      ``parent`` is passed over; no parent means that there is nothing above.
    - JSON (.json): ``{"name": ..., "children": [...]}``, nested, where ``id`` may stand for ``name`` or beside it, and
      a child may be a mere name; or a list of those; or ``{child: parent, child: [parents]}``; or
      ``[[child, parent], ...]``.
    - SKOS in RDF/XML (.rdf, .xml, .owl), N-Triples (.nt) or Turtle (.ttl). ``skos:broader`` and ``skos:narrower`` make
      the hierarchy. A scheme stands above those of its top concepts that have nothing broader.

    Parameters
    ----------
    path : path-like
    language : str
        Language of the titles in SKOS. A concept without a preferred label in it is called by one without a language,
        or else by the first one.

    Returns
    -------
    Hierarchy

    Raises
    ------
    InputError
        With the file and, but for JSON, the line: a file in no such form, a concept that is its own parent, concepts
        that go round in a circle.

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
    form = _form(path)
    concepts = _Concepts(path)
    if form == "pairs":
        _read_pairs(concepts, path)
    elif form == "json":
        _read_json(concepts, path)
    else:
        _read_skos(concepts, path, form, language.lower())  # type: ignore[arg-type]
    return concepts.hierarchy()


def find_circle(parents: npt.NDArray[np.integer[Any]], n_concepts: int) -> list[int]:
    """Look for concepts that stand under themselves, through others or not.

    Parameters
    ----------
    parents : ndarray of int, shape (m, 2)
        Pairs (child, parent).
    n_concepts : int

    Returns
    -------
    list of int
        Concepts each of which stands under the next, the last being the first; empty if there is no such circle.

    Examples
    --------
    >>> find_circle(np.array([(0, 1), (1, 2), (2, 1)]), 3)
    [1, 2, 1]
    """
    own = np.flatnonzero(parents[:, 0] == parents[:, 1])
    if len(own):
        return [int(parents[own[0], 0])] * 2
    up = sp.csr_array((np.ones(len(parents), np.int8), parents.T), shape=(n_concepts, n_concepts))
    n_parts, part = sp.csgraph.connected_components(up, directed=True, connection="strong")
    if n_parts == n_concepts:
        return []
    concept = int((np.bincount(part)[part] > 1).argmax())
    place: dict[int, int] = {}
    while concept not in place:  # in a part of several concepts, each has a parent of the same part
        place[concept] = len(place)
        above = up.indices[up.indptr[concept] : up.indptr[concept + 1]]
        concept = int(above[part[above] == part[concept]][0])
    return [*list(place)[place[concept] :], concept]


def shown_circle(circle: Sequence[object]) -> str:
    """Write a circle of concepts for a message, cut short where it is long.

    Examples
    --------
    >>> shown_circle(["Rome", "Italy", "Rome"])
    "'Rome' under 'Italy' under 'Rome'"
    """
    return " under ".join([*map(repr, circle[:7]), *(["..."] if len(circle) > 7 else [])])


@dataclass
class _Concepts:
    """What readers fill."""

    path: Path
    places: dict[str, int] = field(default_factory=dict)
    titles: dict[int, str] = field(default_factory=dict)
    notations: dict[int, str] = field(default_factory=dict)
    pairs: dict[tuple[int, int], int | None] = field(default_factory=dict)  # and the line where each stands first

    def place(self, name: str) -> int:
        return self.places.setdefault(name, len(self.places))

    def add(self, child: str, parent: str, line: int | None = None) -> None:
        if child == parent:
            raise InputError(f"{child!r} is its own parent: remove that.", path=self.path, line=line)
        self.pairs.setdefault((self.place(child), self.place(parent)), line)

    def hierarchy(self) -> Hierarchy:
        if not self.pairs:
            raise InputError("has nothing that stands under anything: it is no hierarchy.", path=self.path)
        names = tuple(self.places)
        parents = np.array(list(self.pairs), np.int32).reshape(-1, 2)
        circle = find_circle(parents, len(names))
        if circle:
            lines = [self.pairs[pair] for pair in pairwise(circle)]
            raise InputError(
                f"goes round in a circle, {shown_circle([names[place] for place in circle])}: remove one of these.",
                path=self.path,
                line=max((line for line in lines if line is not None), default=None),
            )
        places = range(len(names))
        return Hierarchy(
            names,
            tuple(self.titles.get(place) for place in places),
            parents,
            tuple(self.notations.get(place) for place in places) if self.notations else (),
            os.fspath(self.path),
        )


def _form(path: Path) -> str:
    named = _FORMS.get(os.path.splitext(split_suffix(path)[0])[1].lower())
    with ByteReader(path) as stream:
        head = stream.read(1 << 16) or b""
    start = re.sub(rb"\A(?:\s+|#[^\n]*)+", b"", head.removeprefix(b"\xef\xbb\xbf"))
    if not start:
        raise InputError("is empty: it must say which concept stands under which.", path=path)
    if named is not None:
        return named
    if start[:1] in b"{[":
        return "json"
    if re.match(rb"@?(?:prefix|base)\s", start, re.IGNORECASE):
        return "turtle"
    if re.match(rb"(?:<[^<>\s]*>|_:\S+)\s+<", start):
        return "ntriples"
    return "xml" if start.startswith(b"<") else "pairs"


def read_text(path: Path) -> str:
    """Text of a UTF-8 file, compressed or not; a byte order mark is dropped."""
    with ByteReader(path) as stream:
        data = stream.readall()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError("is not UTF-8: convert the file.", path=path, line=line) from None


def _read_pairs(concepts: _Concepts, path: Path) -> None:
    is_first = True
    for line, cells in _cells(read_text(path), path):
        if len(cells) != 2 or not cells[0]:
            raise InputError(
                "must be a child and its parent with a tab, comma or semicolon between; a name with such a mark in it "
                "stands in quotes.",
                path=path,
                line=line,
            )
        child, parent = cells
        is_header = is_first and (child.casefold(), parent.casefold()) in _HEADERS
        is_first = False
        if is_header:
            continue
        if parent:
            concepts.add(child, parent, line)
        else:
            concepts.place(child)


def _cells(text: str, path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of each line that is not blank; quotes mean nothing between tabs."""
    lines = text.replace("\r\n", "\n").split("\n")
    first = next((line for line in lines if line.strip()), "")
    if "\t" in first:
        rows: Iterable[tuple[int, list[str]]] = ((line, row.split("\t")) for line, row in enumerate(lines, 1))
    else:
        by_commas = "," in first and not (";" in first and _are_pairs(_reader(lines, ";")))
        rows = _numbered(_reader(lines, "," if by_commas else ";"), path)
    for line, row in rows:
        cells = [cell.strip() for cell in row]
        if any(cells):
            yield line, cells


def _reader(lines: Sequence[str], mark: str) -> Any:
    return csv.reader((line + "\n" for line in lines), delimiter=mark, skipinitialspace=True, strict=True)


def _are_pairs(reader: Any) -> bool:
    """Whether every line has two cells, or none."""
    try:
        return all(len(row) == 2 or not any(cell.strip() for cell in row) for row in reader)
    except csv.Error:
        return False


def _numbered(reader: Any, path: Path) -> Iterator[tuple[int, list[str]]]:
    try:
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:
        raise InputError(f"can't be read: {error}.", path=path, line=reader.line_num) from None


def _read_json(concepts: _Concepts, path: Path) -> None:
    try:
        found = json.loads(read_text(path), object_pairs_hook=_without_twins)
    except json.JSONDecodeError as error:
        raise InputError(f"is no JSON: {error.msg}.", path=path, line=error.lineno) from None
    except _TwinError as error:
        raise InputError(f"has {error.args[0]!r} twice in one object: give a list of its parents.", path=path) from None
    except RecursionError:
        raise InputError("is nested too deeply: give pairs of child and parent.", path=path) from None
    if isinstance(found, list) and not any(isinstance(one, dict) for one in found):
        for pair in found:
            if not isinstance(pair, list) or len(pair) != 2:
                raise InputError(f"{_NO_HIERARCHY}; got {_shown(pair)}.", path=path)
            concepts.add(_named(pair[0], path), _named(pair[1], path))
    elif isinstance(found, list) or _is_nested(found):
        _read_nested(concepts, found if isinstance(found, list) else [found], path)
    elif isinstance(found, dict):
        for child, above in found.items():
            concepts.place(_named(child, path))
            for parent in above if isinstance(above, list) else [] if above is None else [above]:
                concepts.add(_named(child, path), _named(parent, path))
    else:
        raise InputError(f"{_NO_HIERARCHY}.", path=path)


class _TwinError(Exception):
    pass


def _without_twins(items: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(items)
    if len(result) < len(items):
        seen: set[str] = set()
        raise _TwinError(next(key for key, _ in items if key in seen or seen.add(key)))  # type: ignore[func-returns-value]
    return result


def _is_nested(node: Any) -> bool:
    """Whether an object is meant for a concept with what is under it, well-formed or not."""
    if not isinstance(node, dict):
        return False
    return node.keys() <= _NODE_KEYS or ("children" in node and ("name" in node or "id" in node))


def _read_nested(concepts: _Concepts, tops: list[Any], path: Path) -> None:
    waiting: list[tuple[Any, str | None]] = [(top, None) for top in reversed(tops)]
    while waiting:
        node, parent = waiting.pop()
        if not isinstance(node, dict):
            node = {"name": node}
        below = node.get("children")
        below = [] if below is None else below
        if not isinstance(below, list):
            raise InputError(
                f'has {_shown(below)} for "children", which must be a list: give {{"name": ..., "children": [...]}} '
                "or [[child, parent], ...].",
                path=path,
            )
        if not ("name" in node or "id" in node):
            raise InputError(f'{_NO_HIERARCHY}; got {_shown(node)}, without "name" or "id".', path=path)
        name = _named(node["id"] if "id" in node else node["name"], path)
        place = concepts.place(name)
        if "id" in node and "name" in node:
            concepts.titles.setdefault(place, _named(node["name"], path))
        if parent is not None:
            concepts.add(name, parent)
        waiting += [(child, name) for child in reversed(below)]


def _named(value: Any, path: Path) -> str:
    """Take a name or a number as an id."""
    if isinstance(value, bool) or not isinstance(value, str | int) or not str(value).strip():
        raise InputError(f"{_NO_HIERARCHY}; got {_shown(value)} for a name.", path=path)
    return str(value).strip()


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."


def _read_skos(concepts: _Concepts, path: Path, form: Form, language: str) -> None:
    schemes: list[tuple[str, str, int]] = []
    ranks: dict[int, int] = {}
    for subject, about, value, spoken, line in read_statements(path, form):
        if about == "broader":
            concepts.add(subject, value, line)
        elif about == "narrower":
            concepts.add(value, subject, line)
        elif about == "topConceptOf":
            schemes.append((subject, value, line))
        elif about == "hasTopConcept":
            schemes.append((value, subject, line))
        elif about == "notation":
            concepts.notations.setdefault(concepts.place(subject), value.strip())
        else:
            place = concepts.place(subject)
            rank = 0 if spoken == language or spoken.startswith(language + "-") else 2 if spoken else 1
            if rank < ranks.get(place, 3):
                ranks[place], concepts.titles[place] = rank, value.strip()
    if not (concepts.places or schemes):
        raise InputError("has no SKOS concepts: it is no thesaurus.", path=path)
    have_parents = {child for child, _ in concepts.pairs}
    for child, scheme, line in schemes:
        if concepts.place(child) not in have_parents:
            concepts.add(child, scheme, line)

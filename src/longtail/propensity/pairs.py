"""Files of pairs, such as child and parent: label names or ids, two on a line with a tab between."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from longtail.corpus.streams import ByteReader
from longtail.errors import InputError

_MIN_ROWS = 5


class LabelIds:
    """Turns names or ids of labels, as a file has them, into ids; what is no label gets ids after the labels.

    A thesaurus has more terms than a data set has labels, and terms that are no label may still stand between two that
    are.

    Parameters
    ----------
    n_labels : int
    label_names : sequence of str, optional
        Without names the file must have ids, from 0 to `n_labels` - 1.

    Attributes
    ----------
    n_nodes : int
        Labels, and what was found beside them.

    Examples
    --------
    >>> ids = LabelIds(2, ["Italy", "Rome"])
    >>> ids.pairs([("Rome", "Italy"), ("Italy", "Europe")])
    array([[1, 0],
           [0, 2]])
    >>> ids.n_nodes
    3
    """

    def __init__(self, n_labels: int, label_names: Sequence[str] | None = None) -> None:
        self.n_labels = n_labels
        self._names: dict[str, int] = {}
        self._ambiguous: set[str] = set()
        for label, name in enumerate(label_names or ()):
            if self._names.setdefault(name, label) != label:
                self._ambiguous.add(name)
        self._others: dict[str, int] = {}
        self._label_names = label_names

    @property
    def n_nodes(self) -> int:
        """Labels, and what was found beside them."""
        return self.n_labels + len(self._others)

    @property
    def names(self) -> list[str]:
        """What to call each of them: its name, or the id of a label without one."""
        return [*(self._label_names or map(str, range(self.n_labels))), *self._others]

    def read(self, path: str | os.PathLike[str]) -> npt.NDArray[np.int64]:
        """Read the pairs of a file, plain or compressed, in the order in which they stand.

        Each line has two names or ids with a tab between. Or each line is a JSON object that stands for a row, with
        ``labels``, the terms that it was given, and ``labels_all``, those and all terms above them. In that form the
        ancestors of a term are those that stand above the terms of each row that has it, where there are five such
        rows or more.

        Returns
        -------
        ndarray of int64, shape (m, 2)
        """
        lines = _lines(path)
        if any(line.lstrip().startswith("{") for line in lines[:1]):
            return self.pairs(_pairs_of_closed_rows(lines, path), path=path)
        pairs: list[tuple[str, str]] = []
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            parts = line.split("\t")
            if len(parts) != 2 or not all(part.strip() for part in parts):
                raise InputError("must be two names or ids with a tab between.", path=path, line=number)
            pairs.append((parts[0].strip(), parts[1].strip()))
        return self.pairs(pairs, path=path)

    def pairs(
        self, pairs: Sequence[tuple[str, str]], *, path: str | os.PathLike[str] | None = None
    ) -> npt.NDArray[np.int64]:
        """Turn pairs of names or ids into pairs of ids; names it is if any of them is a label's name."""
        terms = dict.fromkeys(term for pair in pairs for term in pair)
        named = any(term in self._names for term in terms)
        if not named and not any(term.isdecimal() and int(term) < self.n_labels for term in terms):
            known = "names or ids" if self._names else f"ids, from 0 to {self.n_labels - 1},"
            raise InputError(f"has no pair with a label of the data: use the {known} of its labels.", path=path)
        ids = {term: self._id(term, named, path) for term in terms}
        return np.array([(ids[left], ids[right]) for left, right in pairs], np.int64).reshape(-1, 2)

    def _id(self, term: str, named: bool, path: str | os.PathLike[str] | None) -> int:
        if named and term in self._ambiguous:
            raise InputError(f"{term!r} is the name of several labels: give pairs of ids.", path=path)
        if named and term in self._names:
            return self._names[term]
        if not named and term.isdecimal():
            if int(term) < self.n_labels:
                return int(term)
            raise InputError(f"has {term}, and labels have ids from 0 to {self.n_labels - 1}.", path=path)
        return self._others.setdefault(term, self.n_nodes)


def _lines(path: str | os.PathLike[str]) -> list[str]:
    with ByteReader(path) as stream:
        data = stream.readall()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError("is not UTF-8: convert the file.", path=path, line=line) from None
    lines = text.replace("\r\n", "\n").split("\n")
    if not any(map(str.strip, lines)):
        raise InputError("is empty: it must have a pair on each line.", path=path)
    return lines


def _pairs_of_closed_rows(lines: Iterable[str], path: str | os.PathLike[str]) -> list[tuple[str, str]]:
    above: dict[str, set[str]] = {}
    rows_of_term: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        given, closed = _terms(line, path, number)
        inner = closed - given
        for term in given:
            above[term] = above[term] & inner if term in above else set(inner)
            rows_of_term[term] = rows_of_term.get(term, 0) + 1
    return [
        (term, ancestor)
        for term, ancestors in above.items()
        if rows_of_term[term] >= _MIN_ROWS
        for ancestor in sorted(ancestors)
    ]


def _terms(line: str, path: str | os.PathLike[str], number: int) -> tuple[set[str], set[str]]:
    try:
        record: Any = json.loads(line)
        given, closed = ({str(term) for term in record[key]} for key in ("labels", "labels_all"))
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InputError(
            "must be a JSON object with lists 'labels' and 'labels_all'.", path=path, line=number
        ) from None
    return given, closed

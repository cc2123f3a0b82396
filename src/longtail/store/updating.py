"""Rows that come to a finished model: their labels by its ids, and which earlier rows they replace."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail.corpus.dataset import Dataset
from longtail.errors import InputError


class LabelIds:
    """Ids of a model's labels, and of those that come after them.

    Parameters
    ----------
    names : list of str or None
        Names of the model's labels; None for a model that has ids alone.
    n_labels : int
    """

    def __init__(self, names: list[str] | None, n_labels: int) -> None:
        self.n_known = self._n_labels = n_labels
        self._ids = None if names is None else {name: number for number, name in enumerate(names)}

    @property
    def named(self) -> bool:
        """Whether the labels have names."""
        return self._ids is not None

    @property
    def n_labels(self) -> int:
        """Labels so far."""
        return self._n_labels if self._ids is None else len(self._ids)

    @property
    def new_names(self) -> list[str]:
        """Names of the labels that the model doesn't know."""
        return [] if self._ids is None else list(self._ids)[self.n_known :]

    def id_of(self, name: str) -> int | None:
        """Id of a label that has one."""
        return None if self._ids is None else self._ids.get(name)

    def of(self, dataset: Dataset) -> sp.csr_array:
        """Labels of a data set by these ids; those that any row has and that are new are given ids."""
        theirs, Y = dataset.label_names, dataset.Y
        if self._ids is None or theirs is None:
            if dataset.n_labels < self.n_known or (self._ids is not None and dataset.n_labels > self.n_known):
                raise InputError(
                    f"The data set has {dataset.n_labels} labels and the model {self.n_known}, and they can't be "
                    "matched without names: give rows with the labels of its training data."
                )
            self._n_labels = max(self._n_labels, dataset.n_labels)
            return Y
        ids = np.full(len(theirs), -1, np.int32)
        for label in np.unique(Y.indices).tolist():
            ids[label] = self._ids.setdefault(theirs[label], len(self._ids))
        matched = sp.csr_array((Y.data, ids[Y.indices], Y.indptr), shape=(dataset.n_rows, len(self._ids)))
        matched.sort_indices()
        return matched


def replaced_rows(train: Dataset, rows: Dataset) -> list[list[int]]:
    """Numbers of the earlier rows that each new row replaces.

    Those with its id, where any has it; else those with the same text, or without texts with the same features.
    """
    by_text = train.texts is not None and rows.texts is not None
    by_id, by_content = _places(train.row_ids or ()), _places(_keys(train, by_text))
    by_id.pop("", None)
    names = rows.row_ids or [""] * rows.n_rows
    return [
        by_id[name] if name in by_id else by_content.get(key, [])
        for name, key in zip(names, _keys(rows, by_text), strict=True)
    ]


def check_ids(rows: Dataset) -> None:
    """Refuse rows of which two have the same id: which of them is right?"""
    seen: set[str] = set()
    for name in filter(None, rows.row_ids or ()):
        if name in seen:
            raise InputError(f"Two of the rows have the id {name!r}: leave one of them.")
        seen.add(name)


def unknown_rejections(rows: Dataset, ids: LabelIds) -> list[str]:
    """Names that rows reject and no label has, each once: most likely a slip of the pen."""
    rejected = dict.fromkeys(name for names in rows.rejected or () for name in names)
    return [name for name in rejected if ids.id_of(name) is None]


def labels_to_learn(
    rows: Dataset,
    ids: LabelIds,
    train: Dataset | None,
    replaced: list[list[int]],
    decide: Callable[[Dataset], sp.csr_array],
) -> sp.csr_array:
    """Labels of the new rows.

    A row that only rejects labels says nothing of the others: these are those of the rows that it replaces, or where it
    replaces none those that `decide` gives it.
    """
    Y = ids.of(rows)
    if rows.rejected is None:
        return Y
    if any(rows.rejected) and not ids.named:
        raise InputError("The model's labels have no names, so what rows reject can't be matched: leave it out.")
    labels = [set(Y.indices[Y.indptr[row] : Y.indptr[row + 1]].tolist()) for row in range(rows.n_rows)]
    for row, names in enumerate(rows.rejected):
        if labels[row] or not names:
            continue
        known = ids.of(train.take(replaced[row])) if train is not None and replaced[row] else decide(rows.take([row]))
        labels[row] = set(known.indices.tolist()) - {ids.id_of(name) for name in names}
    indptr = np.cumsum([0, *(len(own) for own in labels)])
    indices = np.array([label for own in labels for label in sorted(own)], np.int32)
    return sp.csr_array((np.ones(len(indices), np.float32), indices, indptr), shape=(rows.n_rows, ids.n_labels))


def widened(Y: sp.csr_array, n_labels: int) -> sp.csr_array:
    """Labels with as many columns as there are ids."""
    return sp.csr_array((Y.data, Y.indices, Y.indptr), shape=(Y.shape[0], n_labels))


def _places(keys: Iterable[Hashable]) -> dict[Hashable, list[int]]:
    places: dict[Hashable, list[int]] = {}
    for number, key in enumerate(keys):
        places.setdefault(key, []).append(number)
    return places


def _keys(dataset: Dataset, by_text: bool) -> list[Hashable]:
    if by_text and dataset.texts is not None:
        return list(dataset.texts)
    X: Any = dataset.X
    if X is None:
        raise InputError("The earlier rows are texts and the new ones are not, or the other way: give both alike.")
    parts = np.array_split
    cuts = X.indptr[1:-1]
    return [(a.tobytes(), b.tobytes()) for a, b in zip(parts(X.indices, cuts), parts(X.data, cuts), strict=True)]

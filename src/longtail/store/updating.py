"""Rows that come to a finished model: their labels by its ids, and which earlier rows they replace."""

from __future__ import annotations

from collections.abc import Hashable
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
    def n_labels(self) -> int:
        """Labels so far."""
        return self._n_labels if self._ids is None else len(self._ids)

    @property
    def new_names(self) -> list[str]:
        """Names of the labels that the model doesn't know."""
        return [] if self._ids is None else list(self._ids)[self.n_known :]

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


def without_replaced(train: Dataset, rows: Dataset) -> Dataset:
    """Earlier rows but for those that come again: with the same text, or without texts with the same features."""
    by_text = train.texts is not None and rows.texts is not None
    again = set(_keys(rows, by_text))
    kept = np.array([key not in again for key in _keys(train, by_text)])
    return train if kept.all() else train.take(kept)


def widened(Y: sp.csr_array, n_labels: int) -> sp.csr_array:
    """Labels with as many columns as there are ids."""
    return sp.csr_array((Y.data, Y.indices, Y.indptr), shape=(Y.shape[0], n_labels))


def _keys(dataset: Dataset, by_text: bool) -> list[Hashable]:
    if by_text and dataset.texts is not None:
        return list(dataset.texts)
    X: Any = dataset.X
    if X is None:
        raise InputError("The earlier rows are texts and the new ones are not, or the other way: give both alike.")
    parts = np.array_split
    cuts = X.indptr[1:-1]
    return [(a.tobytes(), b.tobytes()) for a, b in zip(parts(X.indices, cuts), parts(X.data, cuts), strict=True)]

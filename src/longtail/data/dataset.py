"""Data sets: rows of features or texts, and their labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail.data.label_index import LabelIndex
from longtail.data.sparse import as_indicator, as_rows, chosen_rows, column_counts
from longtail.errors import InputError, ParameterError
from longtail.kernels.types import Int64
from longtail.validation import as_list

_ROWS = "must be a sequence of row ids or a mask"


@dataclass(init=False, repr=False, eq=False)
class Dataset:
    """Rows with their labels, and with features, texts and names where the source has them.

    Parameters
    ----------
    X : matrix of shape (n_rows, n_features) or None
        Features, in any form that numpy or scipy can convert to a matrix; None for texts alone.
    Y : matrix of shape (n_rows, n_labels)
        Labels; non-zero means present.
    label_names : sequence of str, optional
        Name of each label.
    texts : sequence of str, optional
        Text of each row.
    label_texts : sequence of str, optional
        A longer text about each label.
    name : str, optional
        Name of the data set, for reports.
    row_ids : sequence of str, optional
        Id of each row, "" for none: an update replaces the earlier row with the same id.
    rejected : sequence of sequences of str, optional
        Names of the labels that each row is known not to have, for an update.

    Examples
    --------
    >>> data = Dataset([[0, 1.5], [2, 0]], [[1, 0, 1], [0, 0, 1]], name="toy")
    >>> data
    Dataset('toy': 2 rows, 2 features, 3 labels, 1.50 labels per row)
    >>> data.label_counts
    array([1, 0, 2])
    >>> data.take([1]).n_rows
    1
    """

    X: sp.csr_array | None
    Y: sp.csr_array
    label_names: list[str] | None
    texts: list[str] | None
    label_texts: list[str] | None
    name: str | None
    row_ids: list[str] | None
    rejected: list[list[str]] | None

    def __init__(
        self,
        X: Any,
        Y: Any,
        label_names: Sequence[str] | None = None,
        texts: Sequence[str] | None = None,
        label_texts: Sequence[str] | None = None,
        name: str | None = None,
        *,
        row_ids: Sequence[str] | None = None,
        rejected: Sequence[Sequence[str]] | None = None,
    ) -> None:
        if Y is None:
            raise InputError("A data set needs labels (Y): give a matrix without labels where none are known.")
        self.Y = as_indicator(Y)
        self.X = None if X is None else as_rows(X)
        self.name = name
        if self.X is not None and self.X.shape[0] != self.n_rows:
            raise InputError(
                f"X has {self.X.shape[0]} rows and Y has {self.n_rows}: both must have the same rows in the same order."
            )
        self.texts = _checked(texts, "texts", self.n_rows, "rows")
        self.label_names = _checked(label_names, "label_names", self.n_labels, "labels")
        self.label_texts = _checked(label_texts, "label_texts", self.n_labels, "labels")
        self.row_ids = _checked(row_ids, "row_ids", self.n_rows, "rows")
        self.rejected = _rejected(rejected, self.n_rows)
        if self.X is None and self.texts is None:
            raise InputError("A data set needs features (X) or texts: give one of them.")

    @property
    def n_rows(self) -> int:
        """Number of rows, with or without labels."""
        return int(self.Y.shape[0])

    @property
    def n_labels(self) -> int:
        """Number of labels, with or without rows."""
        return int(self.Y.shape[1])

    @property
    def n_features(self) -> int | None:
        """Number of features, None for texts alone."""
        return None if self.X is None else int(self.X.shape[1])

    @property
    def labels(self) -> LabelIndex:
        """Names and ids of the labels."""
        return LabelIndex(self.label_names, self.n_labels)

    @property
    def label_counts(self) -> Int64:
        """Number of rows that have each label."""
        return column_counts(self.Y)

    def take(self, rows: Any) -> Dataset:
        """Return some rows, given by ids in any order or by a boolean mask; label ids and names stay the same."""
        try:
            ids = np.asarray(rows)
        except ValueError:  # of different lengths
            raise ParameterError("rows", rows, _ROWS) from None
        if ids.dtype == bool:
            if ids.shape != (self.n_rows,):
                raise ParameterError("rows", ids.shape, f"must be a mask with one value for each of {self.n_rows} rows")
            ids = np.flatnonzero(ids)
        ids = ids.astype(np.int64) if ids.size == 0 else ids
        if ids.ndim != 1 or ids.dtype.kind not in "iu":
            raise ParameterError("rows", rows, _ROWS)
        if ids.size and (ids.min() < 0 or ids.max() >= self.n_rows):
            outside = int(ids.min() if ids.min() < 0 else ids.max())
            raise ParameterError("rows", outside, f"must hold row ids from 0 to {self.n_rows - 1}")
        return Dataset(
            None if self.X is None else chosen_rows(self.X, ids),
            self.Y[ids],
            label_names=self.label_names,
            texts=None if self.texts is None else [self.texts[row] for row in ids],
            label_texts=self.label_texts,
            name=self.name,
            row_ids=None if self.row_ids is None else [self.row_ids[row] for row in ids],
            rejected=None if self.rejected is None else [self.rejected[row] for row in ids],
        )

    def __len__(self) -> int:
        return self.n_rows

    def __repr__(self) -> str:
        parts = [f"{self.n_rows:,} rows"]
        if self.n_features is not None:
            parts.append(f"{self.n_features:,} features")
        if self.texts is not None:
            parts.append("texts")
        parts.append(f"{self.n_labels:,} labels" + (" with names" if self.label_names is not None else ""))
        parts.append(f"{self.Y.nnz / max(self.n_rows, 1):.2f} labels per row")
        return f"Dataset({f'{self.name!r}: ' if self.name else ''}{', '.join(parts)})"


def _checked(values: Sequence[str] | None, name: str, size: int, what: str) -> list[str] | None:
    if values is None:
        return None
    if isinstance(values, str):
        raise InputError(f"{name} is one string: give a sequence with one for each of the {size} {what}.")
    result = list(values)
    if len(result) != size:
        raise InputError(f"{name} has {len(result)} entries, but there are {size} {what}: give one for each.")
    wrong = next((value for value in result if not isinstance(value, str)), None)
    if wrong is not None:
        raise InputError(f"{name} must hold strings, got {wrong!r}.")
    return [str(value) for value in result]


def _rejected(rejected: Sequence[Sequence[str]] | None, n_rows: int) -> list[list[str]] | None:
    if rejected is None:
        return None
    rows = as_list(rejected)
    if rows is None or len(rows) != n_rows:
        held = "is no sequence" if rows is None else f"has {len(rows)} entries"
        raise InputError(f"rejected {held}, but there are {n_rows} rows: give a sequence of names for each.")
    for names in rows:
        listed = as_list(names)
        if listed is None or not all(isinstance(name, str) for name in listed):
            raise InputError(f"rejected must hold a sequence of names for each row, got {names!r}.")
    return [list(names) for names in rows]

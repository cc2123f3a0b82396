"""Rows for an update of a model: their labels by its ids, and the earlier rows that they replace."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail.data.dataset import Dataset
from longtail.data.label_index import LabelIndex
from longtail.errors import InputError


def replaced_rows(train: Dataset, rows: Dataset) -> list[list[int]]:
    """Return the earlier rows that each new row replaces.

    These are the rows with its id; if there are none, those with the same text, or with the same features if the rows
    are not texts.
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
    """Refuse rows with repeated ids."""
    seen: set[str] = set()
    for name in filter(None, rows.row_ids or ()):
        if name in seen:
            raise InputError(f"Two of the rows have the id {name!r}: remove one of them.")
        seen.add(name)


def labels_of_update(
    rows: Dataset,
    labels: LabelIndex,
    train: Dataset | None,
    replaced: list[list[int]],
    predict: Callable[[Dataset], sp.csr_array],
) -> sp.csr_array:
    """Return the labels to learn for the new rows; new labels are added to `labels`.

    A row that only rejects labels gives no information about the others: these are the labels of the rows that it
    replaces or, where it replaces none, those that `predict` returns.
    """
    Y = labels.align(rows.Y, rows.label_names, extend=True)
    if rows.rejected is None:
        return Y
    if any(rows.rejected) and labels.names is None:
        raise InputError("The model's labels have no names, so what rows reject can't be matched: leave it out.")
    own = [set(Y.indices[Y.indptr[row] : Y.indptr[row + 1]].tolist()) for row in range(rows.n_rows)]
    for row, names in enumerate(rows.rejected):
        if own[row] or not names:
            continue
        if train is not None and replaced[row]:
            known = labels.align(train.take(replaced[row]).Y, train.label_names, extend=True)
        else:
            known = predict(rows.take([row]))
        own[row] = set(known.indices.tolist()) - {labels.get(name) for name in names}
    indptr = np.cumsum([0, *map(len, own)])
    indices = np.array([label for found in own for label in sorted(found)], np.int32)
    return sp.csr_array((np.ones(len(indices), np.float32), indices, indptr), shape=(rows.n_rows, len(labels)))


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
        raise InputError(
            "Either the earlier or the new rows are texts and the others are not: use the same kind of rows."
        )
    parts = np.array_split
    cuts = X.indptr[1:-1]
    return [(a.tobytes(), b.tobytes()) for a, b in zip(parts(X.indices, cuts), parts(X.data, cuts), strict=True)]

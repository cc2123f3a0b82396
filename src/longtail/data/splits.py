"""Split a data set into train and test."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail.data.dataset import Dataset
from longtail.errors import InputError
from longtail.kernels.types import Flags, Int64
from longtail.validation import SEED, Number, check


def random_split(dataset: Dataset, *, test_size: float = 0.2, random_state: int = 0) -> tuple[Dataset, Dataset]:
    """Split a data set at random; rows keep their order on both sides, and each side has at least one.

    Parameters
    ----------
    dataset : Dataset
    test_size : float
        Share of the rows in test, between 0 and 1.
    random_state : int
        Seed.

    Returns
    -------
    train, test : Dataset

    Examples
    --------
    >>> data = Dataset(np.eye(5), np.eye(5))
    >>> train, test = random_split(data, test_size=0.4)
    >>> train.n_rows, test.n_rows
    (3, 2)
    """
    n_test, order = _plan(dataset, test_size, random_state)
    in_test = np.zeros(dataset.n_rows, bool)
    in_test[order[:n_test]] = True
    return dataset.take(~in_test), dataset.take(in_test)


def iterative_split(dataset: Dataset, *, test_size: float = 0.2, random_state: int = 0) -> tuple[Dataset, Dataset]:
    """Split a data set so that rare labels reach both sides; same parameters and result as `random_split`.

    Rows are assigned label by label, the label with the fewest unassigned rows first, each to the side where the label
    is furthest below its share (Sechidis, Tsoumakas and Vlahavas 2011). A label with two rows or more gets at least one
    on each side if possible; a label with a single row is in train unless another label of that row is needed in test.
    The number of test rows is exact.

    Examples
    --------
    >>> rare = np.repeat(np.eye(5), 2, axis=0)  # five labels with two rows each
    >>> train, test = iterative_split(Dataset(rare, rare), test_size=0.5)
    >>> train.label_counts, test.label_counts
    (array([1, 1, 1, 1, 1]), array([1, 1, 1, 1, 1]))
    """
    in_test = iterative_rows(dataset, test_size=test_size, random_state=random_state)
    return dataset.take(~in_test), dataset.take(in_test)


def iterative_rows(dataset: Dataset, *, test_size: float, random_state: int) -> Flags:
    """Return a mask of the rows that `iterative_split` puts into test."""
    from longtail.data.split_kernels import assign_rows

    n_test, order = _plan(dataset, test_size, random_state)
    shuffled = dataset.Y[order]
    by_label = sp.csc_array(shuffled)
    counts = dataset.label_counts
    to_test = np.where(counts > 1, np.clip(counts * test_size, 1, np.maximum(counts - 1, 1)), counts * test_size)
    in_test = np.zeros(dataset.n_rows, bool)
    in_test[order] = assign_rows(
        shuffled.indptr.astype(np.int64),
        shuffled.indices,
        by_label.indptr.astype(np.int64),
        by_label.indices,
        np.ascontiguousarray(np.column_stack([to_test, counts - to_test])),
        n_test,
    )
    return in_test


def _plan(dataset: Dataset, test_size: Any, seed: Any) -> tuple[int, Int64]:
    """Check the parameters; return the number of test rows and a random order of all rows."""
    check("test_size", test_size, Number(above=0, below=1))
    check("random_state", seed, SEED)
    if dataset.n_rows < 2:
        raise InputError(f"A data set of {dataset.n_rows} row(s) can't be split: it needs at least two.")
    n_test = min(max(round(dataset.n_rows * float(test_size)), 1), dataset.n_rows - 1)
    return n_test, np.random.default_rng(seed).permutation(dataset.n_rows)

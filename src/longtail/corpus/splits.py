"""Cutting a data set into train and test."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from longtail.corpus.dataset import Dataset
from longtail.errors import InputError, ParameterError


def random_split(dataset: Dataset, *, test_share: float = 0.2, seed: int = 0) -> tuple[Dataset, Dataset]:
    """Cut a data set in two at random; rows keep their order on both sides.

    Parameters
    ----------
    dataset : Dataset
    test_share : float
        Share of the rows that goes to test, between 0 and 1; at least one row stays on each side.
    seed : int
        The same seed gives the same split.

    Returns
    -------
    train, test : Dataset

    Examples
    --------
    >>> data = Dataset(np.eye(5), np.eye(5))
    >>> random_split(data, test_share=0.4)
    (Dataset(3 rows, 5 features, 5 labels, 1.00 labels a row), Dataset(2 rows, 5 features, 5 labels, 1.00 labels a row))
    """
    n_test, order = _plan(dataset, test_share, seed)
    in_test = np.zeros(dataset.n_rows, bool)
    in_test[order[:n_test]] = True
    return dataset.take(~in_test), dataset.take(in_test)


def iterative_split(dataset: Dataset, *, test_share: float = 0.2, seed: int = 0) -> tuple[Dataset, Dataset]:
    """Cut a data set in two so that rare labels reach both sides; rows keep their order on both sides.

    Rows are dealt out label by label, the label with the fewest open rows first, each to the side where that label is
    furthest below its share (Sechidis, Tsoumakas and Vlahavas 2011). A label with two rows or more wants at least one
    on each side; a label with a single row is in train unless another label of that row needs it in test. The number
    of test rows is kept exactly.

    Parameters
    ----------
    dataset : Dataset
    test_share : float
        Share of the rows, and of the rows of each label, that goes to test, between 0 and 1.
    seed : int
        The same seed gives the same split.

    Returns
    -------
    train, test : Dataset

    Examples
    --------
    >>> rare = np.repeat(np.eye(5), 2, axis=0)  # five labels with two rows each
    >>> train, test = iterative_split(Dataset(rare, rare), test_share=0.5)
    >>> train.label_counts, test.label_counts
    (array([1, 1, 1, 1, 1]), array([1, 1, 1, 1, 1]))
    """
    in_test = iterative_rows(dataset, test_share=test_share, seed=seed)
    return dataset.take(~in_test), dataset.take(in_test)


def iterative_rows(dataset: Dataset, *, test_share: float, seed: int) -> npt.NDArray[np.bool_]:
    """Which rows `iterative_split` puts into test."""
    from longtail.corpus.split_kernels import assign_rows

    n_test, order = _plan(dataset, test_share, seed)
    shuffled = dataset.Y[order]
    by_label = sp.csc_array(shuffled)
    counts = dataset.label_counts
    to_test = np.where(counts > 1, np.clip(counts * test_share, 1, np.maximum(counts - 1, 1)), counts * test_share)
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


def _plan(dataset: Dataset, test_share: Any, seed: Any) -> tuple[int, npt.NDArray[np.int64]]:
    """Check the parameters; give the number of test rows and a random order of all rows."""
    if isinstance(test_share, bool) or not isinstance(test_share, int | float | np.floating) or not 0 < test_share < 1:
        raise ParameterError("test_share", test_share, "must be a number between 0 and 1")
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ParameterError("seed", seed, "must be a whole number of at least 0")
    if dataset.n_rows < 2:
        raise InputError(f"A data set of {dataset.n_rows} row(s) can't be split: it needs two at least.")
    n_test = min(max(round(dataset.n_rows * float(test_share)), 1), dataset.n_rows - 1)
    return n_test, np.random.default_rng(seed).permutation(dataset.n_rows)

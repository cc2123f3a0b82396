"""Propensities from substitutes: the items bought together out of those that could have been."""

from __future__ import annotations

from typing import Any

import numpy as np

from longtail.config import own_jobs
from longtail.data.sparse import as_indicator, column_counts
from longtail.errors import InputError
from longtail.kernels.types import Int64, UInt8
from longtail.propensity.kernels import count_substitutes
from longtail.propensity.points import Average, PropensityPoints
from longtail.runtime.pool import blocks_of, run_blocks

_BLOCK_LABELS = 1 << 14


def estimate_from_substitutes(
    Y: Any,
    also_viewed: Any,
    also_bought: Any = None,
    *,
    labels_per_bin: int = 20,
    n_rows: int | None = None,
    average: Average = "labels",
    n_jobs: int | None = None,
) -> PropensityPoints:
    """Estimate propensities in item-to-item recommendation from items viewed as alternatives (Jain et al. 2016).

    If label l was bought along with the items B, it could have been bought along with any item viewed along with one
    of B. Its propensity is the size of B over the number of distinct items in B or viewed along with one of B. Labels
    are skipped if nothing is known to have been viewed along with an item of B.

    Parameters
    ----------
    Y : matrix, shape (n, n_labels)
        Recorded labels of the training rows, for the training counts.
    also_viewed : matrix, shape (n_items, m)
        Items viewed along with each item; an empty row means unknown. If the matrix is square, its columns are the same
        items, and each item counts as viewed along with itself.
    also_bought : matrix, shape (n_labels, n_items), optional
        Items that each label was bought along with. By default the rows of `Y` are the items, and a label was bought
        along with the rows that have it.
    labels_per_bin, n_rows, n_jobs
        See `estimate_from_hierarchy`.
    average : {"labels", "rows"}
        What has equal weight in a bin: each label, as in the paper, or each item it could have been bought with.

    Returns
    -------
    PropensityPoints
        Its `fit` estimates A and B.

    Examples
    --------
    The label was bought along with the first of three items, which was viewed along with the second:

    >>> estimate_from_substitutes([[1], [0], [0]], [[0, 1, 0], [1, 0, 0], [0, 0, 1]]).propensities
    array([0.5])
    """
    truth, viewed = as_indicator(Y), as_indicator(also_viewed, name="also_viewed")
    n_labels, n_items = truth.shape[1], viewed.shape[0]
    bought = as_indicator(truth.T if also_bought is None else also_bought, name="also_bought")
    if bought.shape != (n_labels, n_items):
        wanted = "a row for each row of Y" if also_bought is None else "a row for each column of also_bought"
        raise InputError(
            f"also_viewed has {n_items} rows, and also_bought has shape {bought.shape} for {n_labels} labels: "
            f"also_viewed must have {wanted}, and also_bought a row for each label."
        )
    with own_jobs(n_jobs):
        possible = _possible(bought, viewed)
    if not (possible > 0).any():
        raise InputError("No label has views of all items that it was bought along with: give more of also_viewed.")
    return PropensityPoints.from_labels(
        column_counts(truth),
        hits=np.minimum(np.diff(bought.indptr), np.maximum(possible, 0)),
        support=np.maximum(possible, 0),
        n_rows=truth.shape[0] if n_rows is None else n_rows,
        labels_per_bin=labels_per_bin,
        average=average,
    )


def _possible(bought: Any, viewed: Any) -> Int64:
    """Return the number of distinct items each label could have been bought along with, -1 where it is not known."""
    n_labels, (n_items, n_columns) = bought.shape[0], viewed.shape
    indptr, viewed_indptr = bought.indptr.astype(np.int64), viewed.indptr.astype(np.int64)
    possible = np.zeros(n_labels, np.int64)

    def work(block: range, stop: UInt8) -> None:
        marks = np.full(n_columns, -1, np.int32)
        ends, out = indptr[block.start : block.stop + 1], possible[block.start : block.stop]
        count_substitutes(ends, bought.indices, viewed_indptr, viewed.indices, n_items == n_columns, marks, out)

    blocks = blocks_of(n_labels, _BLOCK_LABELS)
    for _ in run_blocks(work, blocks, description="counting substitutes", unit="labels", size=len):
        pass
    return possible

"""Propensities from items that can stand for each other: what was bought together, out of what could have been."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from longtail.corpus.sparse import as_indicator
from longtail.engine.pool import run_blocks
from longtail.errors import InputError
from longtail.propensity.kernels import count_substitutes
from longtail.propensity.points import Average, PropensityPoints

_BLOCK_LABELS = 1 << 14


def estimate_from_substitutes(
    Y: Any,
    also_viewed: Any,
    also_bought: Any = None,
    *,
    labels_per_bin: int = 20,
    n_rows: int | None = None,
    average: Average = "labels",
    threads: int | None = None,
) -> PropensityPoints:
    """Estimate propensities in item-to-item recommendation, where people look at what could take an item's place.

    Suppose that item l was bought along with the items B, and that each of them was viewed along with others. Then l
    could have been bought with any of those too: its propensity is the number of items in B over the number of distinct
    items in B or viewed along with one of B. Labels are used only if for each item of B it is known what was viewed
    along with it.

    Parameters
    ----------
    Y : matrix, shape (n, n_labels)
        Recorded labels of the training rows; they give the training counts.
    also_viewed : matrix, shape (n_items, m)
        Items viewed along with each item; a row without entries means that nothing is known. Where it is square, rows
        and columns are the same items, and each item stands for itself too, as it should. Otherwise an item stands for
        itself only if its own row says so.
    also_bought : matrix, shape (n_labels, n_items), optional
        Items that each label was bought along with. Without it the rows of Y are the items (row i of `also_viewed`
        belongs to row i of Y), and a label was bought along with the rows that have it.
    labels_per_bin : int
        Labels of similar frequency that are averaged over.
    n_rows : int, optional
        Training rows, if there are more than Y has.
    average : {"labels", "rows"}
        Whether each label of a bin counts the same, as in the paper, or each item that it could have been bought with.
    threads : int, optional
        All cores by default.

    Returns
    -------
    PropensityPoints
        `PropensityPoints.fit` fits A and B to them.

    References
    ----------
    Jain, Prabhu, Varma: Extreme Multi-label Loss Functions for Recommendation, Tagging, Ranking & Other Missing Label
    Applications. KDD 2016, section 5, on Amazon.

    Examples
    --------
    The label was bought along with the first of three items. People who looked at that one looked at the second:

    >>> estimate_from_substitutes([[1], [0], [0]], [[0, 1, 0], [1, 0, 0], [0, 0, 1]]).propensities
    array([0.5])
    """
    truth, viewed = as_indicator(Y), as_indicator(also_viewed, name="also_viewed")
    n_labels, n_items = truth.shape[1], viewed.shape[0]
    bought = as_indicator(truth.T if also_bought is None else also_bought, name="also_bought")
    if bought.shape != (n_labels, n_items):
        wanted = "a row for each row of Y" if also_bought is None else "a row for each column of also_bought"
        raise InputError(
            f"also_viewed has {n_items} rows, and what {n_labels} labels were bought along with has shape "
            f"{bought.shape}: also_viewed must have {wanted}, and also_bought a row for each label."
        )
    possible = _possible(bought, viewed, threads)
    if not (possible > 0).any():
        raise InputError("For no label is it known what was viewed along with all items it was bought with: give more.")
    return PropensityPoints.from_labels(
        np.bincount(truth.indices, minlength=n_labels),
        hits=np.minimum(np.diff(bought.indptr), np.maximum(possible, 0)),
        support=np.maximum(possible, 0),
        n_rows=truth.shape[0] if n_rows is None else n_rows,
        labels_per_bin=labels_per_bin,
        average=average,
    )


def _possible(bought: Any, viewed: Any, threads: int | None) -> npt.NDArray[np.int64]:
    """Distinct items that each label could have been bought along with, -1 where that is not known."""
    n_labels, (n_items, n_columns) = bought.shape[0], viewed.shape
    indptr, viewed_indptr = bought.indptr.astype(np.int64), viewed.indptr.astype(np.int64)
    possible = np.zeros(n_labels, np.int64)

    def work(block: tuple[int, int], stop: npt.NDArray[np.uint8]) -> None:
        marks = np.full(n_columns, -1, np.int32)
        count_substitutes(
            indptr[block[0] : block[1] + 1],
            bought.indices,
            viewed_indptr,
            viewed.indices,
            n_items == n_columns,
            marks,
            possible[block[0] : block[1]],
        )

    blocks = list(pairwise([*range(0, n_labels, _BLOCK_LABELS), n_labels]))
    for _ in run_blocks(
        work,
        blocks,
        threads=threads,
        description="counting substitutes",
        unit="labels",
        size=lambda block: block[1] - block[0],
    ):
        pass
    return possible

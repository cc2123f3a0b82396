"""Propensities from a label hierarchy: a row with a label should also have its ancestors."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any, Literal, get_args

import numpy as np
import scipy.sparse as sp

from longtail.config import own_jobs
from longtail.data.concept_pairs import HIERARCHY, NO_PAIRS, numbered_pairs
from longtail.data.hierarchy import Hierarchy
from longtail.data.sparse import as_indicator, column_counts, with_columns
from longtail.errors import InputError
from longtail.kernels.types import Int64, UInt8
from longtail.propensity.kernels import count_implied
from longtail.propensity.points import Average, PropensityPoints
from longtail.runtime.pool import blocks_of, run_blocks
from longtail.validation import Integer, OneOf, check

Cases = Literal["descendants", "union"]

_BLOCK_ROWS = 1 << 16


def estimate_from_hierarchy(
    Y: Any,
    parents: Hierarchy | Any,
    *,
    min_descendants: int = 5,
    labels_per_bin: int = 20,
    n_rows: int | None = None,
    cases: Cases = "descendants",
    average: Average = "labels",
    label_names: Sequence[str] | None = None,
    n_jobs: int | None = None,
) -> PropensityPoints:
    """Estimate the propensity of a label from the rows with one of its descendants, which should have the label too.

    This is the method of Jain et al. 2016, section 5; see `JainPropensity`.

    Parameters
    ----------
    Y : matrix, shape (n, n_labels)
        Recorded labels of the training rows.
    parents : Hierarchy, or iterable of pairs
        A hierarchy, as `read_hierarchy` reads it from a file, whose concepts are matched with `label_names`; or pairs
        (child, parent) of label ids (integers) and other concepts (strings), as `Hierarchy.pairs` returns them. A label
        may have several parents, and pairs may repeat.
    min_descendants : int
        Labels with fewer recorded descendants are skipped. The paper uses 5.
    labels_per_bin : int
        Labels of similar frequency to average over.
    n_rows : int, optional
        Training rows, if there are more than in `Y`.
    cases : {"descendants", "union"}
        ``"descendants"``: the share of rows with a descendant that also have the label; unbiased if the label and its
        descendants go missing independently. ``"union"``: the rows with the label over the rows with the label or a
        descendant, as in the paper's example, 10 / (10 + 45). If a share d of the rows for which the label is true has
        a recorded descendant, its expectation is p / (p + (1 - p) d), which is above p unless d is 1.
    average : {"labels", "rows"}
        What has equal weight in a bin: each label, as in the paper, or each row.
    label_names : sequence of str, optional
        Names of the labels, to match a hierarchy and for messages; their ids by default.
    n_jobs : int, optional
        Number of threads.

    Returns
    -------
    PropensityPoints
        Its `fit` estimates A and B.

    Examples
    --------
    Three of four rows on some town of Italy are also recorded under Italy:

    >>> rows = [[1, 1, 0], [1, 0, 1], [1, 1, 1], [0, 0, 1]]  # Italy, Rome, Venice
    >>> estimate_from_hierarchy(rows, [(1, 0), (2, 0)], min_descendants=2).propensities
    array([0.75])
    """
    check("cases", cases, OneOf(*get_args(Cases)))
    check("min_descendants", min_descendants, Integer(1))
    truth = as_indicator(Y)
    up = upward(parents, truth.shape[1], label_names)
    n_labels = up.shape[0]
    truth = with_columns(truth, n_labels)
    counts = column_counts(truth)
    recorded = np.flatnonzero(counts).astype(np.int32)
    alone = sp.csr_array((np.ones(len(recorded)), recorded, np.arange(len(recorded) + 1)), (len(recorded), n_labels))
    with own_jobs(n_jobs):
        descendants, _ = _walk(alone, up, "counting descendants", "labels")
    parented = descendants >= min_descendants
    if not (parented & (counts > 0)).any():
        raise InputError(_nothing_to_estimate(descendants, counts, min_descendants))
    with own_jobs(n_jobs):
        support, hits = _walk(truth, up, "walking up the hierarchy", "rows")
    if cases == "union":
        support, hits = counts + support - hits, counts
    return PropensityPoints.from_labels(
        counts,
        hits=hits,
        support=np.where(parented, support, 0),
        n_rows=truth.shape[0] if n_rows is None else n_rows,
        labels_per_bin=labels_per_bin,
        average=average,
    )


def upward(parents: Hierarchy | Any, n_labels: int, label_names: Sequence[str] | None = None) -> sp.csr_array:
    """Return a hierarchy or its pairs (child, parent) as a matrix with a row per child, labels before other concepts.

    Raises
    ------
    InputError
        If there are no pairs with a label, an id is out of range or the hierarchy has a cycle.

    Examples
    --------
    >>> upward([(0, 1), (1, 0)], 2)
    Traceback (most recent call last):
    ...
    longtail.errors.InputError: The hierarchy contains a cycle, 0 under 1 under 0: remove one of these pairs.
    """
    check("parents", parents, HIERARCHY)
    concepts, pairs = numbered_pairs(parents, n_labels, label_names)
    if not concepts:
        raise InputError("The hierarchy has no pairs: give (child, parent) for each label that has a parent.")
    if all(isinstance(concept, str) for concept in concepts):
        raise InputError(NO_PAIRS)
    others = count(n_labels)
    columns = np.array([next(others) if isinstance(concept, str) else concept for concept in concepts], np.int32)
    n_concepts = next(others)
    children, above = columns[pairs].T
    up = sp.csr_array((np.ones(len(pairs), np.float32), (children, above)), shape=(n_concepts, n_concepts))
    up.sum_duplicates()
    return up


def _walk(rows: sp.csr_array, up: sp.csr_array, description: str, unit: str) -> tuple[Int64, Int64]:
    """Return the number of rows with a descendant of each label, and of those that have the label too."""
    n_labels = rows.shape[1]
    indptr, up_indptr = rows.indptr.astype(np.int64), up.indptr.astype(np.int64)
    indices, up_indices = rows.indices.astype(np.int32), up.indices.astype(np.int32)

    def work(block: range, stop: UInt8) -> Int64:
        marks, stack = np.full((3, n_labels), -1, np.int32), np.empty(n_labels, np.int32)
        found = np.zeros((2, n_labels), np.int64)
        count_implied(indptr[block.start : block.stop + 1], indices, up_indptr, up_indices, marks, stack, *found)
        return found

    total = np.zeros((2, n_labels), np.int64)
    blocks = blocks_of(rows.shape[0], _BLOCK_ROWS)
    for found in run_blocks(work, blocks, description=description, unit=unit, size=len):
        total += found
    return total[0], total[1]


def _nothing_to_estimate(descendants: Int64, counts: Int64, min_descendants: int) -> str:
    most = int(descendants[counts > 0].max(initial=0))
    parents = int((descendants >= min_descendants).sum())
    if parents and not most:
        return (
            f"No row has any of the {parents} labels with {min_descendants} or more descendants in the data, nor any "
            "other label above a recorded one: this hierarchy says nothing about propensities."
        )
    return (
        f"No recorded label has {min_descendants} or more descendants in the data, the most is {most}: lower "
        "min_descendants, or use another hierarchy."
    )

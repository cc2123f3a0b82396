"""Propensities from a label hierarchy: a row that has a label should have the label's ancestors too."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from longtail.corpus.sparse import as_indicator
from longtail.engine.pool import run_blocks
from longtail.errors import InputError, ParameterError
from longtail.propensity.kernels import count_implied
from longtail.propensity.points import Average, PropensityPoints, check_whole

Cases = Literal["descendants", "union"]

_BLOCK_ROWS = 1 << 16


def estimate_from_hierarchy(
    Y: Any,
    parents: Any,
    *,
    min_descendants: int = 5,
    labels_per_bin: int = 20,
    n_rows: int | None = None,
    cases: Cases = "descendants",
    average: Average = "labels",
    label_names: Sequence[str] | None = None,
    threads: int | None = None,
) -> PropensityPoints:
    """Estimate propensities from the rows that have a descendant of a label, and so should have the label itself.

    Nothing grows with the square of the labels: rows are walked up the hierarchy one by one.

    Parameters
    ----------
    Y : matrix, shape (n, n_labels)
        Recorded labels of the training rows.
    parents : array-like of int, shape (m, 2)
        Pairs (child, parent) of label ids. A label may have several parents; the ancestors of a label are its parents,
        their parents, and so on. A pair that stands twice counts once.
    min_descendants : int
        Estimate only for labels with at least so many descendants that some row has. The paper takes more than 4.
    labels_per_bin : int
        Labels of similar frequency that are averaged over.
    n_rows : int, optional
        Training rows, if there are more than Y has.
    cases : {"descendants", "union"}
        ``"descendants"``: the share of rows with a descendant that have the label too. It is unbiased where the label
        and its descendants go missing independently. ``"union"``: the rows with the label over those with the label or
        a descendant. This is the paper's example, 10 / (10 + 45). Where only a share d of the rows for which the label
        is true has a recorded descendant, its expectation is p / (p + (1 - p) d), too much unless d is 1.
    average : {"labels", "rows"}
        Whether each label of a bin counts the same, as in the paper, or each row.
    label_names : sequence of str, optional
        What to call the labels in messages, instead of their ids.
    threads : int, optional
        All cores by default.

    Returns
    -------
    PropensityPoints
        `PropensityPoints.fit` fits A and B to them.

    References
    ----------
    Jain, Prabhu, Varma: Extreme Multi-label Loss Functions for Recommendation, Tagging, Ranking & Other Missing Label
    Applications. KDD 2016, section 5.

    Examples
    --------
    Three of four rows on some town of Italy are also recorded under Italy:

    >>> rows = [[1, 1, 0], [1, 0, 1], [1, 1, 1], [0, 0, 1]]  # Italy, Rome, Venice
    >>> estimate_from_hierarchy(rows, [(1, 0), (2, 0)], min_descendants=2).propensities
    array([0.75])
    """
    if cases not in get_args(Cases):
        raise ParameterError("cases", cases, 'must be "descendants" or "union"')
    check_whole("min_descendants", min_descendants)
    truth = as_indicator(Y)
    n_labels = truth.shape[1]
    up = upward(parents, n_labels, label_names)
    counts = np.bincount(truth.indices, minlength=n_labels)
    recorded = np.flatnonzero(counts).astype(np.int32)
    alone = sp.csr_array((np.ones(len(recorded)), recorded, np.arange(len(recorded) + 1)), (len(recorded), n_labels))
    descendants, _ = _walk(alone, up, threads, "counting descendants", "labels")
    parented = descendants >= min_descendants
    if not (parented & (counts > 0)).any():
        raise InputError(_nothing_to_estimate(descendants, counts, min_descendants))
    support, hits = _walk(truth, up, threads, "walking up the hierarchy", "rows")
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


def upward(parents: Any, n_labels: int, label_names: Sequence[str] | None = None) -> sp.csr_array:
    """Check pairs (child, parent) and turn them into a matrix with a row for each child.

    Raises
    ------
    InputError
        With the pair: an id that is no label, a label that is its own parent, labels that go round in a circle.

    Examples
    --------
    >>> upward([(0, 1), (1, 0)], 2)
    Traceback (most recent call last):
    ...
    longtail.errors.InputError: The hierarchy goes round in a circle, 0 under 1 under 0: remove one of these pairs.
    """
    pairs = np.asarray(parents)
    if pairs.size == 0:
        raise InputError("The hierarchy has no pairs: give (child, parent) for each label that has a parent.")
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
        raise InputError("The hierarchy must be pairs (child, parent) of label ids, as whole numbers.")
    outside = ((pairs < 0) | (pairs >= n_labels)).any(axis=1)
    if outside.any():
        place = int(outside.argmax())
        child, parent = pairs[place].tolist()
        raise InputError(
            f"Pair {place} of the hierarchy is ({child}, {parent}), and labels have ids from 0 to {n_labels - 1}: "
            "leave out what is no label."
        )
    own = pairs[:, 0] == pairs[:, 1]
    if own.any():
        name = _called(int(pairs[own.argmax(), 0]), label_names)
        raise InputError(f"The hierarchy has label {name} as its own parent: remove that pair.")
    children, above = pairs.T.astype(np.int32)
    up = sp.csr_array((np.ones(len(pairs), np.float32), (children, above)), shape=(n_labels, n_labels))
    up.sum_duplicates()
    _check_circles(up, label_names)
    return up


def _called(label: int, label_names: Sequence[str] | None) -> str:
    return str(label) if label_names is None else repr(label_names[label])


def _check_circles(up: sp.csr_array, label_names: Sequence[str] | None) -> None:
    n_parts, part = sp.csgraph.connected_components(up, directed=True, connection="strong")
    if n_parts == up.shape[0]:
        return
    inside = np.bincount(part)[part] > 1
    label = int(inside.argmax())
    place: dict[int, int] = {}
    while label not in place:  # in a part of several labels, each has a parent of the same part
        place[label] = len(place)
        above = up.indices[up.indptr[label] : up.indptr[label + 1]]
        label = int(above[part[above] == part[label]][0])
    circle = [_called(one, label_names) for one in (*list(place)[place[label] :], label)]
    names = " under ".join(circle if len(circle) <= 8 else [*circle[:7], "..."])
    raise InputError(f"The hierarchy goes round in a circle, {names}: remove one of these pairs.")


def _walk(
    rows: sp.csr_array, up: sp.csr_array, threads: int | None, description: str, unit: str
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Rows with a descendant of each label, and those of them that have the label too."""
    n, n_labels = rows.shape
    indptr, up_indptr = rows.indptr.astype(np.int64), up.indptr.astype(np.int64)
    indices, up_indices = rows.indices.astype(np.int32), up.indices.astype(np.int32)
    blocks = [*range(0, n, _BLOCK_ROWS), n]

    def work(block: tuple[int, int], stop: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
        marks, stack = np.full((3, n_labels), -1, np.int32), np.empty(n_labels, np.int32)
        found = np.zeros((2, n_labels), np.int64)
        count_implied(indptr[block[0] : block[1] + 1], indices, up_indptr, up_indices, marks, stack, *found)
        return found

    total = np.zeros((2, n_labels), np.int64)
    for found in run_blocks(
        work,
        list(pairwise(blocks)),
        threads=threads,
        description=description,
        unit=unit,
        size=lambda block: block[1] - block[0],
    ):
        total += found
    return total[0], total[1]


def _nothing_to_estimate(
    descendants: npt.NDArray[np.int64], counts: npt.NDArray[np.int64], min_descendants: int
) -> str:
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

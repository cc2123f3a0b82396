"""The split of a node in FastXML: two groups of rows such that one ranking of the labels serves each group well.

Each side has a ranking of the labels, and a row gains ``gain[label] / log2(1 + rank)`` from each of its labels, divided
by the row's ideal gain (nDCG). Two steps alternate until the mean gain stops rising: rank the labels of each side by
the total gain of its rows, and assign each row to the side whose ranking gives it the larger gain.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from longtail.kernels.jit import kernel
from longtail.kernels.random import next_random
from longtail.kernels.types import Array, Float32, Float64, Int8, Int32, Int64, UInt64

_TOL = 1e-6
_MAX_ITER = 100
_INSERTION = 24


class Relevance(NamedTuple):
    """Labels of rows: CSR arrays, the gain of each label, and one over the ideal gain of each row."""

    indptr: Array
    indices: Int32
    gains: Float32
    inverse_ideals: Float32


@kernel
def ideal_gains(indptr: Array, indices: Int32, gains: Float32, out: Float32) -> None:
    """Set `out` to one over the gain of each row by its best ranking, 0 for rows without labels."""
    for row in range(out.shape[0]):
        mine = np.sort(gains[indices[indptr[row] : indptr[row + 1]]])
        total = 0.0
        for place in range(mine.shape[0]):
            total += mine[mine.shape[0] - 1 - place] / np.log2(place + 2.0)
        out[row] = 1 / total if total > 0 else 0.0


@kernel
def partition_rows(relevance: Relevance, rows: Int32, state: UInt64, slots: Int32, sides: Int8) -> Any:
    """Partition some rows in two, from a random start.

    Sets `sides` to 0 or 1 for each of `rows`, and returns the number of rows on side 1 and the mean gain per row.
    `slots`, of shape (labels,), is working memory, -1 before and after.
    """
    n = rows.shape[0]
    ends, places, present = _localised(relevance, rows, slots)
    n_present = present.shape[0]
    inverse = relevance.inverse_ideals[rows]
    sums, contributions = np.zeros((n_present, 2)), np.empty((n_present, 2), np.float32)
    gains = relevance.gains[present]
    order, column = np.empty(n_present, np.int64), np.empty(n_present)
    discounts = 1 / np.log2(np.arange(n_present) + 2.0)
    # Random sides.
    at = 0
    for row in range(n):
        sides[row] = np.int8(next_random(state) >> np.uint64(63))
        while at < ends[row]:
            sums[places[at], sides[row]] += gains[places[at]] * inverse[row]
            at += 1
    best, positive = -np.inf, 0
    for _ in range(_MAX_ITER):
        # Rank the labels of each side by their sums; `contributions` is what a label then adds to the gain of its rows.
        for side in range(2):
            column[:] = sums[:, side]
            _rank(column, order)
            for rank in range(n_present):
                contributions[order[rank], side] = discounts[rank] * gains[order[rank]]
        # Assign each row to its better side, and compute the sums of the next iteration.
        sums[:] = 0
        total, positive, at = 0.0, 0, 0
        for row in range(n):
            begin = at
            left = right = 0.0
            while at < ends[row]:
                left += contributions[places[at], 0]
                right += contributions[places[at], 1]
                at += 1
            if left != right:
                sides[row] = np.int8(right > left)
            for again in range(begin, at):
                sums[places[again], sides[row]] += gains[places[again]] * inverse[row]
            total += max(left, right) * inverse[row]
            positive += int(sides[row])
        if total / n - best < _TOL:
            break
        best = total / n
    return positive, best


@kernel
def _localised(relevance: Relevance, rows: Int32, slots: Int32) -> Any:
    """Renumber the labels of some rows: the end of each row, the new numbers, and the list of labels."""
    indptr, indices = relevance.indptr, relevance.indices
    # Where the labels of each row end.
    ends = np.empty(rows.shape[0], np.int64)
    total = 0
    for at in range(rows.shape[0]):
        total += indptr[rows[at] + 1] - indptr[rows[at]]
        ends[at] = total
    # Number the labels by first occurrence.
    places = np.empty(total, np.int32)
    present = np.empty(min(total, slots.shape[0]), np.int32)
    n_present = filled = 0
    for row in rows:
        for at in range(indptr[row], indptr[row + 1]):
            label = indices[at]
            if slots[label] < 0:
                slots[label] = n_present
                present[n_present] = label
                n_present += 1
            places[filled] = slots[label]
            filled += 1
    for at in range(n_present):
        slots[present[at]] = -1
    return ends, places, present[:n_present]


@kernel
def _rank(sums: Float64, order: Int64) -> None:
    """Sort positions by descending sums, stably: zeros last, the others by insertion or merge sort."""
    # Positive sums to the front, in their order; zeros behind them.
    n, filled = sums.shape[0], 0
    for place in range(n):
        if sums[place] > 0:
            order[filled] = place
            filled += 1
    rest = filled
    for place in range(n):
        if not sums[place] > 0:
            order[rest] = place
            rest += 1
    if filled <= _INSERTION:
        for at in range(1, filled):
            mover = order[at]
            to = at
            while to > 0 and sums[order[to - 1]] < sums[mover]:
                order[to] = order[to - 1]
                to -= 1
            order[to] = mover
    else:
        keys = np.empty(filled)
        for at in range(filled):
            keys[at] = -sums[order[at]]
        order[:filled] = order[:filled][np.argsort(keys, kind="mergesort")]

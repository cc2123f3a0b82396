"""Parting rows in two so that one ranking of labels serves each part well: the split of a node in FastXML.

Each side has a ranking of the labels, and a row gains ``gain[label] / log2(1 + rank)`` from each of its labels, divided
by the row's ideal. The best ranking of a side orders labels by what its rows would gain, the best side of a row is the
one whose ranking gains it more: both are found in turn, until the mean gain stops rising.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from longtail.engine.block_solver import next_random
from longtail.engine.jit import kernel

Float32 = npt.NDArray[np.float32]
Int32 = npt.NDArray[np.int32]

_LEAST_RISE = 1e-6
_MOST_ROUNDS = 100
_INSERTION = 24


class Relevance(NamedTuple):
    """Labels of rows: CSR arrays, the gain of each label, and one over the ideal of each row."""

    indptr: npt.NDArray[Any]
    indices: Int32
    gains: Float32
    inverse_ideals: Float32


@kernel
def ideal_gains(indptr: npt.NDArray[Any], indices: Int32, gains: Float32, out: Float32) -> None:
    """Set `out` to one over what the best ranking of all labels would gain each row, 0 for rows without labels."""
    for row in range(out.shape[0]):
        mine = np.sort(gains[indices[indptr[row] : indptr[row + 1]]])
        total = 0.0
        for place in range(mine.shape[0]):
            total += mine[mine.shape[0] - 1 - place] / np.log2(place + 2.0)
        out[row] = 1 / total if total > 0 else 0.0


@kernel
def part_rows(
    relevance: Relevance,
    rows: Int32,
    state: npt.NDArray[np.uint64],
    slots: Int32,
    sides: npt.NDArray[np.int8],
) -> Any:
    """Part some rows in two, from a random start.

    Parameters
    ----------
    relevance : Relevance
    rows : ndarray of int32
    state : ndarray of uint64, shape (1,)
        Of the random numbers.
    slots : ndarray of int32, shape (labels,)
        Working memory, -1 before and after.
    sides : ndarray of int8
        Set to the side of each of `rows`, 0 or 1.

    Returns
    -------
    (positive, gain)
        Rows on side 1, and the mean gain of a row.
    """
    n = rows.shape[0]
    ends, places, present = _localised(relevance, rows, slots)
    n_present = present.shape[0]
    inverse = relevance.inverse_ideals[rows]
    sums, worth = np.zeros((n_present, 2)), np.empty((n_present, 2), np.float32)
    gains = relevance.gains[present]
    order, column = np.empty(n_present, np.int64), np.empty(n_present)
    discounts = 1 / np.log2(np.arange(n_present) + 2.0)
    at = 0
    for row in range(n):
        sides[row] = np.int8(next_random(state) >> np.uint64(63))
        while at < ends[row]:
            sums[places[at], sides[row]] += gains[places[at]] * inverse[row]
            at += 1
    best, positive = -np.inf, 0
    for _ in range(_MOST_ROUNDS):
        for side in range(2):
            column[:] = sums[:, side]
            _rank(column, order)
            for rank in range(n_present):
                worth[order[rank], side] = discounts[rank] * gains[order[rank]]
        sums[:] = 0  # what the sides would gain after this round, found while rows choose
        total, positive, at = 0.0, 0, 0
        for row in range(n):
            begin = at
            left = right = 0.0
            while at < ends[row]:
                left += worth[places[at], 0]
                right += worth[places[at], 1]
                at += 1
            if left != right:
                sides[row] = np.int8(right > left)
            for again in range(begin, at):
                sums[places[again], sides[row]] += gains[places[again]] * inverse[row]
            total += max(left, right) * inverse[row]
            positive += int(sides[row])
        if total / n - best < _LEAST_RISE:
            break
        best = total / n
    return positive, best


@kernel
def _localised(relevance: Relevance, rows: Int32, slots: Int32) -> Any:
    """Labels of some rows as places in a list of those that occur: where each row ends, the places, and the list."""
    indptr, indices = relevance.indptr, relevance.indices
    ends = np.empty(rows.shape[0], np.int64)
    total = 0
    for at in range(rows.shape[0]):
        total += indptr[rows[at] + 1] - indptr[rows[at]]
        ends[at] = total
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
def _rank(sums: npt.NDArray[np.float64], order: npt.NDArray[np.int64]) -> None:
    """Order places by falling sums; equal ones, all zeros among them, as they come."""
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

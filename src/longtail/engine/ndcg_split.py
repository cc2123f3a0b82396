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
    indptr, indices, gains, inverse = (
        relevance.indptr,
        relevance.indices,
        relevance.gains,
        relevance.inverse_ideals,
    )
    n = rows.shape[0]
    present = np.empty(min(_count(indptr, rows), slots.shape[0]), np.int32)
    n_present = 0
    for row in rows:
        for at in range(indptr[row], indptr[row + 1]):
            if slots[indices[at]] < 0:
                slots[indices[at]] = n_present
                present[n_present] = indices[at]
                n_present += 1
    sums, worth = np.empty((2, n_present)), np.empty((2, n_present))
    order = np.empty(n_present, np.int64)
    discounts = 1 / np.log2(np.arange(n_present) + 2.0)
    for place in range(n):
        sides[place] = np.int8(next_random(state) >> np.uint64(63))
    best, positive = -np.inf, 0
    for _ in range(_MOST_ROUNDS):
        sums[:] = 0
        for place in range(n):
            row, side = rows[place], sides[place]
            for at in range(indptr[row], indptr[row + 1]):
                label = indices[at]
                sums[side, slots[label]] += gains[label] * inverse[row]
        for side in range(2):
            _rank(sums[side], order)
            for rank in range(n_present):
                worth[side, order[rank]] = discounts[rank] * gains[present[order[rank]]]
        total, positive = 0.0, 0
        for place in range(n):
            row = rows[place]
            left = right = 0.0
            for at in range(indptr[row], indptr[row + 1]):
                slot = slots[indices[at]]
                left += worth[0, slot]
                right += worth[1, slot]
            if left != right:
                sides[place] = np.int8(right > left)
            total += max(left, right) * inverse[row]
            positive += int(sides[place])
        if total / n - best < _LEAST_RISE:
            break
        best = total / n
    for at in range(n_present):
        slots[present[at]] = -1
    return positive, best


@kernel
def _count(indptr: npt.NDArray[Any], rows: Int32) -> Any:
    total = 0
    for row in rows:
        total += indptr[row + 1] - indptr[row]
    return total


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

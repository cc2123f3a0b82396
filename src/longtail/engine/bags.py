"""Kernels for embedding bags: sums of table rows over sparse rows, and steps of the table rows that were used.

Their cost follows the entries of a batch, never the size of a table.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from longtail.engine.jit import kernel, kernel_with

_FAST = {"reassoc", "contract", "nsz", "arcp"}
_DECAY, _SQUARE_DECAY, _FLOOR = np.float32(0.9), np.float32(0.999), np.float32(1e-8)


class Table(NamedTuple):
    """Trained rows with what Adam remembers of their gradients, each of shape (rows, width)."""

    values: npt.NDArray[np.float32]
    means: npt.NDArray[np.float32]
    squares: npt.NDArray[np.float32]

    @classmethod
    def begin(cls, values: npt.NDArray[np.float32]) -> Table:
        """Give a table that hasn't been trained."""
        return cls(values, np.zeros_like(values), np.zeros_like(values))


class Pace(NamedTuple):
    """How far a step goes: against the gradient if `growth` is 0, else by Adam, which both correct for its start."""

    rate: np.float32
    growth: np.float32

    @classmethod
    def of(cls, rate: float, turn: int, adam: bool = True) -> Pace:
        """Pace of step number `turn`, from 1 on."""
        if not adam:
            return cls(np.float32(rate), np.float32(0))
        return cls(
            np.float32(rate / (1 - np.float64(_DECAY) ** turn)), np.float32(1 / (1 - np.float64(_SQUARE_DECAY) ** turn))
        )


class Bags(NamedTuple):
    """Rows of a batch as CSR arrays."""

    indptr: npt.NDArray[np.int64]
    indices: npt.NDArray[np.int32]
    values: npt.NDArray[np.float32]


class ByFeature(NamedTuple):
    """The same entries by feature: those that occur, and of each the rows in `rows[begin[i]:begin[i + 1]]`."""

    features: npt.NDArray[np.int32]
    begin: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int32]
    values: npt.NDArray[np.float32]


@kernel
def draw_entries(
    indptr: npt.NDArray[Any],
    indices: npt.NDArray[np.int32],
    values: npt.NDArray[np.float32],
    rows: npt.NDArray[np.int64],
    keep: float,
    seed: Any,
    begin: npt.NDArray[np.int64],
    drawn: npt.NDArray[np.int32],
    weights: npt.NDArray[np.float32],
) -> Any:
    """Copy some rows, each entry with the probability `keep`; the number of entries that were kept.

    Parameters
    ----------
    indptr, indices, values
        All rows as CSR arrays.
    rows : ndarray of int64
        Which ones.
    keep : float
    seed : uint64, not 0
        Decides which entries are kept.
    begin, drawn, weights : arrays of the length of `rows` and one, and long enough for all entries
        The result.
    """
    state, threshold, at_most = np.uint64(seed), np.uint64(keep * 9007199254740992.0), keep >= 1
    count = 0
    begin[0] = 0
    for place in range(rows.shape[0]):
        for at in range(indptr[rows[place]], indptr[rows[place] + 1]):
            state ^= state << np.uint64(13)
            state ^= state >> np.uint64(7)
            state ^= state << np.uint64(17)
            if at_most or (state >> np.uint64(11)) < threshold:
                drawn[count] = indices[at]
                weights[count] = values[at]
                count += 1
        begin[place + 1] = count
    return count


@kernel
def count_occurring(bags: Any, counts: npt.NDArray[np.int64]) -> Any:
    """Add up in `counts`, which is 0 everywhere, how often each feature occurs; how many features do."""
    found = 0
    for at in range(bags.indptr[bags.indptr.shape[0] - 1]):
        feature = bags.indices[at]
        found += counts[feature] == 0
        counts[feature] += 1
    return found


@kernel
def sort_by_feature(bags: Any, counts: npt.NDArray[np.int64], out: Any) -> None:
    """Fill `out`, features in the order of their first occurrence, and set `counts` to 0 again."""
    end, found = bags.indptr[bags.indptr.shape[0] - 1], 0
    out.begin[0] = 0
    for at in range(end):
        feature = bags.indices[at]
        if counts[feature] > 0:  # counted, but not yet placed
            out.features[found] = feature
            out.begin[found + 1] = out.begin[found] + counts[feature]
            counts[feature] = -1 - out.begin[found]
            found += 1
    for row in range(bags.indptr.shape[0] - 1):
        for at in range(bags.indptr[row], bags.indptr[row + 1]):
            place = -1 - counts[bags.indices[at]]
            out.rows[place] = row
            out.values[place] = bags.values[at]
            counts[bags.indices[at]] -= 1
    for at in range(found):
        counts[out.features[at]] = 0


@kernel_with(fastmath=_FAST)
def sum_bags(
    indptr: npt.NDArray[Any],
    indices: npt.NDArray[np.int32],
    values: npt.NDArray[np.float32],
    table: npt.NDArray[np.float32],
    first: int,
    last: int,
    out: npt.NDArray[np.float32],
) -> None:
    """Set ``out[row - first]`` to the sum of value times table row over the entries of each row from first to last."""
    width = table.shape[1]
    for row in range(first, last):
        total = out[row - first]
        for column in range(width):
            total[column] = 0
        at, end = indptr[row], indptr[row + 1]
        while at + 2 <= end:
            one, two = values[at], values[at + 1]
            left, right = table[indices[at]], table[indices[at + 1]]
            for column in range(width):
                total[column] += one * left[column] + two * right[column]
            at += 2
        if at < end:
            one, left = values[at], table[indices[at]]
            for column in range(width):
                total[column] += one * left[column]


@kernel_with(fastmath=_FAST)
def _step(
    values: npt.NDArray[np.float32],
    means: npt.NDArray[np.float32],
    squares: npt.NDArray[np.float32],
    gradient: npt.NDArray[np.float32],
    pace: Pace,
) -> None:
    """One step of one row, against its gradient or by Adam."""
    rate, growth = pace.rate, pace.growth
    if growth == 0:
        for column in range(values.shape[0]):
            values[column] -= rate * gradient[column]
        return
    for column in range(values.shape[0]):
        slope = gradient[column]
        means[column] += (np.float32(1) - _DECAY) * (slope - means[column])
        squares[column] += (np.float32(1) - _SQUARE_DECAY) * (slope * slope - squares[column])
        values[column] -= rate * means[column] / (np.sqrt(squares[column] * growth) + _FLOOR)


@kernel_with(fastmath=_FAST)
def step_features(
    entries: Any,
    slopes: npt.NDArray[np.float32],
    table: Any,
    pace: Pace,
    first: int,
    last: int,
    change: npt.NDArray[np.float64],
) -> Any:
    """Take one step with the rows of a table that a batch used; the sum of the squared gradients.

    Parameters
    ----------
    entries : ByFeature
        The batch.
    slopes : ndarray of float32, shape (rows, width)
        Gradient by the sums of the batch's rows.
    table : Table
        Changed in place.
    pace : Pace
    first, last : int
        Features of `entries` to work on.
    change : ndarray of float64, shape (width,)
        By how much the squared length of each column grew is added to it.
    """
    width = table.values.shape[1]
    gradient = np.empty(width, np.float32)
    total = 0.0
    for place in range(first, last):
        for column in range(width):
            gradient[column] = 0
        for at in range(entries.begin[place], entries.begin[place + 1]):
            value, slope = entries.values[at], slopes[entries.rows[at]]
            for column in range(width):
                gradient[column] += value * slope[column]
        row = table.values[entries.features[place]]
        for column in range(width):
            change[column] -= row[column] * row[column]
            total += gradient[column] * gradient[column]
        _step(row, table.means[entries.features[place]], table.squares[entries.features[place]], gradient, pace)
        for column in range(width):
            change[column] += row[column] * row[column]
    return total


@kernel_with(fastmath=_FAST)
def step_units(
    rows: npt.NDArray[np.int32],
    slopes: npt.NDArray[np.float32],
    table: Any,
    pace: Pace,
    first: int,
    last: int,
) -> Any:
    """Take one step with some rows of a table of which only the direction counts.

    Parameters
    ----------
    rows : ndarray of int32
        Which rows.
    slopes : ndarray of float32, shape (len(rows), width)
        Gradient by the rows scaled to length 1.
    table : Table
        Changed in place.
    pace, first, last
        As for `step_features`.
    """
    width = table.values.shape[1]
    gradient = np.empty(width, np.float32)
    total = 0.0
    for place in range(first, last):
        row, slope = table.values[rows[place]], slopes[place]
        square, along = np.float32(0), np.float32(0)
        for column in range(width):
            square += row[column] * row[column]
            along += row[column] * slope[column]
        inverse = np.float32(1) / np.sqrt(max(square, np.float32(1e-30)))
        along *= inverse * inverse
        for column in range(width):
            gradient[column] = (slope[column] - along * row[column]) * inverse
            total += gradient[column] * gradient[column]
        _step(row, table.means[rows[place]], table.squares[rows[place]], gradient, pace)
    return total


def step_all(table: Table, gradient: npt.NDArray[np.float32], pace: Pace) -> None:
    """Take one step with a whole table."""
    if pace.growth == 0:
        table.values[...] -= pace.rate * gradient
        return
    table.means[...] += (1 - _DECAY) * (gradient - table.means)
    table.squares[...] += (1 - _SQUARE_DECAY) * (gradient * gradient - table.squares)
    table.values[...] -= pace.rate * table.means / (np.sqrt(table.squares * pace.growth) + _FLOOR)


@kernel
def adjacency_among(
    indptr: npt.NDArray[Any],
    indices: npt.NDArray[np.int32],
    values: npt.NDArray[np.float32],
    labels: npt.NDArray[np.int32],
    places: npt.NDArray[np.int32],
    out: npt.NDArray[np.float32],
) -> None:
    """Copy the entries of a sparse square matrix among some of its columns, all different.

    Parameters
    ----------
    indptr, indices, values
        The matrix as CSR arrays.
    labels : ndarray of int32
        Which columns.
    places : ndarray of int32
        -1 for every column of the matrix, before and after.
    out : ndarray of float32, shape (len(labels), len(labels))
        Filled with 0 by the caller.
    """
    for place in range(labels.shape[0]):
        places[labels[place]] = place
    for place in range(labels.shape[0]):
        for at in range(indptr[labels[place]], indptr[labels[place] + 1]):
            other = places[indices[at]]
            if other >= 0:
                out[place, other] = values[at]
    for place in range(labels.shape[0]):
        places[labels[place]] = -1

"""Logistic regression with an L1 penalty on some rows of a matrix, by coordinate descent on quadratic models.

The problem is that of liblinear's solver 6: the sum of ``cost * log(1 + exp(-side * margin))`` plus the sum of the
sizes of the weights, that of the bias feature among them. Each Newton step models the loss by a quadratic, improves the
model by coordinate descent, and searches along the way that it found. Only features whose gradient is large enough to
move them are ever turned into columns: near the leaves of a tree these are a few of hundreds.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from longtail.engine.arrays import with_room
from longtail.engine.block_solver import random_below
from longtail.engine.jit import kernel, kernel_with

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
Int32 = npt.NDArray[np.int32]

_NEAR = np.float32(0.9)  # features with a gradient of this size may join before they must
_SMALLEST_CURVATURE = 1e-12
_LARGEST_STEP = 10.0
_SUFFICIENT = 0.01
_HALVINGS = 20


class Limits(NamedTuple):
    """When to stop: Newton steps, sweeps of coordinate descent in each, and the share of the first violation left."""

    newton_steps: int
    sweeps: int
    tolerance: float


class L1Memory(NamedTuple):
    """Working memory of one thread: places for each feature, the bias feature being the last, and for each entry.

    Between problems, `weights` and `counts` are 0 and `columns` are -1.
    """

    weights: Float32
    gradient: Float32
    counts: Int32
    columns: Int32
    touched: Int32
    features: Int32
    starts: npt.NDArray[np.int64]
    column_rows: Int32
    column_values: Float32

    @classmethod
    def for_matrix(cls, n_rows: int, n_features: int, n_entries: int) -> Self:
        """Make memory for problems with rows of one matrix, of so many rows, features and stored values."""
        size, entries = n_features + 1, n_entries + n_rows
        return cls(
            np.zeros(size, np.float32),
            np.empty(size, np.float32),
            np.zeros(size, np.int32),
            np.full(size, -1, np.int32),
            np.empty(size, np.int32),
            np.empty(size, np.int32),
            np.zeros(size + 1, np.int64),
            np.empty(entries, np.int32),
            np.empty(entries, np.float32),
        )


@kernel
def solve_l1_logistic(
    indptr: npt.NDArray[Any],
    indices: Int32,
    values: Float32,
    rows: Int32,
    sides: npt.NDArray[np.int8],
    cost_negative: float,
    cost_positive: float,
    bias: float,
    limits: Limits,
    state: npt.NDArray[np.uint64],
    memory: L1Memory,
    margins: Float64,
) -> Any:
    """Find a hyperplane between rows of side 0 and rows of side 1.

    Parameters
    ----------
    indptr, indices, values
        CSR arrays of all rows.
    rows : ndarray of int32
        Which of them.
    sides : ndarray of int8
        0 or 1 for each of `rows`.
    cost_negative, cost_positive : float
        Costs of a row of side 0 and of side 1; they stand in the place of C.
    bias : float
        Value of the bias feature.
    limits : Limits
    state : ndarray of uint64, shape (1,)
        Of the random numbers for the order of the features.
    memory : L1Memory
        Holds the result in `weights` until `release` is called.
    margins : ndarray of float64
        For each of `rows`, set to its margin.

    Returns
    -------
    int
        How many features occur in the rows, the bias feature included; `memory.touched` begins with them.
    """
    n = rows.shape[0]
    weights, gradient, features, starts = memory.weights, memory.gradient, memory.features, memory.starts
    column_rows, column_values = memory.column_rows, memory.column_values
    found = _find_features(indptr, indices, rows, memory)
    pulls = np.empty(n, np.float32)
    bends = np.empty((n, 2), np.float32)  # of each row its curvature; its pull, and then how its margin changes
    slopes = np.empty(256, np.float32)
    margins[:] = 0
    loss, weight_norm = _loss(margins, sides, cost_negative, cost_positive), 0.0
    n_columns = 0
    first_violation, inner_tolerance = 0.0, 1.0
    looks_at_all = True
    for step in range(limits.newton_steps):
        _find_pulls(margins, sides, cost_negative, cost_positive, pulls, bends)
        inside = _column_gradient(0, n_columns, bends, slopes, memory)
        if inside <= limits.tolerance * first_violation:
            looks_at_all = True
        if looks_at_all:
            _find_gradient(indptr, indices, values, rows, pulls, bias, found, memory)
            violation, joining = _violation(found, memory)
            if step == 0:
                first_violation = violation
            if violation <= limits.tolerance * first_violation or violation == 0:
                break
            before = n_columns
            n_columns = _join(found, n_columns, memory)
            slopes = with_room(slopes, n_columns)
            if joining > 0:
                _fill(indptr, indices, values, rows, bias, before, n_columns, memory)
                _column_gradient(before, n_columns, bends, slopes, memory)
        bends[:, 1] = 0
        active, targets = np.empty(n_columns, np.int64), np.empty(n_columns)
        n_active = 0
        for column in range(n_columns):
            feature = features[column]
            targets[column] = weights[feature]
            active[n_active] = column
            n_active += int(weights[feature] != 0 or abs(gradient[feature]) > _NEAR)
        sweeps = _descend(
            limits.sweeps, inner_tolerance * first_violation, n, n_active, features, starts, column_rows,
            column_values, gradient, weights, bends, slopes, active, targets, state,
        )  # fmt: skip
        if sweeps == 1:
            inner_tolerance *= 0.25
        new_norm, promise = 0.0, 0.0
        for column in range(n_columns):
            weight = np.float64(weights[features[column]])
            new_norm += abs(targets[column])
            promise += gradient[features[column]] * (targets[column] - weight)
        promise += new_norm - weight_norm
        share, loss = _search_line(
            margins, bends, sides, cost_negative, cost_positive, loss, weight_norm, promise, n_columns, features,
            weights, targets,
        )  # fmt: skip
        if share == 0 and looks_at_all:
            break
        looks_at_all = share == 0  # nothing more to win with these columns: others may have to join
        weight_norm = 0.0
        for column in range(n_columns):
            feature = features[column]
            weights[feature] += share * (targets[column] - weights[feature])
            weight_norm += abs(weights[feature])
        for at in range(n):
            margins[at] += share * bends[at, 1]
    for column in range(n_columns):
        memory.columns[features[column]] = -1
    return found


@kernel
def release(found: int, memory: L1Memory) -> None:
    """Make the memory ready for another problem."""
    for at in range(found):
        memory.weights[memory.touched[at]] = 0
        memory.counts[memory.touched[at]] = 0


@kernel
def _find_features(indptr: npt.NDArray[Any], indices: Int32, rows: Int32, memory: L1Memory) -> Any:
    """List the features that occur in the rows, the bias feature last, and count the rows of each."""
    counts, touched = memory.counts, memory.touched
    found = 0
    for row in rows:
        for at in range(indptr[row], indptr[row + 1]):
            feature = indices[at]
            if counts[feature] == 0:
                touched[found] = feature
                found += 1
            counts[feature] += 1
    last = counts.shape[0] - 1
    touched[found] = last
    counts[last] = rows.shape[0]
    return found + 1


@kernel
def _loss(margins: Float64, sides: npt.NDArray[np.int8], cost_negative: float, cost_positive: float) -> Any:
    total = 0.0
    for at in range(margins.shape[0]):
        z = margins[at] if sides[at] else -margins[at]
        value = np.log1p(np.exp(-abs(z))) + max(0.0, -z)
        total += value * (cost_positive if sides[at] else cost_negative)
    return total


@kernel
def _find_pulls(
    margins: Float64,
    sides: npt.NDArray[np.int8],
    cost_negative: float,
    cost_positive: float,
    pulls: Float32,
    bends: Float32,
) -> None:
    """First and second derivative of the loss of each row; a pull is minus the first."""
    for at in range(margins.shape[0]):
        z = margins[at] if sides[at] else -margins[at]
        wrong = 1 / (1 + np.exp(z))
        cost = cost_positive if sides[at] else cost_negative
        pulls[at] = cost * wrong if sides[at] else -cost * wrong
        bends[at, 0], bends[at, 1] = cost * wrong * (1 - wrong), pulls[at]


@kernel_with(fastmath={"contract"})
def _find_gradient(
    indptr: npt.NDArray[Any],
    indices: Int32,
    values: Float32,
    rows: Int32,
    pulls: Float32,
    bias: float,
    found: int,
    memory: L1Memory,
) -> None:
    gradient, touched = memory.gradient, memory.touched
    for at in range(found):
        gradient[touched[at]] = 0
    total = 0.0
    for place in range(rows.shape[0]):
        row, pull = rows[place], pulls[place]
        total += pulls[place]
        for at in range(indptr[row], indptr[row + 1]):
            gradient[indices[at]] -= pull * values[at]
    gradient[gradient.shape[0] - 1] = -bias * total


@kernel_with(fastmath={"contract"})
def _column_gradient(first: int, last: int, bends: Float32, slopes: Float32, memory: L1Memory) -> Any:
    """Find gradient and curvature of the features of columns `first` to `last`, and their violation."""
    starts, column_rows, column_values = memory.starts, memory.column_rows, memory.column_values
    total = 0.0
    for column in range(first, last):
        pull = other_pull = other_slope = np.float32(0)
        slope = np.float32(_SMALLEST_CURVATURE)
        first_entry, last_entry = starts[column], starts[column + 1]
        for at in range(first_entry, last_entry - 1, 2):
            value, row = column_values[at], column_rows[at]
            pull += value * bends[row, 1]
            slope += value * value * bends[row, 0]
            value, row = column_values[at + 1], column_rows[at + 1]
            other_pull += value * bends[row, 1]
            other_slope += value * value * bends[row, 0]
        if (last_entry - first_entry) % 2:
            value, row = column_values[last_entry - 1], column_rows[last_entry - 1]
            pull += value * bends[row, 1]
            slope += value * value * bends[row, 0]
        pull, slope = pull + other_pull, slope + other_slope
        feature = memory.features[column]
        memory.gradient[feature], slopes[column] = -pull, slope
        total += _violated(-pull, memory.weights[feature])
    return total


@kernel
def _violated(slope: Any, weight: Any) -> Any:
    """How far the derivative by one weight is from that of an optimum."""
    if weight > 0:
        return abs(slope + 1)
    if weight < 0:
        return abs(slope - 1)
    return max(np.float32(0), abs(slope) - 1)


@kernel
def _violation(found: int, memory: L1Memory) -> Any:
    """How far the gradient is from that of an optimum, and how many features are to get a column."""
    total, joining = 0.0, 0
    for at in range(found):
        feature = memory.touched[at]
        total += _violated(memory.gradient[feature], memory.weights[feature])
        joining += int(memory.columns[feature] < 0 and abs(memory.gradient[feature]) > _NEAR)
    return total, joining


@kernel
def _join(found: int, n_columns: int, memory: L1Memory) -> Any:
    """Number the features that get a column."""
    for at in range(found):
        feature = memory.touched[at]
        if memory.columns[feature] < 0 and abs(memory.gradient[feature]) > _NEAR:
            memory.columns[feature] = n_columns
            memory.features[n_columns] = feature
            memory.starts[n_columns + 1] = memory.starts[n_columns] + memory.counts[feature]
            n_columns += 1
    return n_columns


@kernel
def _fill(
    indptr: npt.NDArray[Any],
    indices: Int32,
    values: Float32,
    rows: Int32,
    bias: float,
    before: int,
    n_columns: int,
    memory: L1Memory,
) -> None:
    """Write the columns from `before` on."""
    columns, column_rows, column_values = memory.columns, memory.column_rows, memory.column_values
    ends = memory.starts[before:n_columns].copy()
    last = columns.shape[0] - 1
    if columns[last] >= before:
        first = ends[columns[last] - before]
        for place in range(rows.shape[0]):
            column_rows[first + place] = place
            column_values[first + place] = bias
    for place in range(rows.shape[0]):
        row = rows[place]
        for at in range(indptr[row], indptr[row + 1]):
            column = columns[indices[at]] - before
            if column >= 0:
                to = ends[column]
                column_rows[to] = place
                column_values[to] = values[at]
                ends[column] = to + 1


@kernel_with(fastmath={"contract"})
def _descend(
    most_sweeps: int,
    enough: float,
    n: int,
    n_active: int,
    features: Int32,
    starts: npt.NDArray[np.int64],
    column_rows: Int32,
    column_values: Float32,
    gradient: Float32,
    weights: Float32,
    bends: Float32,
    slopes: Float32,
    active: npt.NDArray[np.int64],
    targets: Float64,
    state: npt.NDArray[np.uint64],
) -> Any:
    """Improve the quadratic model: move `targets` and the changes of the margins; returns the sweeps made."""
    size, largest_before = n_active, np.inf
    for sweep in range(most_sweeps):
        largest, total = 0.0, 0.0
        for last in range(size - 1, 0, -1):
            other = random_below(last + 1, state)
            active[last], active[other] = active[other], active[last]
        place = 0
        while place < size:
            column = active[place]
            feature, target, slope = features[column], targets[column], np.float64(slopes[column])
            first, last = starts[column], starts[column + 1]
            pull = gradient[feature] + (target - weights[feature]) * _SMALLEST_CURVATURE
            other_pull = np.float32(0)
            for at in range(first, last - 1, 2):
                row, other = column_rows[at], column_rows[at + 1]
                pull += column_values[at] * (bends[row, 0] * bends[row, 1])
                other_pull += column_values[at + 1] * (bends[other, 0] * bends[other, 1])
            if (last - first) % 2:
                row = column_rows[last - 1]
                pull += column_values[last - 1] * (bends[row, 0] * bends[row, 1])
            pull += other_pull
            up, down = pull + 1, pull - 1
            violation = 0.0
            if target > 0:
                violation = abs(up)
            elif target < 0:
                violation = abs(down)
            elif up < 0:
                violation = -up
            elif down > 0:
                violation = down
            elif up > largest_before / n and down < -largest_before / n:
                size -= 1
                active[place], active[size] = active[size], active[place]
                continue
            largest = max(largest, violation)
            total += violation
            if up < slope * target:
                move = -up / slope
            elif down > slope * target:
                move = -down / slope
            else:
                move = -target
            place += 1
            if abs(move) < 1e-12:
                continue
            move = min(max(move, -_LARGEST_STEP), _LARGEST_STEP)
            targets[column] += move
            for at in range(first, last):
                bends[column_rows[at], 1] += np.float32(move) * column_values[at]
        if total <= enough:
            if size == n_active:
                return sweep + 1
            size, largest_before = n_active, np.inf
        else:
            largest_before = largest
    return most_sweeps


@kernel
def _search_line(
    margins: Float64,
    bends: Float32,
    sides: npt.NDArray[np.int8],
    cost_negative: float,
    cost_positive: float,
    loss: float,
    weight_norm: float,
    promise: float,
    n_columns: int,
    features: Int32,
    weights: Float32,
    targets: Float64,
) -> Any:
    """Find the share of the way that lowers the objective enough, 1, a half, a quarter or 0, and the loss there."""
    share = 1.0
    tried = np.empty(margins.shape[0])
    for _ in range(_HALVINGS):
        norm = 0.0
        for column in range(n_columns):
            weight = np.float64(weights[features[column]])
            norm += abs(weight + share * (targets[column] - weight))
        for at in range(margins.shape[0]):
            tried[at] = margins[at] + share * bends[at, 1]
        there = _loss(tried, sides, cost_negative, cost_positive)
        if there - loss + norm - weight_norm <= _SUFFICIENT * share * promise:
            return share, there
        share *= 0.5
    return 0.0, loss

"""L1-regularised logistic regression on some rows of a matrix, by Newton steps with coordinate descent.

The problem is that of LIBLINEAR's solver 6: the sum of ``cost * log(1 + exp(-side * margin))`` over the rows, plus the
sum of the absolute weights, the bias included. As in newGLMNET, each Newton step minimises a quadratic model of the
loss by coordinate descent, followed by a line search. Only features whose gradient is large enough to change them are
ever extracted as columns: near the leaves of a tree these are a few of hundreds.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np

from longtail.kernels.arrays import with_room
from longtail.kernels.jit import kernel, kernel_with
from longtail.kernels.random import random_below
from longtail.kernels.types import Array, Float32, Float64, Int8, Int32, Int64, UInt64

_NEAR = np.float32(0.9)  # absolute gradient from which a feature gets a column; above 1 it must
_SMALLEST_CURVATURE = 1e-12
_LARGEST_STEP = 10.0
_SUFFICIENT = 0.01
_HALVINGS = 20


class L1Limits(NamedTuple):
    """Stopping criteria: Newton steps, sweeps of coordinate descent in each, and share of the initial violation."""

    max_iter: int
    max_inner_iter: int
    tol: float


class L1Problem(NamedTuple):
    """Rows of a CSR matrix with their sides, 0 or 1; the costs of the sides, in place of C; and the bias feature."""

    indptr: Array
    indices: Int32
    values: Float32
    rows: Int32
    sides: Int8
    cost_negative: float
    cost_positive: float
    bias: float


class L1Memory(NamedTuple):
    """Working memory of one thread, per feature (the bias feature is the last), per column and per entry.

    `features` are the features of the columns, `starts` the offsets of the columns in `column_rows` and
    `column_values`. Between problems, `weights` and `counts` are 0 and `columns` are -1.
    """

    weights: Float32
    gradient: Float32
    counts: Int32
    columns: Int32
    touched: Int32
    features: Int32
    starts: Int64
    column_rows: Int32
    column_values: Float32

    @classmethod
    def for_matrix(cls, n_rows: int, n_features: int, n_entries: int) -> Self:
        """Allocate memory for problems with rows of a matrix of that size."""
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
def solve_l1_logistic(problem: L1Problem, limits: L1Limits, state: UInt64, memory: L1Memory, margins: Float64) -> Any:
    """Find a hyperplane between the rows of side 0 and those of side 1.

    The weights are in `memory` until `release` is called, and `margins` is set to the margin of each row. Returns the
    number of features that occur in the rows, the bias included; `memory.touched` begins with them.
    """
    n = problem.rows.shape[0]
    found = _find_features(problem, memory)
    residuals = np.empty(n, np.float32)
    terms = np.empty((n, 2), np.float32)  # curvature of each row; its residual, and then the change of its margin
    curvatures = np.empty(256, np.float32)
    margins[:] = 0
    loss, norm = _loss(margins, problem), 0.0
    n_columns = 0
    first_violation, inner_tolerance = 0.0, 1.0
    checks_all = True
    for step in range(limits.max_iter):
        _find_derivatives(margins, problem, residuals, terms)
        # While the present columns violate their optimality conditions, no gradient of another feature is computed.
        violation = _column_gradient(0, n_columns, terms, curvatures, memory)
        if violation <= limits.tol * first_violation:
            checks_all = True
        if checks_all:
            # Converged if no feature violates its condition; otherwise those near to becoming non-zero get a column.
            _find_gradient(problem, residuals, found, memory)
            violation, joining = _violation(found, memory)
            if step == 0:
                first_violation = violation
            if violation <= limits.tol * first_violation or violation == 0:
                break
            before = n_columns
            n_columns = _add_columns(found, n_columns, memory)
            curvatures = with_room(curvatures, n_columns)
            if joining > 0:
                _fill_columns(problem, before, n_columns, memory)
                _column_gradient(before, n_columns, terms, curvatures, memory)
        # Minimise the quadratic model, and search along the line from the weights to its minimum.
        terms[:, 1] = 0
        active, targets = _start(n_columns, memory)
        enough = inner_tolerance * first_violation
        n_inner = _descend(limits.max_inner_iter, enough, n, memory, terms, curvatures, active, targets, state)
        if n_inner == 1:  # converged at once: solve the next models more exactly
            inner_tolerance *= 0.25
        share, loss = _search_line(margins, terms, problem, loss, norm, n_columns, memory, targets)
        if share == 0 and checks_all:
            break
        checks_all = share == 0  # nothing to gain with these columns
        # Take the step: weights, their L1 norm, and the margins of the rows.
        norm = 0.0
        for column in range(n_columns):
            feature = memory.features[column]
            memory.weights[feature] += share * (targets[column] - memory.weights[feature])
            norm += abs(memory.weights[feature])
        for at in range(n):
            margins[at] += share * terms[at, 1]
    for column in range(n_columns):
        memory.columns[memory.features[column]] = -1
    return found


@kernel
def release(found: int, memory: L1Memory) -> None:
    """Reset the memory for another problem."""
    for at in range(found):
        memory.weights[memory.touched[at]] = 0
        memory.counts[memory.touched[at]] = 0


@kernel
def _find_features(problem: L1Problem, memory: L1Memory) -> Any:
    """List the features that occur in the rows, the bias feature last, and count the rows of each."""
    indptr, indices, counts, touched = problem.indptr, problem.indices, memory.counts, memory.touched
    found = 0
    for row in problem.rows:
        for at in range(indptr[row], indptr[row + 1]):
            feature = indices[at]
            if counts[feature] == 0:
                touched[found] = feature
                found += 1
            counts[feature] += 1
    last = counts.shape[0] - 1
    touched[found] = last
    counts[last] = problem.rows.shape[0]
    return found + 1


@kernel
def _loss(margins: Float64, problem: L1Problem) -> Any:
    sides, total = problem.sides, 0.0
    for at in range(margins.shape[0]):
        z = margins[at] if sides[at] else -margins[at]
        value = np.log1p(np.exp(-abs(z))) + max(0.0, -z)
        total += value * (problem.cost_positive if sides[at] else problem.cost_negative)
    return total


@kernel
def _find_derivatives(margins: Float64, problem: L1Problem, residuals: Float32, terms: Float32) -> None:
    """Derivatives of the loss of each row by its margin: residuals are minus the first, terms[:, 0] the second."""
    sides = problem.sides
    for at in range(margins.shape[0]):
        z = margins[at] if sides[at] else -margins[at]
        wrong = 1 / (1 + np.exp(z))
        cost = problem.cost_positive if sides[at] else problem.cost_negative
        residuals[at] = cost * wrong if sides[at] else -cost * wrong
        terms[at, 0], terms[at, 1] = cost * wrong * (1 - wrong), residuals[at]


@kernel_with(fastmath={"contract"})
def _find_gradient(problem: L1Problem, residuals: Float32, found: int, memory: L1Memory) -> None:
    """Gradient of the loss by all features that occur."""
    indptr, indices, values, rows = problem.indptr, problem.indices, problem.values, problem.rows
    gradient, touched = memory.gradient, memory.touched
    for at in range(found):
        gradient[touched[at]] = 0
    total = 0.0
    for place in range(rows.shape[0]):
        row, residual = rows[place], residuals[place]
        total += residuals[place]
        for at in range(indptr[row], indptr[row + 1]):
            gradient[indices[at]] -= residual * values[at]
    gradient[gradient.shape[0] - 1] = -problem.bias * total


@kernel_with(fastmath={"contract"})
def _column_gradient(first: int, last: int, terms: Float32, curvatures: Float32, memory: L1Memory) -> Any:
    """Gradient and curvature of the loss by the features of columns `first` to `last` - 1; return their violation."""
    starts, column_rows, column_values = memory.starts, memory.column_rows, memory.column_values
    total = 0.0
    for column in range(first, last):
        # Two sums each, for even and odd entries, that do not wait for each other.
        pull = other_pull = other_curvature = np.float32(0)
        curvature = np.float32(_SMALLEST_CURVATURE)
        first_entry, last_entry = starts[column], starts[column + 1]
        for at in range(first_entry, last_entry - 1, 2):
            value, row = column_values[at], column_rows[at]
            pull += value * terms[row, 1]
            curvature += value * value * terms[row, 0]
            value, row = column_values[at + 1], column_rows[at + 1]
            other_pull += value * terms[row, 1]
            other_curvature += value * value * terms[row, 0]
        if (last_entry - first_entry) % 2:
            value, row = column_values[last_entry - 1], column_rows[last_entry - 1]
            pull += value * terms[row, 1]
            curvature += value * value * terms[row, 0]
        pull, curvature = pull + other_pull, curvature + other_curvature
        feature = memory.features[column]
        memory.gradient[feature], curvatures[column] = -pull, curvature
        total += _violated(-pull, memory.weights[feature])
    return total


@kernel
def _violated(gradient: Any, weight: Any) -> Any:
    """Absolute value of the minimum-norm subgradient of the objective by one weight."""
    if weight > 0:
        return abs(gradient + 1)
    if weight < 0:
        return abs(gradient - 1)
    return max(np.float32(0), abs(gradient) - 1)


@kernel
def _violation(found: int, memory: L1Memory) -> Any:
    """Violation of the optimality conditions by all features, and the number of features that need a column."""
    total, joining = 0.0, 0
    for at in range(found):
        feature = memory.touched[at]
        total += _violated(memory.gradient[feature], memory.weights[feature])
        joining += int(memory.columns[feature] < 0 and abs(memory.gradient[feature]) > _NEAR)
    return total, joining


@kernel
def _add_columns(found: int, n_columns: int, memory: L1Memory) -> Any:
    """Number the features that get a column, and return the new number of columns."""
    for at in range(found):
        feature = memory.touched[at]
        if memory.columns[feature] < 0 and abs(memory.gradient[feature]) > _NEAR:
            memory.columns[feature] = n_columns
            memory.features[n_columns] = feature
            memory.starts[n_columns + 1] = memory.starts[n_columns] + memory.counts[feature]
            n_columns += 1
    return n_columns


@kernel
def _fill_columns(problem: L1Problem, before: int, n_columns: int, memory: L1Memory) -> None:
    """Write the entries of the columns from `before` on."""
    indptr, indices, values, rows = problem.indptr, problem.indices, problem.values, problem.rows
    columns, column_rows, column_values = memory.columns, memory.column_rows, memory.column_values
    ends = memory.starts[before:n_columns].copy()  # next free place of each column
    # The bias feature, which every row has.
    last = columns.shape[0] - 1
    if columns[last] >= before:
        first = ends[columns[last] - before]
        for place in range(rows.shape[0]):
            column_rows[first + place] = place
            column_values[first + place] = problem.bias
    for place in range(rows.shape[0]):
        row = rows[place]
        for at in range(indptr[row], indptr[row + 1]):
            column = columns[indices[at]] - before
            if column >= 0:
                to = ends[column]
                column_rows[to] = place
                column_values[to] = values[at]
                ends[column] = to + 1


@kernel
def _start(n_columns: int, memory: L1Memory) -> Any:
    """Columns for coordinate descent (those that are not clearly at zero), and the weights where it starts."""
    active, targets = np.empty(n_columns, np.int64), np.empty(n_columns)
    n_active = 0
    for column in range(n_columns):
        feature = memory.features[column]
        targets[column] = memory.weights[feature]
        active[n_active] = column
        n_active += int(memory.weights[feature] != 0 or abs(memory.gradient[feature]) > _NEAR)
    return active[:n_active], targets


@kernel_with(fastmath={"contract"})
def _with_changes(slope: Any, first: Any, last: Any, column_rows: Int32, column_values: Float32, terms: Float32) -> Any:
    """Add to the slope by one weight what the changes of the margins contribute, in two independent sums."""
    other_slope = np.float32(0)
    for at in range(first, last - 1, 2):
        row, other = column_rows[at], column_rows[at + 1]
        slope += column_values[at] * (terms[row, 0] * terms[row, 1])
        other_slope += column_values[at + 1] * (terms[other, 0] * terms[other, 1])
    if (last - first) % 2:
        row = column_rows[last - 1]
        slope += column_values[last - 1] * (terms[row, 0] * terms[row, 1])
    return slope + other_slope


@kernel_with(fastmath={"contract"})
def _descend(
    max_sweeps: int,
    enough: float,
    n: int,
    memory: L1Memory,
    terms: Float32,
    curvatures: Float32,
    active: Int64,
    targets: Float64,
    state: UInt64,
) -> Any:
    """Minimise the quadratic model by coordinate descent with shrinking.

    Updates `targets`, the weights, and ``terms[:, 1]``, the changes of the margins; returns the number of sweeps.
    """
    features, starts, column_rows, column_values = (
        memory.features, memory.starts, memory.column_rows, memory.column_values,
    )  # fmt: skip
    gradient, weights = memory.gradient, memory.weights
    size, largest_before = active.shape[0], np.inf
    for sweep in range(max_sweeps):
        largest, total = 0.0, 0.0
        for last in range(size - 1, 0, -1):  # visit the coordinates in random order
            other = random_below(last + 1, state)
            active[last], active[other] = active[other], active[last]
        place = 0
        while place < size:
            column = active[place]
            feature, target, curvature = features[column], targets[column], np.float64(curvatures[column])
            first, last = starts[column], starts[column + 1]
            # Gradient of the model: that of the loss, plus the Hessian times the changes so far.
            slope = gradient[feature] + (target - weights[feature]) * _SMALLEST_CURVATURE
            slope = _with_changes(slope, first, last, column_rows, column_values, terms)
            up, down = slope + 1, slope - 1
            # Shrinking: a weight of zero that is far from changing leaves the sweep.
            if target == 0 and up > largest_before / n and down < -largest_before / n:
                size -= 1
                active[place], active[size] = active[size], active[place]
                continue
            violation = _violated(slope, target)
            largest = max(largest, violation)
            total += violation
            # Minimum by this coordinate: soft thresholding.
            if up < curvature * target:
                move = -up / curvature
            elif down > curvature * target:
                move = -down / curvature
            else:
                move = -target
            place += 1
            if abs(move) < 1e-12:
                continue
            move = min(max(move, -_LARGEST_STEP), _LARGEST_STEP)
            targets[column] += move
            for at in range(first, last):
                terms[column_rows[at], 1] += np.float32(move) * column_values[at]
        if total <= enough:  # converged if the sweep was over all coordinates, the shrunk ones included
            if size == active.shape[0]:
                return sweep + 1
            size, largest_before = active.shape[0], np.inf
        else:
            largest_before = largest
    return max_sweeps


@kernel
def _search_line(
    margins: Float64,
    terms: Float32,
    problem: L1Problem,
    loss: float,
    norm: float,
    n_columns: int,
    memory: L1Memory,
    targets: Float64,
) -> Any:
    """Find the step size, 1, 1/2, 1/4, ... or 0, with a sufficient decrease (Armijo's rule), and the loss there."""
    features, weights, gradient = memory.features, memory.weights, memory.gradient
    # The decrease that the linear model of the loss promises for the full step, L1 norm included.
    full_norm, promise = 0.0, 0.0
    for column in range(n_columns):
        weight = np.float64(weights[features[column]])
        full_norm += abs(targets[column])
        promise += gradient[features[column]] * (targets[column] - weight)
    promise += full_norm - norm
    share = 1.0
    tried = np.empty(margins.shape[0])
    for _ in range(_HALVINGS):
        there_norm = 0.0
        for column in range(n_columns):
            weight = np.float64(weights[features[column]])
            there_norm += abs(weight + share * (targets[column] - weight))
        for at in range(margins.shape[0]):
            tried[at] = margins[at] + share * terms[at, 1]
        there = _loss(tried, problem)
        if there - loss + there_norm - norm <= _SUFFICIENT * share * promise:
            return share, there
        share *= 0.5
    return 0.0, loss

"""Dual coordinate descent for a block of 64 labels at a time.

For each label of the block the solver minimises

    1/2 |w - w0|^2 + C+ sum over positive rows of l(w.x) + C- sum over negative rows of l(-w.x)

where l is the squared hinge, the hinge or the logistic loss and w0 is zero except for the bias. It is the algorithm of
LIBLINEAR's dual solvers for 64 problems that visit the rows in the same order: the scores of a row for all labels are
one `lane_dot`, the 64 dual steps one vector operation, the update of the weights one `lane_add`.

What makes it fast:

- Screening: most rows are negative for the whole block and stay on the correct side of the margin. The first epoch
  scores them once and drops those that no label of the block violates; only the others get dual variables (a *slot*).
- Resting: a row whose step was too small to matter is skipped for one epoch, then for three, seven, ..., and visited
  again before the solver stops.
- Warm start: the bias starts at the margin of negative rows (-1 for the hinges). A few epochs over the positive rows
  and some random negatives follow, so that the first epoch over all rows starts from nearly correct weights.
- Only the cache lines of weights in which a label changed are written.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from longtail.kernels.jit import kernel, kernel_with
from longtail.kernels.lanes import LANES, LINE, hinge_lanes, lane_add, lane_commit, lane_scores
from longtail.kernels.random import random_below
from longtail.kernels.rows import CSRRows
from longtail.kernels.types import Float32, Int8, Int32, Int64, UInt8, UInt64

SQUARED_HINGE, HINGE, LOGISTIC = 0, 1, 2
"""Codes of the losses in kernels; the two hinges differ only in their diagonal and bound."""

WARM_EPOCHS = 3
WARM_NEGATIVES = 64
LONGEST_REST = 15
RUN = 16
WINDOW = 128


class BlockProblem(NamedTuple):
    """The optimisation problem of one block.

    `positive_lanes[positive_offsets[p]:positive_offsets[p + 1]]` are the labels of the block that row
    `positive_rows[p]` has. `diagonal` and `bound`, of shape (2, 64), hold 1 / (2 C) or 0 and the upper bound of the
    dual variables, for negative (row 0) and positive rows (row 1). A negative row with no score above `screen` needs no
    dual variables. Gradients up to `tol` are ignored.
    """

    positive_rows: Int64
    positive_offsets: Int64
    positive_lanes: Int32
    loss: int
    diagonal: Float32
    bound: Float32
    screen: np.float32
    tol: np.float32
    max_iter: int


class SolverMemory(NamedTuple):
    """Working memory of one thread, reused from block to block; see `allocate`."""

    weights: Float32
    bias_weights: Float32
    slot_of_row: Int32
    dual: Float32
    sign: Int8
    rest: UInt8
    patience: UInt8
    order: Int32
    scores: Float32
    change: Float32

    @staticmethod
    def allocate(n_rows: int, n_features: int) -> SolverMemory:
        """Memory for problems with up to that many rows and features."""
        return SolverMemory(
            weights=np.zeros((n_features, LANES), np.float32),
            bias_weights=np.zeros(LANES, np.float32),
            slot_of_row=np.full(n_rows, -1, np.int32),
            dual=np.empty((n_rows, LANES), np.float32),
            sign=np.empty((n_rows, LANES), np.int8),
            rest=np.empty(n_rows, np.uint8),
            patience=np.empty(n_rows, np.uint8),
            order=np.empty(n_rows + WARM_NEGATIVES, np.int32),
            scores=np.zeros(LANES, np.float32),
            change=np.zeros(LANES, np.float32),
        )


@kernel
def shuffle(order: Int32, count: int, finely: bool, state: UInt64) -> None:
    """Shuffle ``order[:count]`` in place, in runs of `RUN`; if `finely`, then also inside windows.

    Rows that lie close in memory are visited close in time, which is up to three times as fast as a full shuffle.
    """
    for last in range(count // RUN - 1, 0, -1):
        other = random_below(last + 1, state)
        for step in range(RUN):
            here, there = last * RUN + step, other * RUN + step
            order[here], order[there] = order[there], order[here]
    for start in range(0, count if finely else 0, WINDOW):
        for last in range(min(WINDOW, count - start) - 1, 0, -1):
            here, there = start + last, start + random_below(last + 1, state)
            order[here], order[there] = order[there], order[here]


@kernel_with(fastmath={"contract"})
def logistic_step(
    scores: Float32, dual: Float32, sign: Int8, slot: Any, q: Any, bound: Float32, tol: Any, change: Float32
) -> Any:
    """Dual step of the logistic loss for 64 labels; same contract as `hinge_lanes`.

    With the new dual variable written as U s(t), where s is the sigmoid, the optimum solves
    t + q (U s(t) - old) + y f = 0. The left side increases in t with a slope between 1 and 1 + q U / 4, so Newton steps
    are taken inside a bracket, with a bisection every third step. A gradient is bounded below by the change times the
    smallest curvature of the dual, q + 4 / U.
    """
    lines = 0
    most = np.float32(0)
    for lane in range(LANES):
        y = np.float32(sign[slot, lane])
        upper = bound[1, lane] if y > 0 else bound[0, lane]
        old = dual[slot, lane]
        margin = y * scores[lane]
        # The root is between `low` and `high`; start where the sigmoid of their midpoint puts it.
        high = q * old - margin
        low = high - q * upper
        t = high - q * upper / (np.float32(1) + np.exp(-np.float32(0.5) * (low + high)))
        for iteration in range(60):
            sigmoid = np.float32(1) / (np.float32(1) + np.exp(-t))
            value = t + q * (upper * sigmoid - old) + margin
            if abs(value) <= np.float32(1e-6) * (np.float32(1) + abs(t)):
                break
            # Shrink the bracket, then take a Newton step, or a bisection if that would leave the bracket.
            if value > 0:
                high = t
            else:
                low = t
            t -= value / (np.float32(1) + q * upper * sigmoid * (np.float32(1) - sigmoid))
            if iteration % 3 == 2 or not (low < t < high):
                t = np.float32(0.5) * (low + high)
        new = upper / (np.float32(1) + np.exp(-t))
        # A step with a gradient below the tolerance is not taken.
        if abs(new - old) * (q + np.float32(4) / upper) > tol:
            lines |= 1 << (lane // LINE)
        else:
            new = old
        change[lane] = (new - old) * y
        most = max(most, new)
    return lines, most


@kernel
def _open_slot(row: Any, slot: Any, memory: SolverMemory) -> None:
    """Assign dual variables to a row: zeros, negative for all labels."""
    memory.slot_of_row[row] = slot
    memory.rest[slot] = 0
    memory.patience[slot] = 0
    for lane in range(LANES):
        memory.dual[slot, lane] = 0
        memory.sign[slot, lane] = -1


@kernel
def _open_positives(problem: BlockProblem, memory: SolverMemory) -> None:
    """Assign the first slots to the positive rows."""
    for slot in range(len(problem.positive_rows)):
        _open_slot(problem.positive_rows[slot], slot, memory)
        for at in range(problem.positive_offsets[slot], problem.positive_offsets[slot + 1]):
            memory.sign[slot, problem.positive_lanes[at]] = 1


@kernel
def _visit_rows(count: int, slots: int, rows: CSRRows, problem: BlockProblem, memory: SolverMemory, stop: UInt8) -> Any:
    """Visit the first `count` rows of ``memory.order``: score each and take its dual step.

    Rows that may take further steps are moved to the front of the order. Returns the number of open slots, and of rows
    that were kept in the order, took a step, and were skipped as resting.
    """
    indptr, indices, values, scales, squares, bias = rows
    weights, bias_weights, slot_of_row, dual, sign, rest, patience, order, scores, change = memory
    n_positive = len(problem.positive_rows)
    loss, diagonal, bound = problem.loss, problem.diagonal, problem.bound
    screen, tol = problem.screen, problem.tol
    kept = 0
    moved = 0
    rested = 0
    for at in range(count):
        if at % 1024 == 0 and stop[0]:
            break
        row = order[at]
        slot = np.int64(slot_of_row[row])
        if squares[row] <= 0:
            continue
        if slot >= 0 and rest[slot] > 0:  # resting: keep it in the order without scoring it
            rest[slot] -= 1
            rested += 1
            order[kept] = row
            kept += 1
            continue
        start, end, scale = indptr[row], indptr[row + 1], np.float32(scales[row])
        largest = lane_scores(indices, values, start, end, weights, scale, bias, bias_weights, scores)
        if slot < 0:
            if largest <= screen:  # negative for all labels, and none violates the margin: drop it from the order
                continue
            slot = np.int64(slots)
            slots += 1
            _open_slot(row, slot, memory)
        # The step of each label goes to `change`, the cache lines that it touches to `lines`.
        if loss == LOGISTIC:
            lines, most = logistic_step(scores, dual, sign, slot, squares[row], bound, tol, change)
        else:
            lines, most = hinge_lanes(scores, dual, sign, slot, squares[row], diagonal, bound, tol, change)
        if lines != 0:
            lane_commit(dual, sign, slot, bias_weights, bias, change, scale)
            lane_add(indices, values, start, end, weights, change, lines)
            moved += 1
            patience[slot] = 0
        else:  # rest for 1, 3, 7, 15 epochs
            patience[slot] = min(2 * patience[slot] + 1, LONGEST_REST)
            rest[slot] = patience[slot]
        # Shrinking: negative rows whose dual variables are all 0 leave the order.
        if most > 0 or slot < n_positive:
            order[kept] = row
            kept += 1
    return slots, kept, moved, rested


@kernel
def solve_block(rows: CSRRows, problem: BlockProblem, memory: SolverMemory, state: UInt64, stop: UInt8) -> Any:
    """Train the classifiers of one block of labels.

    The caller sets the weights and bias weights of `memory` to the starting point; they hold the result afterwards.
    Returns the number of epochs, and whether the solver converged; it returns early once ``stop[0]`` is 1.
    """
    n, n_positive = len(rows.indptr) - 1, len(problem.positive_rows)
    order, rest = memory.order, memory.rest
    _open_positives(problem, memory)
    slots = n_positive
    # Warm start: positive rows, and a few random ones that are mostly negative.
    for _ in range(WARM_EPOCHS):
        for at in range(n_positive + WARM_NEGATIVES):
            order[at] = problem.positive_rows[at] if at < n_positive else random_below(n, state)
        slots, _, _, _ = _visit_rows(n_positive + WARM_NEGATIVES, slots, rows, problem, memory, stop)
        rest[:slots] = 0
    memory.patience[:slots] = 0
    # Epochs over all rows, and then over those that are left in the order.
    for row in range(n):
        order[row] = row
    active = n
    epochs = 0
    converged = False
    while epochs < problem.max_iter and not converged and not stop[0]:
        shuffle(order, active, epochs > 0, state)
        slots, kept, moved, rested = _visit_rows(active, slots, rows, problem, memory, stop)
        epochs += 1
        # Nothing moved: visit all rows again, also those that were dropped or rest; converged if these are all rows.
        if moved == 0 and rested == 0:
            converged = active == n
            for row in range(n):
                order[row] = row
            kept = n
        if moved == 0:
            rest[:slots] = 0
        active = kept
    memory.slot_of_row[:] = -1
    return epochs, converged

"""Dual coordinate descent for a block of 64 labels in step.

For each label of the block the solver minimises

    1/2 |w - w0|^2 + C+ sum over positive rows of l(w.x) + C- sum over negative rows of l(-w.x)

where l is the squared hinge, the hinge or the logistic loss and w0 is zero but for the bias. All labels of the block
visit the rows in the same order: the scores of a row for 64 labels are one `lane_dot`, the 64 dual steps one vector
operation, the change of the weights one `lane_add`.

What makes it fast:

- Most rows are negative for the whole block and stay on the right side of the margin. The first pass scores them once
  and forgets those that no label of the block violates; only rows that matter get dual variables (a *slot*).
- A row whose step was too small to matter rests, first for one pass, then for three, for seven, ...; it is woken
  before the solver believes that it has converged.
- The bias starts where negative rows are content (-1 for the hinges), the positive rows go first and a few random
  negatives bring the bias back, so that the first pass over all rows meets weights that are nearly right.
- Only the cache lines of weights in which a label moved are written back.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from longtail.engine.jit import kernel, kernel_with
from longtail.engine.lanes import LANES, LINE, hinge_lanes, lane_add, lane_commit, lane_scores

Float32 = npt.NDArray[np.float32]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

SQUARED_HINGE, HINGE, LOGISTIC = 0, 1, 2
"""Codes of the losses for the kernels; the two hinges differ in their diagonal and bound alone."""

WARM_PASSES = 3
WARM_NEGATIVES = 64
LONGEST_REST = 15
RUN = 16
WINDOW = 128


class Rows(NamedTuple):
    """Training rows as the kernels see them.

    `indptr`, `indices` and `values` are CSR; `scales` holds each row's factor (1 / its length where rows are
    normalised), `squares` its squared length after scaling, the bias included; `bias` is the value of the bias feature
    that every row has, 0 for none.
    """

    indptr: Int64
    indices: Int32
    values: Float32
    scales: npt.NDArray[np.float64]
    squares: Float32
    bias: np.float32


class Problem(NamedTuple):
    """What is to be solved for one block.

    `positive_lanes[positive_offsets[p]:positive_offsets[p + 1]]` are the labels of the block that row
    `positive_rows[p]` has. `diagonal` and `bound`, of shape (2, 64), hold 1 / (2 C) or 0 and the largest dual variable,
    for negative (row 0) and positive labels (row 1). A negative row with no score above `screen` needs no dual
    variables. Gradients up to `tolerance` are let be.
    """

    positive_rows: Int64
    positive_offsets: Int64
    positive_lanes: Int32
    loss: int
    diagonal: Float32
    bound: Float32
    screen: np.float32
    tolerance: np.float32
    max_passes: int


class Memory(NamedTuple):
    """Working memory for one block at a time, used again for the next; make it with `allocate`."""

    weights: Float32
    bias_weights: Float32
    slot_of_row: Int32
    dual: Float32
    sign: npt.NDArray[np.int8]
    rest: npt.NDArray[np.uint8]
    patience: npt.NDArray[np.uint8]
    order: Int32
    scores: Float32
    change: Float32

    @staticmethod
    def allocate(n_rows: int, n_features: int) -> Memory:
        """Memory for so many rows and features."""
        return Memory(
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
def next_random(state: npt.NDArray[np.uint64]) -> Any:
    """Advance a splitmix64 generator kept in ``state[0]`` and return 64 random bits."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    bits = state[0]
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


@kernel
def random_below(limit: int, state: npt.NDArray[np.uint64]) -> Any:
    """Give a random number from 0 to `limit` - 1, for limits below 2**32."""
    return np.int64(((next_random(state) >> np.uint64(32)) * np.uint64(limit)) >> np.uint64(32))


@kernel
def shuffle(order: Int32, count: int, finely: bool, state: npt.NDArray[np.uint64]) -> None:
    """Shuffle the first `count` numbers of `order` in place, in runs of `RUN`; if `finely`, then also inside windows.

    Rows that lie close in memory are so visited close in time, which is up to three times as fast as a shuffle of all.
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
    scores: Float32,
    dual: Float32,
    sign: npt.NDArray[np.int8],
    slot: Any,
    q: Any,
    bound: Float32,
    tolerance: Any,
    change: Float32,
) -> Any:
    """Do what `hinge_lanes` does for the logistic loss.

    With the new dual variable written as U s(t), s the sigmoid, the optimum solves t + q (U s(t) - old) + y f = 0. The
    left side grows with t at a slope between 1 and 1 + q U / 4: Newton steps inside a bracket that every third step
    halves. The gradient is at least the change times the smallest curvature of the dual, q + 4 / U.
    """
    lines = 0
    most = np.float32(0)
    for lane in range(LANES):
        y = np.float32(sign[slot, lane])
        upper = bound[1, lane] if y > 0 else bound[0, lane]
        old = dual[slot, lane]
        margin = y * scores[lane]
        high = q * old - margin
        low = high - q * upper
        t = high - q * upper / (np.float32(1) + np.exp(-np.float32(0.5) * (low + high)))
        for iteration in range(60):
            sigmoid = np.float32(1) / (np.float32(1) + np.exp(-t))
            value = t + q * (upper * sigmoid - old) + margin
            if abs(value) <= np.float32(1e-6) * (np.float32(1) + abs(t)):
                break
            if value > 0:
                high = t
            else:
                low = t
            t -= value / (np.float32(1) + q * upper * sigmoid * (np.float32(1) - sigmoid))
            if iteration % 3 == 2 or not (low < t < high):
                t = np.float32(0.5) * (low + high)
        new = upper / (np.float32(1) + np.exp(-t))
        if abs(new - old) * (q + np.float32(4) / upper) > tolerance:
            lines |= 1 << (lane // LINE)
        else:
            new = old
        change[lane] = (new - old) * y
        most = max(most, new)
    return lines, most


@kernel
def _open_positives(problem: Problem, memory: Memory) -> None:
    """Give the positive rows their slots, the first ones."""
    for slot in range(len(problem.positive_rows)):
        memory.slot_of_row[problem.positive_rows[slot]] = slot
        memory.rest[slot] = 0
        memory.patience[slot] = 0
        for lane in range(LANES):
            memory.dual[slot, lane] = 0
            memory.sign[slot, lane] = -1
        for at in range(problem.positive_offsets[slot], problem.positive_offsets[slot + 1]):
            memory.sign[slot, problem.positive_lanes[at]] = 1


@kernel
def _visit_rows(
    count: int, slots: int, rows: Rows, problem: Problem, memory: Memory, stop: npt.NDArray[np.uint8]
) -> Any:
    """Visit the first `count` rows of ``memory.order``: score each and take its dual step, if it has one to take.

    Rows that stay of interest are moved to the front of the order.

    Returns
    -------
    (slots, kept, moved, rested)
        How many slots are open, how many rows were kept in the order, took a step, and were left to rest.
    """
    indptr, indices, values, scales, squares, bias = rows
    weights, bias_weights, slot_of_row, dual, sign, rest, patience, order, scores, change = memory
    n_positive = len(problem.positive_rows)
    loss, diagonal, bound = problem.loss, problem.diagonal, problem.bound
    screen, tolerance = problem.screen, problem.tolerance
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
        if slot >= 0 and rest[slot] > 0:
            rest[slot] -= 1
            rested += 1
            order[kept] = row
            kept += 1
            continue
        start, end, scale = indptr[row], indptr[row + 1], np.float32(scales[row])
        largest = lane_scores(indices, values, start, end, weights, scale, bias, bias_weights, scores)
        if slot < 0:
            if largest <= screen:
                continue
            slot = np.int64(slots)
            slots += 1
            slot_of_row[row] = slot
            rest[slot] = 0
            patience[slot] = 0
            for lane in range(LANES):
                dual[slot, lane] = 0
                sign[slot, lane] = -1
        if loss == LOGISTIC:
            lines, most = logistic_step(scores, dual, sign, slot, squares[row], bound, tolerance, change)
        else:
            lines, most = hinge_lanes(scores, dual, sign, slot, squares[row], diagonal, bound, tolerance, change)
        if lines != 0:
            lane_commit(dual, sign, slot, bias_weights, bias, change, scale)
            lane_add(indices, values, start, end, weights, change, lines)
            moved += 1
            patience[slot] = 0
        else:
            patience[slot] = min(2 * patience[slot] + 1, LONGEST_REST)
            rest[slot] = patience[slot]
        if most > 0 or slot < n_positive:
            order[kept] = row
            kept += 1
    return slots, kept, moved, rested


@kernel
def solve_block(
    rows: Rows,
    problem: Problem,
    memory: Memory,
    state: npt.NDArray[np.uint64],
    stop: npt.NDArray[np.uint8],
) -> Any:
    """Train the classifiers of one block of labels.

    Parameters
    ----------
    rows : Rows
    problem : Problem
    memory : Memory
        Its `weights` and `bias_weights` are set to the starting point by the caller and hold the result afterwards.
    state : ndarray of uint64, shape (1,)
        Random state.
    stop : ndarray of uint8, shape (1,)
        Turns 1 when the user wants an end.

    Returns
    -------
    (number of passes, True if converged)
    """
    n, n_positive = len(rows.indptr) - 1, len(problem.positive_rows)
    order, rest = memory.order, memory.rest
    _open_positives(problem, memory)
    slots = n_positive
    for _ in range(WARM_PASSES):
        for at in range(n_positive + WARM_NEGATIVES):
            order[at] = problem.positive_rows[at] if at < n_positive else random_below(n, state)
        slots, _, _, _ = _visit_rows(n_positive + WARM_NEGATIVES, slots, rows, problem, memory, stop)
        rest[:slots] = 0
    memory.patience[:slots] = 0
    for row in range(n):
        order[row] = row
    active = n
    passes = 0
    converged = False
    while passes < problem.max_passes and not converged and not stop[0]:
        shuffle(order, active, passes > 0, state)
        slots, kept, moved, rested = _visit_rows(active, slots, rows, problem, memory, stop)
        passes += 1
        if moved == 0 and rested == 0:
            converged = active == n
            for row in range(n):
                order[row] = row
            kept = n
        if moved == 0:
            rest[:slots] = 0
        active = kept
    memory.slot_of_row[:] = -1
    return passes, converged

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
"""

from __future__ import annotations

import numpy as np
from numba import njit

from longtail.engine.lanes import LANES, hinge_lanes, lane_add, lane_commit, lane_dot, lane_scores

SQUARED_HINGE, HINGE, LOGISTIC = 0, 1, 2
"""Codes of the losses for the kernels; the two hinges differ in their diagonal and bound alone."""

WARM_PASSES = 3
WARM_NEGATIVES = 64
LONGEST_REST = 15
RUN = 32


@njit(nogil=True, cache=True)
def next_random(state):  # type: ignore[no-untyped-def]
    """Advance a splitmix64 generator kept in ``state[0]`` and return 64 random bits."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    bits = state[0]
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


@njit(nogil=True, cache=True)
def shuffle_runs(order, count, state):  # type: ignore[no-untyped-def]
    """Shuffle the first `count` numbers of `order` in place, in runs of `RUN` neighbours.

    A random order of single rows converges no faster, and takes up to three times as long to read from memory.
    """
    for last in range(count // RUN - 1, 0, -1):
        other = np.int64(((next_random(state) >> np.uint64(32)) * np.uint64(last + 1)) >> np.uint64(32))
        for step in range(RUN):
            here, there = last * RUN + step, other * RUN + step
            order[here], order[there] = order[there], order[here]


@njit(nogil=True, cache=True, fastmath=True)
def logistic_step(scores, dual, sign, q, bound, change):  # type: ignore[no-untyped-def]
    """Do what `hinge_lanes` does for the logistic loss.

    With the new dual variable written as U s(t), s the sigmoid, the optimum solves t + q (U s(t) - old) + y f = 0. The
    left side grows with t at a slope between 1 and 1 + q U / 4: Newton steps inside a shrinking bracket. The violation
    is bounded from below by the change times the smallest curvature of the dual, q + 4 / U.
    """
    largest = np.float32(0)
    most = np.float32(0)
    for lane in range(LANES):
        y = np.float32(sign[lane])
        upper = bound[1, lane] if sign[lane] > 0 else bound[0, lane]
        old = dual[lane]
        margin = y * scores[lane]
        high = q * old - margin
        low = high - q * upper
        t = high - q * upper / (np.float32(1) + np.exp(-np.float32(0.5) * (low + high)))
        for _ in range(12):
            sigmoid = np.float32(1) / (np.float32(1) + np.exp(-t))
            value = t + q * (upper * sigmoid - old) + margin
            if abs(value) <= np.float32(1e-6) * (np.float32(1) + abs(t)):
                break
            if value > 0:
                high = t
            else:
                low = t
            t -= value / (np.float32(1) + q * upper * sigmoid * (np.float32(1) - sigmoid))
            if not (low < t < high):
                t = np.float32(0.5) * (low + high)
        new = upper / (np.float32(1) + np.exp(-t))
        change[lane] = (new - old) * y
        largest = max(largest, abs(new - old) * (q + np.float32(4) / upper))
        most = max(most, new)
    return largest, most


@njit(nogil=True, cache=True, fastmath=True)
def _visit(
    row, slot, indptr, indices, values, scale, q, bias, weights, bias_weights, dual, sign,
    loss, diagonal, bound, tolerance, scores, change,
):  # type: ignore[no-untyped-def]  # fmt: skip
    """Take one dual step for a row whose scores are known; write it back if it is large enough to matter."""
    if loss == LOGISTIC:
        largest, most = logistic_step(scores, dual[slot], sign[slot], q, bound, change)
    else:
        largest, most = hinge_lanes(scores, dual[slot], sign[slot], q, diagonal, bound, change)
    if largest <= tolerance:
        return False, most
    lane_commit(dual[slot], sign[slot], bias_weights, bias, change, scale)
    lane_add(indices, values, indptr[row], indptr[row + 1], weights, change)
    return True, most


@njit(nogil=True, cache=True)
def _open_slot(row, slots, slot_of_row, dual, sign, rest, patience):  # type: ignore[no-untyped-def]
    slot_of_row[row] = slots
    rest[slots] = 0
    patience[slots] = 0
    for lane in range(LANES):
        dual[slots, lane] = 0
        sign[slots, lane] = -1
    return slots


@njit(nogil=True, cache=True, fastmath=True)
def solve_block(
    indptr, indices, values, scales, squares, bias,
    positive_rows, positive_offsets, positive_lanes,
    loss, diagonal, bound, screen, tolerance, max_passes,
    weights, bias_weights, slot_of_row, dual, sign, rest, patience, order, state, stop,
):  # type: ignore[no-untyped-def]  # fmt: skip
    """Train the classifiers of one block of labels.

    Parameters
    ----------
    indptr, indices, values : int64, int32, float32 arrays
        The rows, CSR.
    scales : ndarray of float32
        Factor of each row: 1 / its length where rows are normalised.
    squares : ndarray of float32
        Squared length of each scaled row, the bias included.
    bias : float
        Value of the bias feature that every row has, 0 for none.
    positive_rows, positive_offsets, positive_lanes : int64, int64, int32 arrays
        Rows with a label of this block, and which lanes those are (CSR-like).
    loss : int
        `SQUARED_HINGE`, `HINGE` or `LOGISTIC`.
    diagonal, bound : ndarray of float32, shape (2, 64)
        1 / (2 C) or 0, and the largest dual variable, for negative (row 0) and positive (row 1) labels.
    screen : float
        A negative row with no score above this needs no dual variables.
    tolerance : float
        Smaller violations are let be; the solver stops when there is no larger one.
    max_passes : int
        Passes over the rows, the full one included.
    weights, bias_weights : float32 arrays, shapes (features, 64) and (64,)
        Set to the starting point by the caller; the result.
    slot_of_row, dual, sign, rest, patience, order
        Working memory for n rows: int32 filled with -1 (left so again), float32 (n, 64), int8 (n, 64), uint8, uint8,
        int32.
    state : ndarray of uint64, shape (1,)
        Random state.
    stop : ndarray of uint8, shape (1,)
        Turns 1 when the user wants an end.

    Returns
    -------
    (number of passes, True if converged)
    """
    n = indptr.shape[0] - 1
    scores = np.zeros(LANES, np.float32)
    change = np.zeros(LANES, np.float32)
    slots = 0
    n_positive = positive_rows.shape[0]
    for p in range(n_positive):
        _open_slot(positive_rows[p], slots, slot_of_row, dual, sign, rest, patience)
        for at in range(positive_offsets[p], positive_offsets[p + 1]):
            sign[slots, positive_lanes[at]] = 1
        slots += 1
    warm_visits = n_positive + WARM_NEGATIVES
    for visit in range(WARM_PASSES * warm_visits):
        if visit % warm_visits < n_positive:
            row = positive_rows[visit % warm_visits]
        else:
            row = np.int64(next_random(state) % np.uint64(n))
        if squares[row] <= 0:
            continue
        scores[:] = 0
        lane_dot(indices, values, indptr[row], indptr[row + 1], weights, scores)
        largest = lane_scores(scores, scales[row], bias, bias_weights)
        slot = slot_of_row[row]
        if slot < 0:
            if largest <= screen:
                continue
            slot = _open_slot(row, slots, slot_of_row, dual, sign, rest, patience)
            slots += 1
        _visit(
            row, slot, indptr, indices, values, scales[row], squares[row], bias, weights, bias_weights, dual, sign,
            loss, diagonal, bound, tolerance, scores, change,
        )  # fmt: skip
        if stop[0]:
            break
    for row in range(n):
        order[row] = row
    active = n
    passes = 0
    converged = False
    while passes < max_passes and not converged and not stop[0]:
        shuffle_runs(order, active, state)
        kept = 0
        moved = 0
        rested = 0
        for at in range(active):
            row = order[at]
            slot = slot_of_row[row]
            if squares[row] <= 0:
                continue
            if slot >= 0 and rest[slot] > 0:
                rest[slot] -= 1
                rested += 1
                order[kept] = row
                kept += 1
                continue
            scores[:] = 0
            lane_dot(indices, values, indptr[row], indptr[row + 1], weights, scores)
            largest = lane_scores(scores, scales[row], bias, bias_weights)
            if slot < 0:
                if largest <= screen:
                    continue
                slot = _open_slot(row, slots, slot_of_row, dual, sign, rest, patience)
                slots += 1
            stepped, most = _visit(
                row, slot, indptr, indices, values, scales[row], squares[row], bias, weights, bias_weights, dual,
                sign, loss, diagonal, bound, tolerance, scores, change,
            )  # fmt: skip
            if stepped:
                moved += 1
                patience[slot] = 0
            else:
                patience[slot] = min(2 * patience[slot] + 1, LONGEST_REST)
                rest[slot] = patience[slot]
            if most > 0 or slot < n_positive:
                order[kept] = row
                kept += 1
            if at % 1024 == 0 and stop[0]:
                break
        passes += 1
        if moved == 0 and rested == 0:
            if active == n:
                converged = True
            else:
                for row in range(n):
                    order[row] = row
                kept = n
        if moved == 0:
            for slot in range(slots):
                rest[slot] = 0
        active = kept
    for row in range(n):
        slot_of_row[row] = -1
    return passes, converged

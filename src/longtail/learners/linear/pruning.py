"""Pruning of a solved block as far as its training loss allows."""

from __future__ import annotations

from typing import Any

import numpy as np

from longtail.kernels.jit import kernel
from longtail.kernels.lanes import LANES, from_bfloat16, lane_scores, to_bfloat16
from longtail.kernels.rows import CSRRows
from longtail.kernels.types import Float32, Float64, UInt8
from longtail.learners.linear.block_solver import LOGISTIC, SQUARED_HINGE, BlockProblem, SolverMemory
from longtail.learners.linear.problem import SolverSettings, lane_costs
from longtail.learners.linear.weights import Precision
from longtail.runtime.pool import StopFlag
from longtail.weighting import Costs

_STEPS, _FACTOR = 16, 1.5


def bounded_thresholds(
    settings: SolverSettings,
    precision: Precision,
    rows: CSRRows,
    problem: BlockProblem,
    memory: SolverMemory,
    costs: Costs,
    bias_start: Float32,
    stop: StopFlag,
) -> Float32:
    """Find the largest threshold of each lane whose rise in training loss stays within `prune_rise`.

    Candidates are `prune_below`, 1.5 times as much, 2.25 times, ...; a bisection measures the loss of each. The rise
    may be at most that share of the objective before pruning; where even the first candidate exceeds it, the threshold
    is 0, which prunes nothing. Candidates are rounded to the precision in which weights will be stored.
    """
    lane_cost, loss = lane_costs(settings, costs).astype(np.float64), np.zeros(LANES)
    block_losses(rows, problem, memory.weights, memory.bias_weights, lane_cost, loss, stop)
    moved = memory.bias_weights.astype(np.float64) - bias_start
    squares = np.einsum("fl,fl->l", memory.weights, memory.weights, dtype=np.float64)
    objective = loss + 0.5 * (squares + moved**2)
    allowed = loss + (settings.prune_rise or 0.0) * objective
    steps = max(settings.prune_below, 1e-3) * _FACTOR ** np.arange(_STEPS)
    low, high = np.full(LANES, -1), np.full(LANES, _STEPS)  # the last allowed step, and the first that is not
    pruned, after = np.empty_like(memory.weights), np.zeros(LANES)
    while (high - low).max() > 1 and not stop[0]:
        middle = (low + high) // 2
        trial = np.where(middle >= 0, steps[middle], 0).astype(np.float32)
        np.multiply(memory.weights, np.abs(memory.weights) >= trial, out=pruned)
        if precision == "bfloat16":
            pruned[:] = from_bfloat16(to_bfloat16(pruned))
        block_losses(rows, problem, pruned, memory.bias_weights, lane_cost, after, stop)
        fine = after <= allowed
        low, high = np.where(fine, middle, low), np.where(fine, high, middle)
    return np.where(low >= 0, steps[low], 0).astype(np.float32)


@kernel
def _loss(kind: int, margin: Any) -> Any:
    if kind == LOGISTIC:
        return max(-margin, 0.0) + np.log1p(np.exp(-abs(margin)))
    short = max(1.0 - margin, 0.0)
    return short * short if kind == SQUARED_HINGE else short


@kernel
def block_losses(
    rows: CSRRows,
    problem: BlockProblem,
    weights: Float32,
    bias_weights: Float32,
    costs: Float64,
    totals: Float64,
    stop: UInt8,
) -> None:
    """Set `totals` to the cost-weighted loss of each lane over all rows; `costs` as in `lane_costs`."""
    scores = np.zeros(LANES, np.float32)
    kind = problem.loss
    totals[:] = 0
    at, n_positive = 0, len(problem.positive_rows)
    for row in range(len(rows.indptr) - 1):
        if row % 1024 == 0 and stop[0]:
            return
        start, end, scale = rows.indptr[row], rows.indptr[row + 1], np.float32(rows.scales[row])
        lane_scores(rows.indices, rows.values, start, end, weights, scale, rows.bias, bias_weights, scores)
        # Count the row as negative for all lanes, then correct the lanes for which it is positive.
        for lane in range(LANES):
            totals[lane] += costs[0, lane] * _loss(kind, -np.float64(scores[lane]))
        if at < n_positive and problem.positive_rows[at] == row:
            for place in range(problem.positive_offsets[at], problem.positive_offsets[at + 1]):
                lane = problem.positive_lanes[place]
                score = np.float64(scores[lane])
                totals[lane] += costs[1, lane] * _loss(kind, score) - costs[0, lane] * _loss(kind, -score)
            at += 1

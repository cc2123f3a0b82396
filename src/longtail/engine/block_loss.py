"""The training loss of a block of 64 labels, measured on all rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from longtail.engine.block_solver import LOGISTIC, SQUARED_HINGE, Problem, Rows
from longtail.engine.jit import kernel
from longtail.engine.lanes import LANES, lane_scores

Float32 = npt.NDArray[np.float32]


@kernel
def _loss(kind: int, margin: Any) -> Any:
    if kind == LOGISTIC:
        return max(-margin, 0.0) + np.log1p(np.exp(-abs(margin)))
    short = max(1.0 - margin, 0.0)
    return short * short if kind == SQUARED_HINGE else short


@kernel
def block_losses(
    rows: Rows,
    problem: Problem,
    weights: Float32,
    bias_weights: Float32,
    costs: npt.NDArray[np.float64],
    totals: npt.NDArray[np.float64],
    stop: npt.NDArray[np.uint8],
) -> None:
    """Set `totals` to each lane's loss over all rows, times its cost: `costs` is negative (row 0) and positive."""
    scores = np.zeros(LANES, np.float32)
    kind = problem.loss
    totals[:] = 0
    at, n_positive = 0, len(problem.positive_rows)
    for row in range(len(rows.indptr) - 1):
        if row % 1024 == 0 and stop[0]:
            return
        start, end, scale = rows.indptr[row], rows.indptr[row + 1], np.float32(rows.scales[row])
        lane_scores(rows.indices, rows.values, start, end, weights, scale, rows.bias, bias_weights, scores)
        for lane in range(LANES):
            totals[lane] += costs[0, lane] * _loss(kind, -np.float64(scores[lane]))
        if at < n_positive and problem.positive_rows[at] == row:
            for place in range(problem.positive_offsets[at], problem.positive_offsets[at + 1]):
                lane = problem.positive_lanes[place]
                score = np.float64(scores[lane])
                totals[lane] += costs[1, lane] * _loss(kind, score) - costs[0, lane] * _loss(kind, -score)
            at += 1

"""The problem that a block of 64 labels poses to the solver: costs, bounds, starting point and when to stop."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from longtail.engine.block_solver import LOGISTIC, SQUARED_HINGE, Problem, Rows
from longtail.engine.lanes import LANES
from longtail.weighting import Costs

Float32 = npt.NDArray[np.float32]

_VISITS, _PASSES = 470_000, (8, 50)


@dataclass(frozen=True)
class Settings:
    """What the training of a block depends on besides rows, labels and costs; see `OneVsRest`."""

    loss: int
    regularisation: float
    bias: float
    bias_centre: float | None
    prune_below: float
    prune_rise: float | None
    tolerance: float
    max_passes: int | None
    seed: int


def passes_over(settings: Settings, n_rows: int) -> int:
    """Most passes over so many rows."""
    return settings.max_passes or int(np.clip(_VISITS // max(n_rows, 1), *_PASSES))


def random_state(settings: Settings, number: int) -> npt.NDArray[np.uint64]:
    """Random state of block `number`, which decides the order in which rows are visited."""
    return np.array([settings.seed + (number << 32)], np.uint64)


def lane_costs(settings: Settings, costs: Costs) -> Float32:
    """C times the costs of a block's labels: negative (row 0) and positive (row 1)."""
    lanes = np.ones((2, LANES), np.float32)
    lanes[0, : len(costs)], lanes[1, : len(costs)] = costs.negative, costs.positive
    return lanes * np.float32(settings.regularisation)


def bias_start(settings: Settings, label_counts: npt.NDArray[np.integer], n_rows: int) -> Float32:
    """Bias weight that the regulariser draws each lane to; lanes without a label are kept quiet."""
    n_labels = len(label_counts)
    start = np.full(LANES, -1.0 if settings.loss != LOGISTIC else -40.0, np.float32)
    if settings.bias_centre is not None:
        start[:n_labels] = settings.bias_centre
    elif settings.loss == LOGISTIC:
        start[:n_labels] = np.log((label_counts + 0.5) / (n_rows - label_counts + 0.5))
    return start / np.float32(settings.bias) if settings.bias else np.zeros(LANES, np.float32)


def make_problem(
    settings: Settings,
    rows: Rows,
    positives: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int32]],
    cost: Float32,
) -> Problem:
    """Put together what the solver wants to know of a block.

    Parameters
    ----------
    settings : Settings
    rows : Rows
        That the block is trained on.
    positives : tuple of arrays
        Rows with any label of the block, where the lanes of each begin, and the lanes.
    cost : ndarray, shape (2, 64)
        From `lane_costs`.
    """
    diagonal, bound = _dual_limits(settings.loss, cost)
    return Problem(
        *positives,
        settings.loss,
        diagonal,
        bound,
        _screen(settings, bound, rows),
        np.float32(settings.tolerance),
        passes_over(settings, len(rows.indptr) - 1),
    )


def _screen(settings: Settings, bound: Float32, rows: Rows) -> np.float32:
    """Score up to which a row without any label of the block violates nothing by more than the tolerance."""
    tolerance = settings.tolerance
    if settings.loss != LOGISTIC:
        return np.float32(-1 + tolerance)
    share = tolerance / (4 + float(bound[0].max()) * float(rows.squares.max(initial=0)))
    return np.float32(math.log(share / (1 - share)) if share < 1 else math.inf)


def _dual_limits(code: int, cost: Float32) -> tuple[Float32, Float32]:
    """Diagonal and upper bound of the dual problem, for negative (row 0) and positive labels (row 1)."""
    if code == SQUARED_HINGE:
        return np.float32(0.5) / cost, np.full_like(cost, np.float32(3e38))
    return np.zeros_like(cost), cost

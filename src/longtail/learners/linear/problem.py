"""Solver settings, and the optimisation problem of one block of 64 labels: costs, bounds, starting point, tolerance."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from longtail.kernels.augmentation import Positives
from longtail.kernels.lanes import LANES
from longtail.kernels.rows import CSRRows
from longtail.kernels.types import Float32, Int64, UInt64
from longtail.learners.linear.block_solver import (
    HINGE,
    LOGISTIC,
    SQUARED_HINGE,
    BlockProblem,
    SolverMemory,
    solve_block,
)
from longtail.losses import Hinge, Logistic, Loss, SquaredHinge
from longtail.runtime.pool import StopFlag
from longtail.validation import SEED, Boolean, Constraint, Integer, Number, Optional
from longtail.weighting import Costs

if TYPE_CHECKING:
    from longtail.learners.label_trees import LabelTree
    from longtail.learners.linear import OneVsRest

LOSS_CODES: dict[type[Loss], int] = {SquaredHinge: SQUARED_HINGE, Hinge: HINGE, Logistic: LOGISTIC}
SOLVER_CONSTRAINTS: Mapping[str, Constraint] = {
    "C": Number(above=0),
    "normalise": Boolean(),
    "bias": Number(low=0),
    "bias_centre": Optional(Number()),
    "prune_below": Number(low=0),
    "tol": Number(above=0),
    "max_iter": Optional(Integer(1)),
    "random_state": SEED,
}
"""Constraints of the parameters that all learners trained by this solver have."""

_ROW_VISITS, _EPOCHS = 470_000, (8, 50)


@dataclass(frozen=True)
class SolverSettings:
    """Parameters of the solver; see `OneVsRest`."""

    loss: int
    C: float
    bias: float
    bias_centre: float | None
    prune_below: float
    prune_rise: float | None
    tol: float
    max_iter: int | None
    random_state: int

    @classmethod
    def of(cls, learner: OneVsRest | LabelTree, loss: Loss) -> Self:
        """Read the parameters of a learner."""
        return cls(
            loss=LOSS_CODES[type(loss)],
            C=float(learner.C),
            bias=float(learner.bias),
            bias_centre=learner.bias_centre,
            prune_below=float(learner.prune_below),
            prune_rise=getattr(learner, "prune_rise", None),
            tol=float(learner.tol),
            max_iter=learner.max_iter,
            random_state=int(learner.random_state),
        )


def max_epochs(settings: SolverSettings, n_rows: int) -> int:
    """Maximum number of epochs over that many rows."""
    return settings.max_iter or int(np.clip(_ROW_VISITS // max(n_rows, 1), *_EPOCHS))


def lane_costs(settings: SolverSettings, costs: Costs) -> Float32:
    """C times the costs of a block's labels: for negative (row 0) and positive rows (row 1)."""
    lanes = np.ones((2, LANES), np.float32)
    lanes[0, : len(costs)], lanes[1, : len(costs)] = costs.negative, costs.positive
    return lanes * np.float32(settings.C)


def bias_start(settings: SolverSettings, label_counts: Int64, n_rows: int) -> Float32:
    """Bias weight that each lane is regularised toward; lanes without a label get one that no row violates."""
    n_labels = len(label_counts)
    start = np.full(LANES, -1.0 if settings.loss != LOGISTIC else -40.0, np.float32)
    if settings.bias_centre is not None:
        start[:n_labels] = settings.bias_centre
    elif settings.loss == LOGISTIC:
        start[:n_labels] = np.log((label_counts + 0.5) / (n_rows - label_counts + 0.5))
    return start / np.float32(settings.bias) if settings.bias else np.zeros(LANES, np.float32)


def solve(
    settings: SolverSettings,
    number: int,
    rows: CSRRows,
    positives: Positives,
    costs: Costs,
    memory: SolverMemory,
    stop: StopFlag,
) -> BlockProblem:
    """Train a block of labels from the weights in `memory`, leave the result there, and return the problem.

    `number` is the number of the block, which seeds the order in which rows are visited. `positives` are the rows with
    any label of the block, the offsets of their lanes, and the lanes; `costs` are those of the labels of the block.
    """
    diagonal, bound = _dual_limits(settings.loss, lane_costs(settings, costs))
    tol, epochs = np.float32(settings.tol), max_epochs(settings, len(rows.indptr) - 1)
    screen = _screening_score(settings, bound, rows)
    problem = BlockProblem(*positives, settings.loss, diagonal, bound, screen, tol, epochs)
    state: UInt64 = np.array([settings.random_state + (number << 32)], np.uint64)
    solve_block(rows, problem, memory, state, stop)
    return problem


def _screening_score(settings: SolverSettings, bound: Float32, rows: CSRRows) -> np.float32:
    """Score up to which a row without labels of the block violates no optimality condition by more than `tol`."""
    tol = settings.tol
    if settings.loss != LOGISTIC:
        return np.float32(-1 + tol)
    share = tol / (4 + float(bound[0].max()) * float(rows.squares.max(initial=0)))
    return np.float32(math.log(share / (1 - share)) if share < 1 else math.inf)


def _dual_limits(code: int, cost: Float32) -> tuple[Float32, Float32]:
    """Diagonal and upper bound of the dual problem, for negative (row 0) and positive rows (row 1)."""
    if code == SQUARED_HINGE:
        return np.float32(0.5) / cost, np.full_like(cost, np.float32(3e38))
    return np.zeros_like(cost), cost

"""Selection of the k best scores, ties broken by the lower label id."""

from __future__ import annotations

from typing import Any

import numpy as np

from longtail.kernels.jit import kernel, kernel_with
from longtail.kernels.lanes import LANES
from longtail.kernels.types import Flags, Float32, Int32


@kernel
def insert(labels: Int32, scores: Float32, label: Any, score: Any) -> None:
    """Insert a label into a ranking of fixed length, best first, if its score is high enough."""
    # Compare with the last place; -1 is an empty one.
    place = labels.shape[0] - 1
    if score < scores[place] or (score == scores[place] and label > labels[place] and labels[place] >= 0):
        return
    # Move the labels that rank below it down by one.
    while place > 0 and (
        labels[place - 1] < 0 or score > scores[place - 1] or (score == scores[place - 1] and label < labels[place - 1])
    ):
        labels[place] = labels[place - 1]
        scores[place] = scores[place - 1]
        place -= 1
    labels[place] = label
    scores[place] = score


@kernel_with(fastmath={"reassoc", "contract", "nsz"})
def _largest(scores: Float32, start: int) -> Any:
    largest = scores[start]
    for lane in range(1, LANES):
        largest = max(largest, scores[start + lane])
    return largest


@kernel
def select_lanes(lane_scores: Float32, lane_labels: Int32, allowed: Flags, labels: Int32, scores: Float32) -> None:
    """Rank the best lanes of one row.

    Parameters
    ----------
    lane_scores : ndarray of float32, shape (blocks * 64,)
    lane_labels : ndarray of int32
        Label of each lane, -1 for lanes without one.
    allowed : ndarray of bool
        Which labels may be ranked; empty for all.
    labels, scores : int32 and float32 arrays, shape (k,)
        The ranking; the caller fills it with -1 and -inf first.
    """
    last = labels.shape[0] - 1
    restricted = allowed.shape[0] > 0
    for start in range(0, lane_scores.shape[0], LANES):
        if _largest(lane_scores, start) < scores[last]:  # no lane of the block enters the ranking
            continue
        for lane in range(start, start + LANES):
            label = lane_labels[lane]
            if label >= 0 and lane_scores[lane] >= scores[last] and not (restricted and not allowed[label]):
                insert(labels, scores, label, lane_scores[lane])


@kernel_with(fastmath={"reassoc", "contract", "nsz"})
def _largest_bound(scores: Float32, logs: Float32, slope: Any, start: int) -> Any:
    largest = slope * scores[start] + logs[start]
    for lane in range(1, LANES):
        largest = max(largest, slope * scores[start + lane] + logs[start + lane])
    return largest


@kernel
def select_weighted_lanes(
    lane_scores: Float32,
    lane_labels: Int32,
    allowed: Flags,
    slope: Any,
    lane_factors: Float32,
    lane_logs: Float32,
    labels: Int32,
    scores: Float32,
) -> None:
    """Rank the lanes of one row by factor times sigmoid(slope * score).

    slope * score is an upper bound of the logarithm of the sigmoid: where the bound is too low, no exponential is
    computed.

    Parameters
    ----------
    lane_scores, lane_labels, allowed
        As for `select_lanes`.
    slope : float32
    lane_factors, lane_logs : ndarray of float32
        Factor of each lane, and its logarithm.
    labels, scores
        As for `select_lanes`.
    """
    last = labels.shape[0] - 1
    restricted = allowed.shape[0] > 0
    floor = np.float32(-np.inf)  # logarithm of the lowest ranked score, less a margin for rounding
    for start in range(0, lane_scores.shape[0], LANES):
        if _largest_bound(lane_scores, lane_logs, slope, start) < floor:
            continue
        for lane in range(start, start + LANES):
            label, bound = lane_labels[lane], slope * lane_scores[lane]
            if label < 0 or bound + lane_logs[lane] < floor or (restricted and not allowed[label]):
                continue
            score = np.float32(lane_factors[lane] / (1 + np.exp(-np.float64(bound))))
            if score >= scores[last]:
                insert(labels, scores, label, score)
                if labels[last] >= 0 and scores[last] > 0:
                    floor = np.float32(np.log(scores[last]) - np.float32(1e-4))


@kernel
def rank_block(block_scores: Float32, lane_labels: Int32, allowed: Flags, labels: Int32, scores: Float32) -> None:
    """Merge the lanes of a block into the rankings of some rows; see `select_lanes`."""
    for row in range(block_scores.shape[0]):
        select_lanes(block_scores[row], lane_labels, allowed, labels[row], scores[row])


@kernel
def rank_weighted_block(
    block_scores: Float32,
    lane_labels: Int32,
    allowed: Flags,
    lane_factors: Float32,
    lane_logs: Float32,
    labels: Int32,
    scores: Float32,
) -> None:
    """Merge the lanes of a block into rankings by factor times sigmoid(score); see `select_weighted_lanes`."""
    for row in range(block_scores.shape[0]):
        select_weighted_lanes(
            block_scores[row], lane_labels, allowed, np.float32(1), lane_factors, lane_logs, labels[row], scores[row]
        )

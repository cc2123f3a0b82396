"""Kernels for the weights of many labels: pruning a solved block, and scoring rows against all blocks.

Weights are kept in two parts. Features that matter for many labels stand in *panels*, one per block of 64 labels, as
dense rows of 64 lanes that `lane_dot` reads at full width. The others stand as *entries* (lane, weight), feature by
feature. Weights are float32 or bfloat16 (uint16).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from longtail.engine.jit import kernel, kernel_with
from longtail.engine.lanes import LANES, lane_dot, lane_dot_then, widen
from longtail.engine.topk_kernels import select_lanes

Float32 = npt.NDArray[np.float32]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]


class PanelWeights(NamedTuple):
    """Weights of all labels.

    `slots` is the row of each feature in the `panels` (blocks by panel rows by 64), -1 for features kept as entries;
    the entries of feature f stand from `offsets[f]` to `offsets[f + 1]` in `lanes` and `values`. `lane_bias` and
    `lane_labels` (-1 for none) belong to each lane of each block.
    """

    slots: Int32
    panels: npt.NDArray[Any]
    offsets: Int64
    lanes: npt.NDArray[Any]
    values: npt.NDArray[Any]
    lane_bias: Float32
    lane_labels: Int32


@kernel_with(fastmath={"reassoc", "contract", "nsz"})
def count_kept(weights: Float32, lanes: int, prune_below: Any, kept: npt.NDArray[np.uint8]) -> int:
    """Count, for each feature, the weights of at least `prune_below` (and not 0) among the first `lanes` lanes."""
    total: Any = 0
    for feature in range(weights.shape[0]):
        count: Any = 0
        for lane in range(LANES):
            size = abs(weights[feature, lane])
            count += np.int64(size >= prune_below and size > 0 and lane < lanes)
        kept[feature] = count
        total += count
    return total  # type: ignore[no-any-return]


@kernel
def collect_kept(
    weights: Float32,
    lanes: int,
    prune_below: Any,
    kept: npt.NDArray[np.uint8],
    out_lanes: npt.NDArray[np.uint8],
    out_values: Float32,
) -> None:
    """Write lane and weight of what `count_kept` counted, feature by feature."""
    at = 0
    for feature in range(weights.shape[0]):
        if kept[feature] == 0:
            continue
        for lane in range(lanes):
            size = abs(weights[feature, lane])
            if size >= prune_below and size > 0:
                out_lanes[at] = lane
                out_values[at] = weights[feature, lane]
                at += 1


@kernel
def place_block(
    block: int,
    features: Int32,
    kept: npt.NDArray[np.uint8],
    lanes: npt.NDArray[np.uint8],
    values: npt.NDArray[Any],
    into: PanelWeights,
    next_entry: Int64,
) -> None:
    """Put the kept weights of one block into its panel and among the entries; `next_entry` moves on."""
    at = 0
    for position in range(features.shape[0]):
        feature = features[position]
        slot = into.slots[feature]
        for _ in range(kept[position]):
            if slot >= 0:
                into.panels[block, slot, lanes[at]] = values[at]
            else:
                into.lanes[next_entry[feature]] = block * LANES + lanes[at]
                into.values[next_entry[feature]] = values[at]
                next_entry[feature] += 1
            at += 1


@kernel
def rank_rows(
    indptr: Int64,
    indices: Int32,
    values: Float32,
    scales: npt.NDArray[np.float64],
    bias: Any,
    first: int,
    last: int,
    weights: PanelWeights,
    allowed: npt.NDArray[np.bool_],
    scores: Float32,
    labels_out: Int32,
    scores_out: Float32,
) -> None:
    """Score rows `first` to `last` against every label and keep the k best of each.

    Parameters
    ----------
    indptr, indices, values, scales, bias
        The rows, as in `longtail.engine.block_solver.Rows`.
    first, last : int
        Which of them; at most ``scores.shape[0]`` at once.
    weights : PanelWeights
    allowed : ndarray of bool
        Labels that may be ranked; empty if all may.
    scores : ndarray of float32, shape (rows at once, blocks * 64)
        Working memory.
    labels_out, scores_out : int32 and float32 arrays, shape (all rows, k)
        Filled by the caller with -1 and -inf; the result.
    """
    size = indptr[last] - indptr[first]
    slots, factors = np.empty(size, np.int32), np.empty(size, np.float32)
    offsets = np.empty(last - first + 1, np.int64)
    used = 0
    for row in range(first, last):
        line = scores[row - first]
        line[:] = bias * weights.lane_bias
        offsets[row - first] = used
        for at in range(indptr[row], indptr[row + 1]):
            feature = indices[at]
            factor = np.float32(values[at] * scales[row])
            slot = weights.slots[feature]
            if slot >= 0:
                slots[used] = slot
                factors[used] = factor
                used += 1
            else:
                for entry in range(weights.offsets[feature], weights.offsets[feature + 1]):
                    line[weights.lanes[entry]] += factor * widen(weights.values[entry])
    offsets[last - first] = used
    if used > 0:
        for block in range(weights.panels.shape[0]):
            panel = weights.panels[block]
            for row in range(last - first):
                total = scores[row, block * LANES : (block + 1) * LANES]
                if last - first > 1:
                    lane_dot(slots, factors, offsets[row], offsets[row + 1], panel, total)
                else:
                    lane_dot_then(slots, factors, offsets[row], offsets[row + 1], panel, total)
    for row in range(first, last):
        select_lanes(scores[row - first], weights.lane_labels, allowed, labels_out[row], scores_out[row])

"""Kernels for the weights of many labels: pruning a solved block, and scoring rows against all blocks.

Weights are kept in two parts. Each block of 64 labels has a *panel*: dense rows of 64 lanes, one per feature that
matters to many of them, which `lane_dot` reads at full width. The other weights stand as *entries* (lane, weight),
feature by feature. Blocks are ordered by the frequency of their labels, and a feature matters to fewer and fewer of
them, so it stands in the panels of the first blocks, as many as its *depth*, and has entries from there on. The deepest
features come first in every panel: a panel is a prefix of the one before, and a row's features, deepest first, give a
prefix for every panel. Weights are float32 or bfloat16 (uint16).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from longtail.engine.jit import kernel, kernel_with
from longtail.engine.lanes import LANES, fetch, lane_dot, lane_dot_then, widen
from longtail.engine.topk_kernels import select_lanes, select_weighted_lanes

Float32 = npt.NDArray[np.float32]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]


_AHEAD = 4  # how many features ahead of its use the first entries of a feature are fetched from memory


class PanelWeights(NamedTuple):
    """Weights of all labels.

    Feature f stands in the panels of the first `depths[f]` blocks, in row `slots[f]` of each; panel b is
    ``panels[starts[b]:starts[b + 1]]``. Its entries stand from `offsets[f]` to `offsets[f + 1]` in `lanes` and
    `values`. `lane_bias` and `lane_labels` (-1 for none) belong to each lane of each block.
    """

    depths: Int32
    slots: Int32
    starts: Int64
    panels: npt.NDArray[Any]
    offsets: Int64
    lanes: npt.NDArray[Any]
    values: npt.NDArray[Any]
    lane_bias: Float32
    lane_labels: Int32


class LaneFactors(NamedTuple):
    """What scores are multiplied by after 1 / (1 + exp(-slope * score)): of each lane, and its logarithm.

    Empty where scores are ranked as they are.
    """

    slope: np.float32
    factors: Float32
    logs: Float32


@kernel_with(fastmath={"reassoc", "contract", "nsz"})
def count_kept(weights: Float32, lanes: int, prune_below: Float32, kept: npt.NDArray[np.uint8]) -> int:
    """Count each feature's weights, among the first `lanes`, that are not 0 and reach their lane's `prune_below`."""
    total: Any = 0
    for feature in range(weights.shape[0]):
        count: Any = 0
        for lane in range(LANES):
            size = abs(weights[feature, lane])
            count += np.int64(size >= prune_below[lane] and size > 0 and lane < lanes)
        kept[feature] = count
        total += count
    return total  # type: ignore[no-any-return]


@kernel
def collect_kept(
    weights: Float32,
    lanes: int,
    prune_below: Float32,
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
            if size >= prune_below[lane] and size > 0:
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
        in_panel = into.depths[feature] > block
        row = into.starts[block] + into.slots[feature]
        for _ in range(kept[position]):
            if in_panel:
                into.panels[row, lanes[at]] = values[at]
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
    lane_factors: LaneFactors,
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
    lane_factors : LaneFactors
    scores : ndarray of float32, shape (rows at once, blocks * 64)
        Working memory.
    labels_out, scores_out : int32 and float32 arrays, shape (all rows, k)
        Filled by the caller with -1 and -inf; the result.
    """
    n, blocks, size = last - first, weights.starts.shape[0] - 1, indptr[last] - indptr[first]
    slots, factors = np.empty(size, np.int32), np.empty(size, np.float32)
    begins, ends = np.zeros(n + 1, np.int64), np.empty((blocks, n), np.int64)
    for row in range(n):
        scores[row, :] = bias * weights.lane_bias
    _gather(indptr, indices, values, scales, first, weights.depths, weights.slots, slots, factors, begins, ends)
    _add_entries(indptr, indices, values, scales, first, weights.offsets, weights.lanes, weights.values, scores)
    _add_panels(slots, factors, begins, ends, weights.starts, weights.panels, scores)
    weighted = lane_factors.factors.shape[0] > 0
    for row in range(n):
        labels_row, scores_row = labels_out[first + row], scores_out[first + row]
        if weighted:
            select_weighted_lanes(
                scores[row], weights.lane_labels, allowed, lane_factors.slope, lane_factors.factors, lane_factors.logs,
                labels_row, scores_row,
            )  # fmt: skip
        else:
            select_lanes(scores[row], weights.lane_labels, allowed, labels_row, scores_row)


@kernel
def _gather(
    indptr: Int64,
    indices: Int32,
    values: Float32,
    scales: npt.NDArray[np.float64],
    first: int,
    depths: Int32,
    feature_slots: Int32,
    slots: Int32,
    factors: Float32,
    begins: Int64,
    ends: Int64,
) -> None:
    """Write what rows have in the panels, deepest feature first, row after row.

    Row i has slots ``begins[i]`` to ``ends[b, i]`` in panel b.
    """
    places = np.empty(ends.shape[0] + 1, np.int64)
    for row in range(ends.shape[1]):
        places[:] = 0
        for at in range(indptr[first + row], indptr[first + row + 1]):
            places[depths[indices[at]]] += 1
        end = begins[row]
        for depth in range(places.shape[0] - 1, 0, -1):
            count = places[depth]
            places[depth] = end
            end += count
            ends[depth - 1, row] = end
        begins[row + 1] = end
        for at in range(indptr[first + row], indptr[first + row + 1]):
            feature = indices[at]
            depth = depths[feature]
            if depth > 0:
                slots[places[depth]] = feature_slots[feature]
                factors[places[depth]] = values[at] * scales[first + row]
                places[depth] += 1


@kernel
def _add_entries(
    indptr: Int64,
    indices: Int32,
    values: Float32,
    scales: npt.NDArray[np.float64],
    first: int,
    offsets: Int64,
    lanes: npt.NDArray[Any],
    weights: npt.NDArray[Any],
    scores: Float32,
) -> None:
    """Add the part of the scores that entries make."""
    for row in range(scores.shape[0]):
        for at in range(indptr[first + row], indptr[first + row + 1]):
            if at + _AHEAD < indices.shape[0]:
                soon = offsets[indices[at + _AHEAD]]
                fetch(lanes, soon)
                fetch(weights, soon)
            factor = np.float32(values[at] * scales[first + row])
            for entry in range(offsets[indices[at]], offsets[indices[at] + 1]):
                scores[row, lanes[entry]] += factor * widen(weights[entry])


@kernel
def _add_panels(
    slots: Int32,
    factors: Float32,
    begins: Int64,
    ends: Int64,
    starts: Int64,
    panels: npt.NDArray[Any],
    scores: Float32,
) -> None:
    """Add the part of the scores that panels make, one panel after the other."""
    blocks, n = ends.shape
    lanes = scores.shape[1]
    for block in range(blocks):
        for row in range(n):
            place = row * lanes + block * LANES
            if n > 1:
                lane_dot(slots, factors, begins[row], ends[block, row], panels, starts[block], scores, place)
            else:
                lane_dot_then(
                    slots, factors, begins[row], ends[block, row], panels, starts[block], scores, place,
                    starts[block + 1],
                )  # fmt: skip

"""Kernels for the weights of many labels: pruning a solved block, and scoring rows against all blocks.

Weights are stored in two parts. Each block of 64 labels has a *panel*: dense rows of 64 lanes, one per feature that
matters to many of its labels, which `lane_dot` reads at full width. The other weights are *entries* (lane, weight),
feature by feature. Blocks are ordered by label frequency, and a feature matters to fewer and fewer of them: it is part
of the panels of the first blocks (their number is its *depth*) and has entries for the rest. The deepest features come
first in every panel, so a panel is a prefix of the previous one, and the features of a row, deepest first, give a
prefix for every panel. Weights are float32 or bfloat16 (uint16).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from longtail.kernels.jit import kernel, kernel_with
from longtail.kernels.lanes import LANES, fetch, lane_dot, lane_dot_then, widen
from longtail.kernels.rows import QueryRows
from longtail.kernels.selection import select_lanes, select_weighted_lanes
from longtail.kernels.types import Array, Flags, Float32, Int32, Int64, UInt8

_AHEAD = 4  # prefetch distance for the entries of a feature, in features


class PanelWeights(NamedTuple):
    """Weights of all labels.

    Feature f is row `slots[f]` of the panels of the first `depths[f]` blocks; panel b is
    ``panels[starts[b]:starts[b + 1]]``. Its entries are ``offsets[f]`` to ``offsets[f + 1]`` of `lanes` and `values`.
    `lane_bias` and `lane_labels` (-1 for none) belong to the lanes of all blocks.
    """

    depths: Int32
    slots: Int32
    starts: Int64
    panels: Array
    offsets: Int64
    lanes: Array
    values: Array
    lane_bias: Float32
    lane_labels: Int32


class LaneFactors(NamedTuple):
    """Factors of sigmoid(slope * score), one per lane, and their logarithms; empty to rank by plain scores."""

    slope: np.float32
    factors: Float32
    logs: Float32


@kernel_with(fastmath={"reassoc", "contract", "nsz"})
def count_kept(weights: Float32, lanes: int, prune_below: Float32, kept: UInt8) -> int:
    """Count the weights of each feature, in the first `lanes`, that reach `prune_below` of their lane and are not 0."""
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
    weights: Float32, lanes: int, prune_below: Float32, kept: UInt8, out_lanes: UInt8, out_values: Float32
) -> None:
    """Write lane and weight of the weights that `count_kept` counted, feature by feature."""
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
    block: int, features: Int32, kept: UInt8, lanes: UInt8, values: Array, into: PanelWeights, next_entry: Int64
) -> None:
    """Write the weights of one block to its panel and to the entries, and advance `next_entry`."""
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
    rows: QueryRows,
    first: int,
    last: int,
    weights: PanelWeights,
    allowed: Flags,
    lane_factors: LaneFactors,
    scores: Float32,
    labels_out: Int32,
    scores_out: Float32,
) -> None:
    """Score rows `first` to `last` - 1 against every label and keep the k best of each.

    `allowed` are the labels that may be ranked, empty if all may. `scores`, of shape (at least last - first,
    blocks * 64), is working memory. `labels_out` and `scores_out`, of shape (all rows, k) and filled by the caller with
    -1 and -inf, are set to the ranking.
    """
    n, blocks = last - first, weights.starts.shape[0] - 1
    size = rows.indptr[last] - rows.indptr[first]
    slots, factors = np.empty(size, np.int32), np.empty(size, np.float32)
    begins, ends = np.zeros(n + 1, np.int64), np.empty((blocks, n), np.int64)
    for row in range(n):
        scores[row, :] = rows.bias * weights.lane_bias
    _gather(rows, first, weights, slots, factors, begins, ends)
    _add_entries(rows, first, weights, scores)
    _add_panels(slots, factors, begins, ends, weights, scores)
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
    rows: QueryRows, first: int, weights: PanelWeights, slots: Int32, factors: Float32, begins: Int64, ends: Int64
) -> None:
    """Sort the features of each row by depth, deepest first, and write their panel slots and values.

    In panel b, row i has ``slots[begins[i]:ends[b, i]]``.
    """
    indptr, indices, values, scales = rows.indptr, rows.indices, rows.values, rows.scales
    depths, feature_slots = weights.depths, weights.slots
    places = np.empty(ends.shape[0] + 1, np.int64)
    for row in range(ends.shape[1]):
        places[:] = 0  # counting sort by depth
        for at in range(indptr[first + row], indptr[first + row + 1]):
            places[depths[indices[at]]] += 1
        # Counts become offsets, the largest depth first; panel b ends after the features deeper than b.
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
def _add_entries(rows: QueryRows, first: int, weights: PanelWeights, scores: Float32) -> None:
    """Add the contribution of the entries to the scores."""
    indptr, indices, row_values, scales = rows.indptr, rows.indices, rows.values, rows.scales
    offsets, lanes, values = weights.offsets, weights.lanes, weights.values
    for row in range(scores.shape[0]):
        for at in range(indptr[first + row], indptr[first + row + 1]):
            if at + _AHEAD < indices.shape[0]:
                soon = offsets[indices[at + _AHEAD]]
                fetch(lanes, soon)
                fetch(values, soon)
            factor = np.float32(row_values[at] * scales[first + row])
            for entry in range(offsets[indices[at]], offsets[indices[at] + 1]):
                scores[row, lanes[entry]] += factor * widen(values[entry])


@kernel
def _add_panels(
    slots: Int32, factors: Float32, begins: Int64, ends: Int64, weights: PanelWeights, scores: Float32
) -> None:
    """Add the contribution of the panels to the scores, panel by panel."""
    starts, panels = weights.starts, weights.panels
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

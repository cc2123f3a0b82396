"""Kernels for the weights of many labels: pruning a solved block, and scoring rows against all blocks.

Weights are kept in two parts. Features that matter for many labels stand in *panels*, one per block of 64 labels, as
dense rows of 64 lanes that `lane_dot` reads at full width. The others stand as *entries* (lane, weight), feature by
feature. Weights are float32 or bfloat16 (uint16).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from longtail.engine.lanes import LANES, lane_dot, widen
from longtail.engine.topk_kernels import select_lanes


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"})
def count_kept(weights, lanes, prune_below, kept):  # type: ignore[no-untyped-def]
    """Count, for each feature, the weights of at least `prune_below` (and not 0) among the first `lanes` lanes."""
    total = 0
    for feature in range(weights.shape[0]):
        count = 0
        for lane in range(LANES):
            size = abs(weights[feature, lane])
            count += np.int64(size >= prune_below and size > 0 and lane < lanes)
        kept[feature] = count
        total += count
    return total


@njit(nogil=True, cache=True)
def collect_kept(weights, lanes, prune_below, kept, out_lanes, out_values):  # type: ignore[no-untyped-def]
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


@njit(nogil=True, cache=True)
def place_block(
    block, features, kept, lanes, values, panel_slots, panels, entry_next, entry_lanes, entry_values
):  # type: ignore[no-untyped-def]  # fmt: skip
    """Put the kept weights of one block into its panel and among the entries; `entry_next` moves on."""
    at = 0
    for position in range(features.shape[0]):
        feature = features[position]
        slot = panel_slots[feature]
        for _ in range(kept[position]):
            if slot >= 0:
                panels[block, slot, lanes[at]] = values[at]
            else:
                entry_lanes[entry_next[feature]] = block * LANES + lanes[at]
                entry_values[entry_next[feature]] = values[at]
                entry_next[feature] += 1
            at += 1


@njit(nogil=True, cache=True)
def rank_rows(
    indptr, indices, values, scales, bias, first, last,
    panel_slots, panels, entry_offsets, entry_lanes, entry_values, lane_bias, lane_labels,
    allowed, scores, slots, factors, offsets, labels_out, scores_out,
):  # type: ignore[no-untyped-def]  # fmt: skip
    """Score rows `first` to `last` against every label and keep the k best of each.

    Parameters
    ----------
    indptr, indices, values, scales, bias
        The rows, as for `solve_block`.
    first, last : int
        Which of them; at most ``scores.shape[0]`` at once.
    panel_slots : ndarray of int32
        Row of each feature in the panels, -1 for features kept as entries.
    panels : ndarray, shape (blocks, panel rows, 64)
    entry_offsets, entry_lanes, entry_values : int64, unsigned, weight arrays
        Entries of each feature.
    lane_bias, lane_labels : float32 and int32 arrays, shape (blocks * 64,)
    allowed : ndarray of bool
        Labels that may be ranked; empty if all may.
    scores, slots, factors, offsets
        Working memory: float32 (rows, blocks * 64), int32 and float32 (non-zeros of the rows), int64 (rows + 1).
    labels_out, scores_out : int32 and float32 arrays, shape (all rows, k)
        Filled by the caller with -1 and -inf; the result.
    """
    used = 0
    for row in range(first, last):
        line = scores[row - first]
        line[:] = bias * lane_bias
        offsets[row - first] = used
        for at in range(indptr[row], indptr[row + 1]):
            feature = indices[at]
            factor = values[at] * scales[row]
            slot = panel_slots[feature]
            if slot >= 0:
                slots[used] = slot
                factors[used] = factor
                used += 1
            else:
                for entry in range(entry_offsets[feature], entry_offsets[feature + 1]):
                    line[entry_lanes[entry]] += factor * widen(entry_values[entry])
    offsets[last - first] = used
    if panels.shape[1] > 0:
        for block in range(panels.shape[0]):
            for row in range(last - first):
                lane_dot(
                    slots, factors, offsets[row], offsets[row + 1], panels[block],
                    scores[row, block * LANES : (block + 1) * LANES],
                )  # fmt: skip
    for row in range(first, last):
        select_lanes(scores[row - first], lane_labels, allowed, labels_out[row], scores_out[row])

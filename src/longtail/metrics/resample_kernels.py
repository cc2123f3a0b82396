"""Kernels for resampling rows and summing their values, `LANES` resamples side by side; one thread.

Weights are rows by lanes: how often a resample contains a row, or whether it keeps or swaps it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from longtail.kernels.jit import kernel, kernel_with
from longtail.kernels.random import STEP, mixed
from longtail.kernels.types import Float64, Int32, Int64, UInt8, UInt64

LANES = 64
"""Resamples that are computed together. LLVM vectorises loops over 64 lanes; loops over 16 or 32 it unrolls first, and
`label_means` takes three times as long."""

_S11 = np.uint64(11)
_ONE = np.uint64(1)
_UNIT = 2.0**-53


@kernel
def draw_rows(states: UInt64, weights: UInt8) -> None:
    """Sample n rows with replacement for each state, and count them in `weights` (n by lanes)."""
    n, lanes = weights.shape
    counts = np.empty(n, np.uint8)
    for lane in range(lanes):
        counts[:] = 0
        state = states[lane]
        for _ in range(n):
            state += STEP
            counts[int((mixed(state) >> _S11) * _UNIT * n)] += 1
        for row in range(n):
            weights[row, lane] = counts[row]


@kernel
def draw_masks(states: UInt64, bits_per_row: int, weights: UInt8) -> None:
    """Choose every row with probability one half by one random bit, or three quarters by two, for each state."""
    n, lanes = weights.shape
    used = np.uint64(bits_per_row)
    for lane in range(lanes):
        state = states[lane]
        bits = np.uint64(0)
        for row in range(n):
            if row % (64 // bits_per_row) == 0:
                state += STEP
                bits = mixed(state)
            weights[row, lane] = (bits | bits >> (used - _ONE)) & _ONE
            bits >>= used


@kernel_with(fastmath={"contract"})
def weighted_sums(values: Float64, weights: UInt8, sums: Float64) -> None:
    """Fill `sums` (columns by LANES) with weighted sums of the columns of `values` (n by columns).

    Processes four rows at a time, to read and write each sum once for them.
    """
    n, columns = values.shape
    weight = np.empty((4, LANES))
    sums[:] = 0.0
    for start in range(0, n - n % 4, 4):
        for row in range(4):
            for lane in range(LANES):
                weight[row, lane] = weights[start + row, lane]
        for column in range(columns):
            first, second = values[start, column], values[start + 1, column]
            third, fourth = values[start + 2, column], values[start + 3, column]
            for lane in range(LANES):
                sums[column, lane] += (
                    first * weight[0, lane]
                    + second * weight[1, lane]
                    + third * weight[2, lane]
                    + fourth * weight[3, lane]
                )
    for row in range(n - n % 4, n):
        for column in range(columns):
            value = values[row, column]
            for lane in range(LANES):
                sums[column, lane] += value * weights[row, lane]


@kernel
def sort_by_label(
    labels: Int32, hits: UInt8, span: Int32, starts: Int64, rows: Int32, spans: Int32, is_hit: UInt8
) -> None:
    """Sort the predictions of `labels` (n by k) by label, then by rank; `starts` holds the first entry of each label.

    `hits` is k by n, and `span` holds the span of ranks between cutoffs that each rank belongs to.
    """
    n, k = labels.shape
    position = starts.copy()
    for place in range(k):
        for row in range(n):
            label = labels[row, place]
            if label >= 0:
                entry = position[label]
                rows[entry], spans[entry], is_hit[entry] = row, span[place], hits[place, row]
                position[label] += 1


class LabelEntries(NamedTuple):
    """True rows and predictions by label: those of label l lie between its start and the next.

    Predictions are in the order of their spans of ranks; `hits` is 1 for those that are true.
    """

    true_starts: Int64
    true_rows: Int32
    starts: Int64
    rows: Int32
    spans: Int32
    hits: UInt8


@kernel
def label_hits(
    weights: UInt8,
    entries: LabelEntries,
    bin_of_label: Int64,
    inverse_propensity: Float64,
    true: Int32,
    hit: Int32,
    gains: Float64,
) -> None:
    """Sum true rows, hits and their inverse propensities over the labels of each bin, under each weighting.

    `true` is bins by LANES; `hit` and `gains`, up to each k, are bins times ks by LANES.
    """
    n_ks = len(hit) // len(true)
    total = np.empty(LANES, np.int32)
    true[:], hit[:], gains[:] = 0, 0, 0.0
    for label in range(len(bin_of_label)):
        of_bin, worth = bin_of_label[label], inverse_propensity[label]
        for entry in range(entries.true_starts[label], entries.true_starts[label + 1]):
            row = entries.true_rows[entry]
            for lane in range(LANES):
                true[of_bin, lane] += np.int32(weights[row, lane])
        total[:] = 0
        entry, end, any_hit = entries.starts[label], entries.starts[label + 1], False
        for k in range(n_ks):
            while entry < end and entries.spans[entry] == k:
                if entries.hits[entry]:
                    row, any_hit = entries.rows[entry], True
                    for lane in range(LANES):
                        total[lane] += np.int32(weights[row, lane])
                entry += 1
            if any_hit:
                at = of_bin * n_ks + k
                for lane in range(LANES):
                    hit[at, lane] += total[lane]
                for lane in range(LANES):
                    gains[at, lane] += worth * total[lane]


@kernel_with(error_model="numpy")
def label_means(
    weights: UInt8,
    entries: LabelEntries,
    bin_of_label: Int64,
    possible: Int32,
    found: Int32,
    judged: Int32,
    f1: Float64,
) -> None:
    """Count the parts of coverage and macro-F1 over the labels of each bin, under each weighting.

    `possible`, the labels that any row has, is bins by LANES; labels with a hit
    (`found`), labels true or predicted (`judged`) and the sums of the labels' F1 are bins times ks by LANES.
    """
    n_ks = len(found) // len(possible)
    true, predicted, hit = np.empty(LANES, np.int32), np.empty(LANES, np.int32), np.empty(LANES, np.int32)
    possible[:], found[:], judged[:], f1[:] = 0, 0, 0, 0.0
    for label in range(len(bin_of_label)):
        true[:], predicted[:], hit[:] = 0, 0, 0
        for entry in range(entries.true_starts[label], entries.true_starts[label + 1]):
            row = entries.true_rows[entry]
            for lane in range(LANES):
                true[lane] += np.int32(weights[row, lane])
        of_bin = bin_of_label[label]
        for lane in range(LANES):
            possible[of_bin, lane] += min(true[lane], 1)
        # Predictions of the spans up to each cutoff k, added up from one to the next.
        entry, end, any_hit = entries.starts[label], entries.starts[label + 1], False
        for k in range(n_ks):
            while entry < end and entries.spans[entry] == k:
                row = entries.rows[entry]
                if entries.hits[entry]:
                    any_hit = True
                    for lane in range(LANES):
                        hit[lane] += np.int32(weights[row, lane])
                for lane in range(LANES):
                    predicted[lane] += np.int32(weights[row, lane])
                entry += 1
            at = of_bin * n_ks + k
            for lane in range(LANES):
                judged[at, lane] += min(true[lane] + predicted[lane], 1)
            if any_hit:
                for lane in range(LANES):
                    found[at, lane] += min(hit[lane], 1)
                for lane in range(LANES):
                    f1[at, lane] += 2.0 * hit[lane] / max(true[lane] + predicted[lane], 1)


@kernel_with(error_model="numpy")
def swapped_label_means(
    swaps: UInt8,
    starts: Int64,
    rows: Int32,
    spans: Int32,
    hits: UInt8,
    signs: Int32,
    is_true: UInt8,
    counts: Int32,
    found: Int32,
    judged: Int32,
    f1: Float64,
) -> None:
    """Count the parts of coverage and macro-F1 over the labels, after the rows of each set of swaps were swapped.

    `signs` is 1 for a prediction of the first ranking that the second does not have in the same span of ranks, and -1
    the other way round; a label is counted from the first k where it has such a prediction. `counts` (labels by ks by
    4) holds for both rankings the hits, and the true rows plus predictions. Labels with a hit (`found`), labels
    predicted but true nowhere (`judged`) and the sums of the labels' F1 are 2 ks by LANES: of the one side, then of
    the other.
    """
    n_ks = counts.shape[1]
    more, more_hits = np.empty(LANES, np.int32), np.empty(LANES, np.int32)
    found[:], judged[:], f1[:] = 0, 0, 0.0
    for label in range(len(counts)):
        more[:], more_hits[:] = 0, 0
        entry, end = starts[label], starts[label + 1]
        for k in range(spans[entry], n_ks):
            while entry < end and spans[entry] == k:
                row, sign = rows[entry], signs[entry]
                if hits[entry]:
                    for lane in range(LANES):
                        more_hits[lane] += sign * np.int32(swaps[row, lane])
                for lane in range(LANES):
                    more[lane] += sign * np.int32(swaps[row, lane])
                entry += 1
            hits_a, hits_b = counts[label, k, 0], counts[label, k, 1]
            both_a, both_b = counts[label, k, 2], counts[label, k, 3]
            if not is_true[label]:  # only counts as predicted
                for lane in range(LANES):
                    judged[k, lane] += min(both_a - more[lane], 1)
                for lane in range(LANES):
                    judged[n_ks + k, lane] += min(both_b + more[lane], 1)
            elif hits_a + hits_b > 0:
                for lane in range(LANES):
                    found[k, lane] += min(hits_a - more_hits[lane], 1)
                for lane in range(LANES):
                    found[n_ks + k, lane] += min(hits_b + more_hits[lane], 1)
                for lane in range(LANES):
                    f1[k, lane] += 2.0 * (hits_a - more_hits[lane]) / max(both_a - more[lane], 1)
                for lane in range(LANES):
                    f1[n_ks + k, lane] += 2.0 * (hits_b + more_hits[lane]) / max(both_b + more[lane], 1)

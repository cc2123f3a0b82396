"""Loops that draw rows anew and add up what they give, `LANES` drawings side by side; one thread.

Weights are rows by lanes: how often each drawing has each row, whether it keeps it, or whether it swaps it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from longtail.engine.jit import kernel, kernel_with

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
UInt8 = npt.NDArray[np.uint8]
UInt64 = npt.NDArray[np.uint64]
Float64 = npt.NDArray[np.float64]

LANES = 64
"""Drawings that are worked on together. LLVM turns loops over 64 lanes into vector instructions; those over 16 or 32 it
unrolls first, and `label_means` takes three times as long."""

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_S11, _S27, _S30, _S31 = np.uint64(11), np.uint64(27), np.uint64(30), np.uint64(31)
_ONE, _TWO = np.uint64(1), np.uint64(2)
_UNIT = 2.0**-53


@kernel
def random_bits(state: np.uint64) -> np.uint64:
    """Random number of a state (splitmix64); the next state is ``state + _STEP``."""
    mixed = (state ^ (state >> _S30)) * _FIRST
    mixed = (mixed ^ (mixed >> _S27)) * _SECOND
    return mixed ^ (mixed >> _S31)


@kernel
def draw_rows(states: UInt64, weights: UInt8) -> None:
    """Draw as many rows as there are, with replacement, once for each state; count them in `weights` (n by lanes)."""
    n, lanes = weights.shape
    counts = np.empty(n, np.uint8)
    for lane in range(lanes):
        counts[:] = 0
        state = states[lane]
        for _ in range(n):
            state += _STEP
            counts[int((random_bits(state) >> _S11) * _UNIT * n)] += 1
        for row in range(n):
            weights[row, lane] = counts[row]


@kernel
def draw_parts(states: UInt64, weights: UInt8) -> None:
    """Keep every row with a chance of three quarters, once for each state."""
    n, lanes = weights.shape
    for lane in range(lanes):
        state = states[lane]
        bits = np.uint64(0)
        for row in range(n):
            if row % 32 == 0:
                state += _STEP
                bits = random_bits(state)
            weights[row, lane] = (bits | bits >> _ONE) & _ONE
            bits >>= _TWO


@kernel
def draw_swaps(states: UInt64, weights: UInt8) -> None:
    """Throw a coin for every row, once for each state."""
    n, lanes = weights.shape
    for lane in range(lanes):
        state = states[lane]
        bits = np.uint64(0)
        for row in range(n):
            if row % 64 == 0:
                state += _STEP
                bits = random_bits(state)
            weights[row, lane] = bits & _ONE
            bits >>= _ONE


@kernel_with(fastmath={"contract"})
def weighted_sums(values: Float64, weights: UInt8, sums: Float64) -> None:
    """Fill `sums` (columns by LANES) with the sums of the columns of `values` (n by columns) under each weighting.

    Four rows at a time, so that a sum is read and written once for them.
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
    """Part the predictions of `labels` (n by k) by label, those of a label by place; `starts` says where each begins.

    `hits` is k by n, and `span` holds the span of places that each place belongs to.
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


@kernel
def label_hits(
    weights: UInt8,
    true_starts: Int64,
    true_rows: Int32,
    starts: Int64,
    rows: Int32,
    spans: Int32,
    hits: UInt8,
    group: Int64,
    inverse_propensity: Float64,
    true: Int32,
    hit: Int32,
    gains: Float64,
) -> None:
    """Add up over the labels of each group the true rows, hits and their inverse propensities under each weighting.

    The true rows of a label, and its predictions in the order of their spans of places, stand between two starts.
    `true` is groups by LANES; `hit` and `gains`, up to each k, are groups times ks by LANES.
    """
    n_ks = len(hit) // len(true)
    total = np.empty(LANES, np.int32)
    true[:], hit[:], gains[:] = 0, 0, 0.0
    for label in range(len(group)):
        of_group, worth = group[label], inverse_propensity[label]
        for entry in range(true_starts[label], true_starts[label + 1]):
            row = true_rows[entry]
            for lane in range(LANES):
                true[of_group, lane] += np.int32(weights[row, lane])
        total[:] = 0
        entry, end, any_hit = starts[label], starts[label + 1], False
        for k in range(n_ks):
            while entry < end and spans[entry] == k:
                if hits[entry]:
                    row, any_hit = rows[entry], True
                    for lane in range(LANES):
                        total[lane] += np.int32(weights[row, lane])
                entry += 1
            if any_hit:
                at = of_group * n_ks + k
                for lane in range(LANES):
                    hit[at, lane] += total[lane]
                for lane in range(LANES):
                    gains[at, lane] += worth * total[lane]


@kernel_with(error_model="numpy")
def label_means(
    weights: UInt8,
    true_starts: Int64,
    true_rows: Int32,
    starts: Int64,
    rows: Int32,
    spans: Int32,
    hits: UInt8,
    group: Int64,
    possible: Int32,
    found: Int32,
    judged: Int32,
    f1: Float64,
) -> None:
    """Count over the labels of each group what coverage and macro-F1 are made of, under each weighting.

    Labels stand as in `label_hits`. `possible`, the labels that any row has, is groups by LANES; labels with a hit
    (`found`), labels true or predicted (`judged`) and the sums of the labels' F1 are groups times ks by LANES.
    """
    n_ks = len(found) // len(possible)
    true, predicted, hit = np.empty(LANES, np.int32), np.empty(LANES, np.int32), np.empty(LANES, np.int32)
    possible[:], found[:], judged[:], f1[:] = 0, 0, 0, 0.0
    for label in range(len(group)):
        true[:], predicted[:], hit[:] = 0, 0, 0
        for entry in range(true_starts[label], true_starts[label + 1]):
            row = true_rows[entry]
            for lane in range(LANES):
                true[lane] += np.int32(weights[row, lane])
        of_group = group[label]
        for lane in range(LANES):
            possible[of_group, lane] += min(true[lane], 1)
        entry, end, any_hit = starts[label], starts[label + 1], False
        for k in range(n_ks):
            while entry < end and spans[entry] == k:
                row = rows[entry]
                if hits[entry]:
                    any_hit = True
                    for lane in range(LANES):
                        hit[lane] += np.int32(weights[row, lane])
                for lane in range(LANES):
                    predicted[lane] += np.int32(weights[row, lane])
                entry += 1
            at = of_group * n_ks + k
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
    """Count over labels what coverage and macro-F1 are made of, once the rows of each set of swaps have changed sides.

    `signs` is 1 for a prediction of the first ranking that the second has not at the same span of places, and -1 the
    other way round; a label is counted from the first k where it has such a prediction. `counts` (labels by ks by 4)
    holds for both rankings the hits, and the true rows plus predictions. Labels with a hit (`found`), labels predicted
    but true nowhere (`judged`) and the sums of the labels' F1 are 2 ks by LANES: of the one side, then of the other.
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
            if not is_true[label]:
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

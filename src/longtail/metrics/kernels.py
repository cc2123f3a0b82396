"""Loops over judged predictions: arrays in, arrays filled, one thread.

Matrices of ranks by rows are stored rank by rank, so that running sums over the ranks read contiguous rows.
"""

from __future__ import annotations

import numpy as np

from longtail.kernels.jit import kernel
from longtail.kernels.types import Float32, Float64, Int32, Int64, UInt8


@kernel
def first_duplicate(labels: Int32) -> int:
    """Row of `labels` (n by k) that ranks a label twice, or -1; negative ids are padding and may repeat."""
    n, k = labels.shape
    for row in range(n):
        for place in range(1, k):
            label = labels[row, place]
            if label < 0:
                continue
            for earlier in range(place):
                if labels[row, earlier] == label:
                    return row
    return -1


@kernel
def judge(labels: Int32, indptr: Int64, indices: Int32, weights: Float64, hits: UInt8, gains: Float64) -> None:
    """Mark the predictions that are true in `hits` (k by n), and put their weight in `gains` if there are weights.

    ``indices[indptr[row]:indptr[row + 1]]`` are the sorted true labels of a row of `labels` (n by k).
    """
    n, k = labels.shape
    weighted = weights.size > 0
    for row in range(n):
        start, end = indptr[row], indptr[row + 1]
        for place in range(k):
            label = labels[row, place]
            low, high = start, end
            while low < high:
                middle = (low + high) // 2
                if indices[middle] < label:
                    low = middle + 1
                else:
                    high = middle
            hit = low < end and indices[low] == label
            hits[place, row] = hit
            if weighted:
                gains[place, row] = weights[label] if hit else 0.0


@kernel
def best_gains(indptr: Int64, indices: Int32, weights: Float64, best: Float64) -> None:
    """Fill `best` (k by n) with the k largest weights among the true labels of each row, largest first, then zeros."""
    k, n = best.shape
    largest = np.empty(k, np.float64)
    for row in range(n):
        filled = 0
        for position in range(indptr[row], indptr[row + 1]):
            weight = weights[indices[position]]
            if filled == k and weight <= largest[k - 1]:
                continue
            place = filled if filled < k else k - 1
            while place > 0 and largest[place - 1] < weight:
                largest[place] = largest[place - 1]
                place -= 1
            largest[place] = weight
            filled = min(filled + 1, k)
        for place in range(k):
            best[place, row] = largest[place] if place < filled else 0.0


@kernel
def two_sum(total: float, rest: float, value: float) -> tuple[float, float]:
    """Return total plus value, and the rest plus the rounding error of that sum."""
    after = total + value
    added = after - total
    return after, rest + ((total - (after - added)) + (value - added))


@kernel
def count_labels(labels: Int32, hits: UInt8, span: Int64, predicted: Int64, hit: Int64) -> None:
    """Count the predictions and hits (k by n) of each label, in the column that `span` gives for its rank."""
    n, k = labels.shape
    for row in range(n):
        for place in range(k):
            label = labels[row, place]
            if label >= 0:
                predicted[label, span[place]] += 1
                hit[label, span[place]] += hits[place, row]


@kernel
def add_up(values: Float64, high: Float64, low: Float64) -> None:
    """Add each row of `values` to its total ``high + low``, where `low` accumulates the rounding errors of `high`.

    Carrying the rounding error along (Knuth's two-sum) makes the total independent of the order of the rows and of
    how they are split into chunks. Four sums run side by side, because each addition waits for the one before it.
    """
    m, n = values.shape
    whole = n - n % 4
    totals, rests = np.empty(4), np.empty(4)
    for item in range(m):
        row = values[item]
        t0 = t1 = t2 = t3 = 0.0
        r0 = r1 = r2 = r3 = 0.0
        for position in range(0, whole, 4):
            t0, r0 = two_sum(t0, r0, row[position])
            t1, r1 = two_sum(t1, r1, row[position + 1])
            t2, r2 = two_sum(t2, r2, row[position + 2])
            t3, r3 = two_sum(t3, r3, row[position + 3])
        totals[:] = (t0, t1, t2, t3)
        rests[:] = (r0, r1, r2, r3)
        total, rest = high[item], low[item]
        for lane in range(4):
            total, rest = two_sum(total, rest + rests[lane], totals[lane])
        for position in range(whole, n):
            total, rest = two_sum(total, rest, row[position])
        high[item], low[item] = total, rest


@kernel
def select_top(indptr: Int64, indices: Int32, scores: Float32, labels: Int32, best: Float32) -> None:
    """Fill `labels` and `best` (n by k) with each row's k highest stored scores; equal scores by the lower label id.

    The entries of a row are sorted by label id; both outputs hold their padding already.
    """
    n, k = labels.shape
    for row in range(n):
        filled = 0
        for position in range(indptr[row], indptr[row + 1]):
            score = scores[position]
            if filled == k and score <= best[row, k - 1]:
                continue
            place = filled if filled < k else k - 1
            while place > 0 and best[row, place - 1] < score:
                best[row, place] = best[row, place - 1]
                labels[row, place] = labels[row, place - 1]
                place -= 1
            best[row, place] = score
            labels[row, place] = indices[position]
            filled = min(filled + 1, k)

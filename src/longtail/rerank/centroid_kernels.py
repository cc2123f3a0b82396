"""Kernels for sparse centroids of labels and the distances of rows from them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from longtail.kernels.arrays import with_room
from longtail.kernels.jit import kernel
from longtail.kernels.rows import sparse_dot
from longtail.kernels.selection import insert
from longtail.kernels.types import Array, Float32, Float64, Int32, Int64

_ROUNDING = 1e-4  # error of the logarithm of a score


class Centroids(NamedTuple):
    """Centroids of all labels, one after the other.

    That of label l has ``starts[l]`` to ``starts[l + 1] - 1`` of `features` and `values`, a share ``bias[l]`` in the
    bias feature, and the squared length ``squares[l]``, that of the whole centroid before anything was dropped.
    """

    starts: Int64
    features: Int32
    values: Float32
    bias: Float32
    squares: Float32


@kernel
def find_centroids(
    indptr: Array,
    indices: Int32,
    values: Float32,
    scales: Float64,
    bias: float,
    label_indptr: Array,
    label_rows: Int32,
    first: int,
    last: int,
    drop: float,
    dense: Float64,
    marks: Int32,
) -> Any:
    """Compute the centroids of labels `first` to `last` - 1.

    Parameters
    ----------
    indptr, indices, values, scales
        CSR arrays of the rows, and a factor for each row.
    bias : float
        Value of the bias feature, times the factor of the row too.
    label_indptr, label_rows
        Rows of each label.
    drop : float
        The smallest values are dropped, up to this norm in all.
    dense : ndarray of float64, shape (features,)
        Working memory, 0 before and after.
    marks : ndarray of int32, shape (features,)
        Working memory, -1 before.

    Returns
    -------
    (counts, features, values, bias, squares)
        As in `Centroids`, with counts of values instead of starts.
    """
    n = last - first
    counts, bias_parts, squares = np.zeros(n, np.int64), np.zeros(n, np.float32), np.zeros(n, np.float32)
    touched = np.empty(1024, np.int32)
    out_features, out_values = np.empty(1024, np.int32), np.empty(1024, np.float32)
    written = 0
    for label in range(first, last):
        begin, end = label_indptr[label], label_indptr[label + 1]
        if begin == end:
            continue
        # Sum up the rows of the label; `touched` lists their features.
        n_touched, bias_sum = 0, 0.0
        for at in range(begin, end):
            row = label_rows[at]
            touched = with_room(touched, n_touched + indptr[row + 1] - indptr[row])
            bias_sum += bias * scales[row]
            for place in range(indptr[row], indptr[row + 1]):
                feature = indices[place]
                if marks[feature] != label:
                    marks[feature] = label
                    touched[n_touched] = feature
                    n_touched += 1
                dense[feature] += values[place] * scales[row]
        # From the sum to the mean, and its squared norm.
        share = 1.0 / (end - begin)
        square = bias_sum * share * bias_sum * share
        sizes = np.empty(n_touched, np.float64)
        for at in range(n_touched):
            sizes[at] = abs(dense[touched[at]]) * share
            square += sizes[at] * sizes[at]
        # Keep the large values, sorted by feature, and reset the working memory.
        least = _smallest_kept(sizes, drop)
        kept = np.sort(touched[:n_touched][(sizes >= least) & (sizes > 0)])
        out_features = with_room(out_features, written + len(kept))
        out_values = with_room(out_values, written + len(kept))
        for at in range(len(kept)):
            out_features[written + at] = kept[at]
            out_values[written + at] = dense[kept[at]] * share
        for at in range(n_touched):
            dense[touched[at]] = 0
        written += len(kept)
        counts[label - first] = len(kept)
        bias_parts[label - first] = bias_sum * share
        squares[label - first] = square
    return counts, out_features[:written].copy(), out_values[:written].copy(), bias_parts, squares


@kernel
def _smallest_kept(sizes: Float64, drop: float) -> Any:
    """Return the smallest size to keep, so that the smaller ones have a norm of at most `drop`."""
    if drop <= 0:
        return 0.0
    ordered = np.sort(sizes)
    total = 0.0
    for size in ordered:
        total += size * size
        if total > drop * drop:
            return size
    return np.inf


@kernel
def rerank(
    indptr: Array,
    indices: Int32,
    values: Float32,
    scales: Float64,
    first: int,
    last: int,
    bias: float,
    centroids: Centroids,
    gamma: float,
    alpha: float,
    candidates: Int32,
    strengths: Float32,
    dense: Float32,
    labels: Int32,
    scores: Float32,
) -> None:
    """Rank the candidates of rows `first` to `last` - 1 by the base learner and the centroids.

    The score is exp of ``alpha * strength + (1 - alpha) * log(1 / (1 + exp(gamma * squared distance)))``. It takes
    less work where candidates come best first by their strength.

    Parameters
    ----------
    indptr, indices, values, scales, bias
        The rows, a factor for each, and the bias feature.
    centroids : Centroids
    gamma, alpha : float
    candidates, strengths : int32 and float32 arrays, shape (rows, m)
        Labels, -1 for none, and the logarithm of their scores by the base learner.
    dense : ndarray of float32, shape (features,)
        Working memory, 0 before and after.
    labels, scores : int32 and float32 arrays, shape (rows, k)
        Filled with -1 and -inf; the ranking.
    """
    last_place = labels.shape[1] - 1
    for row in range(first, last):
        # Write the scaled row into dense memory, and sum up its squared norm with the bias feature.
        scale = np.float32(scales[row])
        square = np.float64(bias) * bias
        for at in range(indptr[row], indptr[row + 1]):
            dense[indices[at]] = values[at] * scale
            square += np.float64(values[at]) * values[at]
        square *= scales[row] * scales[row]
        for place in range(candidates.shape[1]):
            label, strength = candidates[row - first, place], strengths[row - first, place]
            if label < 0 or label >= centroids.squares.shape[0] or strength == -np.inf:
                continue
            # The distance is at least the difference of the norms: skip the inner product if that is too far.
            apart = np.sqrt(square) - np.sqrt(centroids.squares[label])
            most = alpha * strength - (1 - alpha) * gamma * apart * apart
            if labels[row - first, last_place] >= 0 and most + _ROUNDING < scores[row - first, last_place]:
                continue
            # Squared distance by ||x||^2 + ||c||^2 - 2 x.c, and the logarithm of the score.
            begin, end = centroids.starts[label], centroids.starts[label + 1]
            product = (
                sparse_dot(centroids.features, centroids.values, begin, end, dense)
                + bias * scales[row] * centroids.bias[label]
            )
            distance = gamma * max(0.0, square + centroids.squares[label] - 2 * product)
            far = distance + np.log1p(np.exp(-distance))
            insert(labels[row - first], scores[row - first], label, np.float32(alpha * strength - (1 - alpha) * far))
        # From logarithms to scores, and reset the working memory.
        for place in range(labels.shape[1]):
            if labels[row - first, place] >= 0:
                scores[row - first, place] = np.exp(scores[row - first, place])
        for at in range(indptr[row], indptr[row + 1]):
            dense[indices[at]] = 0

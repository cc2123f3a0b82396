"""Centroids of labels: the mean of the label's rows, sparse, and how far rows are from them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from longtail.engine.arrays import with_room
from longtail.engine.jit import kernel
from longtail.engine.rows import sparse_dot
from longtail.engine.topk_kernels import insert

Float32 = npt.NDArray[np.float32]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

_ROUNDING = 1e-4  # by which a logarithm of a score may be off


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
    indptr: npt.NDArray[Any],
    indices: Int32,
    values: Float32,
    scales: npt.NDArray[np.float64],
    bias: float,
    label_indptr: npt.NDArray[Any],
    label_rows: Int32,
    first: int,
    last: int,
    drop: float,
    dense: npt.NDArray[np.float64],
    marks: Int32,
) -> Any:
    """Find the centroids of labels `first` to `last`.

    Parameters
    ----------
    indptr, indices, values, scales
        CSR arrays of the rows, and a factor for each row.
    bias : float
        Value of the bias feature, times the factor of the row too.
    label_indptr, label_rows
        Rows of each label.
    drop : float
        The smallest values are dropped, as long as these together have no more than this length.
    dense : ndarray of float64, shape (features,)
        Working memory, 0 before and after.
    marks : ndarray of int32, shape (features,)
        Working memory, -1 before.

    Returns
    -------
    (counts, features, values, bias, squares)
        As in `Centroids`, with the counts of values in the place of the starts.
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
        share = 1.0 / (end - begin)
        square = bias_sum * share * bias_sum * share
        sizes = np.empty(n_touched, np.float64)
        for at in range(n_touched):
            sizes[at] = abs(dense[touched[at]]) * share
            square += sizes[at] * sizes[at]
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
def _smallest_kept(sizes: npt.NDArray[np.float64], drop: float) -> Any:
    """Size below which all together have no more than the length `drop`."""
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
    indptr: npt.NDArray[Any],
    indices: Int32,
    values: Float32,
    scales: npt.NDArray[np.float64],
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
    """Rank the candidates of rows `first` to `last` by what the base learner and the centroids say.

    The score is exp of ``alpha * strength + (1 - alpha) * log(1 / (1 + exp(gamma * squared distance)))``. It takes
    less work where candidates come best first by their strength.

    Parameters
    ----------
    indptr, indices, values, scales, bias
        The rows, a factor for each, and the bias feature.
    centroids : Centroids
    gamma, alpha : float
    candidates, strengths : int32 and float32 arrays, shape (rows, m)
        Labels, -1 for none, and the logarithm of their base scores.
    dense : ndarray of float32, shape (features,)
        Working memory, 0 before and after.
    labels, scores : int32 and float32 arrays, shape (rows, k)
        Filled with -1 and -inf; the ranking.
    """
    last_place = labels.shape[1] - 1
    for row in range(first, last):
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
            # No centroid is nearer than the difference of the lengths: where that is too far, nothing is multiplied.
            apart = np.sqrt(square) - np.sqrt(centroids.squares[label])
            most = alpha * strength - (1 - alpha) * gamma * apart * apart
            if labels[row - first, last_place] >= 0 and most + _ROUNDING < scores[row - first, last_place]:
                continue
            begin, end = centroids.starts[label], centroids.starts[label + 1]
            product = (
                sparse_dot(centroids.features, centroids.values, begin, end, dense)
                + bias * scales[row] * centroids.bias[label]
            )
            distance = gamma * max(0.0, square + centroids.squares[label] - 2 * product)
            far = distance + np.log1p(np.exp(-distance))
            insert(labels[row - first], scores[row - first], label, np.float32(alpha * strength - (1 - alpha) * far))
        for place in range(labels.shape[1]):
            if labels[row - first, place] >= 0:
                scores[row - first, place] = np.exp(scores[row - first, place])
        for at in range(indptr[row], indptr[row + 1]):
            dense[indices[at]] = 0

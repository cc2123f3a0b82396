"""Kernels that cluster points of unit length by cosine: balanced 2-means, and k-means with any number of centres.

Points are dense or sparse rows. The centres of up to 64 clusters form a *panel*, feature-major with one lane per
cluster, so that `lane_dot` scores a point against all of them; dense points are read as sparse rows without gaps
(`read_rows`).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from longtail.kernels.jit import kernel, kernel_with
from longtail.kernels.lanes import LANES, lane_dot
from longtail.kernels.types import Float32, Float64, Int32, Int64, UInt8

SparsePoints = tuple[Int64, Int32, Float32]

MAX_ITER = 20
"""Maximum number of iterations of k-means."""
TOL = 1e-4
"""k-means stops when the mean cosine to the centres rises by less."""
_BLOCK = 4096  # sparse points per task
_NUMBERS = 1 << 18  # values of dense points per task
_FAST = {"reassoc", "contract", "nsz"}


@kernel
def add_rows(
    indptr: Int64, indices: Int32, values: Float32, scales: Float64, first: int, last: int, weights: Any, out: Float32
) -> None:
    """Add ``scales[row] * sum(values[k] * weights[indices[k]])`` to ``out[row]`` for rows `first` to `last` - 1.

    `weights` and `out` have 64 columns; weights are float32 or bfloat16 (uint16).
    """
    begin, end = indptr[first], indptr[last]
    places, factors = indices[begin:end], np.empty(end - begin, np.float32)
    for row in range(first, last):
        for at in range(indptr[row], indptr[row + 1]):
            factors[at - begin] = values[at] * scales[row]
        lane_dot(places, factors, indptr[row] - begin, indptr[row + 1] - begin, weights, 0, out, row * LANES)


class Bisections(NamedTuple):
    """Ranges of labels that are to be split in two.

    Range i is ``order[begins[i]:ends[i]]``, and its first cluster gets ``middles[i] - begins[i]`` labels. `firsts` and
    `seconds` are the positions in the range of the labels that are the initial centres.
    """

    begins: Int64
    middles: Int64
    ends: Int64
    firsts: Int64
    seconds: Int64


@kernel
def bisect_dense(points: Float32, order: Int32, bisections: Bisections, stop: UInt8) -> None:
    """Split ranges of `order` in two, one after the other, by balanced spherical 2-means.

    `points` is C-contiguous, of shape (labels, dimensions). Each range of `order` is rearranged so that the first
    cluster comes first, with labels in their order inside. Returns early once ``stop[0]`` is 1.
    """
    begins, middles, ends, firsts, seconds = bisections
    largest, dimensions = _longest(begins, ends), points.shape[1]
    rows = np.empty((largest, dimensions), np.float32)
    scores, spare = np.empty(largest, np.float32), np.empty(largest, np.float32)
    marks, next_marks = np.empty(largest, np.uint8), np.empty(largest, np.uint8)
    total, left, direction = np.empty(dimensions), np.empty(dimensions), np.empty(dimensions, np.float32)
    nothing = np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.float32)
    for part in range(begins.shape[0]):
        begin, n = begins[part], ends[part] - begins[part]
        # Copy the points next to each other, and add them up.
        total[:] = 0.0
        for i in range(n):
            label = order[begin + i]
            for j in range(dimensions):
                rows[i, j] = points[label, j]
                total[j] += points[label, j]
        _point_between(rows[firsts[part]], rows[seconds[part]], direction)
        count = middles[part] - begin
        if not _two_means(rows, nothing, n, count, total, left, direction, scores, spare, marks, next_marks, stop):
            return
        _split_range(order[begin : begin + n], marks)


@kernel
def bisect_sparse(
    indptr: Int64, indices: Int32, values: Float32, n_features: int, order: Int32, bisections: Bisections, stop: UInt8
) -> None:
    """Same as `bisect_dense` for sparse points; the features of each range are renumbered."""
    begins, middles, ends, firsts, seconds = bisections
    largest = _longest(begins, ends)
    place = np.full(n_features, -1, np.int32)
    scores, spare = np.empty(largest, np.float32), np.empty(largest, np.float32)
    marks, next_marks = np.empty(largest, np.uint8), np.empty(largest, np.uint8)
    starts = np.zeros(largest + 1, np.int64)
    for part in range(begins.shape[0]):
        begin, n = begins[part], ends[part] - begins[part]
        # Copy the points, and add them up.
        for i in range(n):
            label = order[begin + i]
            starts[i + 1] = starts[i] + indptr[label + 1] - indptr[label]
        columns, factors = np.empty(starts[n], np.int32), np.empty(starts[n], np.float32)
        features = np.empty(min(starts[n], n_features), np.int32)
        used = _compact(indptr, indices, values, order[begin : begin + n], starts, place, features, columns, factors)
        total, left, direction = np.zeros(used), np.zeros(used), np.zeros(used, np.float32)
        for at in range(starts[n]):
            total[columns[at]] += factors[at]
        # The initial centres as dense vectors.
        centres = np.zeros((2, used), np.float32)
        for which, chosen in enumerate((firsts[part], seconds[part])):
            for at in range(starts[chosen], starts[chosen + 1]):
                centres[which, columns[at]] = factors[at]
        _point_between(centres[0], centres[1], direction)
        rows, count = (starts, columns, factors), middles[part] - begin
        if not _two_means(None, rows, n, count, total, left, direction, scores, spare, marks, next_marks, stop):
            return
        _split_range(order[begin : begin + n], marks)


@kernel
def _two_means(
    dense: Any,
    sparse: SparsePoints,
    n: int,
    count: int,
    total: Float64,
    left: Float64,
    direction: Float32,
    scores: Float32,
    spare: Float32,
    marks: UInt8,
    next_marks: UInt8,
    stop: UInt8,
) -> bool:
    """Mark the `count` of n points that form the first of two clusters; False if stopped.

    `direction` is the difference of the two centres, `left` the sum of the points of the first cluster, and `total`
    that of all points. Points are `dense` rows, or `sparse` ones if these are None; numba compiles one of the branches.
    """
    starts, columns, factors = sparse
    marks[:n] = 0
    left[:] = 0.0
    before = -np.inf
    for _ in range(MAX_ITER):
        if stop[0]:
            return False
        # Assignment: the points furthest in the direction of the first centre.
        if dense is None:
            _score_sparse(starts, columns, factors, n, direction, scores)
        else:
            _score_dense(dense, n, direction, scores)
        mark_largest(scores[:n], count, spare, next_marks)
        # Update: move the points that change sides between the sums.
        for i in range(n):
            if marks[i] != next_marks[i]:
                sign = 1.0 if next_marks[i] else -1.0
                marks[i] = next_marks[i]
                if dense is None:
                    for at in range(starts[i], starts[i + 1]):
                        left[columns[at]] += sign * factors[at]
                else:
                    for j in range(left.shape[0]):
                        left[j] += sign * dense[i, j]
        mean = _update_direction(left, total, direction) / n
        if mean - before < TOL:
            break
        before = mean
    return True


@kernel
def _longest(begins: Int64, ends: Int64) -> int:
    longest: Any = 0
    for part in range(begins.shape[0]):
        longest = max(longest, ends[part] - begins[part])
    return longest  # type: ignore[no-any-return]


@kernel
def _compact(
    indptr: Int64,
    indices: Int32,
    values: Float32,
    labels: Int32,
    starts: Int64,
    place: Int32,
    features: Int32,
    columns: Int32,
    factors: Float32,
) -> int:
    """Copy the rows of labels, numbering features by first occurrence; `place` is -1 before and after."""
    used: Any = 0
    for i in range(labels.shape[0]):
        at = starts[i]
        for source in range(indptr[labels[i]], indptr[labels[i] + 1]):
            feature = indices[source]
            if place[feature] < 0:
                place[feature] = used
                features[used] = feature
                used += 1
            columns[at] = place[feature]
            factors[at] = values[source]
            at += 1
    for i in range(used):
        place[features[i]] = -1
    return used  # type: ignore[no-any-return]


@kernel
def _score_sparse(starts: Int64, columns: Int32, factors: Float32, n: int, direction: Float32, scores: Float32) -> None:
    for i in range(n):
        score = np.float32(0)
        for at in range(starts[i], starts[i + 1]):
            score += factors[at] * direction[columns[at]]
        scores[i] = score


@kernel_with(fastmath=_FAST)
def _score_dense(rows: Float32, n: int, direction: Float32, scores: Float32) -> None:
    for i in range(n):
        score = np.float32(0)
        for j in range(rows.shape[1]):
            score += rows[i, j] * direction[j]
        scores[i] = score


@kernel
def mark_largest(scores: Float32, count: int, spare: Float32, marks: UInt8) -> None:
    """Set `marks` to 1 for the `count` largest scores (the first of equal ones), and to 0 for the others."""
    n = scores.shape[0]
    for i in range(n):
        spare[i] = scores[i]
    threshold = _select(spare, n, n - count)
    # Scores equal to the threshold fill the places that larger ones leave.
    room: Any = count
    for i in range(n):
        room -= np.int64(scores[i] > threshold)
    for i in range(n):
        equal = scores[i] == threshold and room > 0
        room -= np.int64(equal)
        marks[i] = np.uint8(scores[i] > threshold or equal)


@kernel
def _select(values: Float32, n: int, k: int) -> Any:
    """Return the value with rank k of the first n, which are rearranged (Hoare's quickselect)."""
    low, high = np.int64(0), n - 1
    while low < high:
        # The pivot is the median of three; smaller values move before it, larger ones behind it.
        a, b, c = values[low], values[(low + high) // 2], values[high]
        pivot = max(min(a, b), min(max(a, b), c))
        i, j = low, high
        while i <= j:
            while values[i] < pivot:
                i += 1
            while pivot < values[j]:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        # Continue in the part that holds rank k; between j and i all values equal the pivot.
        if j < k:
            low = i
        if k < i:
            high = j
    return values[k]


@kernel
def _point_between(first: Float32, second: Float32, direction: Float32) -> None:
    """Set `direction` to the difference of two vectors, both scaled to unit length."""
    one, two = 0.0, 0.0
    for j in range(first.shape[0]):
        one += np.float64(first[j]) ** 2
        two += np.float64(second[j]) ** 2
    one = 1 / np.sqrt(one) if one > 0 else 0.0
    two = 1 / np.sqrt(two) if two > 0 else 0.0
    for j in range(first.shape[0]):
        direction[j] = first[j] * one - second[j] * two


@kernel
def _update_direction(left: Float64, total: Float64, direction: Float32) -> Any:
    """Set `direction` to the difference of the centres; return the sum of the cosines of points to their centre."""
    one, two = 0.0, 0.0
    for j in range(left.shape[0]):
        one += left[j] ** 2
        two += (total[j] - left[j]) ** 2
    one, two = np.sqrt(one), np.sqrt(two)
    a = 1 / one if one > 0 else 0.0
    b = 1 / two if two > 0 else 0.0
    for j in range(left.shape[0]):
        direction[j] = left[j] * a - (total[j] - left[j]) * b
    return one + two


@kernel
def _split_range(labels: Int32, marks: UInt8) -> None:
    """Move the marked labels to the front, keeping the order otherwise."""
    rest = np.empty(labels.shape[0], np.int32)
    front, back = 0, 0
    for i in range(labels.shape[0]):
        if marks[i]:
            labels[front] = labels[i]
            front += 1
        else:
            rest[back] = labels[i]
            back += 1
    for i in range(back):
        labels[front + i] = rest[i]


def cut_rows(points: Any, n: int) -> list[slice]:
    """Split n points into blocks, one per task."""
    size = _BLOCK if sp.issparse(points) else max(_NUMBERS // max(points.shape[1], 1), 1)
    return [slice(begin, min(begin + size, n)) for begin in range(0, n, size)]


def read_rows(points: Any, labels: Int32 | None, part: slice) -> SparsePoints:
    """Indptr, indices and values of a block of points, or of the points of `labels[part]`."""
    if sp.issparse(points):
        rows: Any = points
        ends = slice(part.start, part.stop + 1)
        if labels is not None:
            rows, ends = rows[labels[part]], slice(None)
        return rows.indptr[ends].astype(np.int64), rows.indices.astype(np.int32, copy=False), rows.data
    values = points[part] if labels is None else points[labels[part]]
    indptr = np.arange(len(values) + 1, dtype=np.int64) * points.shape[1]
    pattern = _pattern(points.shape[1])
    if values.size > len(pattern):
        pattern = np.tile(np.arange(points.shape[1], dtype=np.int32), len(values))
    return indptr, pattern[: values.size], values.reshape(-1)


@lru_cache(maxsize=2)
def _pattern(width: int) -> Int32:
    """Indices of the largest block of dense rows."""
    return np.tile(np.arange(width, dtype=np.int32), max(_NUMBERS // max(width, 1), 1))


def unit_lanes(panel: Float32) -> Float64:
    """Scale the centres of a panel to unit length (zeros stay), and return their lengths before."""
    lengths = np.sqrt(np.einsum("ij,ij->j", panel, panel, dtype=np.float64))
    panel *= np.divide(1, lengths, out=np.zeros(LANES), where=lengths > 0).astype(np.float32)
    return lengths  # type: ignore[no-any-return]


@kernel
def sum_panel(indptr: Int64, indices: Int32, values: Float32, groups: Int32, first: int, panel: Float32) -> None:
    """Add each row to the lane of its cluster; the panel holds clusters `first` to `first` + 63."""
    for row in range(groups.shape[0]):
        lane = groups[row] - first
        if 0 <= lane < LANES:
            for at in range(indptr[row], indptr[row + 1]):
                panel[indices[at], lane] += values[at]


@kernel
def nearest_centres(
    indptr: Int64,
    indices: Int32,
    values: Float32,
    panel: Float32,
    centres: Int32,
    own: Int32,
    best: Int32,
    cosines: Float32,
    own_cosines: Float32,
) -> None:
    """Update the nearest centre of each row with the centres of one panel.

    `centres` has the number of the centre in each lane, -1 for lanes without one. `best` and `cosines` hold the nearest
    centre so far and its cosine, -1 and -inf at first; ties keep the first. The centre `own` of a row is not
    considered, but its cosine is written to `own_cosines`.
    """
    scores = np.empty(LANES, np.float32)
    for row in range(best.shape[0]):
        scores[:] = 0
        lane_dot(indices, values, indptr[row], indptr[row + 1], panel, 0, scores, 0)
        for lane in range(centres.shape[0]):
            centre = centres[lane]
            if centre < 0:
                continue
            if centre == own[row]:
                own_cosines[row] = scores[lane]
            elif scores[lane] > cosines[row]:
                cosines[row] = scores[lane]
                best[row] = centre

"""Kernels that part points of unit length into groups by cosine, and that add up sparse rows of 64 lanes.

Points are dense rows or sparse ones. Centres of up to 64 groups stand in a *panel*, feature-major, one lane a group, so
that `lane_dot` scores a point against all of them; dense points are read as sparse rows without gaps (`read_rows`).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from longtail.engine.jit import kernel, kernel_with
from longtail.engine.lanes import LANES, lane_dot

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
Marks = npt.NDArray[np.uint8]
Rows = tuple[Int64, Int32, Float32]

ROUNDS = 20
"""Rounds of k-means at most."""
LEAST_GAIN = 1e-4
"""k-means ends when the mean cosine to the centres rises by less."""
_BLOCK = 4096  # sparse points that a thread takes at once
_NUMBERS = 1 << 18  # numbers of dense points that a thread takes at once
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


@kernel
def bisect_dense(
    points: Float32,
    order: Int32,
    begins: Int64,
    middles: Int64,
    ends: Int64,
    firsts: Int64,
    seconds: Int64,
    stop: npt.NDArray[np.uint8],
) -> None:
    """Part stretches of `order` in two by balanced spherical 2-means, one stretch after the other.

    Parameters
    ----------
    points : C-contiguous ndarray, shape (labels, dimensions)
    order : ndarray of int32
        Labels; each stretch is rearranged so that the first part comes first, and labels keep their order inside parts.
    begins, middles, ends : ndarray of int64
        Stretch i is ``order[begins[i]:ends[i]]``, and its first part has ``middles[i] - begins[i]`` labels.
    firsts, seconds : ndarray of int64
        Places, counted from the beginning of the stretch, of the two labels that are the first centres.
    stop : ndarray of uint8, shape (1,)
        Return early once it is 1.
    """
    largest, dimensions = _longest(begins, ends), points.shape[1]
    rows = np.empty((largest, dimensions), np.float32)
    scores, spare = np.empty(largest, np.float32), np.empty(largest, np.float32)
    marks, next_marks = np.empty(largest, np.uint8), np.empty(largest, np.uint8)
    total, left, direction = np.empty(dimensions), np.empty(dimensions), np.empty(dimensions, np.float32)
    for part in range(begins.shape[0]):
        begin, n = begins[part], ends[part] - begins[part]
        for j in range(dimensions):
            total[j] = left[j] = 0.0
        for i in range(n):
            marks[i] = 0
            label = order[begin + i]
            for j in range(dimensions):
                rows[i, j] = points[label, j]
                total[j] += points[label, j]
        _point_between(rows[firsts[part]], rows[seconds[part]], direction)
        before = -np.inf
        for _ in range(ROUNDS):
            if stop[0]:
                return
            _score_dense(rows, n, direction, scores)
            mark_largest(scores[:n], middles[part] - begin, spare, next_marks)
            for i in range(n):
                if marks[i] != next_marks[i]:
                    sign = 1.0 if next_marks[i] else -1.0
                    marks[i] = next_marks[i]
                    for j in range(dimensions):
                        left[j] += sign * rows[i, j]
            mean = _turn(left, total, direction) / n
            if mean - before < LEAST_GAIN:
                break
            before = mean
        _split_stretch(order[begin : begin + n], marks)


@kernel
def bisect_sparse(
    indptr: Int64,
    indices: Int32,
    values: Float32,
    n_features: int,
    order: Int32,
    begins: Int64,
    middles: Int64,
    ends: Int64,
    firsts: Int64,
    seconds: Int64,
    stop: npt.NDArray[np.uint8],
) -> None:
    """Do what `bisect_dense` does for sparse points; each stretch has its own numbering of the features in it."""
    largest = _longest(begins, ends)
    place = np.full(n_features, -1, np.int32)
    scores, spare = np.empty(largest, np.float32), np.empty(largest, np.float32)
    marks, next_marks = np.empty(largest, np.uint8), np.empty(largest, np.uint8)
    starts = np.zeros(largest + 1, np.int64)
    for part in range(begins.shape[0]):
        begin, n = begins[part], ends[part] - begins[part]
        for i in range(n):
            label = order[begin + i]
            starts[i + 1] = starts[i] + indptr[label + 1] - indptr[label]
        columns, factors = np.empty(starts[n], np.int32), np.empty(starts[n], np.float32)
        features = np.empty(min(starts[n], n_features), np.int32)
        used = _compact(indptr, indices, values, order[begin : begin + n], starts, place, features, columns, factors)
        total, left, direction = np.zeros(used), np.zeros(used), np.zeros(used, np.float32)
        for at in range(starts[n]):
            total[columns[at]] += factors[at]
        for i in range(n):
            marks[i] = 0
        centres = np.zeros((2, used), np.float32)
        for which, chosen in enumerate((firsts[part], seconds[part])):
            for at in range(starts[chosen], starts[chosen + 1]):
                centres[which, columns[at]] = factors[at]
        _point_between(centres[0], centres[1], direction)
        before = -np.inf
        for _ in range(ROUNDS):
            if stop[0]:
                return
            for i in range(n):
                score = np.float32(0)
                for at in range(starts[i], starts[i + 1]):
                    score += factors[at] * direction[columns[at]]
                scores[i] = score
            mark_largest(scores[:n], middles[part] - begin, spare, next_marks)
            for i in range(n):
                if marks[i] != next_marks[i]:
                    sign = 1.0 if next_marks[i] else -1.0
                    marks[i] = next_marks[i]
                    for at in range(starts[i], starts[i + 1]):
                        left[columns[at]] += sign * factors[at]
            mean = _turn(left, total, direction) / n
            if mean - before < LEAST_GAIN:
                break
            before = mean
        _split_stretch(order[begin : begin + n], marks)


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
    """Copy the rows of labels, features numbered in the order in which they come; `place` is -1 before and after."""
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


@kernel_with(fastmath=_FAST)
def _score_dense(rows: Float32, n: int, direction: Float32, scores: Float32) -> None:
    for i in range(n):
        score = np.float32(0)
        for j in range(rows.shape[1]):
            score += rows[i, j] * direction[j]
        scores[i] = score


@kernel
def mark_largest(scores: Float32, count: int, spare: Float32, marks: Marks) -> None:
    """Set `marks` to 1 for the `count` largest scores, of equal ones for the first, and to 0 for the others."""
    n = scores.shape[0]
    for i in range(n):
        spare[i] = scores[i]
    threshold = _select(spare, n, n - count)
    room: Any = count
    for i in range(n):
        room -= np.int64(scores[i] > threshold)
    for i in range(n):
        equal = scores[i] == threshold and room > 0
        room -= np.int64(equal)
        marks[i] = np.uint8(scores[i] > threshold or equal)


@kernel
def _select(values: Float32, n: int, k: int) -> Any:
    """Give the value that would stand at place k if the first n were sorted, which rearranges them (Hoare's way)."""
    low, high = np.int64(0), n - 1
    while low < high:
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
        if j < k:
            low = i
        if k < i:
            high = j
    return values[k]


@kernel
def _point_between(first: Float32, second: Float32, direction: Float32) -> None:
    """Set `direction` to the difference of two vectors, both made unit length."""
    one, two = 0.0, 0.0
    for j in range(first.shape[0]):
        one += np.float64(first[j]) ** 2
        two += np.float64(second[j]) ** 2
    one = 1 / np.sqrt(one) if one > 0 else 0.0
    two = 1 / np.sqrt(two) if two > 0 else 0.0
    for j in range(first.shape[0]):
        direction[j] = first[j] * one - second[j] * two


@kernel
def _turn(left: Float64, total: Float64, direction: Float32) -> Any:
    """Point from the centre of the right part to that of the left; give the sum of the cosines to the own centre."""
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
def _split_stretch(stretch: Int32, marks: Marks) -> None:
    """Bring the marked labels to the front; all keep their order otherwise."""
    rest = np.empty(stretch.shape[0], np.int32)
    front, back = 0, 0
    for i in range(stretch.shape[0]):
        if marks[i]:
            stretch[front] = stretch[i]
            front += 1
        else:
            rest[back] = stretch[i]
            back += 1
    for i in range(back):
        stretch[front + i] = rest[i]


def cut_rows(points: Any, n: int) -> list[slice]:
    """Blocks of n points, of a size that suits a thread."""
    size = _BLOCK if sp.issparse(points) else max(_NUMBERS // max(points.shape[1], 1), 1)
    return [slice(begin, min(begin + size, n)) for begin in range(0, n, size)]


def read_rows(points: Any, labels: Int32 | None, part: slice) -> Rows:
    """Indptr, indices and values of a block that `cut_rows` made, of all points or of those of some labels."""
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


def unit_lanes(panel: Float32) -> npt.NDArray[np.float64]:
    """Make the centres of a panel unit length, those of length 0 apart, and give the lengths that they had."""
    lengths = np.sqrt(np.einsum("ij,ij->j", panel, panel, dtype=np.float64))
    panel *= np.divide(1, lengths, out=np.zeros(LANES), where=lengths > 0).astype(np.float32)
    return lengths  # type: ignore[no-any-return]


@kernel
def sum_panel(indptr: Int64, indices: Int32, values: Float32, groups: Int32, first: int, panel: Float32) -> None:
    """Add each row to the lane of its group; the panel holds groups `first` to `first` + 63."""
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
    """Go on looking for the nearest centre of each row, among those of one panel.

    Parameters
    ----------
    indptr, indices, values
        Rows.
    panel : ndarray of float32, shape (features, 64)
    centres : ndarray of int32, shape (at most 64,)
        The number of the centre in each lane, -1 for lanes without one.
    own : ndarray of int32
        A centre that is not looked for, of each row; its cosine is written to `own_cosines`.
    best, cosines : ndarray of int32 and float32
        The nearest centre so far and its cosine; the caller begins with -1 and -inf. Of equals the first stays.
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

"""Label representations: points from the rows, the co-occurrences, the features or the texts of labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from longtail.data.sparse import as_rows
from longtail.errors import InputError, ParameterError
from longtail.features import Tfidf
from longtail.kernels.lanes import LANES
from longtail.kernels.rows import squared_lengths
from longtail.kernels.types import Float32, Float64, UInt8
from longtail.learners.label_trees.clustering import add_rows, cut_rows, read_rows
from longtail.runtime.pool import StopFlag, run_blocks
from longtail.validation import Integer, check

NAMES = ("centroids", "co-occurrence", "both")
"""Representations from the training rows."""

_CHUNK = 1 << 18  # rows whose projections are held in memory
_REQUIREMENT = f"must be one of {', '.join(NAMES)}, a matrix or label texts"


class _Source(NamedTuple):
    """Scaled rows, which are summed per label if `members` (rows by labels) is given."""

    rows: Any
    scales: Float64
    members: sp.csr_array | None


def represent_labels(
    representation: Any,
    X: sp.csr_array,
    Y: sp.csr_array,
    scales: Float64,
    *,
    n_components: int | None,
    random_state: int,
) -> Any:
    """Represent each label by a point of unit length.

    Parameters
    ----------
    representation : {"centroids", "co-occurrence", "both"}, matrix or sequence of str
        The sum of the scaled rows of a label; its row of Y^T Y, the counts of its co-occurrences; both side by side. Or
        given features, dense or sparse, one row per label; or one text per label, from which tf-idf is computed.
    X : csr_array of float32, shape (n, features)
    Y : csr_array of 0 and 1, shape (n, labels)
    scales : ndarray of float64, shape (n,)
        One over the length of each row of X.
    n_components : int, optional
        Dimensions of a random sign projection, which keeps cosines up to an error of about 1 / sqrt(n_components); None
        for exact points. Given features with no more columns are not projected.
    random_state : int
        Seed of the random signs.

    Returns
    -------
    ndarray of float32, shape (labels, n_components), or csr_array of float32 where `n_components` is None
        Zeros for labels without rows, features or known words.

    Examples
    --------
    >>> X = sp.csr_array(np.array([[3, 4, 0], [0, 0, 1]], np.float32))
    >>> Y = sp.csr_array(np.array([[1, 1, 0], [0, 1, 0]], np.float32))
    >>> lengths = np.array([1 / 5, 1])
    >>> represent_labels("centroids", X, Y, lengths, n_components=None, random_state=0).toarray().round(2)
    array([[0.6 , 0.8 , 0.  ],
           [0.42, 0.57, 0.71],
           [0.  , 0.  , 0.  ]], dtype=float32)
    """
    sources = _sources(representation, X, Y, scales)
    if n_components is None:
        return _exact(sources)
    check("n_components", n_components, Integer(1))
    if sources[0].members is None and sources[0].rows.shape[1] <= n_components:
        return _padded(sources[0], int(n_components))
    points = [_project(source, int(n_components), [random_state, place]) for place, source in enumerate(sources)]
    return points[0] if len(points) == 1 else _unit(points[0] + points[1])


def _sources(representation: Any, X: sp.csr_array, Y: sp.csr_array, scales: Float64) -> list[_Source]:
    if isinstance(representation, str):
        if representation not in NAMES:
            raise ParameterError("representation", representation, _REQUIREMENT)
        centroids, companions = _Source(X, scales, Y), _Source(Y, np.ones(Y.shape[0]), Y)
        return {"centroids": [centroids], "co-occurrence": [companions], "both": [centroids, companions]}[
            representation
        ]
    features = _given(representation, Y.shape[1])
    squares = np.empty(features.shape[0])
    if isinstance(features, sp.csr_array):
        squared_lengths(features.indptr.astype(np.int64), features.data, squares)
    else:
        np.einsum("ij,ij->i", features, features, dtype=np.float64, out=squares)
    if not np.isfinite(squares).all():
        row = int(np.flatnonzero(~np.isfinite(squares))[0])
        raise InputError(f"representation has a NaN or infinite value for label {row}: remove or replace it.")
    return [_Source(features, _inverse(np.sqrt(squares)), None)]


def _given(representation: Any, n_labels: int) -> Any:
    """Features of labels from a matrix or texts: a dense float32 array or a csr_array of float32."""
    listed: Any = representation
    if not sp.issparse(listed):
        try:
            listed = np.asarray(listed)
        except ValueError:  # rows of different lengths
            raise ParameterError("representation", type(representation).__name__, _REQUIREMENT) from None
    is_text = listed.ndim == 1 and listed.dtype.kind in "UOT" and all(isinstance(text, str) for text in representation)
    if not is_text and (listed.ndim != 2 or listed.dtype.kind not in "biuf"):
        raise ParameterError("representation", type(representation).__name__, _REQUIREMENT)
    if listed.shape[0] != n_labels:
        what = "text" if is_text else "row"
        raise ParameterError("representation", listed.shape, f"must have one {what} for each of the {n_labels} labels")
    if is_text:
        return Tfidf(min_df=1, idf="smooth").fit_transform([str(text) for text in representation])
    return as_rows(listed, name="representation") if sp.issparse(listed) else np.ascontiguousarray(listed, np.float32)


def _exact(sources: Sequence[_Source]) -> sp.csr_array:
    parts = []
    for given, scales, members in sources:
        rows = sp.csr_array(given)
        values = (rows.data * np.repeat(scales, np.diff(rows.indptr))).astype(np.float32)
        scaled = sp.csr_array((values, rows.indices, rows.indptr), shape=rows.shape)
        parts.append(_unit_rows(scaled if members is None else sp.csr_array(members.T) @ scaled))
    return parts[0] if len(parts) == 1 else _unit_rows(sp.hstack(parts, format="csr"))


def _unit_rows(matrix: Any) -> sp.csr_array:
    """Rows scaled to unit length, with sorted indices."""
    rows = sp.csr_array(matrix, dtype=np.float32)
    rows.sort_indices()
    lengths = np.empty(rows.shape[0])
    squared_lengths(rows.indptr.astype(np.int64), rows.data, lengths)
    values = (rows.data * np.repeat(_inverse(np.sqrt(lengths)), np.diff(rows.indptr))).astype(np.float32)
    return sp.csr_array((values, rows.indices.astype(np.int32), rows.indptr), shape=rows.shape)


def _padded(source: _Source, n_components: int) -> Float32:
    """Given features, padded with columns of zeros."""
    rows = source.rows
    points = np.zeros((rows.shape[0], n_components), np.float32)
    points[:, : rows.shape[1]] = (rows.toarray() if isinstance(rows, sp.csr_array) else rows) * source.scales[:, None]
    return _unit(points)


def _project(source: _Source, n_components: int, seed: list[int]) -> Float32:
    """Sums of scaled rows times a matrix of random signs, scaled to unit length."""
    rows, scales, members = source
    panels = [_signs(bits) for bits in _random_bits(-(-n_components // LANES), rows.shape[1], seed)]
    n_points = rows.shape[0] if members is None else members.shape[1]
    sums = [np.zeros((n_points, LANES), np.float32) for _ in panels]
    for begin in range(0, rows.shape[0], _CHUNK):
        chunk = slice(begin, min(begin + _CHUNK, rows.shape[0]))
        holders = None if members is None else _holders(members, chunk)
        for panel, into in zip(panels, sums, strict=True):
            projected = into[chunk] if holders is None else np.zeros((chunk.stop - begin, LANES), np.float32)
            _add(rows, chunk, scales, panel, projected)
            if holders is not None:
                _add(holders, slice(0, n_points), np.ones(n_points), projected, into)
    points = sums[0] if len(sums) == 1 else np.concatenate(sums, axis=1)
    return _unit(np.ascontiguousarray(points[:, :n_components]))


def _holders(members: sp.csr_array, chunk: slice) -> sp.csr_array:
    """Rows of a chunk that have each label: labels by rows."""
    part: Any = members if chunk.stop - chunk.start == members.shape[0] else members[chunk]
    holders: sp.csr_array = sp.csr_array(part.T).astype(np.float32, copy=False)
    return holders


def _add(rows: Any, chunk: slice, scales: Float64, weights: Any, out: Float32) -> None:
    """Add scaled rows times weights to `out`, whose first row is that of the chunk."""

    def work(part: slice, stop: StopFlag) -> None:
        here = slice(chunk.start + part.start, chunk.start + part.stop)
        add_rows(*read_rows(rows, None, here), scales[here], 0, part.stop - part.start, weights, out[part])

    parts = cut_rows(rows, chunk.stop - chunk.start)
    for _ in run_blocks(work, parts, description="projecting labels"):
        pass


def _random_bits(panels: int, features: int, seed: list[int]) -> UInt8:
    return np.random.default_rng(seed).integers(0, 256, (panels, features, LANES // 8), np.uint8)


def _signs(bits: UInt8) -> npt.NDArray[np.uint16]:
    """1 or -1 for each bit, as bfloat16, which halves the memory traffic of the projection."""
    signs: npt.NDArray[np.uint16] = np.unpackbits(bits, axis=1).astype(np.uint16)
    signs <<= np.uint16(15)
    signs |= np.uint16(0x3F80)
    return signs


def _inverse(lengths: Float64) -> Float64:
    """One over each length, 0 for zero."""
    return np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 0)


def _unit(points: Float32) -> Float32:
    """Scale rows to unit length in place."""
    lengths = np.sqrt(np.einsum("ij,ij->i", points, points, dtype=np.float64))
    points *= _inverse(lengths)[:, None].astype(np.float32)
    return points

"""Labels as points: where a label lies is what its rows, its companions, its features or its text say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from longtail.corpus import Tfidf
from longtail.corpus.sparse import as_rows
from longtail.engine.clustering import add_rows, cut_rows, read_rows
from longtail.engine.lanes import LANES
from longtail.engine.pool import StopFlag, run_blocks
from longtail.engine.rows import squared_lengths
from longtail.errors import InputError, ParameterError

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]

NAMES = ("centroids", "co-occurrence", "both")
"""Representations that come from the training rows."""

_CHUNK = 1 << 18  # rows whose projections are in memory at once
_REQUIREMENT = f"must be one of {', '.join(NAMES)}, a matrix or label texts"


class _Source(NamedTuple):
    """Rows that are scaled and, where `members` (rows by labels) is given, added up for each label."""

    rows: Any
    scales: Float64
    members: sp.csr_array | None


def represent_labels(
    representation: Any,
    X: sp.csr_array,
    Y: sp.csr_array,
    scales: Float64,
    *,
    dimensions: int | None,
    seed: int,
    threads: int | None,
) -> Any:
    """Give each label a point of unit length.

    Parameters
    ----------
    representation : {"centroids", "co-occurrence", "both"}, matrix or sequence of str
        The sum of a label's rows, each times its scale; the label's row of Y^T Y, how often it stands beside each other
        label and itself; the two side by side. Or given features of the labels, a row each, dense or sparse; or a text
        for each label, which tf-idf turns into features.
    X : csr_array of float32, shape (n, features)
    Y : csr_array of 0 and 1, shape (n, labels)
    scales : ndarray of float64, shape (n,)
        One over the length of each row of X.
    dimensions : int, optional
        Project points to so many dimensions with random signs, which keeps cosines but for an error of about
        1 / sqrt(dimensions); None for the exact points. Given features that have no more columns are not projected.
    seed : int
        Of the random signs.
    threads : int, optional

    Returns
    -------
    ndarray of float32, shape (labels, dimensions), or csr_array of float32 where `dimensions` is None
        Zeros for labels that nothing is known of: without rows, features or known words.

    Examples
    --------
    >>> X = sp.csr_array(np.array([[3, 4, 0], [0, 0, 1]], np.float32))
    >>> Y = sp.csr_array(np.array([[1, 1, 0], [0, 1, 0]], np.float32))
    >>> lengths = np.array([1 / 5, 1])
    >>> represent_labels("centroids", X, Y, lengths, dimensions=None, seed=0, threads=1).toarray().round(2)
    array([[0.6 , 0.8 , 0.  ],
           [0.42, 0.57, 0.71],
           [0.  , 0.  , 0.  ]], dtype=float32)
    """
    sources = _sources(representation, X, Y, scales, threads)
    if dimensions is None:
        return _exact(sources)
    if isinstance(dimensions, bool) or not isinstance(dimensions, int | np.integer) or dimensions < 1:
        raise ParameterError("dimensions", dimensions, "must be a whole number of at least 1, or None for exact points")
    if sources[0].members is None and sources[0].rows.shape[1] <= dimensions:
        return _padded(sources[0], int(dimensions))
    points = [_project(source, int(dimensions), [seed, place], threads) for place, source in enumerate(sources)]
    return points[0] if len(points) == 1 else _unit(points[0] + points[1])


def _sources(
    representation: Any, X: sp.csr_array, Y: sp.csr_array, scales: Float64, threads: int | None
) -> list[_Source]:
    if isinstance(representation, str):
        if representation not in NAMES:
            raise ParameterError("representation", representation, _REQUIREMENT)
        centroids, companions = _Source(X, scales, Y), _Source(Y, np.ones(Y.shape[0]), Y)
        return {"centroids": [centroids], "co-occurrence": [companions], "both": [centroids, companions]}[
            representation
        ]
    features = _given(representation, Y.shape[1], threads)
    squares = np.empty(features.shape[0])
    if isinstance(features, sp.csr_array):
        squared_lengths(features.indptr.astype(np.int64), features.data, squares)
    else:
        np.einsum("ij,ij->i", features, features, dtype=np.float64, out=squares)
    if not np.isfinite(squares).all():
        row = int(np.flatnonzero(~np.isfinite(squares))[0])
        raise InputError(f"representation has a NaN or infinite value for label {row}: remove or replace it.")
    return [_Source(features, _inverse(np.sqrt(squares)), None)]


def _given(representation: Any, n_labels: int, threads: int | None) -> Any:
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
        return Tfidf(min_rows=1, idf="smooth", threads=threads).fit_transform([str(text) for text in representation])
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
    """Rows made unit length, indices sorted."""
    rows = sp.csr_array(matrix, dtype=np.float32)
    rows.sort_indices()
    lengths = np.empty(rows.shape[0])
    squared_lengths(rows.indptr.astype(np.int64), rows.data, lengths)
    values = (rows.data * np.repeat(_inverse(np.sqrt(lengths)), np.diff(rows.indptr))).astype(np.float32)
    return sp.csr_array((values, rows.indices.astype(np.int32), rows.indptr), shape=rows.shape)


def _padded(source: _Source, dimensions: int) -> Float32:
    """Given features as they are, with columns of zeros up to the dimensions asked for."""
    rows = source.rows
    points = np.zeros((rows.shape[0], dimensions), np.float32)
    points[:, : rows.shape[1]] = (rows.toarray() if isinstance(rows, sp.csr_array) else rows) * source.scales[:, None]
    return _unit(points)


def _project(source: _Source, dimensions: int, seed: list[int], threads: int | None) -> Float32:
    """Sums of scaled rows times a matrix of random signs, made unit length."""
    rows, scales, members = source
    panels = [_signs(bits) for bits in _random_bits(-(-dimensions // LANES), rows.shape[1], seed)]
    n_points = rows.shape[0] if members is None else members.shape[1]
    sums = [np.zeros((n_points, LANES), np.float32) for _ in panels]
    for begin in range(0, rows.shape[0], _CHUNK):
        chunk = slice(begin, min(begin + _CHUNK, rows.shape[0]))
        holders = None if members is None else _holders(members, chunk)
        for panel, into in zip(panels, sums, strict=True):
            projected = into[chunk] if holders is None else np.zeros((chunk.stop - begin, LANES), np.float32)
            _add(rows, chunk, scales, panel, projected, threads)
            if holders is not None:
                _add(holders, slice(0, n_points), np.ones(n_points), projected, into, threads)
    points = sums[0] if len(sums) == 1 else np.concatenate(sums, axis=1)
    return _unit(np.ascontiguousarray(points[:, :dimensions]))


def _holders(members: sp.csr_array, chunk: slice) -> sp.csr_array:
    """Which of a chunk of rows have each label: labels by rows."""
    part: Any = members if chunk.stop - chunk.start == members.shape[0] else members[chunk]
    holders: sp.csr_array = sp.csr_array(part.T).astype(np.float32, copy=False)
    return holders


def _add(rows: Any, chunk: slice, scales: Float64, weights: Any, out: Float32, threads: int | None) -> None:
    """Add scaled rows times weights to `out`, which begins with the first row of the chunk."""

    def work(part: slice, stop: StopFlag) -> None:
        here = slice(chunk.start + part.start, chunk.start + part.stop)
        add_rows(*read_rows(rows, None, here), scales[here], 0, part.stop - part.start, weights, out[part])

    parts = cut_rows(rows, chunk.stop - chunk.start)
    for _ in run_blocks(work, parts, threads=threads, description="projecting labels"):
        pass


def _random_bits(panels: int, features: int, seed: list[int]) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (panels, features, LANES // 8), np.uint8)


def _signs(bits: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint16]:
    """1 or -1 for each bit, as bfloat16, which halves the memory that projecting reads."""
    signs: npt.NDArray[np.uint16] = np.unpackbits(bits, axis=1).astype(np.uint16)
    signs <<= np.uint16(15)
    signs |= np.uint16(0x3F80)
    return signs


def _inverse(lengths: Float64) -> Float64:
    """One over each length, 0 for zero."""
    return np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 0)


def _unit(points: Float32) -> Float32:
    """Rows made unit length, in place."""
    lengths = np.sqrt(np.einsum("ij,ij->i", points, points, dtype=np.float64))
    points *= _inverse(lengths)[:, None].astype(np.float32)
    return points

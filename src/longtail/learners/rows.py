"""Quantities that learners derive from their training rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
import scipy.sparse as sp

from longtail import __version__
from longtail.kernels.rows import count_features, inverse_lengths, squared_lengths
from longtail.kernels.types import Array, Float64, Int32
from longtail.runtime.mmap import allocator_like

_VALUES_AT_ONCE = 1 << 22


def row_scales(X: sp.csr_array, normalise: bool) -> Float64:
    """Factor of each row: one over its length, or 1 where rows are not normalised or empty."""
    scales = np.ones(X.shape[0])
    if normalise:
        inverse_lengths(X.indptr, X.data, scales)
    return scales


def row_squares(X: sp.csr_array) -> Float64:
    """Squared length of each row."""
    squares = np.empty(X.shape[0])
    squared_lengths(X.indptr.astype(np.int64, copy=False), X.data, squares)
    return squares


def renumbered_by_frequency(X: sp.csr_array) -> tuple[Int32, Int32]:
    """Features from the most to the least frequent, and the indices of X in this numbering (on disk if X is)."""
    occurrences = np.zeros(X.shape[1], np.int64)
    count_features(X.indices, occurrences)
    by_frequency = np.argsort(-occurrences, kind="stable").astype(np.int32)
    number = np.empty(X.shape[1], np.int32)
    number[by_frequency] = np.arange(X.shape[1], dtype=np.int32)
    indices = allocator_like(X.indices)(len(X.indices), np.int32)
    for first in range(0, len(indices), _VALUES_AT_ONCE):
        part = slice(first, first + _VALUES_AT_ONCE)
        np.take(number, X.indices[part], out=indices[part])
    return by_frequency, indices


def digest_of(described: object, arrays: Iterable[Array]) -> bytes:
    """Digest of the repr of an object, of some arrays, and of the version of longtail."""
    digest = hashlib.blake2b(repr((__version__, described)).encode(), digest_size=32)
    for array in arrays:
        digest.update(f"{array.dtype} {len(array)} ".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.digest()

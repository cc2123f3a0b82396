"""Kernels over sparse rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from longtail.kernels.jit import kernel
from longtail.kernels.types import Float32, Float64, Int32, Int64

BAD_OFFSETS, BAD_COLUMN, NOT_CANONICAL, NOT_FINITE = 1, 2, 3, 4


class CSRRows(NamedTuple):
    """Rows in CSR form, as kernels take them.

    `scales` holds the factor of each row (1 / its length where rows are normalised), `squares` its squared length after
    scaling, bias included; `bias` is the value of the bias feature that every row has, 0 for none.
    """

    indptr: Int64
    indices: Int32
    values: Float32
    scales: Float64
    squares: Float32
    bias: np.float32


class QueryRows(NamedTuple):
    """Rows to predict for: CSR arrays, the factor of each row, and the value of the bias feature."""

    indptr: Int64
    indices: Int32
    values: Float32
    scales: Float64
    bias: np.float32


@kernel
def find_fault(indptr: npt.NDArray[Any], indices: Int32, values: Float32, n_columns: int) -> Any:
    """Return the code of the most serious error in CSR arrays and its row; the code is 0 where there is none.

    `BAD_OFFSETS` and `BAD_COLUMN` would make kernels read out of bounds. `NOT_CANONICAL` means column indices that are
    not strictly ascending within a row, `NOT_FINITE` means NaN or infinity.
    """
    n = indptr.shape[0] - 1
    if indptr[0] != 0 or indptr[n] > min(indices.shape[0], values.shape[0]):
        return BAD_OFFSETS, 0
    for row in range(n):
        if indptr[row + 1] < indptr[row]:
            return BAD_OFFSETS, row
    unsorted, infinite = -1, -1
    for row in range(n):
        before = np.int32(-1)
        for at in range(indptr[row], indptr[row + 1]):
            column = indices[at]
            if column < 0 or column >= n_columns:
                return BAD_COLUMN, row
            if column <= before:
                unsorted = row
            before = column
            if infinite < 0 and not np.isfinite(values[at]):
                infinite = row
    if unsorted >= 0:
        return NOT_CANONICAL, unsorted
    return (NOT_FINITE, infinite) if infinite >= 0 else (0, 0)


@kernel
def squared_lengths(indptr: Int64, values: Float32, out: Float64) -> None:
    """Compute the squared length of each row in double precision; single precision overflows for values above 1e19."""
    for row in range(out.shape[0]):
        total = 0.0
        for at in range(indptr[row], indptr[row + 1]):
            total += np.float64(values[at]) * np.float64(values[at])
        out[row] = total


@kernel
def inverse_lengths(indptr: npt.NDArray[Any], values: Float32, out: Float64) -> None:
    """Set `out` to one over the length of each row, or to 1 for rows of length 0."""
    squared_lengths(indptr, values, out)
    for row in range(out.shape[0]):
        out[row] = 1 / np.sqrt(out[row]) if out[row] > 0 else 1.0


@kernel
def count_features(indices: Int32, counts: Int64) -> None:
    """Add the number of occurrences of each feature to `counts`, without the int64 copy that numpy.bincount makes."""
    for at in range(indices.shape[0]):
        counts[indices[at]] += 1


@kernel
def sparse_dot(places: Int32, factors: Float32, begin: int, end: int, dense: Float32) -> Any:
    """Return the inner product of ``factors[begin:end]`` and ``dense[places[begin:end]]`` in double precision.

    Four independent partial sums are faster than the gather instructions that a compiler would emit.
    """
    first = second = third = fourth = 0.0
    at = begin
    while at + 4 <= end:
        first += np.float64(factors[at]) * dense[places[at]]
        second += np.float64(factors[at + 1]) * dense[places[at + 1]]
        third += np.float64(factors[at + 2]) * dense[places[at + 2]]
        fourth += np.float64(factors[at + 3]) * dense[places[at + 3]]
        at += 4
    while at < end:
        first += np.float64(factors[at]) * dense[places[at]]
        at += 1
    return (first + second) + (third + fourth)

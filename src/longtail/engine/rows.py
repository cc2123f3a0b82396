"""Kernels over sparse rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from longtail.engine.jit import kernel

BAD_OFFSETS, BAD_COLUMN, NOT_CANONICAL, NOT_FINITE = 1, 2, 3, 4


@kernel
def find_fault(
    indptr: npt.NDArray[Any], indices: npt.NDArray[np.int32], values: npt.NDArray[np.float32], n_columns: int
) -> Any:
    """Look for what makes CSR arrays unfit for kernels, the gravest first: 0, or its code, and the row.

    `BAD_OFFSETS` and `BAD_COLUMN` would have kernels read past the end of memory. `NOT_CANONICAL` means columns that
    don't rise inside of a row, `NOT_FINITE` NaN or infinity.
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
def squared_lengths(
    indptr: npt.NDArray[np.int64], values: npt.NDArray[np.float32], out: npt.NDArray[np.float64]
) -> None:
    """Sum the squares of each row's values, in double precision: single overflows for values above 1e19."""
    for row in range(out.shape[0]):
        total = 0.0
        for at in range(indptr[row], indptr[row + 1]):
            total += np.float64(values[at]) * np.float64(values[at])
        out[row] = total


@kernel
def inverse_lengths(indptr: npt.NDArray[Any], values: npt.NDArray[np.float32], out: npt.NDArray[np.float64]) -> None:
    """Set `out` to one over the length of each row, 1 for rows without length."""
    squared_lengths(indptr, values, out)
    for row in range(out.shape[0]):
        out[row] = 1 / np.sqrt(out[row]) if out[row] > 0 else 1.0


@kernel
def count_features(indices: npt.NDArray[np.int32], counts: npt.NDArray[np.int64]) -> None:
    """Add to `counts` how often each feature occurs; numpy's bincount would first copy the indices as int64."""
    for at in range(indices.shape[0]):
        counts[indices[at]] += 1


@kernel
def sparse_dot(
    places: npt.NDArray[np.int32],
    factors: npt.NDArray[np.float32],
    begin: int,
    end: int,
    dense: npt.NDArray[np.float32],
) -> Any:
    """Inner product of ``factors[begin:end]`` with a dense array at ``places[begin:end]``, in double precision.

    Four sums that don't wait for each other: faster than the gather instructions that a compiler would choose.
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

"""The one form that rows and labels take inside longtail: canonical CSR, float32 values, int32 indices."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail.engine.rows import BAD_COLUMN, BAD_OFFSETS, NOT_CANONICAL, NOT_FINITE, find_fault
from longtail.errors import InputError


def as_rows(X: Any, *, name: str = "X") -> sp.csr_array:
    """Bring a matrix of features into canonical CSR with float32 values; refuse NaN and infinity.

    Anything scipy or numpy can turn into a matrix is taken; duplicates are summed, indices sorted.
    The input is never changed, and not copied where it is canonical already.

    Examples
    --------
    >>> as_rows([[0, 2.5], [1, 0]]).nnz
    2
    """
    matrix, row = _canonical(X, np.float32, name)
    if row is not None:
        raise InputError(f"{name} has a NaN or infinite value in row {row}: remove or replace it.")
    return matrix


def as_indicator(Y: Any, *, name: str = "Y") -> sp.csr_array:
    """Bring a matrix of labels into canonical CSR with every stored value 1: above 0 means the label is present.

    Negative values are refused: where -1 says that a label is absent, it would count as present.

    Examples
    --------
    >>> as_indicator([[0, 7], [1, 0]]).data
    array([1., 1.], dtype=float32)
    """
    matrix, row = _canonical(Y, np.float32, name)
    if row is not None:
        raise InputError(f"{name} has a NaN or infinite value in row {row}: labels are 0 or 1.")
    if (matrix.data == 1).all():
        return matrix
    negative = matrix.data[: matrix.nnz] < 0
    if negative.any():
        at = int(negative.argmax())
        row = int(np.searchsorted(matrix.indptr, at, side="right")) - 1
        raise InputError(
            f"{name} has {matrix.data[at]:g} in row {row}: labels are 0 or 1, so write 0 where a label is absent."
        )
    matrix = sp.csr_array(
        ((matrix.data != 0).astype(np.float32), matrix.indices, matrix.indptr), shape=matrix.shape, copy=True
    )
    matrix.eliminate_zeros()
    return matrix


def _canonical(values: Any, dtype: type, name: str) -> tuple[sp.csr_array, int | None]:
    """Bring a matrix into canonical CSR; also tell the first row with a value that isn't finite."""
    if not sp.issparse(values):
        values = np.asarray(values)
        if values.ndim != 2:
            raise InputError(f"{name} must have rows and columns, got {values.ndim} dimension(s): reshape it.")
    given: Any = values
    if given.dtype.kind not in "biuf":
        raise InputError(f"{name} must hold numbers, got values of type {given.dtype}.")
    if given.ndim != 2:
        raise InputError(f"{name} must have rows and columns, got {given.ndim} dimension(s): reshape it.")
    is_ours = isinstance(given, sp.csr_array) and given.dtype == dtype
    matrix: sp.csr_array = given if is_ours else sp.csr_array(given, dtype=dtype)
    if not (matrix.indices.dtype == np.int32 and _are_contiguous(matrix)):
        matrix = _plain(matrix, name)
    fault, row = _fault(matrix)
    if fault == BAD_OFFSETS:
        raise InputError(f"{name} has row offsets that don't fit its values: it is not a valid sparse matrix.")
    if fault == BAD_COLUMN:
        raise InputError(f"{name} has a column index outside its {matrix.shape[1]} columns.")
    if len(matrix.indices) > matrix.indptr[-1] or len(matrix.data) > matrix.indptr[-1]:  # what no row holds
        end = int(matrix.indptr[-1])
        matrix = sp.csr_array((matrix.data[:end], matrix.indices[:end], matrix.indptr), shape=matrix.shape)
    if fault == NOT_CANONICAL:
        if np.shares_memory(matrix.data, getattr(given, "data", matrix.data)):
            matrix = matrix.copy()
        matrix.has_canonical_format = matrix.has_sorted_indices = False
        matrix.sum_duplicates()
        fault, row = _fault(matrix)
    return matrix, row if fault == NOT_FINITE else None


def _fault(matrix: sp.csr_array) -> tuple[int, int]:
    return find_fault(matrix.indptr, matrix.indices, matrix.data, matrix.shape[1])  # type: ignore[no-any-return]


def _are_contiguous(matrix: sp.csr_array) -> bool:
    return all(part.flags.c_contiguous for part in (matrix.data, matrix.indices, matrix.indptr))


def _plain(matrix: sp.csr_array, name: str) -> sp.csr_array:
    """Make the arrays contiguous and the indices int32, unless one of them doesn't fit."""
    if matrix.nnz >= 2**31:
        raise InputError(f"{name} has {matrix.nnz:,} non-zeros, and 2,147,483,647 is the most: use fewer rows.")
    indices = matrix.indices
    if indices.dtype != np.int32 and len(indices) and not 0 <= indices.min() <= indices.max() < matrix.shape[1]:
        raise InputError(f"{name} has a column index outside its {matrix.shape[1]} columns.")
    if (
        matrix.indptr.dtype != np.int32
        and len(matrix.indptr)
        and not 0 <= matrix.indptr.min() <= matrix.indptr.max() < 2**31
    ):
        raise InputError(f"{name} has row offsets that don't fit its values: it is not a valid sparse matrix.")
    plain = sp.csr_array(matrix.shape, dtype=matrix.dtype)
    plain.data = np.ascontiguousarray(matrix.data)
    plain.indices, plain.indptr = (np.ascontiguousarray(part, np.int32) for part in (indices, matrix.indptr))
    return plain

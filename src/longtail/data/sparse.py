"""The matrix format used throughout longtail: canonical CSR with float32 values and int32 indices."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from longtail.errors import InputError, NotNumbersError
from longtail.kernels.rows import BAD_COLUMN, BAD_OFFSETS, NOT_CANONICAL, NOT_FINITE, find_fault
from longtail.kernels.types import Int64
from longtail.runtime.mmap import is_mapped, spilled, writable

_AT_ONCE = 1 << 24  # values
_ROWS_AT_ONCE = 1 << 12
_IN_MEMORY = 1 << 24  # bytes


def as_rows(X: Any, *, name: str = "X") -> sp.csr_array:
    """Convert features to canonical CSR with float32 values; refuse NaN and infinity.

    Duplicates are summed and indices sorted. The input is never changed, and not copied if it is canonical already.

    Examples
    --------
    >>> as_rows([[0, 2.5], [1, 0]]).nnz
    2
    """
    matrix, row = _canonical(X, np.float32, name)
    if row is not None:
        raise InputError(
            f"{name} has a NaN, an infinite value or one too large for float32 in row {row}: remove or replace it."
        )
    return matrix


def as_indicator(Y: Any, *, name: str = "Y") -> sp.csr_array:
    """Convert labels to canonical CSR with all values 1; refuse negative values, which may mean absent labels.

    Examples
    --------
    >>> as_indicator([[0, 7], [1, 0]]).data
    array([1., 1.], dtype=float32)
    """
    try:
        given: Any = Y if sp.issparse(Y) or Y is None else np.asarray(Y)
    except ValueError:  # rows of different lengths
        given = np.empty((0, 0), object)
    if given is not None and given.dtype.kind in "OU" and _has_lists_of_labels(Y, given):
        raise InputError(
            f"{name} holds a list of labels per row, and must be a matrix of 0 and 1: turn it into one with "
            "sklearn.preprocessing.MultiLabelBinarizer(sparse_output=True), or write the rows as JSON lines and read "
            "them with longtail.data.read_jsonl."
        )
    if given is not None and given.ndim == 1:
        raise InputError(
            f"{name} must have rows and columns, one column per label (Unknown label type: a vector). Only binary "
            "classification is supported for each label: turn classes into columns with LabelBinarizer."
        )
    matrix, row = _canonical(given, np.float32, name)
    if row is not None:
        raise InputError(f"{name} has a NaN or infinite value in row {row}: labels are 0 or 1.")
    if all((matrix.data[first : first + _AT_ONCE] == 1).all() for first in range(0, len(matrix.data), _AT_ONCE)):
        return matrix
    negative = matrix.data[: matrix.nnz] < 0
    if negative.any():
        at = int(negative.argmax())
        row = int(np.searchsorted(matrix.indptr, at, side="right")) - 1
        raise InputError(
            f"{name} has {matrix.data[at]:g} in row {row}, but labels are 0 or 1: use 0 for an absent label."
        )
    matrix = sp.csr_array(
        ((matrix.data != 0).astype(np.float32), matrix.indices, matrix.indptr), shape=matrix.shape, copy=True
    )
    matrix.eliminate_zeros()
    return matrix


def _are_texts(X: Any) -> bool:
    """Return whether input is one text, or texts in one dimension."""
    if isinstance(X, list | tuple):
        return bool(X) and isinstance(X[0], str)
    if isinstance(X, str) or getattr(X, "ndim", 2) != 1:
        return isinstance(X, str)
    values = np.asarray(X)  # of a Series too
    return values.dtype.kind == "U" or (values.dtype.kind == "O" and _are_texts(values.tolist()))


def _has_lists_of_labels(Y: Any, values: npt.NDArray[Any]) -> bool:
    """Return whether rows are sets, or lists of different lengths or with names; `values` is Y as an array."""
    lengths = set()
    for row in Y if isinstance(Y, list | tuple) else values if values.ndim else ():
        if isinstance(row, set | frozenset):
            return True
        if isinstance(row, list | tuple | np.ndarray):
            if any(isinstance(label, str) for label in row):
                return True
            lengths.add(len(row))
    return len(lengths) > 1


def _canonical(values: Any, dtype: type, name: str) -> tuple[sp.csr_array, int | None]:
    """Return a matrix in canonical CSR, and the first row with a value that is not finite."""
    if values is None:
        raise InputError(f"{name} is None: this learner requires {name} to be passed, but the target {name} is None.")
    if not sp.issparse(values):
        if _are_texts(values):
            raise InputError(
                f"{name} holds texts, and must be a matrix of features: put the learner into a TextLearner, which "
                "makes features of texts."
            )
        try:
            values = np.asarray(values)
        except ValueError:
            raise InputError(f"{name} has rows of different lengths: give each row all columns.") from None
    given: Any = values
    if given.dtype.kind == "c":
        raise InputError(f"{name} holds complex numbers. Complex data not supported: use real numbers.")
    if given.ndim != 2:
        raise InputError(
            f"{name} must have rows and columns, got {given.ndim} dimension(s). Reshape your data: one row per "
            "sample, one column per feature or label."
        )
    if given.dtype.kind == "O":  # Python numbers, as in a table of mixed columns
        try:
            given = given.astype(dtype)
        except (TypeError, ValueError, OverflowError) as error:
            raise NotNumbersError(f"{name} must hold numbers: {error}.") from None
    if given.dtype.kind not in "biuf":
        raise InputError(f"{name} must hold numbers, got values of type {given.dtype}.")
    is_ours = isinstance(given, sp.csr_array) and given.dtype == dtype
    matrix: sp.csr_array = given if is_ours else sp.csr_array(given, dtype=dtype)
    parts = matrix.data, matrix.indices, matrix.indptr
    if not (matrix.indices.dtype == np.int32 and all(part.flags.c_contiguous for part in parts)):
        matrix = _plain(matrix, name)
    fault, row = _fault(matrix)
    if fault == BAD_OFFSETS:
        raise InputError(f"{name} has row offsets that don't fit its values: it is not a valid sparse matrix.")
    if fault == BAD_COLUMN:
        raise InputError(f"{name} has a column index outside its {matrix.shape[1]} columns.")
    if len(matrix.indices) > matrix.indptr[-1] or len(matrix.data) > matrix.indptr[-1]:  # beyond the last row
        end = int(matrix.indptr[-1])
        matrix = sp.csr_array((matrix.data[:end], matrix.indices[:end], matrix.indptr), shape=matrix.shape)
    if fault == NOT_CANONICAL:
        matrix = matrix.copy()  # scipy may share any of the three arrays with the input, and sorts them in place
        matrix.has_canonical_format = matrix.has_sorted_indices = False
        matrix.sum_duplicates()
        fault, row = _fault(matrix)
    return matrix, row if fault == NOT_FINITE else None


def _fault(matrix: sp.csr_array) -> tuple[int, int]:
    indptr, indices, values = (writable(part) for part in (matrix.indptr, matrix.indices, matrix.data))
    return find_fault(indptr, indices, values, matrix.shape[1])  # type: ignore[no-any-return]


def for_kernels(matrix: sp.csr_array) -> sp.csr_array:
    """Return mapped rows in the form that kernels are compiled for, see `writable`, and other rows as they are."""
    if not is_mapped(matrix.data) or (matrix.data.flags.writeable and matrix.indices.flags.writeable):
        return matrix
    data, indices, indptr = (writable(part) for part in (matrix.data, matrix.indices, matrix.indptr))
    return canonical_rows(data, indices, indptr, matrix.shape)


def canonical_rows(
    data: npt.NDArray[Any], indices: npt.NDArray[Any], indptr: npt.NDArray[Any], shape: Any
) -> sp.csr_array:
    """Return canonical rows from their arrays, which scipy's constructor might read or copy."""
    made: Any = sp.csr_array(shape, dtype=data.dtype)
    made.data, made.indices, made.indptr = data, indices, indptr
    made.has_canonical_format = True
    return made  # type: ignore[no-any-return]


def some_rows(matrix: sp.csr_array, first: int, last: int) -> sp.csr_array:
    """Return rows `first` to `last` - 1 in memory, without reading the whole matrix.

    Examples
    --------
    >>> some_rows(as_rows([[1, 0], [0, 2], [3, 4]]), 1, 3).toarray()
    array([[0., 2.],
           [3., 4.]], dtype=float32)
    """
    last = min(last, matrix.shape[0])
    begin, end = int(matrix.indptr[first]), int(matrix.indptr[last])
    indptr = (matrix.indptr[first : last + 1] - matrix.indptr[first]).astype(np.int32)
    data, indices = np.array(matrix.data[begin:end]), np.array(matrix.indices[begin:end])
    return canonical_rows(data, indices, indptr, (last - first, matrix.shape[1]))


def chosen_rows(matrix: sp.csr_array, rows: npt.NDArray[np.integer]) -> sp.csr_array:
    """Return rows by their numbers: on disk if the matrix is mapped and they are many, else in memory.

    Examples
    --------
    >>> chosen_rows(as_rows([[1, 0], [0, 2], [3, 4]]), np.array([2, 0])).toarray()
    array([[3., 4.],
           [1., 0.]], dtype=float32)
    """
    if not is_mapped(matrix.data):
        return matrix[rows]
    begins = matrix.indptr[rows].astype(np.int64)
    ends = np.concatenate([[0], np.cumsum(matrix.indptr[rows + 1] - begins)])
    allocate = spilled if 8 * ends[-1] > _IN_MEMORY else np.empty
    data, indices = allocate(int(ends[-1]), matrix.dtype), allocate(int(ends[-1]), np.int32)
    for first in range(0, len(rows), _ROWS_AT_ONCE):
        some = slice(first, first + _ROWS_AT_ONCE)
        own = ends[first : first + _ROWS_AT_ONCE + 1]
        places = np.arange(own[0], own[-1]) + np.repeat(begins[some] - own[:-1], np.diff(own))
        data[own[0] : own[-1]], indices[own[0] : own[-1]] = matrix.data[places], matrix.indices[places]
    return canonical_rows(data, indices, ends.astype(matrix.indptr.dtype), (len(rows), matrix.shape[1]))


def column_counts(matrix: sp.csr_array) -> Int64:
    """Return the number of entries in each column, such as the rows of each label.

    Examples
    --------
    >>> column_counts(sp.csr_array([[1, 0, 1], [1, 0, 0]]))
    array([2, 0, 1])
    """
    return np.bincount(matrix.indices, minlength=matrix.shape[1]).astype(np.int64, copy=False)


def with_columns(matrix: sp.csr_array, n_columns: int) -> sp.csr_array:
    """Return the matrix with more columns, which are empty; the arrays are shared.

    Examples
    --------
    >>> with_columns(as_rows([[1, 2]]), 3).toarray()
    array([[1., 2., 0.]], dtype=float32)
    """
    return canonical_rows(matrix.data, matrix.indices, matrix.indptr, (matrix.shape[0], n_columns))


def _plain(matrix: sp.csr_array, name: str) -> sp.csr_array:
    """Return the matrix with contiguous arrays and int32 indices."""
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

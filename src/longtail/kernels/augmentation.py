"""Augmented copies of sparse rows: some values are dropped, some are swapped, the labels stay the same."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from longtail.kernels.jit import kernel
from longtail.kernels.random import next_random, random_below, random_unit
from longtail.kernels.rows import CSRRows, inverse_lengths, squared_lengths
from longtail.kernels.types import Float32, Int32, Int64, UInt64

Positives = tuple[Int64, Int64, Int32]


class Augmentation(NamedTuple):
    """How rows are copied.

    Parameters
    ----------
    copies : int
        Copies of each row.
    input_dropout : float
        Probability that a non-zero is dropped from a copy; a copy of a row with non-zeros keeps at least one.
    swaps : int
        Number of times that two random non-zeros of a copy then swap their values (input swap).
    random_state : int
        Seed; a copy depends on it, the row and the number of the copy alone, not on the thread.
    """

    copies: int
    input_dropout: float
    swaps: int
    random_state: int


@kernel
def start_copy(seed: int, row: int, copy: int, state: UInt64) -> None:
    """Initialise the random state of one copy of one row."""
    state[0] = np.uint64(seed)
    state[0] = next_random(state) ^ np.uint64(row)
    state[0] = next_random(state) ^ np.uint64(copy)


@kernel
def copy_row(
    indices: Int32,
    values: Float32,
    begin: int,
    end: int,
    augmentation: Augmentation,
    state: UInt64,
    out: int,
    out_indices: Int32,
    out_values: Float32,
) -> Any:
    """Write a copy of the row ``begin:end`` at position `out`, in its order, and return the position after it.

    Stored zeros are skipped.
    """
    # Input dropout: keep each non-zero with probability 1 - `input_dropout`.
    first = out
    keep_probability = 1 - augmentation.input_dropout
    present = 0
    for at in range(begin, end):
        if values[at] != 0:
            present += 1
            if random_unit(state) < keep_probability:
                out_indices[out] = indices[at]
                out_values[out] = values[at]
                out += 1
    # If all were dropped, keep one non-zero chosen at random.
    if out == first and present > 0:
        ahead = random_below(present, state)
        for at in range(begin, end):
            if values[at] != 0:
                if ahead == 0:
                    out_indices[out] = indices[at]
                    out_values[out] = values[at]
                ahead -= 1
        out += 1
    # Input swap: exchange the values of two different random entries.
    count = out - first
    for _ in range(augmentation.swaps if count > 1 else 0):
        one = random_below(count, state)
        other = random_below(count - 1, state)
        if other >= one:
            other += 1
        out_values[first + one], out_values[first + other] = out_values[first + other], out_values[first + one]
    return out


@kernel
def copy_rows(
    indptr: npt.NDArray[Any],
    indices: Int32,
    values: Float32,
    places: Int64,
    names: Int64,
    first: int,
    last: int,
    augmentation: Augmentation,
    out_indptr: npt.NDArray[Any],
    out_indices: Int32,
    out_values: Float32,
) -> None:
    """Write copies `first` to `last` - 1 of some rows, the copies of each row next to each other.

    Parameters
    ----------
    indptr, indices, values
        All rows, as CSR arrays.
    places : ndarray of int64
        Positions of the rows to copy.
    names : ndarray of int64
        Row numbers that seed their copies.
    first, last : int
    augmentation : Augmentation
    out_indptr, out_indices, out_values
        The copies begin at ``out_indptr[0]``. Each copy may be as long as its row. The arrays may be those of the rows,
        with free space at their end.
    """
    state = np.empty(1, np.uint64)
    out: Any = np.int64(out_indptr[0])
    at = 0
    for which in range(places.shape[0]):
        begin: Any = np.int64(indptr[places[which]])
        end: Any = np.int64(indptr[places[which] + 1])
        for copy in range(first, last):
            start_copy(augmentation.random_state, names[which], copy, state)
            out = copy_row(indices, values, begin, end, augmentation, state, out, out_indices, out_values)
            at += 1
            out_indptr[at] = out


@kernel
def _copy_lanes(
    rows: Int64, offsets: Int64, lanes: Int32, copied: Int64, n_rows: int, copies: int, rows_out: Int64,
    offsets_out: Int64, lanes_out: Int32,
) -> Any:  # fmt: skip
    """Append the lanes of the copied rows to those of all rows, and return the number of rows."""
    n = rows.shape[0]
    rows_out[:n] = rows
    offsets_out[: n + 1] = offsets
    lanes_out[: offsets[n]] = lanes[: offsets[n]]
    # Both lists of rows are ascending: walk through them together.
    found, total, which = n, offsets[n], 0
    for at in range(n):
        while which < copied.shape[0] and copied[which] < rows[at]:
            which += 1
        if which == copied.shape[0]:
            break
        if copied[which] == rows[at]:
            for copy in range(copies):
                rows_out[found] = n_rows + which * copies + copy
                for lane in range(offsets[at], offsets[at + 1]):
                    lanes_out[total] = lanes[lane]
                    total += 1
                found += 1
                offsets_out[found] = total
    return found


def copied_positives(positives: Positives, copied: Int64, n_rows: int, copies: int) -> Positives:
    """Return the positives of a block with those of the copies appended.

    Parameters
    ----------
    positives : tuple of arrays
        Rows with any label of the block, in ascending order; where the lanes of each begin; and the lanes.
    copied : ndarray of int64
        Rows that were copied, in ascending order; copy c of ``copied[p]`` is row ``n_rows + p * copies + c``.
    n_rows, copies : int

    Examples
    --------
    >>> positives = np.array([1, 3]), np.array([0, 1, 3]), np.array([5, 0, 2], np.int32)
    >>> rows, offsets, lanes = copied_positives(positives, np.array([3]), 4, 2)
    >>> rows, offsets, lanes
    (array([1, 3, 4, 5]), array([0, 1, 3, 5, 7]), array([5, 0, 2, 0, 2, 0, 2], dtype=int32))
    """
    rows, offsets, lanes = positives
    most = len(rows) * (1 + copies)
    rows_out, offsets_out = np.empty(most, np.int64), np.empty(most + 1, np.int64)
    lanes_out = np.empty(int(offsets[-1]) * (1 + copies), np.int32)
    found = _copy_lanes(rows, offsets, lanes, copied, n_rows, copies, rows_out, offsets_out, lanes_out)
    return rows_out[:found], offsets_out[: found + 1], lanes_out[: int(offsets_out[found])]


class CopyBuffers:
    """Reusable buffers of one thread for rows and the copies of some of them."""

    def __init__(self) -> None:
        self._indices, self._values = np.empty(0, np.int32), np.empty(0, np.float32)
        self._held: Int32 | None = None

    def append(
        self, rows: CSRRows, places: Int64, names: Int64, augmentation: Augmentation, *, normalise: bool, same: bool
    ) -> CSRRows:
        """Return the rows followed by all copies of those at `places`.

        Parameters
        ----------
        rows : CSRRows
        places, names : ndarray of int64
            Rows to copy, and the row numbers that seed their copies.
        augmentation : Augmentation
        normalise : bool
            Whether to scale each copy to length 1, without the bias feature.
        same : bool
            Whether `rows` never change, so that they are written to the buffers only once.
        """
        n, size, more = len(rows.indptr) - 1, int(rows.indptr[-1]), len(places) * augmentation.copies
        room = size + augmentation.copies * int((rows.indptr[places + 1] - rows.indptr[places]).sum())
        if room > len(self._indices):
            self._indices, self._values, self._held = np.empty(room, np.int32), np.empty(room, np.float32), None
        if not same or self._held is not rows.indices:
            self._indices[:size], self._values[:size] = rows.indices[:size], rows.values[:size]
            self._held = rows.indices
        indptr = np.concatenate([rows.indptr, np.empty(more, np.int64)])
        copy_rows(
            indptr, self._indices, self._values, places, names, 0, augmentation.copies, augmentation, indptr[n:],
            self._indices, self._values,
        )  # fmt: skip
        scales, squares = np.ones(more), np.empty(more)
        squared_lengths(indptr[n:], self._values, squares)
        if normalise:
            inverse_lengths(indptr[n:], self._values, scales)
        squares = (squares * scales * scales + float(rows.bias) ** 2).astype(np.float32)
        return rows._replace(
            indptr=indptr,
            indices=self._indices,
            values=self._values,
            scales=np.concatenate([rows.scales, scales]),
            squares=np.concatenate([rows.squares, squares]),
        )


def with_copies(X: sp.csr_array, Y: sp.csr_array, augmentation: Augmentation) -> tuple[sp.csr_array, sp.csr_array]:
    """Append all copies of the rows that have a label to rows and labels.

    Examples
    --------
    >>> X, Y = sp.csr_array(np.eye(2, dtype=np.float32)), sp.csr_array(np.array([[0], [1]], np.float32))
    >>> with_copies(X, Y, Augmentation(copies=3, input_dropout=0.5, swaps=1, random_state=0))[0].toarray()
    array([[1., 0.],
           [0., 1.],
           [0., 1.],
           [0., 1.],
           [0., 1.]], dtype=float32)
    """
    copied = labelled_rows(Y)
    lengths = np.diff(X.indptr)[copied].astype(np.int64)
    room, more = int(X.nnz) + augmentation.copies * int(lengths.sum()), len(copied) * augmentation.copies
    indptr = np.concatenate([X.indptr.astype(np.int64), np.empty(more, np.int64)])
    indices, values = np.empty(room, np.int32), np.empty(room, np.float32)
    indices[: X.nnz], values[: X.nnz] = X.indices, X.data
    n = X.shape[0]
    copy_rows(
        indptr, indices, values, copied, copied, 0, augmentation.copies, augmentation, indptr[n:], indices, values
    )
    size = int(indptr[-1])
    kind = np.int32 if size < 2**31 else np.int64
    rows = sp.csr_array((values[:size], indices[:size], indptr.astype(kind)), shape=(n + more, X.shape[1]))
    return rows, sp.csr_array(sp.vstack([Y, Y[np.repeat(copied, augmentation.copies)]], format="csr"))


def labelled_rows(Y: sp.csr_array) -> Int64:
    """Return the indices of the rows that have any label."""
    return np.flatnonzero(np.diff(Y.indptr)).astype(np.int64)

"""Rows of one tree node: copied out of the training rows, with the features they have numbered anew."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from longtail.engine.jit import kernel

Float32 = npt.NDArray[np.float32]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

_SCAN = 32  # to look at so many features takes as long as to sort one


@kernel
def size_of_rows(indptr: Int64, chosen: Int32) -> Any:
    """Count the non-zeros of some rows."""
    total = 0
    for row in chosen:
        total += indptr[row + 1] - indptr[row]
    return total


@kernel
def gather_rows(
    indptr: Int64,
    indices: Int32,
    values: Float32,
    scales: npt.NDArray[np.float64],
    chosen: Int32,
    place: Int32,
    features: Int32,
    out_indptr: Int64,
    out_indices: Int32,
    out_values: Float32,
) -> Any:
    """Copy some rows, times their scales, and number the features they have from 0 in their old order.

    Parameters
    ----------
    indptr, indices, values, scales
        All rows.
    chosen : ndarray of int32
        Which rows.
    place : ndarray of int32, shape (all features,)
        Working memory, -1 everywhere before and after.
    features : ndarray of int32
        Room for as many features as there are, or as there are non-zeros; its head gets the features of the rows.
    out_indptr, out_indices, out_values
        The rows; of size ``len(chosen) + 1`` and `size_of_rows`.

    Returns
    -------
    Number of features that the rows have.
    """
    found = 0
    for row in chosen:
        for at in range(indptr[row], indptr[row + 1]):
            if place[indices[at]] < 0:
                place[indices[at]] = 0
                features[found] = indices[at]
                found += 1
    if found < place.shape[0] // _SCAN:
        features[:found].sort()
    else:
        found = 0
        for feature in range(place.shape[0]):
            if place[feature] >= 0:
                features[found] = feature
                found += 1
    for number in range(found):
        place[features[number]] = number
    out = 0
    for at_row in range(chosen.shape[0]):
        row = chosen[at_row]
        out_indptr[at_row] = out
        scale = np.float32(scales[row])
        for at in range(indptr[row], indptr[row + 1]):
            out_indices[out] = place[indices[at]]
            out_values[out] = values[at] * scale
            out += 1
    out_indptr[chosen.shape[0]] = out
    for number in range(found):
        place[features[number]] = -1
    return found


@kernel
def gather_positives(
    column_starts: Int64,
    column_rows: Int32,
    columns: Int64,
    chosen: Int32,
    local: Int32,
    rows_out: Int64,
    offsets_out: Int64,
    lanes_out: Int32,
) -> Any:
    """Find the rows of a node that have any of a block's members, and which of them.

    Parameters
    ----------
    column_starts, column_rows
        Rows of each member, by columns; all of them are among the chosen.
    columns : ndarray of int64
        The members of the block, in the order of their lanes.
    chosen : ndarray of int32
        Rows of the node.
    local : ndarray of int32, shape (all rows,)
        Working memory.
    rows_out, offsets_out, lanes_out
        The result, as `longtail.engine.block_solver.Problem` wants it: of size ``len(chosen)``, one more, and as many
        as the columns have rows.

    Returns
    -------
    Number of rows.
    """
    n = chosen.shape[0]
    for place in range(n):
        local[chosen[place]] = place
    counts = np.zeros(n + 1, np.int64)
    for column in columns:
        for at in range(column_starts[column], column_starts[column + 1]):
            counts[local[column_rows[at]]] += 1
    found = 0
    total = 0
    for place in range(n):
        count = counts[place]
        if count > 0:
            rows_out[found] = place
            offsets_out[found] = total
            counts[place] = total
            total += count
            found += 1
    offsets_out[found] = total
    for lane in range(columns.shape[0]):
        column = columns[lane]
        for at in range(column_starts[column], column_starts[column + 1]):
            place = local[column_rows[at]]
            lanes_out[counts[place]] = lane
            counts[place] += 1
    return found

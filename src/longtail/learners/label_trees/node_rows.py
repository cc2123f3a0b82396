"""Rows of one tree node: copied from the training rows, with their features renumbered."""

from __future__ import annotations

from typing import Any

import numpy as np

from longtail.kernels.jit import kernel
from longtail.kernels.types import Float32, Float64, Int32, Int64

_SCAN = 32  # scanning this many features costs as much as sorting one


@kernel
def size_of_rows(indptr: Int64, chosen: Int32) -> Any:
    """Number of non-zeros of the chosen rows."""
    total = 0
    for row in chosen:
        total += indptr[row + 1] - indptr[row]
    return total


@kernel
def gather_rows(
    indptr: Int64,
    indices: Int32,
    values: Float32,
    scales: Float64,
    chosen: Int32,
    place: Int32,
    features: Int32,
    out_indptr: Int64,
    out_indices: Int32,
    out_values: Float32,
) -> Any:
    """Copy the chosen rows, times their scales, and renumber the features that occur, keeping their order.

    `place`, of shape (all features,), is working memory, -1 before and after. The beginning of `features`, as large as
    the number of features or of non-zeros, is set to the features that occur; their number is returned. The rows are
    written to `out_indptr`, `out_indices` and `out_values`, of size ``len(chosen) + 1`` and `size_of_rows`.
    """
    # List the features that occur, in ascending order: sort them if they are few, else scan all.
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
    # Renumber and copy.
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
    """Find the rows of a node that have any of a block's members, and these members.

    `column_starts` and `column_rows` have the rows of each member, all of them among the `chosen` ones of the node;
    `columns` are the members of the block, in the order of their lanes. `local`, of shape (all rows,), is working
    memory. The positives of a `BlockProblem` are written to `rows_out`, `offsets_out` and `lanes_out`, of size
    ``len(chosen)``, one more, and the number of entries of the columns; the number of rows is returned.
    """
    n = chosen.shape[0]
    # Count the members of each row.
    for place in range(n):
        local[chosen[place]] = place
    counts = np.zeros(n + 1, np.int64)
    for column in columns:
        for at in range(column_starts[column], column_starts[column + 1]):
            counts[local[column_rows[at]]] += 1
    # Keep the rows with any, and turn counts into offsets.
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
    # Write the lanes of each row.
    for lane in range(columns.shape[0]):
        column = columns[lane]
        for at in range(column_starts[column], column_starts[column + 1]):
            place = local[column_rows[at]]
            lanes_out[counts[place]] = lane
            counts[place] += 1
    return found

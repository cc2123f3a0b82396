"""Kernels for embedding bags: sums of table rows over sparse rows, and updates of the table rows in use.

Their cost depends on the entries of a batch, never on the size of a table.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from longtail.kernels.jit import kernel, kernel_with
from longtail.kernels.random import random_unit
from longtail.kernels.types import Array, Float32, Float64, Int32, Int64, UInt64
from longtail.learners.training.row_adam import StepSize, adam_row

_FAST = {"reassoc", "contract", "nsz", "arcp"}


class Bags(NamedTuple):
    """Rows of a batch as CSR arrays."""

    indptr: Int64
    indices: Int32
    values: Float32


class ByFeature(NamedTuple):
    """Entries of a batch by feature: the rows with ``features[i]`` are ``rows[begin[i]:begin[i + 1]]``."""

    features: Int32
    begin: Int64
    rows: Int32
    values: Float32


@kernel
def sample_entries(
    indptr: Array,
    indices: Int32,
    values: Float32,
    rows: Int64,
    keep_probability: float,
    state: UInt64,
    begin: Int64,
    kept: Int32,
    weights: Float32,
) -> Any:
    """Copy some rows, each entry with probability `keep_probability`, and return the number of copied entries.

    Parameters
    ----------
    indptr, indices, values
        All rows as CSR arrays.
    rows : ndarray of int64
        Rows to copy.
    keep_probability : float
    state : ndarray of uint64, shape (1,)
        State of the random generator.
    begin, kept, weights : ndarray
        Filled with the copied rows as CSR arrays.
    """
    count = 0
    begin[0] = 0
    for place in range(rows.shape[0]):
        for at in range(indptr[rows[place]], indptr[rows[place] + 1]):
            if keep_probability >= 1 or random_unit(state) < keep_probability:
                kept[count] = indices[at]
                weights[count] = values[at]
                count += 1
        begin[place + 1] = count
    return count


@kernel
def count_occurring(bags: Any, counts: Int64) -> Any:
    """Count the occurrences of each feature in `counts`, which is all 0, and return the number of features."""
    found = 0
    for at in range(bags.indptr[bags.indptr.shape[0] - 1]):
        feature = bags.indices[at]
        found += counts[feature] == 0
        counts[feature] += 1
    return found


@kernel
def sort_by_feature(bags: Any, counts: Int64, out: Any) -> None:
    """Fill `out` with features in the order of their first occurrence, and set `counts` to 0 again."""
    end, found = bags.indptr[bags.indptr.shape[0] - 1], 0
    out.begin[0] = 0
    for at in range(end):
        feature = bags.indices[at]
        if counts[feature] > 0:  # seen first here: from now on the count holds -1 - the next free place
            out.features[found] = feature
            out.begin[found + 1] = out.begin[found] + counts[feature]
            counts[feature] = -1 - out.begin[found]
            found += 1
    # Write each entry to the next free place of its feature.
    for row in range(bags.indptr.shape[0] - 1):
        for at in range(bags.indptr[row], bags.indptr[row + 1]):
            place = -1 - counts[bags.indices[at]]
            out.rows[place] = row
            out.values[place] = bags.values[at]
            counts[bags.indices[at]] -= 1
    for at in range(found):
        counts[out.features[at]] = 0


@kernel_with(fastmath=_FAST)
def sum_bags(
    indptr: Array, indices: Int32, values: Float32, table: Float32, first: int, last: int, out: Float32
) -> None:
    """Set ``out[row - first]`` to the sum of value times table row over each row's entries."""
    width = table.shape[1]
    for row in range(first, last):
        total = out[row - first]
        for column in range(width):
            total[column] = 0
        # Two entries at a time halve the reads and writes of `total`.
        at, end = indptr[row], indptr[row + 1]
        while at + 2 <= end:
            one, two = values[at], values[at + 1]
            left, right = table[indices[at]], table[indices[at + 1]]
            for column in range(width):
                total[column] += one * left[column] + two * right[column]
            at += 2
        if at < end:
            one, left = values[at], table[indices[at]]
            for column in range(width):
                total[column] += one * left[column]


@kernel_with(fastmath=_FAST)
def step_features(
    entries: Any, sum_gradients: Float32, table: Any, size: StepSize, first: int, last: int, squares: Float64
) -> Any:
    """Update the rows of a table that occur in a batch, and return the sum of their squared gradients.

    Parameters
    ----------
    entries : ByFeature
        The batch.
    sum_gradients : ndarray of float32, shape (rows, width)
        Gradient with respect to the sums of the batch's rows.
    table : AdamTable
        Changed in place.
    size : StepSize
    first, last : int
        Features of `entries` to update.
    squares : ndarray of float64, shape (width,)
        The change of each column's squared norm is added to it.
    """
    width = table.values.shape[1]
    gradient = np.empty(width, np.float32)
    total = 0.0
    for place in range(first, last):
        # The gradient of a feature's row: its values in the batch times the gradients of the sums they are in.
        for column in range(width):
            gradient[column] = 0
        for at in range(entries.begin[place], entries.begin[place + 1]):
            value, of_sum = entries.values[at], sum_gradients[entries.rows[at]]
            for column in range(width):
                gradient[column] += value * of_sum[column]
        # Update the row, and the squared norms of the columns by the difference.
        feature = entries.features[place]
        row = table.values[feature]
        for column in range(width):
            squares[column] -= row[column] * row[column]
            total += gradient[column] * gradient[column]
        adam_row(row, table.first_moment[feature], table.second_moment[feature], gradient, size)
        for column in range(width):
            squares[column] += row[column] * row[column]
    return total


@kernel_with(fastmath=_FAST)
def step_units(rows: Int32, unit_gradients: Float32, table: Any, size: StepSize, first: int, last: int) -> Any:
    """Update rows of a table whose norms have no effect, and return the sum of their squared gradients.

    Parameters
    ----------
    rows : ndarray of int32
        Rows to update, without repetitions.
    unit_gradients : ndarray of float32, shape (len(rows), width)
        Gradient with respect to the rows scaled to norm 1.
    table : AdamTable
        Changed in place.
    size : StepSize
    first, last : int
        Part of `rows` to update.
    """
    width = table.values.shape[1]
    gradient = np.empty(width, np.float32)
    total = 0.0
    for place in range(first, last):
        row, of_unit = table.values[rows[place]], unit_gradients[place]
        square, along = np.float32(0), np.float32(0)
        for column in range(width):
            square += row[column] * row[column]
            along += row[column] * of_unit[column]
        # Backpropagate through the scaling to norm 1: the part of the gradient orthogonal to the row, over its norm.
        inverse = np.float32(1) / np.sqrt(max(square, np.float32(1e-30)))
        along *= inverse * inverse
        for column in range(width):
            gradient[column] = (of_unit[column] - along * row[column]) * inverse
            total += gradient[column] * gradient[column]
        adam_row(row, table.first_moment[rows[place]], table.second_moment[rows[place]], gradient, size)
    return total


@kernel
def adjacency_among(indptr: Array, indices: Int32, values: Float32, labels: Int32, places: Int32, out: Float32) -> None:
    """Copy the entries of a sparse square matrix between some of its columns, given without repetitions.

    Parameters
    ----------
    indptr, indices, values
        The matrix as CSR arrays.
    labels : ndarray of int32
        Columns to copy.
    places : ndarray of int32
        Workspace, -1 for every column of the matrix before and after.
    out : ndarray of float32, shape (len(labels), len(labels))
        Filled with 0 by the caller.
    """
    for place in range(labels.shape[0]):
        places[labels[place]] = place
    for place in range(labels.shape[0]):
        for at in range(indptr[labels[place]], indptr[labels[place] + 1]):
            other = places[indices[at]]
            if other >= 0:
                out[place, other] = values[at]
    for place in range(labels.shape[0]):
        places[labels[place]] = -1

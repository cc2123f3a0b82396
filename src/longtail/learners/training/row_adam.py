"""Adam for tables of which a step changes few rows: a step reads and writes these rows and their moments alone.

`adam_row` and `adam_rows` are the same update (Kingma and Ba, algorithm 1) in two orders of rounding. Trained models
depend on their last bits: embeddings on those of the first, networks on those of the second.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from longtail.kernels.jit import kernel, kernel_with
from longtail.kernels.types import Float32, Int64

_FAST = {"reassoc", "contract", "nsz", "arcp"}
_BETA1, _BETA2, _EPSILON = np.float32(0.9), np.float32(0.999), np.float32(1e-8)


class AdamTable(NamedTuple):
    """Trained values with Adam's first and second moments of their gradients, all of one shape."""

    values: Float32
    first_moment: Float32
    second_moment: Float32

    @classmethod
    def untrained(cls, values: Float32) -> AdamTable:
        """Return a table whose moments are 0."""
        return cls(values, np.zeros_like(values), np.zeros_like(values))


class StepSize(NamedTuple):
    """Learning rate of one step, and Adam's bias corrections; a correction of 0 means plain gradient descent."""

    learning_rate: np.float32  # over the correction of the first moment
    correction: np.float32  # factor of the second moment

    @classmethod
    def of(cls, learning_rate: float, step: int, adam: bool = True) -> StepSize:
        """Return the size of a step, counted from 0."""
        if not adam:
            return cls(np.float32(learning_rate), np.float32(0))
        return cls(
            np.float32(learning_rate / (1 - np.float64(_BETA1) ** (step + 1))),
            np.float32(1 / (1 - np.float64(_BETA2) ** (step + 1))),
        )


@kernel_with(fastmath=_FAST)
def adam_row(values: Float32, first_moment: Float32, second_moment: Float32, gradient: Float32, size: StepSize) -> None:
    """Update one row by Adam, or by gradient descent."""
    learning_rate, correction = size.learning_rate, size.correction
    if correction == 0:
        for column in range(values.shape[0]):
            values[column] -= learning_rate * gradient[column]
        return
    for column in range(values.shape[0]):
        g = gradient[column]
        first_moment[column] += (np.float32(1) - _BETA1) * (g - first_moment[column])
        second_moment[column] += (np.float32(1) - _BETA2) * (g * g - second_moment[column])
        values[column] -= (
            learning_rate * first_moment[column] / (np.sqrt(second_moment[column] * correction) + _EPSILON)
        )


def adam_table(table: AdamTable, gradient: Float32, size: StepSize) -> None:
    """Update a whole table as `adam_row` updates a row."""
    if size.correction == 0:
        table.values[...] -= size.learning_rate * gradient
        return
    table.first_moment[...] += (1 - _BETA1) * (gradient - table.first_moment)
    table.second_moment[...] += (1 - _BETA2) * (gradient * gradient - table.second_moment)
    table.values[...] -= (
        size.learning_rate * table.first_moment / (np.sqrt(table.second_moment * size.correction) + _EPSILON)
    )


@kernel
def adam_rows(
    values: Float32,
    first_moment: Float32,
    second_moment: Float32,
    rows: Int64,
    gradients: Float32,
    learning_rate: float,
    step: int,
) -> None:
    """Update some rows of a table; the other rows and their moments stay as they are.

    Parameters
    ----------
    values, first_moment, second_moment : ndarray of float32, shape (n, width)
    rows : ndarray of int64
        Rows to update, without repetitions.
    gradients : ndarray of float32, shape (len(rows), width)
    learning_rate : float
    step : int
        Counted from 1.
    """
    size = np.float32(learning_rate / (1 - 0.9**step))
    root = np.float32(1 / np.sqrt(1 - 0.999**step))
    for at in range(rows.shape[0]):
        row = rows[at]
        for column in range(values.shape[1]):
            g = gradients[at, column]
            first = _BETA1 * first_moment[row, column] + (np.float32(1) - _BETA1) * g
            second = _BETA2 * second_moment[row, column] + (np.float32(1) - _BETA2) * g * g
            first_moment[row, column] = first
            second_moment[row, column] = second
            values[row, column] -= size * first / (np.sqrt(second) * root + _EPSILON)

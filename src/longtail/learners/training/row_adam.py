"""Adam for tables of which a step changes few rows: a step reads and writes these rows and their moments alone."""

from __future__ import annotations

from typing import Any, NamedTuple

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
    if correction == 0:  # plain gradient descent
        for column in range(values.shape[0]):
            values[column] -= learning_rate * gradient[column]
        return
    # Moving averages of the gradient and of its square, then the step; bias corrections are in `size`.
    for column in range(values.shape[0]):
        g = gradient[column]
        first_moment[column] += (np.float32(1) - _BETA1) * (g - first_moment[column])
        second_moment[column] += (np.float32(1) - _BETA2) * (g * g - second_moment[column])
        values[column] -= (
            learning_rate * first_moment[column] / (np.sqrt(second_moment[column] * correction) + _EPSILON)
        )


@kernel
def adam_rows(table: Any, rows: Int64, gradients: Float32, size: StepSize) -> None:
    """Update some rows of a table; the other rows and their moments stay as they are.

    Parameters
    ----------
    table : AdamTable
        Changed in place.
    rows : ndarray of int64
        Rows to update, without repetitions.
    gradients : ndarray of float32, shape (len(rows), width)
    size : StepSize
    """
    for place in range(rows.shape[0]):
        row = rows[place]
        adam_row(table.values[row], table.first_moment[row], table.second_moment[row], gradients[place], size)


def adam_table(table: AdamTable, gradient: Float32, size: StepSize) -> None:
    """Update all values of a table."""
    values, first_moment, second_moment = (part.reshape(-1) for part in table)
    adam_row(values, first_moment, second_moment, gradient.reshape(-1), size)

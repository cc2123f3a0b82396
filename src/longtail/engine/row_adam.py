"""Adam for tables of which a step changes some rows: one sweep over these rows alone."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from longtail.engine.jit import kernel

Float32 = npt.NDArray[np.float32]


@kernel
def step_rows(
    values: Float32,
    means: Float32,
    squares: Float32,
    rows: npt.NDArray[np.int64],
    gradients: Float32,
    rate: float,
    turn: int,
) -> None:
    """Take a step with some rows of a table; the memory of the others stays as it is.

    Parameters
    ----------
    values, means, squares : ndarray of float32, shape (n, width)
        The table, and the running means of its gradients and of their squares.
    rows : ndarray of int64
        Rows to change, each once.
    gradients : ndarray of float32, shape (rows, width)
    rate : float
    turn : int
        Number of the step, from 1 on.
    """
    keep, keep_squares = np.float32(0.9), np.float32(0.999)
    first, second = 1 - 0.9**turn, 1 - 0.999**turn
    length, root = np.float32(rate / first), np.float32(1 / np.sqrt(second))
    for at in range(rows.shape[0]):
        row = rows[at]
        for column in range(values.shape[1]):
            slope = gradients[at, column]
            mean = keep * means[row, column] + (np.float32(1) - keep) * slope
            square = keep_squares * squares[row, column] + (np.float32(1) - keep_squares) * slope * slope
            means[row, column] = mean
            squares[row, column] = square
            values[row, column] -= length * mean / (np.sqrt(square) * root + np.float32(1e-8))

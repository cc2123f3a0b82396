"""Kernels over sparse rows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from longtail.engine.jit import kernel


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
def count_features(indices: npt.NDArray[np.int32], counts: npt.NDArray[np.int64]) -> None:
    """Add to `counts` how often each feature occurs; numpy's bincount would first copy the indices as int64."""
    for at in range(indices.shape[0]):
        counts[indices[at]] += 1

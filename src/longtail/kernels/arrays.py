"""Checks of arrays before they go to kernels, arrays that grow inside kernels, and rows of norm 1."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from longtail.kernels.jit import kernel
from longtail.kernels.types import Float32


def is_array(array: Any, ndim: int, *kinds: Any) -> bool:
    """Return whether `array` is a C-contiguous array with `ndim` dimensions and one of the given dtypes.

    Examples
    --------
    >>> is_array(np.zeros((2, 3), np.float32), 2, np.float32, np.float64)
    True
    """
    return (
        isinstance(array, np.ndarray)
        and array.ndim == ndim
        and array.flags.c_contiguous
        and any(array.dtype == np.dtype(kind) for kind in kinds)
    )


@kernel
def with_room(array: npt.NDArray[Any], size: int) -> Any:
    """Return the array if it holds `size` elements, else a copy with at least twice its length."""
    if array.shape[0] >= size:
        return array
    larger = np.empty(max(size, 2 * array.shape[0]), array.dtype)
    larger[: array.shape[0]] = array
    return larger


def unit_rows(values: Float32) -> Float32:
    """Scale rows to norm 1; a row of zeros stays."""
    lengths = np.sqrt(np.einsum("ij,ij->i", values, values, dtype=np.float64))[:, None].astype(np.float32)
    found: Float32 = np.divide(values, lengths, out=np.zeros_like(values), where=lengths > 1e-12)
    return found

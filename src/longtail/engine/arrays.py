"""What arrays must be for kernels, and arrays that grow inside of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from longtail.engine.jit import kernel


def is_array(array: Any, ndim: int, *kinds: Any) -> bool:
    """Whether this is a contiguous array with so many dimensions, of one of these types.

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
    """Give back the array if it has room for `size` numbers, else one of at least twice its length with a copy."""
    if array.shape[0] >= size:
        return array
    larger = np.empty(max(size, 2 * array.shape[0]), array.dtype)
    larger[: array.shape[0]] = array
    return larger

"""Arrays that grow inside of kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from longtail.engine.jit import kernel


@kernel
def with_room(array: npt.NDArray[Any], size: int) -> Any:
    """Give back the array if it has room for `size` numbers, else one of at least twice its length with a copy."""
    if array.shape[0] >= size:
        return array
    larger = np.empty(max(size, 2 * array.shape[0]), array.dtype)
    larger[: array.shape[0]] = array
    return larger

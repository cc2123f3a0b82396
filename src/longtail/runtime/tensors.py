"""Arrays by name, such as the weights of a network; a saved model keeps them in one safetensors file."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt


class Tensors(dict[str, npt.NDArray[Any]]):
    """Arrays by name.

    Examples
    --------
    >>> import numpy as np
    >>> Tensors(bias=np.zeros(2)).n_values
    2
    """

    @property
    def n_values(self) -> int:
        """Total number of values."""
        return sum(int(array.size) for array in self.values())

    @property
    def nbytes(self) -> int:
        """Total size in bytes."""
        return sum(int(array.nbytes) for array in self.values())

"""No correction."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from longtail.weighting.base import Weighting


class NoWeighting(Weighting):
    """Every row of every label costs 1.

    Examples
    --------
    >>> NoWeighting().costs([1, 500], 1000).positive
    array([1., 1.], dtype=float32)
    """

    name: ClassVar[str] = "none"

    def _positive(self, counts: npt.NDArray[np.float64], n_rows: int) -> npt.NDArray[np.float64]:
        return np.ones_like(counts)

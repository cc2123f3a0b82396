"""The hinge loss."""

from __future__ import annotations

from math import inf
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from longtail.losses.base import WWW_2021, Floats, MarginLoss, floats


class Hinge(MarginLoss):
    """The hinge, max(1 - z, 0), of the support vector machine.

    Table 1 of Qaraei et al. 2021; times a positive cost of 2/p - 1 it is the red line of its figure 2, the convex
    replacement (`Surrogate`) of the unbiased hinge of equations 9 and 11 (`Unbiased`). The kink at z = 1 gets the
    gradient 0.

    Examples
    --------
    >>> Hinge().value([-1.0, 0.0, 2.0])
    array([2., 1., 0.])
    >>> Hinge().gradient([-1.0, 1.0, 2.0])
    array([-1.,  0.,  0.])
    """

    name = "hinge"
    citation = f"{WWW_2021}, table 1 and figure 2."
    equations = "table 1"
    lipschitz: ClassVar[float] = 1.0
    smoothness: ClassVar[float] = inf
    zero_margin: ClassVar[float] = 1.0
    dual_bound: ClassVar[float] = 1.0
    surrogate_scale: ClassVar[float] = 1.0

    def value(self, margin: npt.ArrayLike) -> Floats:
        """max(1 - z, 0)."""
        return np.maximum(1.0 - floats(margin), 0.0)

    def gradient(self, margin: npt.ArrayLike) -> Floats:
        """-1 below z = 1, 0 from there on."""
        return np.where(floats(margin) < 1.0, -1.0, 0.0)

    def curvature(self, margin: npt.ArrayLike) -> Floats:
        """0: the hinge consists of two straight lines."""
        return np.zeros_like(floats(margin))

    def conjugate(self, dual: npt.ArrayLike) -> Floats:
        """-dual for dual from 0 to 1."""
        a = floats(dual)
        return np.where((a >= 0.0) & (a <= 1.0), -a, inf)

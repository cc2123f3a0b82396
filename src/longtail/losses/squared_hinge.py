"""The squared hinge loss."""

from __future__ import annotations

from math import inf
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from longtail.losses.base import WWW_2021, Floats, MarginLoss, floats


class SquaredHinge(MarginLoss):
    """The squared hinge, max(1 - z, 0)^2, of DiSMEC.

    Table 1 of Qaraei et al. 2021; times a positive cost of 2/p - 1 it is equation 16, and times PW-cb's cost
    equation 21. Its dual has no upper bound, only a diagonal of 1 / (2 cost).

    Examples
    --------
    >>> SquaredHinge().value([-1.0, 0.0, 2.0])
    array([4., 1., 0.])
    >>> SquaredHinge().gradient([-1.0, 0.0, 2.0])
    array([-4., -2.,  0.])
    """

    name = "squared-hinge"
    citation = f"{WWW_2021}, table 1 and equations 16, 21, 22."
    equations = "table 1"
    lipschitz: ClassVar[float] = inf
    smoothness: ClassVar[float] = 2.0
    zero_margin: ClassVar[float] = 1.0
    dual_bound: ClassVar[float] = inf
    surrogate_scale: ClassVar[float] = 1.0

    def value(self, margin: npt.ArrayLike) -> Floats:
        """max(1 - z, 0)^2."""
        return np.square(np.maximum(1.0 - floats(margin), 0.0))

    def gradient(self, margin: npt.ArrayLike) -> Floats:
        """-2 max(1 - z, 0)."""
        return 2.0 * np.minimum(floats(margin) - 1.0, 0.0)

    def curvature(self, margin: npt.ArrayLike) -> Floats:
        """2 below z = 1, 0 from there on."""
        return np.where(floats(margin) < 1.0, 2.0, 0.0)

    def conjugate(self, dual: npt.ArrayLike) -> Floats:
        """dual^2 / 4 - dual for dual >= 0."""
        a = floats(dual)
        return np.where(a >= 0.0, a * a / 4.0 - a, inf)

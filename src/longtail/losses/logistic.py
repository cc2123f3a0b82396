"""The logistic loss: binary cross-entropy on scores."""

from __future__ import annotations

from math import inf, log
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from longtail.losses.base import Floats, MarginLoss, floats


class Logistic(MarginLoss):
    """The logistic loss, ln(1 + e^-z): binary cross-entropy of the probability sigma(score).

    The last line of table 1 and equation 17 of Qaraei et al. 2021; with a positive cost it is equation 23. The paper
    divides the logistic loss by ln 2 where it uses it as an upper bound of the 0-1 loss (`surrogate_scale`); here it
    is not divided, as in equation 23 and every solver: the factor would only change the regularisation.

    Examples
    --------
    >>> Logistic().value([-2.0, 0.0, 2.0]).round(4)
    array([2.1269, 0.6931, 0.1269])
    >>> Logistic().gradient([-2.0, 0.0, 2.0]).round(4)
    array([-0.8808, -0.5   , -0.1192])
    """

    name: ClassVar[str] = "logistic"
    citation: ClassVar[str] = (
        "Qaraei, Schultheis, Gupta, Babbar: Convex Surrogates for Unbiased Loss Functions in Extreme Classification "
        "With Missing Labels. WWW 2021, table 1 and equations 17, 23."
    )
    lipschitz: ClassVar[float] = 1.0
    smoothness: ClassVar[float] = 0.25
    zero_margin: ClassVar[float] = inf
    dual_bound: ClassVar[float] = 1.0
    surrogate_scale: ClassVar[float] = 1.0 / log(2.0)

    @property
    def equations(self) -> str:
        """Where Qaraei et al. 2021 define it."""
        return "table 1, 17"

    @property
    def linear_difference(self) -> bool:
        """True: ln(1 + e^-s) - ln(1 + e^s) is -s."""
        return True

    def value(self, margin: npt.ArrayLike) -> Floats:
        """ln(1 + e^-z)."""
        return np.logaddexp(0.0, -floats(margin))

    def gradient(self, margin: npt.ArrayLike) -> Floats:
        """-sigma(-z)."""
        return -_sigmoid(-floats(margin))

    def curvature(self, margin: npt.ArrayLike) -> Floats:
        """sigma(z) sigma(-z)."""
        z = floats(margin)
        return _sigmoid(z) * _sigmoid(-z)

    def conjugate(self, dual: npt.ArrayLike) -> Floats:
        """dual ln(dual) + (1 - dual) ln(1 - dual) for dual from 0 to 1, both ends 0."""
        a = floats(dual)
        inside = np.clip(a, 0.0, 1.0)
        return np.where(inside == a, _x_ln_x(inside) + _x_ln_x(1.0 - inside), inf)


def _sigmoid(x: Floats) -> Floats:
    return np.exp(-np.logaddexp(0.0, -x))


def _x_ln_x(x: Floats) -> Floats:
    return x * np.log(np.where(x > 0.0, x, 1.0))

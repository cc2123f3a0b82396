"""The 0-1 loss: whether the sign of a score is wrong."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from longtail.losses.base import Floats, Loss, floats


class ZeroOne(Loss):
    """The 0-1 loss: 1 where the sign of the score is wrong, 0 where it is right; a score of 0 says "no".

    Table 1 of Qaraei et al. 2021; added up over labels it is the Hamming loss. It is what the other losses stand in
    for: it has steps and no slope, so it can be measured, but not minimised by gradients.

    Examples
    --------
    >>> ZeroOne().positive([-1.0, 0.0, 2.0])
    array([1., 1., 0.])
    >>> ZeroOne().negative([-1.0, 0.0, 2.0])
    array([0., 0., 1.])
    """

    name: ClassVar[str] = "zero-one"
    citation: ClassVar[str] = (
        "Qaraei, Schultheis, Gupta, Babbar: Convex Surrogates for Unbiased Loss Functions in Extreme Classification "
        "With Missing Labels. WWW 2021, table 1."
    )

    @property
    def equations(self) -> str:
        """Where Qaraei et al. 2021 define it."""
        return "table 1"

    @property
    def lower_bounded(self) -> bool:
        """True: it is never below 0."""
        return True

    @property
    def upper_bounded(self) -> bool:
        """True: it is never above 1."""
        return True

    def positive(self, score: npt.ArrayLike) -> Floats:
        """1 for scores up to 0, else 0."""
        return np.where(floats(score) <= 0.0, 1.0, 0.0)

    def negative(self, score: npt.ArrayLike) -> Floats:
        """1 for scores above 0, else 0."""
        return np.where(floats(score) > 0.0, 1.0, 0.0)

    def positive_gradient(self, score: npt.ArrayLike) -> Floats:
        """0, the derivative everywhere but at the step."""
        return np.zeros_like(floats(score))

    def negative_gradient(self, score: npt.ArrayLike) -> Floats:
        """0, the derivative everywhere but at the step."""
        return np.zeros_like(floats(score))

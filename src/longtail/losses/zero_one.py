"""The 0-1 loss."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from longtail.losses.base import WWW_2021, Floats, Loss, floats


class ZeroOne(Loss):
    """The 0-1 loss: 1 where the sign of the score is wrong, 0 where it is right; a score of 0 means "no".

    Table 1 of Qaraei et al. 2021; summed over labels it is the Hamming loss. It is a step function: it can be measured,
    but not minimised by gradients.

    Examples
    --------
    >>> ZeroOne().positive([-1.0, 0.0, 2.0])
    array([1., 1., 0.])
    >>> ZeroOne().negative([-1.0, 0.0, 2.0])
    array([0., 0., 1.])
    """

    name = "zero-one"
    citation = f"{WWW_2021}, table 1."
    equations = "table 1"
    lower_bounded = upper_bounded = True

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

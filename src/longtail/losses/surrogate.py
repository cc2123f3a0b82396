"""The convex replacement of an unbiased loss."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from longtail.losses.corrected import Corrected, Factors

_EQUATIONS = {"zero-one": "8, 15", "squared-hinge": "15, 16", "logistic": "15, 17"}


class Surrogate(Corrected):
    """The plain loss with a cost of 2/p - 1 for recorded labels: convex and bounded below wherever the plain loss is.

    For the 0-1 loss it is the unbiased estimate, but for a constant of 1/p - 1 where the label is recorded (equations
    8 and 15 of Qaraei et al. 2021; 14 is the same divided by 2/p). A convex bound of the 0-1 loss, such as the squared
    hinge (16) or the logistic loss on scores (17), times that cost is a convex bound of the unbiased 0-1 loss.

    It lies above the unbiased form of the same loss, by (1/p - 1)(l+ + l-). For the hinge l+ + l- is 2 from s = -1 to
    s = 1: inside the margin the two differ by a constant and have the same slope.

    Parameters
    ----------
    base : Loss or str
        The plain loss, or its name.
    propensity : float or array-like, shape (L,)
        p, above 0 and at most 1: one for all, or one per label in the last axis of the scores.

    See Also
    --------
    longtail.weighting.PW : The same cost from a model of the propensities, for learners.

    Examples
    --------
    >>> from longtail.losses import SquaredHinge
    >>> loss = Surrogate(SquaredHinge(), propensity=0.5)
    >>> loss.positive([-1.0, 0.0, 1.0, 3.0])
    array([12.,  3.,  0.,  0.])
    >>> loss.convex, loss.lower_bounded
    (True, True)
    """

    name: ClassVar[str] = "surrogate"

    @property
    def equations(self) -> str:
        """Where Qaraei et al. 2021 define it."""
        return _EQUATIONS.get(self.plain.name, "15")

    @property
    def factors(self) -> Factors:
        """2/p - 1 and 0."""
        cost = 2.0 * self._inverse() - 1.0
        return Factors(cost, np.zeros_like(cost))

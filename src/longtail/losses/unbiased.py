"""The unbiased estimate of a loss from labels of which some are missing."""

from __future__ import annotations

from typing import ClassVar

from longtail.losses.corrected import Corrected, Factors

_EQUATIONS = {"zero-one": "4, 7", "hinge": "4, 9, 11", "logistic": "4, 12, 13"}


class Unbiased(Corrected):
    """The unbiased estimate of a loss: a recorded label costs l+/p - (1/p - 1) l-, any other l-.

    Its mean over which true labels got recorded is the plain loss of the true labels (equations 4 to 6 of Qaraei et
    al. 2021). A recorded label stands for 1/p true ones, of which 1/p - 1 were wrongly charged l-.

    Right on average is not good to minimise. Where p < 1:

    ===============  ===============  ============================  =================================================
    base             equations        convex                        bounded below
    ===============  ===============  ============================  =================================================
    `ZeroOne`        4, 7             no                            yes, by 1 - 1/p
    `Hinge`          4, 9, 11         no: bends down at s = -1      no: falls by 1/p - 1 for every unit of s
    `SquaredHinge`   4                no: bends down from s = 1 on  no: falls by the square, faster than an L2
                                                                    regulariser rises unless C is small
    `Logistic`       4, 12, 13        yes: it is ln(1 + e^-s) -     no: falls by 1/p - 1 for every unit of s
                                      (1/p - 1) s
    ===============  ===============  ============================  =================================================

    Use it to measure, and `Surrogate` to learn. With p = 1 it is the plain loss.

    (Equation 7 gives the score 0 to the right side of the step. Here it is on the left, as table 1 and equation 8 have
    it.)

    Parameters
    ----------
    base : Loss or str
        The plain loss, or its name.
    propensity : float or array-like, shape (L,)
        p, above 0 and at most 1: one for all, or one per label in the last axis of the scores.

    Examples
    --------
    >>> from longtail.losses import Hinge, Logistic
    >>> loss = Unbiased(Hinge(), propensity=0.5)
    >>> loss.positive([-1.0, 0.0, 1.0, 3.0])
    array([ 4.,  1., -2., -4.])
    >>> loss.convex, loss.lower_bounded
    (False, False)
    >>> Unbiased(Logistic(), propensity=[0.1, 0.5]).convex
    True

    References
    ----------
    Natarajan, Dhillon, Ravikumar, Tewari: Cost-Sensitive Learning with Noisy Labels. JMLR 2017, lemma 7.
    """

    name: ClassVar[str] = "unbiased"

    @property
    def equations(self) -> str:
        """Where Qaraei et al. 2021 define it."""
        return _EQUATIONS.get(self.plain.name, "4")

    @property
    def factors(self) -> Factors:
        """1/p and 1/p - 1."""
        inverse = self._inverse()
        return Factors(inverse, inverse - 1.0)

"""Losses that correct for missing labels by propensities, and for imbalance: unbiased, surrogate and rebalanced."""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from longtail.errors import InputError, ParameterError
from longtail.losses.base import WWW_2021, Floats, Loss, floats
from longtail.losses.registry import get_loss
from longtail.validation import PROBABILITY, Number, OneOf, check, numbers_per_label

CorrectionOrder = Literal["correct-then-rebalance", "rebalance-then-correct"]
CORRECTION_ORDERS: tuple[CorrectionOrder, CorrectionOrder] = ("correct-then-rebalance", "rebalance-then-correct")


class LossFactors(NamedTuple):
    """A recorded label costs `positive` l+ less `negative` l-, with l+ and l- the parts of the plain loss.

    Both are numbers (arrays without axes) or have one value per label.
    """

    positive: Floats
    negative: Floats


class Corrected(Loss):
    """A plain loss whose part for recorded labels is corrected by their propensity p.

    A recorded label costs a l+(s) - b l-(s), with `factors` a and b that depend on p; a label that is not recorded
    costs l-(s), as before. From that follows

    - it is convex if the plain loss is and b = 0, or if l+ - l- is a straight line and a >= b;
    - it is bounded below if the plain loss is and b = 0, or if the plain loss is bounded above too.

    Parameters
    ----------
    base : Loss or str
        The plain loss, or its name.
    propensity : float or array-like, shape (L,)
        p, above 0 and at most 1: one for all, or one per label. With one per label, the last axis of the scores must
        be the labels.

    Examples
    --------
    >>> from longtail.losses import Logistic
    >>> isinstance(Surrogate(Logistic(), propensity=0.5), Corrected)
    True
    """

    citation = f"{WWW_2021}, section 2."

    def __init__(self, base: Loss | str, *, propensity: npt.ArrayLike) -> None:
        self.base = base
        self.propensity = propensity

    @property
    def plain(self) -> Loss:
        """The loss that is corrected."""
        found = get_loss(self.base)
        if isinstance(found, Corrected):
            raise ParameterError("base", self.base, "must be a loss that is not corrected yet")
        return found

    @property
    @abstractmethod
    def factors(self) -> LossFactors:
        """The factors of l+ and l- where the label is recorded."""

    @property
    def convex(self) -> bool:  # type: ignore[override]
        """Whether both parts are convex in the score, for every label."""
        plain, (on, off) = self.plain, self.factors
        return plain.convex and (not off.any() or (plain.linear_difference and bool((on >= off).all())))

    @property
    def lower_bounded(self) -> bool:  # type: ignore[override]
        """Whether both parts are bounded below, for every label."""
        plain = self.plain
        return plain.lower_bounded and (plain.upper_bounded or not self.factors.negative.any())

    @property
    def upper_bounded(self) -> bool:  # type: ignore[override]
        """Whether both parts are bounded above."""
        plain = self.plain
        return plain.upper_bounded and plain.lower_bounded

    def positive(self, score: npt.ArrayLike) -> Floats:
        """Loss of a score where the label is recorded: a l+(s) - b l-(s)."""
        s, (on, off) = self._aligned(score)
        value = on * self.plain.positive(s)
        return value - off * self.plain.negative(s) if off.any() else value

    def negative(self, score: npt.ArrayLike) -> Floats:
        """Loss of a score where the label is not recorded: that of the plain loss."""
        return self.plain.negative(self._aligned(score)[0])

    def positive_gradient(self, score: npt.ArrayLike) -> Floats:
        """Derivative of `positive` by the score."""
        s, (on, off) = self._aligned(score)
        slope = on * self.plain.positive_gradient(s)
        return slope - off * self.plain.negative_gradient(s) if off.any() else slope

    def negative_gradient(self, score: npt.ArrayLike) -> Floats:
        """Derivative of `negative` by the score."""
        return self.plain.negative_gradient(self._aligned(score)[0])

    def _inverse(self) -> Floats:
        """1 / p."""
        return 1.0 / numbers_per_label("propensity", self.propensity, PROBABILITY, may_be_one=True)

    def _aligned(self, score: npt.ArrayLike) -> tuple[Floats, LossFactors]:
        s, factors = floats(score), self.factors
        n_labels = factors.positive.shape
        if n_labels and s.shape[-1:] != n_labels:
            raise InputError(
                f"scores has shape {s.shape} and the loss is for {n_labels[0]} labels: they must be the last axis."
            )
        return s, factors


class Unbiased(Corrected):
    """The unbiased estimate of a loss: a recorded label costs l+/p - (1/p - 1) l-, any other l-.

    Its mean over which true labels got recorded is the plain loss of the true labels (equations 4 to 6 of Qaraei et
    al. 2021). A recorded label represents 1/p true ones; 1/p - 1 of these were wrongly charged l-.

    Unbiased does not mean easy to minimise. Where p < 1:

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
    base, propensity
        See `Corrected`.

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

    name = "unbiased"

    @property
    def equations(self) -> str:  # type: ignore[override]
        """Where Qaraei et al. 2021 define it."""
        return {"zero-one": "4, 7", "hinge": "4, 9, 11", "logistic": "4, 12, 13"}.get(self.plain.name, "4")

    @property
    def factors(self) -> LossFactors:
        """1/p and 1/p - 1."""
        inverse = self._inverse()
        return LossFactors(inverse, inverse - 1.0)


class Surrogate(Corrected):
    """The plain loss with a cost of 2/p - 1 for recorded labels: convex and bounded below wherever the plain loss is.

    For the 0-1 loss it is the unbiased estimate, but for a constant of 1/p - 1 where the label is recorded (equations
    8 and 15 of Qaraei et al. 2021; 14 is the same divided by 2/p). A convex bound of the 0-1 loss, such as the squared
    hinge (16) or the logistic loss on scores (17), times that cost is a convex bound of the unbiased 0-1 loss.

    It lies above the unbiased form of the same loss, by (1/p - 1)(l+ + l-). For the hinge l+ + l- is 2 from s = -1 to
    s = 1: inside the margin the two differ by a constant and have the same slope.

    Parameters
    ----------
    base, propensity
        See `Corrected`.

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

    name = "surrogate"

    @property
    def equations(self) -> str:  # type: ignore[override]
        """Where Qaraei et al. 2021 define it."""
        return {"zero-one": "8, 15", "squared-hinge": "15, 16", "logistic": "15, 17"}.get(self.plain.name, "15")

    @property
    def factors(self) -> LossFactors:
        """2/p - 1 and 0."""
        cost = 2.0 * self._inverse() - 1.0
        return LossFactors(cost, np.zeros_like(cost))


class _Balanced(Corrected):
    factor: npt.ArrayLike
    order: CorrectionOrder

    def __init__(
        self,
        base: Loss | str,
        *,
        propensity: npt.ArrayLike,
        factor: npt.ArrayLike,
        order: CorrectionOrder = "correct-then-rebalance",
    ) -> None:
        super().__init__(base, propensity=propensity)
        self.factor = factor
        self.order = order

    def _checked(self) -> tuple[Floats, Floats, bool]:
        """Return 1/p and F, broadcast to the same shape, and whether the correction comes first."""
        check("order", self.order, OneOf(*CORRECTION_ORDERS))
        inverse, factor = self._inverse(), numbers_per_label("factor", self.factor, Number(above=0), may_be_one=True)
        if inverse.ndim and factor.ndim and len(inverse) != len(factor):
            raise ParameterError("len(factor)", len(factor), f"must equal len(propensity) ({len(inverse)})")
        ones = np.ones(np.broadcast_shapes(inverse.shape, factor.shape))
        return inverse * ones, factor * ones, self.order == CORRECTION_ORDERS[0]


def rebalanced_cost(inverse: Floats, factor: Floats, order: CorrectionOrder) -> Floats:
    """Return the cost of a recorded label from 1/p and the balancing factor F, by equation 19 or 20; see `Rebalanced`.

    Examples
    --------
    >>> rebalanced_cost(floats(2.0), floats(0.1), "rebalance-then-correct")
    np.float64(1.2)
    """
    return factor * (2.0 * inverse - 1.0) if order == CORRECTION_ORDERS[0] else factor * inverse + (inverse - 1.0)


class Rebalanced(_Balanced):
    """`Surrogate` and balancing together: the plain loss with one cost for recorded labels.

    F is a factor that balances frequent and rare labels, C+ in Qaraei et al. 2021, for instance the class-balanced
    (1 - beta) / (1 - beta^n) of `longtail.weighting.class_balanced_factor`. The two orders differ:

    - ``"correct-then-rebalance"``: F (2/p - 1), equation 19, and 21 with the squared hinge. F is that of the *observed*
      count n.
    - ``"rebalance-then-correct"``: F/p + 1/p - 1, equation 20. F is that of the *true* count n/p.

    Either is the unbiased form, `UnbiasedRebalanced`, of the 0-1 loss but for a constant. It is convex and bounded
    below wherever the plain loss is.

    Parameters
    ----------
    base, propensity
        See `Corrected`.
    factor : float or array-like, shape (L,)
        F, above 0, at the count that the order asks for.
    order : {"correct-then-rebalance", "rebalance-then-correct"}
        Which of the two formulas.

    See Also
    --------
    longtail.weighting.PWcb : The same costs from counts and a model of the propensities, for learners.

    Examples
    --------
    >>> from longtail.losses import SquaredHinge
    >>> Rebalanced(SquaredHinge(), propensity=0.5, factor=0.1).positive([0.0, 0.5]).round(3)
    array([0.3  , 0.075])
    >>> Rebalanced("hinge", propensity=0.5, factor=0.1, order="rebalance-then-correct").positive([0.0, 0.5]).round(3)
    array([1.2, 0.6])
    """

    name = "rebalanced"

    @property
    def equations(self) -> str:  # type: ignore[override]
        """Where Qaraei et al. 2021 define it."""
        if self.order == CORRECTION_ORDERS[1]:
            return "20"
        return "19, 21" if self.plain.name == "squared-hinge" else "19"

    @property
    def factors(self) -> LossFactors:
        """The cost of the order, and 0."""
        inverse, factor, _ = self._checked()
        cost = rebalanced_cost(inverse, factor, self.order)
        return LossFactors(cost, np.zeros_like(cost))


class UnbiasedRebalanced(_Balanced):
    """`Unbiased` and balancing together, in both orders.

    - ``"correct-then-rebalance"``: F times the unbiased loss, F (l+/p - (1/p - 1) l-) (section 2.3 of Qaraei et al.
      2021), with F of the *observed* count n.
    - ``"rebalance-then-correct"``: F l+/p - (1/p - 1) l-, equation 18, with F of the *true* count n/p. Its mean over
      which true labels got recorded is the balanced loss of the true labels: F l+ where one is, l- elsewhere. The
      other order has no such meaning unless F = 1.

    Where p < 1, convexity and the lower bound are lost as with `Unbiased`. Equation 18 loses the convexity of the
    logistic loss too where F < 1 - p, which class-balanced factors of frequent labels are.

    Parameters
    ----------
    base, propensity, factor, order
        See `Rebalanced`.

    Examples
    --------
    >>> loss = UnbiasedRebalanced("logistic", propensity=0.5, factor=0.8, order="rebalance-then-correct")
    >>> loss.convex, loss.set_params(factor=0.4).convex
    (True, False)
    """

    name = "unbiased-rebalanced"

    @property
    def equations(self) -> str:  # type: ignore[override]
        """Where Qaraei et al. 2021 define it."""
        return "18" if self.order == CORRECTION_ORDERS[1] else "4, section 2.3"

    @property
    def factors(self) -> LossFactors:
        """F/p, and 1/p - 1 with or without F."""
        inverse, factor, correct_first = self._checked()
        return LossFactors(factor * inverse, (inverse - 1.0) * (factor if correct_first else 1.0))

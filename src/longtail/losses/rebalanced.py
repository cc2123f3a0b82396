"""Losses that correct for missing labels and for imbalance, in both orders."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from longtail.errors import ParameterError
from longtail.losses.base import Floats, Loss
from longtail.losses.corrected import Corrected, Factors, per_label

Order = Literal["correct-then-rebalance", "rebalance-then-correct"]
ORDERS: tuple[Order, Order] = ("correct-then-rebalance", "rebalance-then-correct")


class _Balanced(Corrected):
    factor: npt.ArrayLike
    order: Order

    def __init__(
        self,
        base: Loss | str,
        *,
        propensity: npt.ArrayLike,
        factor: npt.ArrayLike,
        order: Order = "correct-then-rebalance",
    ) -> None:
        super().__init__(base, propensity=propensity)
        self.factor = factor
        self.order = order

    def _checked(self) -> tuple[Floats, Floats, bool]:
        """1/p and F, of one shape, and whether the correction comes first."""
        if self.order not in ORDERS:
            raise ParameterError("order", self.order, f"must be one of {', '.join(ORDERS)}")
        inverse, factor = self._inverse(), per_label("factor", self.factor)
        if inverse.ndim and factor.ndim and len(inverse) != len(factor):
            raise ParameterError("len(factor)", len(factor), f"must equal len(propensity) ({len(inverse)})")
        ones = np.ones(np.broadcast_shapes(inverse.shape, factor.shape))
        return inverse * ones, factor * ones, self.order == ORDERS[0]


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
    base : Loss or str
        The plain loss, or its name.
    propensity : float or array-like, shape (L,)
        p, above 0 and at most 1: one for all, or one per label in the last axis of the scores.
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

    name: ClassVar[str] = "rebalanced"

    @property
    def equations(self) -> str:
        """Where Qaraei et al. 2021 define it."""
        if self.order == ORDERS[1]:
            return "20"
        return "19, 21" if self.plain.name == "squared-hinge" else "19"

    @property
    def factors(self) -> Factors:
        """The cost of the order, and 0."""
        inverse, factor, correct_first = self._checked()
        cost = factor * (2.0 * inverse - 1.0) if correct_first else factor * inverse + (inverse - 1.0)
        return Factors(cost, np.zeros_like(cost))


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
    base : Loss or str
        The plain loss, or its name.
    propensity : float or array-like, shape (L,)
        p, above 0 and at most 1: one for all, or one per label in the last axis of the scores.
    factor : float or array-like, shape (L,)
        F, above 0, at the count that the order asks for.
    order : {"correct-then-rebalance", "rebalance-then-correct"}
        Which of the two formulas.

    Examples
    --------
    >>> loss = UnbiasedRebalanced("logistic", propensity=0.5, factor=0.8, order="rebalance-then-correct")
    >>> loss.convex, loss.set_params(factor=0.4).convex
    (True, False)
    """

    name: ClassVar[str] = "unbiased-rebalanced"

    @property
    def equations(self) -> str:
        """Where Qaraei et al. 2021 define it."""
        return "18" if self.order == ORDERS[1] else "4, section 2.3"

    @property
    def factors(self) -> Factors:
        """F/p, and 1/p - 1 with or without F."""
        inverse, factor, correct_first = self._checked()
        return Factors(factor * inverse, (inverse - 1.0) * (factor if correct_first else 1.0))

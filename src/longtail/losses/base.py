"""Base classes of the losses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator

from longtail.errors import InputError
from longtail.kernels.types import Flags, Float64

Floats: TypeAlias = Float64

WWW_2021 = (
    "Qaraei, Schultheis, Gupta, Babbar: Convex Surrogates for Unbiased Loss Functions in Extreme Classification With "
    "Missing Labels. WWW 2021"
)


class Loss(BaseEstimator, ABC):
    """A loss of one score of one label: `positive` where the label is recorded, `negative` where it is not.

    All methods take numbers or arrays of any shape and work elementwise in float64. They are the reference that
    kernels are tested against.

    Attributes
    ----------
    name : str
        Name; `get_loss` finds the losses of table 1 by it.
    citation : str
        The paper that defines it.
    equations : str
        Where Qaraei et al. 2021 define it: equations, table or section; empty if they don't.
    convex : bool
        Whether both parts are convex in the score.
    lower_bounded, upper_bounded : bool
        Whether both parts are bounded below, or above.
    linear_difference : bool
        Whether `positive` minus `negative` is linear.

    Examples
    --------
    >>> from longtail.losses import SquaredHinge, Unbiased
    >>> loss = Unbiased(SquaredHinge(), propensity=0.5)
    >>> loss.positive([0.0, 2.0]), loss.negative([0.0, 2.0])
    (array([ 1., -9.]), array([1., 9.]))
    """

    name: ClassVar[str]
    citation: ClassVar[str]
    equations: str = ""
    convex: bool = False
    lower_bounded: bool = False
    upper_bounded: bool = False
    linear_difference: bool = False

    @abstractmethod
    def positive(self, score: npt.ArrayLike) -> Floats:
        """Loss of a score where the label is recorded."""

    @abstractmethod
    def negative(self, score: npt.ArrayLike) -> Floats:
        """Loss of a score where the label is not recorded."""

    @abstractmethod
    def positive_gradient(self, score: npt.ArrayLike) -> Floats:
        """Derivative of `positive` by the score."""

    @abstractmethod
    def negative_gradient(self, score: npt.ArrayLike) -> Floats:
        """Derivative of `negative` by the score."""

    def weighted_value(
        self,
        scores: npt.ArrayLike,
        y: npt.ArrayLike,
        positive_cost: npt.ArrayLike = 1.0,
        negative_cost: npt.ArrayLike = 1.0,
    ) -> float:
        """Sum of the loss of each entry times its cost.

        With a constant before each cost this is the second and third term of equation 22 (squared hinge) and, for the
        logistic loss, equation 23 of Qaraei et al. 2021.

        Parameters
        ----------
        scores : array-like
            Scores, for instance of shape (rows,) or (rows, labels of a block).
        y : array-like, same shape
            Labels: above 0 where recorded, so 0/1 and -1/+1 both do.
        positive_cost, negative_cost : float or array-like
            Costs that broadcast against the scores: one for all, or one per label in the last axis.

        Examples
        --------
        >>> from longtail.losses import Hinge
        >>> Hinge().weighted_value([0.5, -2.0, 0.0], [1, 0, 0], positive_cost=4.0)
        3.0
        """
        scores, present = _aligned(scores, y)
        on, off = floats(positive_cost) * self.positive(scores), floats(negative_cost) * self.negative(scores)
        return float(np.where(present, on, off).sum())

    def weighted_gradient(
        self,
        scores: npt.ArrayLike,
        y: npt.ArrayLike,
        positive_cost: npt.ArrayLike = 1.0,
        negative_cost: npt.ArrayLike = 1.0,
    ) -> Floats:
        """Derivative of `weighted_value` by each score: an array of the scores' shape."""
        scores, present = _aligned(scores, y)
        on = floats(positive_cost) * self.positive_gradient(scores)
        off = floats(negative_cost) * self.negative_gradient(scores)
        return np.where(present, on, off)


class MarginLoss(Loss):
    """A convex, non-negative loss of the margin z: the score where the label is recorded, minus the score elsewhere.

    Attributes
    ----------
    lipschitz : float
        Largest absolute `gradient`; infinite if there is none.
    smoothness : float
        Largest `curvature`: the Lipschitz constant of the gradient; infinite if the gradient jumps.
    zero_margin : float
        Loss and gradient are exactly 0 from this margin on; infinite if they never are.
    dual_bound : float
        Upper bound of the dual variable, in units of the cost.
    surrogate_scale : float
        Factor that makes it a tight upper bound of the 0-1 loss: the scaled loss is 1 at z = 0.

    Examples
    --------
    >>> from longtail.losses import Hinge
    >>> Hinge().value([-1.0, 0.0, 1.0]), Hinge().lipschitz
    (array([2., 1., 0.]), 1.0)
    """

    lipschitz: ClassVar[float]
    smoothness: ClassVar[float]
    zero_margin: ClassVar[float]
    dual_bound: ClassVar[float]
    surrogate_scale: ClassVar[float]

    convex = lower_bounded = True

    @abstractmethod
    def value(self, margin: npt.ArrayLike) -> Floats:
        """Loss at a margin z."""

    @abstractmethod
    def gradient(self, margin: npt.ArrayLike) -> Floats:
        """Derivative of `value` by z; where there is none, the one from the right."""

    @abstractmethod
    def curvature(self, margin: npt.ArrayLike) -> Floats:
        """Second derivative of `value` by z; where there is none, the one from the right."""

    @abstractmethod
    def conjugate(self, dual: npt.ArrayLike) -> Floats:
        """Convex conjugate at minus the dual variable, sup over z of -dual z - value(z); infinite out of range.

        For dual variables alpha and costs c, the dual objective of ``|w|^2 / 2 + sum c value(z)`` is
        ``-|w|^2 / 2 - sum c conjugate(alpha / c)``, with w the sum of alpha y x.
        """

    def positive(self, score: npt.ArrayLike) -> Floats:
        """Loss of a score where the label is recorded: the value at margin z = score."""
        return self.value(score)

    def negative(self, score: npt.ArrayLike) -> Floats:
        """Loss of a score where the label is not recorded: the value at margin z = -score."""
        return self.value(-floats(score))

    def positive_gradient(self, score: npt.ArrayLike) -> Floats:
        """Derivative of `positive` by the score."""
        return self.gradient(score)

    def negative_gradient(self, score: npt.ArrayLike) -> Floats:
        """Derivative of `negative` by the score."""
        return -self.gradient(-floats(score))


def floats(values: npt.ArrayLike) -> Floats:
    """Return the values as a float64 array."""
    return np.asarray(values, dtype=np.float64)


def _aligned(scores: npt.ArrayLike, y: npt.ArrayLike) -> tuple[Floats, Flags]:
    checked, present = floats(scores), np.asarray(y) > 0
    if checked.shape != present.shape:
        raise InputError(f"scores has shape {checked.shape} and y has {present.shape}: they must be the same entries.")
    return checked, present

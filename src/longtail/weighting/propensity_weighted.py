"""Corrections for missing labels: PW, PW-cb and the plain inverse propensity."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from longtail.errors import ParameterError
from longtail.losses import ORDERS, Order
from longtail.propensity import Propensity
from longtail.weighting.base import PropensityWeighting
from longtail.weighting.class_balanced import class_balanced_factor


class PW(PropensityWeighting):
    """Propensity-weighted: a positive row costs 2/p - 1.

    Equation 15 of Qaraei et al. 2021, and 16 with the squared hinge: the weight that makes a convex loss a surrogate
    of the *unbiased* 0-1 loss (equation 8). It is at least 1, and 1 where nothing goes missing.

    Parameters
    ----------
    propensity : Propensity or str, optional
        The model of p, or a data set's name for its preset; None is ``JainPropensity()``.
    rescale : bool
        Scale the positive costs to mean 1 (`Costs.rescaled`); the published neural models do, DiSMEC doesn't.

    Examples
    --------
    >>> PW().costs([1, 10, 1000], 15_539).positive.round(1)
    array([18.3,  8.5,  1.6], dtype=float32)

    References
    ----------
    Qaraei, Schultheis, Gupta, Babbar: Convex Surrogates for Unbiased Loss Functions in Extreme Classification With
    Missing Labels. WWW 2021, section 2.2.
    """

    name: ClassVar[str] = "pw"

    def _positive(self, counts: npt.NDArray[np.float64], n_rows: int) -> npt.NDArray[np.float64]:
        return 2.0 * self._inverse(counts, n_rows) - 1.0


class PWcb(PropensityWeighting):
    """Propensity-weighted and class-balanced: PW and (1 - beta) / (1 - beta^n) together.

    Missing labels and imbalance can be corrected in two orders, and they differ. With F(n) the class-balanced factor:

    - ``"correct-then-rebalance"`` (the default): F(n) (2/p - 1), equation 19 of Qaraei et al. 2021, and 21 with the
      squared hinge. The problem is corrected for missing labels first, then balanced by its *observed* counts. All
      published PW-cb figures use it. Frequent labels end below the negative cost 1, near (1 - beta)(2/p - 1).
    - ``"rebalance-then-correct"``: F(n/p)/p + 1/p - 1, equation 20. The complete problem is balanced first, by its
      *true* counts n/p, then corrected for missing labels.

    Where p = 1 both are F(n). A label never seen has F = 1.

    Parameters
    ----------
    propensity : Propensity or str, optional
        The model of p, or a data set's name for its preset; None is ``JainPropensity()``.
    beta : float
        At least 0 and below 1. The published 0.9 is a balance: larger values raise the propensity-scored metrics and
        lower the plain ones.
    order : {"correct-then-rebalance", "rebalance-then-correct"}
        Which of the two formulas.
    rescale : bool
        Scale the positive costs to mean 1 (`Costs.rescaled`); the published neural models do, DiSMEC doesn't.

    Examples
    --------
    >>> PWcb().costs([1, 10, 1000], 15_539).positive.round(2)
    array([18.3 ,  1.3 ,  0.16], dtype=float32)
    >>> PWcb(order="rebalance-then-correct").costs([1, 10, 1000], 15_539).positive.round(2)
    array([10.16,  4.21,  0.45], dtype=float32)

    References
    ----------
    Qaraei, Schultheis, Gupta, Babbar: Convex Surrogates for Unbiased Loss Functions in Extreme Classification With
    Missing Labels. WWW 2021, section 2.3.
    """

    name: ClassVar[str] = "pw-cb"

    def __init__(
        self,
        *,
        propensity: Propensity | str | None = None,
        beta: float = 0.9,
        order: Order = "correct-then-rebalance",
        rescale: bool = False,
    ) -> None:
        super().__init__(propensity=propensity, rescale=rescale)
        self.beta = beta
        self.order = order

    def _positive(self, counts: npt.NDArray[np.float64], n_rows: int) -> npt.NDArray[np.float64]:
        inverse = self._inverse(counts, n_rows)
        if self.order == "correct-then-rebalance":
            return class_balanced_factor(counts, self.beta) * (2.0 * inverse - 1.0)
        if self.order == "rebalance-then-correct":
            return class_balanced_factor(counts * inverse, self.beta) * inverse + (inverse - 1.0)
        raise ParameterError("order", self.order, f"must be one of {', '.join(ORDERS)}")


class InversePropensity(PropensityWeighting):
    """A positive row costs 1/p.

    The weight of a recorded label in every propensity-scored loss and metric of Jain et al. 2016 (table 1), which look
    at true labels alone.

    Parameters
    ----------
    propensity : Propensity or str, optional
        The model of p, or a data set's name for its preset; None is ``JainPropensity()``.
    rescale : bool
        Scale the positive costs to mean 1 (`Costs.rescaled`).

    Examples
    --------
    >>> InversePropensity().costs([1, 10, 1000], 15_539).positive.round(2)
    array([9.65, 4.74, 1.32], dtype=float32)

    References
    ----------
    Jain, Prabhu, Varma: Extreme Multi-label Loss Functions for Recommendation, Tagging, Ranking & Other Missing Label
    Applications. KDD 2016, section 4.
    """

    name: ClassVar[str] = "inverse-propensity"

    def _positive(self, counts: npt.NDArray[np.float64], n_rows: int) -> npt.NDArray[np.float64]:
        return self._inverse(counts, n_rows)

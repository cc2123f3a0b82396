"""The weightings: PW, PW-cb, inverse propensity, class-balanced, and the frequency heuristics of recommenders."""

from __future__ import annotations

from collections.abc import Mapping
from math import log
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from longtail.kernels.types import Float64
from longtail.losses.corrected import CORRECTION_ORDERS, CorrectionOrder, rebalanced_cost
from longtail.propensity import Propensity
from longtail.validation import Constraint, Number, OneOf, check
from longtail.weighting.base import PropensityWeighting, Weighting

_BETA = Number(low=0, below=1)


class NoWeighting(Weighting):
    """Every row of every label costs 1.

    Examples
    --------
    >>> NoWeighting().costs([1, 500], 1000).positive
    array([1., 1.], dtype=float32)
    """

    name = "none"

    def __init__(self) -> None:
        super().__init__()

    def _positive(self, counts: Float64, n_rows: int) -> Float64:
        return np.ones_like(counts)


class PW(PropensityWeighting):
    """Propensity-weighted: a positive row costs 2/p - 1.

    Equation 15 of Qaraei et al. 2021, and 16 with the squared hinge: the weight that makes a convex loss a surrogate
    of the *unbiased* 0-1 loss (equation 8). It is at least 1, and 1 where nothing goes missing.

    Parameters
    ----------
    propensity, rescale
        See `PropensityWeighting`.

    Examples
    --------
    >>> PW().costs([1, 10, 1000], 15_539).positive.round(1)
    array([18.3,  8.5,  1.6], dtype=float32)

    References
    ----------
    Qaraei, Schultheis, Gupta, Babbar: Convex Surrogates for Unbiased Loss Functions in Extreme Classification With
    Missing Labels. WWW 2021, section 2.2.
    """

    name = "pw"

    def _positive(self, counts: Float64, n_rows: int) -> Float64:
        return 2.0 * self._inverse(counts, n_rows) - 1.0


def class_balanced_factor(counts: npt.ArrayLike, beta: float) -> Float64:
    """(1 - beta) / (1 - beta^n): 1 for a label with one row, falling toward 1 - beta for frequent ones.

    It is C+(n, N) in equations 18 to 21 of Qaraei et al. 2021. Counts need not be whole (equation 20 takes n/p);
    those below 1 count as 1, so a label without rows gets the factor 1 instead of infinity.

    Parameters
    ----------
    counts : array-like
        Rows of each label.
    beta : float
        At least 0 (every factor is 1) and below 1 (toward 1 / n).

    Examples
    --------
    >>> class_balanced_factor([0, 1, 2, 1000], 0.9).round(3)
    array([1.   , 1.   , 0.526, 0.1  ])
    """
    check("beta", beta, _BETA)
    n = np.maximum(np.asarray(counts, dtype=np.float64), 1.0)
    if beta == 0:
        return np.ones_like(n)
    log_beta = log(beta)
    # Not 1 - beta**n: for beta near 1 that would lose its digits.
    factor: Float64 = np.expm1(log_beta) / np.expm1(n * log_beta)
    return factor


class PWcb(PropensityWeighting):
    """Propensity-weighted and class-balanced: PW and (1 - beta) / (1 - beta^n) together.

    Missing labels and imbalance can be corrected in two orders, and they differ. With F(n) the class-balanced factor:

    - ``"correct-then-rebalance"`` (the default): F(n) (2/p - 1), equation 19 of Qaraei et al. 2021, and 21 with the
      squared hinge. The problem is corrected for missing labels first, then balanced by its *observed* counts. All
      published PW-cb figures use it. Frequent labels end below the negative cost 1, near (1 - beta)(2/p - 1).
    - ``"rebalance-then-correct"``: F(n/p)/p + 1/p - 1, equation 20. The complete problem is balanced first, by its
      *true* counts n/p, then corrected for missing labels.

    Where p = 1 both are F(n). A label without rows has F = 1.

    Parameters
    ----------
    propensity, rescale
        See `PropensityWeighting`.
    beta : float
        At least 0 and below 1. The published 0.9 is a balance: larger values raise the propensity-scored metrics and
        lower the plain ones.
    order : {"correct-then-rebalance", "rebalance-then-correct"}
        Which of the two formulas.

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

    name = "pw-cb"
    _constraints: ClassVar[Mapping[str, Constraint]] = {"beta": _BETA, "order": OneOf(*CORRECTION_ORDERS)}

    def __init__(
        self,
        *,
        propensity: Propensity | str | None = None,
        beta: float = 0.9,
        order: CorrectionOrder = "correct-then-rebalance",
        rescale: bool = False,
    ) -> None:
        super().__init__(propensity=propensity, rescale=rescale)
        self.beta = beta
        self.order = order

    def _positive(self, counts: Float64, n_rows: int) -> Float64:
        inverse = self._inverse(counts, n_rows)
        balanced = counts if self.order == CORRECTION_ORDERS[0] else counts * inverse
        return rebalanced_cost(inverse, class_balanced_factor(balanced, self.beta), self.order)


class InversePropensity(PropensityWeighting):
    """A positive row costs 1/p.

    The weight of a recorded label in every propensity-scored loss and metric of Jain et al. 2016 (table 1), which look
    at true labels alone.

    Parameters
    ----------
    propensity, rescale
        See `PropensityWeighting`.

    Examples
    --------
    >>> InversePropensity().costs([1, 10, 1000], 15_539).positive.round(2)
    array([9.65, 4.74, 1.32], dtype=float32)

    References
    ----------
    Jain, Prabhu, Varma: Extreme Multi-label Loss Functions for Recommendation, Tagging, Ranking & Other Missing Label
    Applications. KDD 2016, section 4.
    """

    name = "inverse-propensity"

    def _positive(self, counts: Float64, n_rows: int) -> Float64:
        return self._inverse(counts, n_rows)


class ClassBalanced(Weighting):
    """The class-balanced weight alone, (1 - beta) / (1 - beta^n): imbalance is corrected, missing labels are not.

    Parameters
    ----------
    beta : float
        At least 0 and below 1; near 1 it approaches 1 / n.
    rescale : bool
        See `Weighting`.

    Examples
    --------
    >>> ClassBalanced().costs([1, 2, 1000], 5000).positive.round(3)
    array([1.   , 0.526, 0.1  ], dtype=float32)

    References
    ----------
    Cui, Jia, Lin, Song, Belongie: Class-Balanced Loss Based on Effective Number of Samples. CVPR 2019.
    """

    name = "class-balanced"
    _constraints: ClassVar[Mapping[str, Constraint]] = {"beta": _BETA}

    def __init__(self, *, beta: float = 0.9, rescale: bool = False) -> None:
        super().__init__(rescale=rescale)
        self.beta = beta

    def _positive(self, counts: Float64, n_rows: int) -> Float64:
        return class_balanced_factor(counts, self.beta)


class LogFrequency(Weighting):
    """A positive row costs ln(N / n), the information in the label: a heuristic of Jain et al. 2016, section 5.

    Only proportions are published for this heuristic, so `rescale` is a natural choice with it. A label never seen
    counts as seen once; one that every row has counts half a row less, ln(N / (N - 1/2)), so that no cost is 0.

    Parameters
    ----------
    rescale : bool
        See `Weighting`.

    Examples
    --------
    >>> LogFrequency().costs([1, 10, 1000], 1000).positive.round(4)
    array([6.9078e+00, 4.6052e+00, 5.0000e-04], dtype=float32)
    """

    name = "log-frequency"

    def _positive(self, counts: Float64, n_rows: int) -> Float64:
        return -np.log(np.minimum(np.maximum(counts, 1.0), n_rows - 0.5) / n_rows)


class PowerFrequency(Weighting):
    """A positive row costs factor * n^-beta: a heuristic of Jain et al. 2016, section 5.

    Only proportions are published for this heuristic, so `rescale` is a natural choice with it: without it or a
    `factor`, no positive row costs more than a negative one. A label never seen counts as seen once.

    Parameters
    ----------
    beta : float
        How much rare labels are favoured, at least 0; 0 is no weighting.
    factor : float
        Cost of a label that one row has; without effect where costs are rescaled.
    rescale : bool
        See `Weighting`.

    Examples
    --------
    >>> PowerFrequency().costs([1, 4, 100], 1000).positive
    array([1. , 0.5, 0.1], dtype=float32)
    """

    name = "power-frequency"
    _constraints: ClassVar[Mapping[str, Constraint]] = {"beta": Number(low=0), "factor": Number(above=0)}

    def __init__(self, *, beta: float = 0.5, factor: float = 1.0, rescale: bool = False) -> None:
        super().__init__(rescale=rescale)
        self.beta = beta
        self.factor = factor

    def _positive(self, counts: Float64, n_rows: int) -> Float64:
        return self.factor * np.power(np.maximum(counts, 1.0), -self.beta)

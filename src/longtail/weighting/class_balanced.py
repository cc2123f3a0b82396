"""Balancing by the effective number of rows."""

from __future__ import annotations

from math import log
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from longtail.errors import ParameterError
from longtail.propensity.base import is_number
from longtail.weighting.base import Weighting


def class_balanced_factor(counts: npt.ArrayLike, beta: float) -> npt.NDArray[np.float64]:
    """(1 - beta) / (1 - beta^n): 1 for a label with one row, falling towards 1 - beta for frequent ones.

    It is C+(n, N) in equations 18 to 21 of Qaraei et al. 2021. Counts need not be whole (equation 20 takes n/p);
    those below 1 count as 1, so a label never seen gets the factor 1 instead of infinity.

    Parameters
    ----------
    counts : array-like
        Rows of each label.
    beta : float
        At least 0 (every factor is 1) and below 1 (towards 1 / n).

    Examples
    --------
    >>> class_balanced_factor([0, 1, 2, 1000], 0.9).round(3)
    array([1.   , 1.   , 0.526, 0.1  ])
    """
    if not is_number(beta) or not 0 <= beta < 1:
        raise ParameterError("beta", beta, "must be at least 0 and below 1")
    n = np.maximum(np.asarray(counts, dtype=np.float64), 1.0)
    if beta == 0:
        return np.ones_like(n)
    log_beta = log(beta)
    # Not 1 - beta**n: for beta near 1 that would lose its digits.
    factor: npt.NDArray[np.float64] = np.expm1(log_beta) / np.expm1(n * log_beta)
    return factor


class ClassBalanced(Weighting):
    """The class-balanced weight alone, (1 - beta) / (1 - beta^n): imbalance is corrected, missing labels are not.

    Parameters
    ----------
    beta : float
        At least 0 and below 1; near 1 it approaches 1 / n.
    rescale : bool
        Scale the positive costs to mean 1 (`Costs.rescaled`).

    Examples
    --------
    >>> ClassBalanced().costs([1, 2, 1000], 5000).positive.round(3)
    array([1.   , 0.526, 0.1  ], dtype=float32)

    References
    ----------
    Cui, Jia, Lin, Song, Belongie: Class-Balanced Loss Based on Effective Number of Samples. CVPR 2019.
    """

    name: ClassVar[str] = "class-balanced"

    def __init__(self, *, beta: float = 0.9, rescale: bool = False) -> None:
        self.beta = beta
        self.rescale = rescale

    def _positive(self, counts: npt.NDArray[np.float64], n_rows: int) -> npt.NDArray[np.float64]:
        return class_balanced_factor(counts, self.beta)

"""The frequency heuristics of recommenders that Jain et al. 2016 (section 5, figure 2) compare with propensities."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from longtail.errors import ParameterError
from longtail.propensity.base import is_number
from longtail.weighting.base import Weighting


class LogFrequency(Weighting):
    """A positive row costs ln(N / n): the information in the label.

    Only proportions are published for this heuristic, so `rescale` is a natural choice with it. A label never seen
    counts as seen once; one that every row has counts half a row less, ln(N / (N - 1/2)), so that no cost is 0.

    Parameters
    ----------
    rescale : bool
        Scale the positive costs to mean 1 (`Costs.rescaled`).

    Examples
    --------
    >>> LogFrequency().costs([1, 10, 1000], 1000).positive.round(4)
    array([6.9078e+00, 4.6052e+00, 5.0000e-04], dtype=float32)
    """

    name: ClassVar[str] = "log-frequency"

    def __init__(self, *, rescale: bool = False) -> None:
        self.rescale = rescale

    def _positive(self, counts: npt.NDArray[np.float64], n_rows: int) -> npt.NDArray[np.float64]:
        return -np.log(np.minimum(np.maximum(counts, 1.0), n_rows - 0.5) / n_rows)


class PowerFrequency(Weighting):
    """A positive row costs factor * n^-beta.

    Only proportions are published for this heuristic, so `rescale` is a natural choice with it: without it or a
    `factor`, no positive row costs more than a negative one. A label never seen counts as seen once.

    Parameters
    ----------
    beta : float
        How much rare labels are favoured, at least 0; 0 is no weighting.
    factor : float
        Cost of a label that one row has; without effect where costs are rescaled.
    rescale : bool
        Scale the positive costs to mean 1 (`Costs.rescaled`).

    Examples
    --------
    >>> PowerFrequency().costs([1, 4, 100], 1000).positive
    array([1. , 0.5, 0.1], dtype=float32)
    """

    name: ClassVar[str] = "power-frequency"

    def __init__(self, *, beta: float = 0.5, factor: float = 1.0, rescale: bool = False) -> None:
        self.beta = beta
        self.factor = factor
        self.rescale = rescale

    def _positive(self, counts: npt.NDArray[np.float64], n_rows: int) -> npt.NDArray[np.float64]:
        if not is_number(self.beta) or self.beta < 0:
            raise ParameterError("beta", self.beta, "must be a number of at least 0")
        if not is_number(self.factor) or self.factor <= 0:
            raise ParameterError("factor", self.factor, "must be a number above 0")
        return self.factor * np.power(np.maximum(counts, 1.0), -self.beta)

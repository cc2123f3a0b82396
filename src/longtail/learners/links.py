"""From inner products to log-odds."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from longtail.engine.stacking import fit_logistic
from longtail.engine.topk import TopK
from longtail.metrics.hits import are_true

_RIDGE = 1e-3


def fit_link(top: TopK, Y: sp.csr_array, least_slope: float = 1.0) -> tuple[float, float]:
    """Slope and offset that turn the scores of a ranking into log-odds, from rows with known labels.

    The order of the labels stays: the slope is at least `least_slope`, which is above 0.

    Examples
    --------
    >>> top = TopK(np.array([[0, 1], [1, 0]], np.int32), np.array([[0.9, 0.1], [0.8, 0.2]], np.float32))
    >>> slope, offset = fit_link(top, sp.csr_array(np.array([[1, 0], [0, 1]], np.float32)))
    >>> slope > 1
    True
    """
    used = top.labels >= 0
    truth, scores = are_true(top, Y)[used], top.scores[used].astype(np.float64)
    if not len(scores):
        return 1.0, 0.0
    all_alike = truth.all() or not truth.any()
    slope, offset = (0.0, 0.0) if all_alike else fit_logistic(scores[:, None], truth, _RIDGE)
    if slope < least_slope:
        slope, offset = least_slope, _offset_for(least_slope * scores, (float(truth.sum()) + 1) / (len(truth) + 2))
    return float(slope), float(offset)


def _offset_for(odds: npt.NDArray[np.float64], share: float) -> float:
    """What to add to log-odds for a mean probability of `share`, by bisection."""
    low, high = -50.0, 50.0
    for _ in range(60):
        middle = (low + high) / 2
        is_high = np.mean(1 / (1 + np.exp(-(odds + middle)))) > share
        low, high = (low, middle) if is_high else (middle, high)
    return (low + high) / 2

"""Platt scaling, and the logistic regression by Newton's method that it and stacking use."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail.kernels.jit import kernel
from longtail.kernels.types import Array, Float64
from longtail.metrics.ranking import are_true
from longtail.topk import TopK

_RIDGE = 1e-3


@kernel
def add_derivatives(inputs: Float64, truth: Float64, weights: Float64, gradient: Float64, hessian: Float64) -> None:
    """Add gradient and Hessian of the logistic loss, the intercept last, always in the same order of summation."""
    width = inputs.shape[1]
    for row in range(inputs.shape[0]):
        values = inputs[row]
        log_odds: Any = weights[width]
        for column in range(width):
            log_odds += weights[column] * values[column]
        probability = 1 / (1 + np.exp(-np.minimum(np.maximum(log_odds, -30.0), 30.0)))
        error, curvature = probability - truth[row], probability * (1 - probability)
        gradient[width] += error
        hessian[width, width] += curvature
        for column in range(width):
            gradient[column] += error * values[column]
            product = curvature * values[column]
            hessian[width, column] += product
            for other in range(column + 1):
                hessian[column, other] += product * values[other]
    for column in range(width + 1):
        for other in range(column):
            hessian[other, column] = hessian[column, other]


def fit_logistic(features: Array, truth: Array, ridge: float) -> Float64:
    """Return the weights of a logistic regression by Newton's method, the unpenalised intercept last.

    scikit-learn's solvers give the same to about five digits; refits must give the same bits.

    Examples
    --------
    >>> weights = fit_logistic(np.array([[0.0], [0.0], [1.0], [1.0]]), np.array([0, 1, 1, 1]), ridge=1e-3)
    >>> bool(weights[0] > 1)
    True
    """
    weights = np.zeros(features.shape[1] + 1)
    inputs, targets = np.ascontiguousarray(features, np.float64), np.asarray(truth, np.float64)
    penalty = np.full(len(weights), ridge)
    penalty[-1] = 1e-9
    for _ in range(50):
        gradient, hessian = np.zeros(len(weights)), np.zeros((len(weights), len(weights)))
        add_derivatives(inputs, targets, weights, gradient, hessian)
        step = np.linalg.solve(hessian + np.diag(penalty), gradient + penalty * weights)
        weights -= step * min(1.0, 5.0 / max(float(np.abs(step).max()), 1e-30))
        if np.abs(step).max() < 1e-6:
            break
    return weights


def fit_platt(top: TopK, Y: sp.csr_array, least_slope: float = 1.0) -> tuple[float, float]:
    """Fit Platt scaling: return the slope and offset that turn the scores of a ranking into log-odds.

    The slope is at least `least_slope`, which is above 0, so that the order of the labels stays.

    Examples
    --------
    >>> top = TopK(np.array([[0, 1], [1, 0]], np.int32), np.array([[0.9, 0.1], [0.8, 0.2]], np.float32))
    >>> slope, offset = fit_platt(top, sp.csr_array(np.array([[1, 0], [0, 1]], np.float32)))
    >>> slope > 1
    True
    """
    used = top.labels >= 0
    truth, scores = are_true(top.labels, Y)[used], top.scores[used].astype(np.float64)
    if not len(scores):
        return 1.0, 0.0
    all_alike = truth.all() or not truth.any()
    slope, offset = (0.0, 0.0) if all_alike else fit_logistic(scores[:, None], truth, _RIDGE)
    if slope < least_slope:
        slope, offset = least_slope, _offset_for(least_slope * scores, (float(truth.sum()) + 1) / (len(truth) + 2))
    return float(slope), float(offset)


def _offset_for(log_odds: Float64, share: float) -> float:
    """Return the offset of log-odds for a mean probability of `share`, by bisection."""
    low, high = -50.0, 50.0
    for _ in range(60):
        middle = (low + high) / 2
        is_high = np.mean(1 / (1 + np.exp(-(log_odds + middle)))) > share
        low, high = (low, middle) if is_high else (middle, high)
    return (low + high) / 2

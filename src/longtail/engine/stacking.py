"""What is known of each candidate of a row: its log-odds by one learner or two, how rare it is, and its rivals."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from longtail.engine.jit import kernel

Float32 = npt.NDArray[np.float32]
Int32 = npt.NDArray[np.int32]

LEAST, MOST = -9.0, 6.0
"""Range of log-odds; a label that a learner did not return has the least."""
_SHARED, _EACH = 3, 10
_RIVAL = 4


FIRST_LOG_ODDS = 3
"""Which feature is the log-odds by the first learner."""


def n_features(n_learners: int) -> int:
    """Features of a candidate: some for each learner, and the same for their mean where there are two."""
    return _SHARED + _EACH * (n_learners if n_learners == 1 else n_learners + 1)


@kernel
def look_up(labels: Int32, found_labels: Int32, found: Float32, out: Float32) -> None:
    """Take what was found for labels of one ranking out of another one of the same rows; the least where it isn't."""
    for row in range(labels.shape[0]):
        for at in range(labels.shape[1]):
            out[row, at] = np.float32(LEAST)
            if labels[row, at] < 0:
                continue
            for place in range(found_labels.shape[1]):
                if found_labels[row, place] == labels[row, at]:
                    out[row, at] = found[row, place]
                    break


@kernel
def candidate_features(labels: Int32, log_odds: Float32, log_counts: Float32, out: Float32) -> None:
    """Fill in what is known of the candidates of each row.

    Parameters
    ----------
    labels : ndarray of int32, shape (rows, candidates)
        The first -1 ends a row.
    log_odds : ndarray of float32, shape (learners or learners and their mean, rows, candidates)
    log_counts : ndarray of float32, shape (rows, candidates)
        Logarithm of one more than the rows with the label, over 3.
    out : ndarray of float32, shape (rows, candidates, features)
        Rarity and its square, the place, and for each learner: the log-odds l, l^2, max(l, 0), l times rarity, times
        its square, the row's largest l, its product with l, the row's sum of probabilities, l minus the row's fifth
        largest, and the logarithm of the place by l.
    """
    most = labels.shape[1]
    for row in range(labels.shape[0]):
        n = 0
        while n < most and labels[row, n] >= 0:
            n += 1
        for at in range(n):
            rarity = log_counts[row, at]
            out[row, at, 0] = rarity
            out[row, at, 1] = rarity * rarity
            out[row, at, 2] = np.log(np.float32(at + 1))
        for learner in range(log_odds.shape[0]):
            largest, rival, likely = np.float32(LEAST), np.float32(LEAST), np.float32(0)
            start = _SHARED + _EACH * learner
            for at in range(n):
                value = log_odds[learner, row, at]
                largest = max(largest, value)
                likely += 1 / (1 + np.exp(-value))
                place = 0
                for other in range(n):
                    rival_value = log_odds[learner, row, other]
                    if rival_value > value or (rival_value == value and other < at):
                        place += 1
                if place == _RIVAL:
                    rival = value
                out[row, at, start + 9] = np.log(np.float32(place + 1))
            for at in range(n):
                value, rarity = log_odds[learner, row, at], log_counts[row, at]
                out[row, at, start] = value
                out[row, at, start + 1] = value * value
                out[row, at, start + 2] = max(value, np.float32(0))
                out[row, at, start + 3] = value * rarity
                out[row, at, start + 4] = value * rarity * rarity
                out[row, at, start + 5] = largest
                out[row, at, start + 6] = value * largest
                out[row, at, start + 7] = likely
                out[row, at, start + 8] = value - rival


@kernel
def add_derivatives(
    inputs: npt.NDArray[np.float64],
    truth: npt.NDArray[np.float64],
    weights: npt.NDArray[np.float64],
    slope: npt.NDArray[np.float64],
    curvature: npt.NDArray[np.float64],
) -> None:
    """Add gradient and Hessian of the logistic loss, the constant last; in one order, whatever threads there are."""
    width = inputs.shape[1]
    for row in range(inputs.shape[0]):
        values = inputs[row]
        odds: Any = weights[width]
        for column in range(width):
            odds += weights[column] * values[column]
        chance = 1 / (1 + np.exp(-np.minimum(np.maximum(odds, -30.0), 30.0)))
        error, bend = chance - truth[row], chance * (1 - chance)
        slope[width] += error
        curvature[width, width] += bend
        for column in range(width):
            slope[column] += error * values[column]
            bent = bend * values[column]
            curvature[width, column] += bent
            for other in range(column + 1):
                curvature[column, other] += bent * values[other]
    for column in range(width + 1):
        for other in range(column):
            curvature[other, column] = curvature[column, other]


def fit_logistic(features: npt.NDArray[Any], truth: npt.NDArray[Any], ridge: float) -> npt.NDArray[np.float64]:
    """Weights of a logistic regression, that of a constant last: Newton's method with a ridge on all but the constant.

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
        slope, curvature = np.zeros(len(weights)), np.zeros((len(weights), len(weights)))
        add_derivatives(inputs, targets, weights, slope, curvature)
        step = np.linalg.solve(curvature + np.diag(penalty), slope + penalty * weights)
        weights -= step * min(1.0, 5.0 / max(float(np.abs(step).max()), 1e-30))
        if np.abs(step).max() < 1e-6:
            break
    return weights

"""Features of the candidates of a row: log-odds by one or two learners, label frequency, and the other candidates."""

from __future__ import annotations

import numpy as np

from longtail.kernels.jit import kernel
from longtail.kernels.types import Float32, Int32

LEAST, MOST = -9.0, 6.0
"""Range of log-odds; a label that a learner did not return has the smallest."""
_SHARED, _EACH = 3, 10
_RIVAL = 4


FIRST_LOG_ODDS = 3
"""Index of the log-odds by the first learner."""


def n_features(n_learners: int) -> int:
    """Return the number of features: shared ones, and some per learner and for the mean of two learners."""
    return _SHARED + _EACH * (n_learners if n_learners == 1 else n_learners + 1)


@kernel
def look_up(labels: Int32, found_labels: Int32, found: Float32, out: Float32) -> None:
    """Look up the values of labels in another ranking of the same rows; the smallest where a label is missing."""
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
    """Compute the features of the candidates of each row.

    Parameters
    ----------
    labels : ndarray of int32, shape (rows, candidates)
        The first -1 ends a row.
    log_odds : ndarray of float32, shape (learners or learners and their mean, rows, candidates)
    log_counts : ndarray of float32, shape (rows, candidates)
        ln(1 + training rows of the label) / 3.
    out : ndarray of float32, shape (rows, candidates, features)
        Frequency and its square, the rank, and for each learner: the log-odds l, l^2, max(l, 0), l times frequency and
        its square, the row's largest l, its product with l, the row's sum of probabilities, l minus the row's fifth
        largest, and the logarithm of the rank by l.
    """
    most = labels.shape[1]
    for row in range(labels.shape[0]):
        n = 0
        while n < most and labels[row, n] >= 0:
            n += 1
        # Shared features: frequency of the label and rank of the candidate.
        for at in range(n):
            frequency = log_counts[row, at]
            out[row, at, 0] = frequency
            out[row, at, 1] = frequency * frequency
            out[row, at, 2] = np.log(np.float32(at + 1))
        for learner in range(log_odds.shape[0]):
            largest, rival, expected = np.float32(LEAST), np.float32(LEAST), np.float32(0)
            start = _SHARED + _EACH * learner
            # Statistics of the row: largest and fifth largest log-odds, sum of probabilities, and the rank of each.
            for at in range(n):
                value = log_odds[learner, row, at]
                largest = max(largest, value)
                expected += 1 / (1 + np.exp(-value))
                place = 0
                for other in range(n):
                    rival_value = log_odds[learner, row, other]
                    if rival_value > value or (rival_value == value and other < at):
                        place += 1
                if place == _RIVAL:
                    rival = value
                out[row, at, start + 9] = np.log(np.float32(place + 1))
            # Features of each candidate, from its own log-odds and the statistics of the row.
            for at in range(n):
                value, frequency = log_odds[learner, row, at], log_counts[row, at]
                out[row, at, start] = value
                out[row, at, start + 1] = value * value
                out[row, at, start + 2] = max(value, np.float32(0))
                out[row, at, start + 3] = value * frequency
                out[row, at, start + 4] = value * frequency * frequency
                out[row, at, start + 5] = largest
                out[row, at, start + 6] = value * largest
                out[row, at, start + 7] = expected
                out[row, at, start + 8] = value - rival

"""Results per label."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from longtail.kernels.types import Float64, Int64


@dataclass(frozen=True)
class LabelScores:
    """Counts of each label at cutoff k; all arrays have one entry per label.

    Parameters
    ----------
    k : int
        Cutoff.
    true : ndarray of int64
        Rows that have the label.
    predicted : ndarray of int64
        Rows that rank it among the first k.
    hits : ndarray of int64
        Rows where both hold.

    Examples
    --------
    >>> scores = LabelScores(5, np.array([4, 0]), np.array([2, 0]), np.array([1, 0]))
    >>> scores.precision, scores.recall, scores.f1.round(2)
    (array([50., nan]), array([25., nan]), array([33.33,   nan]))
    """

    k: int
    true: Int64
    predicted: Int64
    hits: Int64

    @property
    def precision(self) -> Float64:
        """Hits over predictions, in percent; NaN for a label that is never predicted."""
        return percentage(self.hits, self.predicted)

    @property
    def recall(self) -> Float64:
        """Hits over rows with the label, in percent; NaN for a label that no row has."""
        return percentage(self.hits, self.true)

    @property
    def f1(self) -> Float64:
        """Harmonic mean of precision and recall, in percent; NaN for a label neither predicted nor true."""
        return percentage(2 * self.hits, self.true + self.predicted)


def coverage(true: Int64, hits: Int64) -> list[float]:
    """C: labels with a hit over labels that any row has, in percent; for each column of `hits` (labels by ks)."""
    possible = max(int((true > 0).sum()), 1)
    return [float(100 * (found / possible)) for found in (hits > 0).sum(axis=0)]


def macro_f1(true: Int64, predicted: Int64, hits: Int64) -> list[float]:
    """macroF1: the mean of the labels' F1 over those that are true or predicted anywhere, in percent, for each column.

    `predicted` and `hits` are labels by ks.
    """
    both = true[:, None] + predicted
    judged = np.maximum((both > 0).sum(axis=0), 1)
    return [float(value) for value in 100 * (2 * hits / np.maximum(both, 1)).sum(axis=0) / judged]


def percentage(part: npt.ArrayLike, whole: npt.ArrayLike) -> Float64:
    """Return the ratio in percent, NaN where the denominator is 0."""
    part, whole = np.broadcast_arrays(np.asarray(part, np.float64), np.asarray(whole, np.float64))
    result = np.full(whole.shape, np.nan)
    np.divide(part, whole, out=result, where=whole != 0)
    return 100.0 * result

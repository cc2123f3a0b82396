"""Calibration of probabilities: how often predictions with a given score are true."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from longtail.errors import InputError
from longtail.kernels.types import Float64, Int64
from longtail.metrics.ranking import are_true, first_places, with_labels
from longtail.metrics.scores import text_table
from longtail.topk import TopK
from longtail.validation import Integer, check


@dataclass(frozen=True, eq=False)
class CalibrationCurve:
    """Mean score and share of true predictions per bin of scores (a reliability diagram); printing shows a table.

    Parameters
    ----------
    edges : ndarray of float64, shape (bins + 1,)
        Edges of the bins; a score on an edge belongs to the bin above, 1 to the last.
    predicted : ndarray of float64, shape (bins,)
        Mean score of the predictions in each bin, in percent; NaN for an empty bin.
    observed : ndarray of float64, shape (bins,)
        Share of them that are true, in percent; NaN for an empty bin.
    count : ndarray of int64, shape (bins,)
        Predictions in each bin.

    Examples
    --------
    >>> top = TopK(np.array([[0], [0]], np.int32), np.array([[0.9], [0.8]], np.float32))
    >>> calibration_curve(top, [[1, 0], [0, 1]], k=1, bins=2)
    Calibration of 2 predictions, in percent; error 35.00
    score      predictions  mean score   true
    0.50-1.00            2       85.00  50.00
    """

    edges: Float64
    predicted: Float64
    observed: Float64
    count: Int64

    @property
    def error(self) -> float:
        """Mean distance between score and share of true predictions, in percent: the ECE."""
        filled = self.count > 0
        if not filled.any():
            return 0.0
        distance = np.abs(self.predicted[filled] - self.observed[filled])
        return float(np.average(distance, weights=self.count[filled]))

    def table(self) -> str:
        """Return the bins that hold predictions as text."""
        cells = [["score", "predictions", "mean score", "true"]]
        for index in np.flatnonzero(self.count):
            span = f"{self.edges[index]:.2f}-{self.edges[index + 1]:.2f}"
            cells.append([span, str(self.count[index]), f"{self.predicted[index]:.2f}", f"{self.observed[index]:.2f}"])
        return text_table(cells)

    def __repr__(self) -> str:
        return f"Calibration of {self.count.sum()} predictions, in percent; error {self.error:.2f}\n{self.table()}"


def calibration_curve(top: TopK, Y: Any, k: int = 5, bins: int = 15) -> CalibrationCurve:
    """Compare the scores of predictions, taken as probabilities, with the share that is true.

    Parameters
    ----------
    top : TopK
        The ranking, with probabilities as scores.
    Y : matrix, shape (n, n_labels)
        True labels. Where only recorded labels are known, probabilities are those of being recorded.
    k : int
        Cutoff.
    bins : int
        Bins of equal width between 0 and 1.

    Returns
    -------
    CalibrationCurve

    Examples
    --------
    >>> top = TopK(np.array([[0, 1], [1, 0]], np.int32), np.array([[0.9, 0.3], [0.8, 0.1]], np.float32))
    >>> calibration_curve(top, [[1, 1], [0, 0]], k=2, bins=2)
    Calibration of 4 predictions, in percent; error 32.50
    score      predictions  mean score   true
    0.00-0.50            2       20.00  50.00
    0.50-1.00            2       85.00  50.00
    """
    check("k", k, Integer(1))
    check("bins", bins, Integer(1))
    if not isinstance(top, TopK):
        raise InputError("Calibration needs scores: give a TopK instead of label ids alone.")
    truth = with_labels(Y)
    if len(top) != truth.shape[0]:
        raise InputError(f"The ranking has {len(top)} rows and Y has {truth.shape[0]}: they must be the same rows.")
    labels = first_places(top, min(k, top.k), truth.shape[1])
    predicted = top.labels[:, : labels.shape[1]] >= 0
    scores = top.scores[:, : labels.shape[1]][predicted].astype(np.float64)
    hit = are_true(labels, truth)[predicted]
    if not ((scores >= 0) & (scores <= 1)).all():
        raise InputError("Scores must lie between 0 and 1 to be read as probabilities: calibrate the model first.")
    edges = np.linspace(0.0, 1.0, bins + 1)
    bin_of = np.clip(np.searchsorted(edges, scores, "right") - 1, 0, bins - 1)
    count = np.bincount(bin_of, minlength=bins)
    with np.errstate(invalid="ignore"):
        mean = 100.0 * np.bincount(bin_of, scores, bins) / count
        share = 100.0 * np.bincount(bin_of, hit, bins) / count
    return CalibrationCurve(edges, mean, share, count)


def calibration_error(top: TopK, Y: Any, k: int = 5, bins: int = 15) -> float:
    """Expected calibration error ECE@k, in percent: 0 where a score of 0.3 is right in 30 % of the cases.

    The first k predictions of each row are put into bins of equal width by their score; the distances between mean
    score and share of true labels are averaged, each bin weighted by its predictions.

    Parameters
    ----------
    top, Y, k, bins
        As for `calibration_curve`.

    Examples
    --------
    >>> top = TopK(np.array([[0], [0]], np.int32), np.array([[0.75], [0.75]], np.float32))
    >>> calibration_error(top, [[1], [0]], k=1)
    25.0
    """
    return calibration_curve(top, Y, k, bins).error

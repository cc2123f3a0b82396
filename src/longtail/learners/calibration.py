"""Calibration: probabilities from scores, fitted on held-out rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from longtail.data.sparse import as_indicator
from longtail.errors import InputError
from longtail.kernels.types import Float64, Int64
from longtail.learners.platt import fit_logistic
from longtail.metrics.frequency import NamedBins, frequency_bins
from longtail.topk import TopK
from longtail.validation import Constraint, OneOf, Optional, Validated

Method = Literal["isotonic", "platt"]

_FEWEST_PAIRS, _FEWEST_HITS = 100, 10


class Calibration(Validated, BaseEstimator):
    """A map from scores to probabilities for each bin of label frequency.

    The probability is that of the label being *recorded*. If labels are missing, the probability of being true is
    higher; dividing by the label's propensity corrects for that.

    Parameters
    ----------
    method : {"isotonic", "platt"}
        Isotonic regression, which fits any shape but needs hundreds of predictions, or Platt scaling.
    bins : {"head-torso-tail", "deciles"}, optional
        Frequent and rare labels get separate maps, because the same score means less for a rare label; None for one map
        for all. A bin with fewer than 100 predictions or 10 true ones uses the map of all labels.

    Attributes
    ----------
    bin_of_label_ : ndarray of int16, shape (labels,)
        Index of the map of each label.
    knots_, values_ : ndarray of float64
        Scores and probabilities of all maps, concatenated; a map is linear between its knots and constant outside. For
        "platt" the knots approximate the sigmoid.
    offsets_ : ndarray of int64
        First knot of each map, and the end.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> scores = rng.normal(size=(2000, 1)).astype(np.float32)
    >>> top = TopK(np.zeros((2000, 1), np.int32), scores)
    >>> Y = rng.random((2000, 1)) < 1 / (1 + np.exp(-2 * scores))
    >>> calibration = Calibration(method="platt", bins=None).fit(top, Y, [2000])
    >>> calibration.probabilities(TopK(np.zeros((1, 1), np.int32), np.zeros((1, 1), np.float32))).scores.round(1)
    array([[0.5]], dtype=float32)
    """

    _stored: ClassVar[tuple[str, ...]] = ("bin_of_label_", "knots_", "values_", "offsets_")

    bin_of_label_: npt.NDArray[np.int16]
    knots_: Float64
    values_: Float64
    offsets_: Int64

    _constraints: ClassVar[Mapping[str, Constraint]] = {
        "method": OneOf(*get_args(Method)),
        "bins": Optional(OneOf(*get_args(NamedBins))),
    }

    def __init__(self, *, method: Method = "isotonic", bins: NamedBins | None = "head-torso-tail") -> None:
        self.method = method
        self.bins = bins

    def fit(self, top: TopK, Y: Any, label_counts: npt.ArrayLike) -> Self:
        """Fit to the ranked predictions of held-out rows and their recorded labels.

        Parameters
        ----------
        top : TopK
        Y : matrix, shape (n, labels)
        label_counts : array, shape (labels,)
            Training rows of each label.
        """
        self._check_parameters()
        truth, counts = as_indicator(Y), np.asarray(label_counts)
        if truth.shape != (len(top), len(counts)):
            raise InputError(
                f"Y has shape {truth.shape} for {len(top)} ranked rows and {len(counts)} labels: use the same ones."
            )
        row, place = np.nonzero(top.labels >= 0)
        labels, scores = top.labels[row, place], top.scores[row, place].astype(np.float64)
        known = row.astype(np.int64) * len(counts) + labels
        true_rows = np.repeat(np.arange(truth.shape[0], dtype=np.int64), np.diff(truth.indptr))
        hits = np.isin(known, true_rows * len(counts) + truth.indices).astype(np.float64)
        right = int(hits.sum())
        if len(hits) < _FEWEST_PAIRS or min(right, len(hits) - right) < _FEWEST_HITS:
            raise InputError(
                f"{right:,} of {len(hits):,} predictions are right, and it takes {_FEWEST_PAIRS} predictions, "
                f"{_FEWEST_HITS} of them right and {_FEWEST_HITS} wrong: give more held-out rows to calibrate on."
            )
        bin_of_label = np.zeros(len(counts), np.int64) if self.bins is None else frequency_bins(counts, self.bins)[0]
        everywhere = self._curve(scores, hits)
        curves = []
        for index in range(int(bin_of_label.max(initial=0)) + 1):
            in_bin = bin_of_label[labels] == index
            right = int(hits[in_bin].sum())
            enough = in_bin.sum() >= _FEWEST_PAIRS and min(right, in_bin.sum() - right) >= _FEWEST_HITS
            curves.append(self._curve(scores[in_bin], hits[in_bin]) if enough else everywhere)
        self.bin_of_label_ = np.where(bin_of_label < 0, len(curves), bin_of_label).astype(np.int16)
        curves.append(everywhere)  # of labels without a training row
        self.knots_, self.values_ = (np.concatenate([curve[part] for curve in curves]) for part in (0, 1))
        self.offsets_ = np.concatenate([[0], np.cumsum([len(curve[0]) for curve in curves])]).astype(np.int64)
        return self

    def with_labels(self, n_labels: int) -> Self:
        """Return a copy for more labels; new ones use the map of all labels."""
        made: Self = clone(self)
        for name in self._stored:
            setattr(made, name, getattr(self, name))
        of_all = np.int16(len(self.offsets_) - 2)
        new = np.full(n_labels - len(self.bin_of_label_), of_all, np.int16)
        made.bin_of_label_ = np.concatenate([self.bin_of_label_, new])
        return made

    def probabilities(self, top: TopK) -> TopK:
        """Replace scores by probabilities; the order of the labels stays, padding gets 0."""
        check_is_fitted(self, "knots_")
        result = np.zeros(top.scores.shape, np.float32)
        bins = np.where(top.labels >= 0, self.bin_of_label_[top.labels], -1)
        for index in range(len(self.offsets_) - 1):
            in_bin, own = bins == index, slice(self.offsets_[index], self.offsets_[index + 1])
            result[in_bin] = np.interp(top.scores[in_bin], self.knots_[own], self.values_[own])
        return TopK(top.labels, result)

    def _curve(self, scores: Float64, hits: Float64) -> tuple[Float64, Float64]:
        if self.method == "isotonic":
            from sklearn.isotonic import IsotonicRegression

            fitted = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(scores, hits)
            return np.asarray(fitted.X_thresholds_, np.float64), np.asarray(fitted.y_thresholds_, np.float64)
        return _platt_curve(scores, hits)


def _platt_curve(scores: Float64, hits: Float64) -> tuple[Float64, Float64]:
    """Fit sigma(a s + b) by maximum likelihood with Platt's softened targets."""
    right = hits.sum()
    targets = np.where(hits > 0, (right + 1) / (right + 2), 1 / (len(hits) - right + 2))
    centre, spread = scores.mean(), scores.std() or 1.0
    slope, offset = fit_logistic(((scores - centre) / spread)[:, None], targets, ridge=1e-9)
    reach = np.linspace(-8, 8, 129)  # range of the log-odds; beyond it the sigmoid is 0 or 1
    knots = np.sort((reach - offset) / (slope if abs(slope) > 1e-6 else 1e-6) * spread + centre)
    return knots, 1 / (1 + np.exp(-(slope * (knots - centre) / spread + offset)))

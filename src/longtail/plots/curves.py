"""Curves behind the figures: frequencies and their power law, propensities, bins by frequency, calibration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from longtail.errors import LongtailError
from longtail.kernels.types import Float64, Int64
from longtail.plots.formats import round_numbers, rows_of
from longtail.propensity import Propensity

_FITTED_RANKS = 200
_CURVE_POINTS = 200


@dataclass(frozen=True)
class PowerLaw:
    """Frequency as scale * rank^-exponent.

    `misfit` is the factor, at least 1, by which frequencies typically differ from the law: the exponential of the root
    mean square error of the logarithms.
    """

    scale: float
    exponent: float
    misfit: float

    def at(self, ranks: npt.ArrayLike) -> Float64:
        """Return the frequencies at some ranks; the most frequent label has rank 1."""
        return self.scale * np.asarray(ranks, np.float64) ** -self.exponent


def fit_power_law(label_counts: npt.ArrayLike) -> PowerLaw | None:
    """Fit a straight line to the logarithms of rank and frequency, at ranks evenly spaced on the logarithmic axis.

    Otherwise the last decade of the axis, which has nine labels in ten, would determine the fit. Labels without a
    training row are left out; the result is None for fewer than two others.

    Examples
    --------
    >>> law = fit_power_law([1000, 500, 333, 250, 200, 0])
    >>> round(law.exponent, 2), round(law.scale), round(law.misfit, 2)
    (1.0, 1000, 1.0)
    """
    frequencies = falling_frequencies(label_counts)
    if len(frequencies) < 2:
        return None
    ranks = np.unique(np.geomspace(1, len(frequencies), _FITTED_RANKS).round().astype(np.int64))
    x, y = np.log(ranks), np.log(frequencies[ranks - 1])
    slope, height = np.polyfit(x, y, 1)
    misfit = float(np.exp(np.sqrt(np.mean((y - height - slope * x) ** 2))))
    return PowerLaw(float(np.exp(height)), float(-slope), misfit)


def falling_frequencies(label_counts: npt.ArrayLike) -> Int64:
    """Return the training rows of the labels that have any, the most frequent first."""
    counts = np.sort(np.asarray(label_counts, np.int64))[::-1]
    return counts[counts > 0]


@dataclass(frozen=True)
class CountBin:
    """Geometric mean count and quartiles of the values of labels whose training counts lie in a range."""

    low: int
    high: int
    n_labels: int
    mean_count: float
    quartiles: tuple[float, float, float]

    @property
    def name(self) -> str:
        """The range of counts."""
        return rows_of((self.low, self.high))


def by_count(values: npt.ArrayLike, label_counts: npt.ArrayLike) -> tuple[CountBin, ...]:
    """Bin the values of labels by frequency: 1, 2 to 4, 5 to 9, 10 to 19, 20 to 49, ...

    Labels without a training row, values that are not finite and empty bins are left out.

    Examples
    --------
    >>> [(found.name, found.n_labels, found.quartiles[1]) for found in by_count([1.0, 2.0, 6.0], [1, 3, 4])]
    [('1', 1, 1.0), ('2–4', 2, 4.0)]
    """
    values, counts = np.asarray(values, np.float64), np.asarray(label_counts, np.int64)
    found = []
    edges = round_numbers(10 * int(counts.max(initial=0)) + 1)
    for low, above in pairwise(edges):
        inside = (counts >= low) & (counts < above) & np.isfinite(values)
        if inside.any():
            lower, median, upper = np.percentile(values[inside], [25, 50, 75])
            mean = float(np.exp(np.log(counts[inside]).mean()))
            quartiles = (float(lower), float(median), float(upper))
            found.append(CountBin(low, above - 1, int(inside.sum()), mean, quartiles))
    return tuple(found)


@dataclass(frozen=True)
class ScoreBin:
    """A bin of predictions by score: how many there are, and how many of them are recorded labels."""

    low: float
    high: float
    mean: float
    n_predictions: int
    n_recorded: int

    @property
    def share(self) -> float:
        """Percentage of the predictions that are recorded labels."""
        return 100 * self.n_recorded / self.n_predictions


@dataclass(frozen=True)
class ScoreCurve:
    """Frequency of recorded labels by score, in bins with about equally many of them, lowest scores first."""

    bins: tuple[ScoreBin, ...]

    @property
    def within_one(self) -> bool:
        """Whether all scores lie between 0 and 1, so that they can be read as probabilities."""
        return bool(self.bins) and self.bins[0].low >= 0 and self.bins[-1].high <= 1


def score_curve(scores: npt.ArrayLike, recorded: npt.ArrayLike, bins: int = 15) -> ScoreCurve:
    """Bin predictions by score, with about equally many recorded labels per bin; equal scores share a bin.

    Parameters
    ----------
    scores : array of float
        Scores of predictions; those that are not finite are padding and left out.
    recorded : array of bool, same shape
        Whether the label is recorded for its row.
    bins : int
        Maximum number of bins.

    Examples
    --------
    >>> curve = score_curve([-1.0, -1.0, 0.5, 2.0], [False, True, False, True], bins=2)
    >>> [(found.low, found.high, found.share) for found in curve.bins], curve.within_one
    ([(-1.0, -1.0, 50.0), (0.5, 2.0, 50.0)], False)
    """
    values, hits = np.asarray(scores, np.float64).ravel(), np.asarray(recorded, np.bool_).ravel()
    keep = np.isfinite(values)
    order = np.argsort(values[keep], kind="stable")
    values, hits = values[keep][order], hits[keep][order]
    if not len(values):
        return ScoreCurve(())
    found = np.cumsum(hits)
    quotas = found[-1] * np.arange(1, bins) / bins
    cuts = np.searchsorted(found, quotas, side="left") + 1  # just after the prediction that fills a bin
    cuts = cuts[cuts < len(values)]
    starts = np.unique(np.concatenate([[0], np.searchsorted(values, values[cuts], side="left")]))
    ends = np.append(starts[1:], len(values))
    parts = [(values[start:end], hits[start:end]) for start, end in zip(starts, ends, strict=True)]
    return ScoreCurve(
        tuple(ScoreBin(float(v[0]), float(v[-1]), float(v.mean()), len(v), int(h.sum())) for v, h in parts)
    )


@dataclass(frozen=True)
class PropensityCurve:
    """Propensity against training count, and the distribution of the labels."""

    names: tuple[str, ...]  # models with these propensities
    counts: Float64  # of the curve; empty where propensities aren't a function of the counts
    propensities: Float64
    label_counts: Int64  # the training counts that occur, the number of labels with each, their median propensities
    n_labels: Int64
    label_propensities: Float64


def propensity_curve(
    names: Sequence[str], propensity: Propensity, label_counts: npt.ArrayLike, n_rows: int
) -> PropensityCurve:
    """Evaluate the propensity from the rarest to the most frequent label.

    Examples
    --------
    >>> from longtail.propensity import JainPropensity
    >>> curve = propensity_curve(["dismec"], JainPropensity(), [1, 1, 20], 50)
    >>> curve.label_counts, curve.n_labels, curve.label_propensities.round(3)
    (array([ 1, 20]), array([2, 1]), array([0.256, 0.529]))
    """
    counts = np.asarray(label_counts, np.int64)
    values = propensity.propensities(counts, n_rows)
    distinct, of_label, n_labels = np.unique(counts, return_inverse=True, return_counts=True)
    by_label = np.split(values[np.argsort(of_label, kind="stable")], np.cumsum(n_labels)[:-1])
    medians = np.array([np.median(part) for part in by_label])
    try:
        again = propensity.propensities(np.append(distinct, distinct[-1]), n_rows)[:-1]
        follow = bool(np.allclose(again, medians))
    except LongtailError:  # propensities given per label, undefined for other counts
        follow = False
    grid = _grid(int(distinct[0]), int(distinct[-1])) if follow else np.empty(0)
    curve = propensity.propensities(grid, n_rows) if follow else np.empty(0)
    return PropensityCurve(tuple(names), grid, curve, distinct, n_labels.astype(np.int64), medians)


def _grid(low: int, high: int) -> Float64:
    points = np.geomspace(max(low, 1), max(high, 1), _CURVE_POINTS)
    grid = np.concatenate([np.linspace(0, 1, 20)[:-1], points]) if low == 0 else points
    clipped: Float64 = np.clip(grid, low, high)
    return clipped

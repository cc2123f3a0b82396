"""Bootstrap intervals of metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from longtail.config import own_jobs
from longtail.kernels.types import Float64, UInt8
from longtail.metrics.evaluation import Evaluator
from longtail.metrics.frequency import BinsOrEdges, frequency_bins
from longtail.metrics.labels import percentage
from longtail.metrics.ranking import with_labels
from longtail.metrics.resample_kernels import LANES, weighted_sums
from longtail.metrics.resampling import Resampler, check_resampling, interval, percent_of, resample
from longtail.topk import TopK


@dataclass(frozen=True)
class Interval:
    """A value and the interval around it, in percent.

    Parameters
    ----------
    value : float
        On all rows.
    low, high : float
        Ends of the interval.

    Examples
    --------
    >>> Interval(50.0, 45.0, 56.0).high
    56.0
    """

    value: float
    low: float
    high: float


def bootstrap(
    top: TopK | npt.ArrayLike,
    Y: Any,
    *,
    inverse_propensity: npt.ArrayLike | None = None,
    ks: Iterable[int] = (1, 3, 5),
    resamples: int = 1000,
    level: float = 0.95,
    random_state: int = 0,
    n_jobs: int | None = None,
) -> dict[str, Interval]:
    """Return every metric of `evaluate` with a bootstrap interval.

    The interval reflects the variation over test rows only, not that over training rows, wrong propensities or missing
    labels.

    Metrics that are ratios of sums over rows (all but the two below) get the percentiles of bootstrap resamples.
    Coverage ``C`` and ``macroF1`` are means over labels, and labels with few rows vanish from bootstrap resamples; they
    get the percentiles of subsamples without replacement, three quarters of the rows each, scaled and centred on the
    value. The interval of a single row is 0 to 100.

    Parameters
    ----------
    top, Y, inverse_propensity, ks
        As for `evaluate`.
    resamples : int
        Number of resamples.
    level : float
        Share of the resamples inside the interval.
    random_state : int
        Seed; it determines the intervals, whatever the number of threads.
    n_jobs : int, optional

    Returns
    -------
    dict of str to Interval
        By metric, in the order of `evaluate`; the values are those of `evaluate`.

    Examples
    --------
    >>> ranking, Y = [[0, 1]] * 40, [[1, 0]] * 30 + [[0, 1]] * 10
    >>> bootstrap(ranking, Y, ks=[1])["P@1"]
    Interval(value=75.0, low=62.5, high=87.5)
    """
    check_resampling(resamples, level, random_state)
    truth = with_labels(Y)
    evaluator = Evaluator(truth.shape[1], inverse_propensity=inverse_propensity, ks=ks).update(top, truth)
    resampler = Resampler(top, truth, evaluator)
    with own_jobs(n_jobs):
        drawn = resample(resampler.metrics, resampler.n_rows, resamples, seed=random_state)
    return _intervals(resampler.scores, dict(zip(resampler.keys, drawn, strict=True)), level, resampler.n_rows)


def bootstrap_by_frequency(
    top: TopK | npt.ArrayLike,
    Y: Any,
    label_counts: npt.ArrayLike,
    *,
    inverse_propensity: npt.ArrayLike | None = None,
    ks: Iterable[int] = (1, 3, 5),
    bins: BinsOrEdges = "head-torso-tail",
    resamples: int = 1000,
    level: float = 0.95,
    random_state: int = 0,
    n_jobs: int | None = None,
) -> dict[str, dict[str, Interval]]:
    """Return every score of `by_frequency` with a bootstrap interval.

    Parameters
    ----------
    top, Y, label_counts, inverse_propensity, ks, bins
        As for `by_frequency`.
    resamples, level, random_state, n_jobs
        As for `bootstrap`.

    Returns
    -------
    dict of str to dict of str to Interval
        By bin, then by metric; bins, metrics and values are those of `by_frequency`. All three numbers are NaN where no
        row has a label of the bin.

    Examples
    --------
    >>> ranking, Y = [[0, 1]] * 40, [[1, 0]] * 30 + [[0, 1]] * 10
    >>> bootstrap_by_frequency(ranking, Y, [30, 10], ks=[1], bins=[20])["20 or more"]["P@1"]
    Interval(value=75.0, low=62.5, high=87.5)
    """
    check_resampling(resamples, level, random_state)
    truth = with_labels(Y)
    evaluator = Evaluator(truth.shape[1], inverse_propensity=inverse_propensity, ks=ks).update(top, truth)
    table = evaluator.by_frequency(label_counts, bins)
    bin_of_label, _ = frequency_bins(label_counts, bins)
    resampler = Resampler(top, truth, evaluator)
    places = np.array(evaluator.ks)[:, None] * float(evaluator.n_rows)
    best = resampler.table.denominators("PSP") if evaluator.inverse_propensity is not None else None

    def score(weights: UInt8, parts: UInt8) -> Float64:
        true, hits, gains = resampler.label_hits(weights, bin_of_label, len(table))
        possible, found, _, _ = resampler.label_means(parts, bin_of_label, len(table))
        columns = [percentage(hits, places)]
        if best is not None:
            sums = np.empty((best.shape[1], LANES))
            weighted_sums(best, weights, sums)
            columns.append(percent_of(gains, sums))
        columns += [percentage(hits, true[:, None]), percentage(found, possible[:, None])]
        return np.concatenate(columns, axis=1)

    with own_jobs(n_jobs):
        drawn = resample(score, resampler.n_rows, resamples, seed=random_state)
    return {
        item.name: _intervals(item.scores, dict(zip(item.scores, of_bin, strict=True)), level, resampler.n_rows)
        for item, of_bin in zip(table, drawn, strict=True)
    }


def _intervals(
    values: Mapping[str, float], drawn: Mapping[str, Float64], level: float, n_rows: int
) -> dict[str, Interval]:
    """Return an interval around each value, within 0 and 100, and all of that for a single row."""
    intervals = {}
    for name, value in values.items():
        pair = interval(name, value, drawn[name], level)
        pair = pair if n_rows > 1 or np.isnan(value) else (0.0, 100.0)
        intervals[name] = Interval(value, *np.clip(pair, 0.0, 100.0).tolist())
    return intervals

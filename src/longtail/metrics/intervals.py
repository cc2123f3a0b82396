"""How sure a result is: intervals from resampled rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from longtail.engine.topk import TopK
from longtail.metrics.evaluation import with_labels
from longtail.metrics.evaluator import Evaluator
from longtail.metrics.frequency import Bins, frequency_bins
from longtail.metrics.labels import percent
from longtail.metrics.resample_kernels import LANES, weighted_sums
from longtail.metrics.resampling import (
    OVER_LABELS,
    Matrix,
    Resampler,
    Weights,
    check_drawings,
    ends,
    percent_of,
    resample,
)


@dataclass(frozen=True)
class Interval:
    """A value and the interval around it, in percent.

    Parameters
    ----------
    value : float
        Of all rows.
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
    seed: int = 0,
    threads: int | None = None,
) -> dict[str, Interval]:
    """Give every metric of `evaluate` with an interval from resampled rows.

    The interval says how far the value might move with other test rows of the same kind. It knows nothing of other
    training rows, of wrong propensities or of labels that were never recorded.

    Metrics that are ratios of sums over rows (all but the two below) get the percentiles of drawings with replacement,
    of as many rows as there are. Coverage ``C`` and ``macroF1`` are means over labels, and labels with few rows vanish
    from such drawings; they get the percentiles of parts without replacement, three quarters of the rows each, scaled
    and centred on the value. The interval of a single row is 0 to 100: it says nothing of others.

    Parameters
    ----------
    top, Y, inverse_propensity, ks
        As for `evaluate`.
    resamples : int
        Drawings.
    level : float
        Share of the drawings that lies inside the interval.
    seed : int
        Seed of the drawings; the same seed gives the same intervals, whatever the number of threads.
    threads : int, optional
        Threads, all cores by default.

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
    check_drawings(resamples, level, seed)
    truth = with_labels(Y)
    evaluator = Evaluator(truth.shape[1], inverse_propensity=inverse_propensity, ks=ks).update(top, truth)
    resampler = Resampler(top, truth, evaluator)
    drawn = resample(resampler.metrics, resampler.n_rows, resamples, seed=seed, threads=threads)
    return _intervals(resampler.scores, dict(zip(resampler.keys, drawn, strict=True)), level, resampler.n_rows)


def bootstrap_by_frequency(
    top: TopK | npt.ArrayLike,
    Y: Any,
    label_counts: npt.ArrayLike,
    *,
    inverse_propensity: npt.ArrayLike | None = None,
    ks: Iterable[int] = (1, 3, 5),
    bins: Bins = "head-torso-tail",
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    threads: int | None = None,
) -> dict[str, dict[str, Interval]]:
    """Give every score of `by_frequency` with an interval from resampled rows.

    Parameters
    ----------
    top, Y, label_counts, inverse_propensity, ks, bins
        As for `by_frequency`.
    resamples, level, seed, threads
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
    check_drawings(resamples, level, seed)
    truth = with_labels(Y)
    evaluator = Evaluator(truth.shape[1], inverse_propensity=inverse_propensity, ks=ks).update(top, truth)
    table = evaluator.by_frequency(label_counts, bins)
    group, _ = frequency_bins(label_counts, bins)
    resampler = Resampler(top, truth, evaluator)
    places = np.array(evaluator.ks)[:, None] * float(evaluator.n_rows)
    best = resampler.table.denominators("PSP") if evaluator.inverse_propensity is not None else None

    def score(weights: Weights, parts: Weights) -> Matrix:
        true, hits, gains = resampler.label_hits(weights, group, len(table))
        possible, found, _, _ = resampler.label_means(parts, group, len(table))
        columns = [percent(hits, places)]
        if best is not None:
            sums = np.empty((best.shape[1], LANES))
            weighted_sums(best, weights, sums)
            columns.append(percent_of(gains, sums))
        columns += [percent(hits, true[:, None]), percent(found, possible[:, None])]
        return np.concatenate(columns, axis=1)

    drawn = resample(score, resampler.n_rows, resamples, seed=seed, threads=threads)
    return {
        item.name: _intervals(item.scores, dict(zip(item.scores, of_bin, strict=True)), level, resampler.n_rows)
        for item, of_bin in zip(table, drawn, strict=True)
    }


def _intervals(
    values: Mapping[str, float], drawn: Mapping[str, Matrix], level: float, n_rows: int
) -> dict[str, Interval]:
    """Put an interval around each value; percentages end at 0 and 100, and one row says nothing of others."""
    intervals = {}
    for name, value in values.items():
        pair = ends(value, drawn[name], level, parts=name.partition("@")[0] in OVER_LABELS)
        pair = pair if n_rows > 1 or np.isnan(value) else (0.0, 100.0)
        intervals[name] = Interval(value, *np.clip(pair, 0.0, 100.0).tolist())
    return intervals

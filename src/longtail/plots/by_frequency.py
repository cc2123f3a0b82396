"""Figures against the frequency of the labels: their training rows, their rank, or deciles of the labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from longtail.kernels.types import Float64, Int64
from longtail.plots.style import (
    BROKEN,
    COLOURS,
    INK,
    PLOT_SIZE,
    SHORT_AXIS,
    colour,
    figure,
    legend,
    look,
    plain_numbers,
    plot,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from longtail.metrics import Interval
    from longtail.plots.curves import CountBin, PowerLaw, PropensityCurve
    from longtail.propensity import FittedPropensity
    from longtail.rerank import Diagnosis

PUBLISHED = {"other data": (0.55, 1.5), "Wikipedia": (0.5, 0.4), "Amazon": (0.6, 2.6)}
"""Constants A and B of Jain et al. 2016, for comparison."""

_DASHES: tuple[Any, ...] = ((0, (5, 2)), (0, (1, 1.5)), (0, (5, 2, 1, 2)))  # of their curves
_SMALLEST, _LARGEST = 14.0, 260.0  # areas of dots, in square points
_WINDOWS = 40
_ROWS, _DECILES = "training rows of the label", "decile of the labels, the most frequent first"


@plot
def label_frequencies(frequencies: Int64, law: PowerLaw | None = None, ends: Mapping[str, int] | None = None) -> Figure:
    """Draw the training rows of each label against its rank, both on logarithmic axes.

    Parameters
    ----------
    frequencies : ndarray of int64
        Training rows of the labels that have any, the most frequent first.
    law : PowerLaw, optional
        Drawn as a dashed line with its exponent.
    ends : mapping of str to int, optional
        Last rank of each bin of labels, such as head and torso.
    """
    drawn, (axes,) = figure(*PLOT_SIZE)
    ranks = np.arange(1, len(frequencies) + 1)
    corners = np.flatnonzero(np.diff(frequencies, prepend=-1, append=-1))  # where a new frequency begins; the end
    shown = np.unique(np.concatenate([corners[:-1], corners[1:] - 1]))
    axes.plot(ranks[shown], frequencies[shown], color=COLOURS[0], label="labels")
    if law is not None:
        line = np.array([1, len(frequencies)])
        name = f"fitted: rank$^{{{-law.exponent:.2f}}}$"
        axes.plot(line, law.at(line), color=COLOURS[1], linestyle=BROKEN, linewidth=1.4, label=name)
    axes.set(xscale="log", yscale="log", xlabel="rank of the label", ylabel="training rows")
    plain_numbers(axes.xaxis)
    plain_numbers(axes.yaxis)
    before = 0
    for name, end in (ends or {}).items():
        if end <= before:
            continue
        if end < len(frequencies):
            axes.axvline(end, color=INK, linewidth=0.7, linestyle=":")
        place = np.sqrt(max(before, 0.9) * end)
        axes.text(place, 1.01, name, transform=axes.get_xaxis_transform(), ha="center", va="bottom", color=INK)
        before = end
    axes.legend(loc="lower left")
    return drawn


@plot
def by_decile(metric: str, results: Mapping[str, Sequence[Interval]]) -> Figure:
    """Draw a bar with its interval for each model in each decile of the labels.

    Parameters
    ----------
    metric : str
        Name of the metric, for the axis.
    results : mapping of str to sequence of Interval
        By model; one value per decile, the most frequent labels first. A decile without a value has no bar.
    """
    drawn, (axes,) = figure(*PLOT_SIZE)
    width, deciles = 0.84 / len(results), max(map(len, results.values()))
    for number, values in enumerate(results.values()):
        found = np.array([(one.value, one.low, one.high) for one in values]).reshape(-1, 3)
        x = np.arange(len(found)) + 1 + (number - (len(results) - 1) / 2) * width
        present = np.isfinite(found[:, 0])
        axes.bar(x[present], found[present, 0], width * 0.9, color=colour(number))
        known = np.isfinite(found).all(axis=1)
        axes.vlines(x[known], found[known, 1], found[known, 2], color=INK, linewidth=min(1.1, 4 * width))
    axes.set(xlabel=_DECILES, ylabel=f"{metric}, percent", xlim=(0.45, deciles + 0.55))
    axes.set_xticks(range(1, deciles + 1))
    axes.set_ylim(bottom=0)
    axes.grid(visible=False, axis="x")
    axes.set_axisbelow(True)
    legend(drawn, list(results), bars=True)
    return drawn


@plot
def weight_norms(results: Mapping[str, Sequence[CountBin]], numbers: Sequence[int] | None = None) -> Figure:
    """Draw the median norm of the labels' weights against their training rows, with the interquartile range as a band.

    Parameters
    ----------
    results : mapping of str to sequence of CountBin
        By model.
    numbers : sequence of int, optional
        Numbers of the models, for their colours; 0, 1, 2, ... by default.
    """
    drawn, (axes,) = figure(*PLOT_SIZE)
    for number, bins in zip(numbers or range(len(results)), results.values(), strict=True):
        counts = np.array([found.mean_count for found in bins])
        lower, median, upper = np.array([found.quartiles for found in bins]).reshape(-1, 3).T
        axes.fill_between(counts, lower, upper, color=colour(number), alpha=0.14, linewidth=0)
        axes.plot(counts, median, **look(number))
    positive = all(found.quartiles[0] > 0 for bins in results.values() for found in bins)
    axes.set(xscale="log", xlabel=_ROWS, ylabel="norm of the weights", yscale="log" if positive else "linear")
    plain_numbers(axes.xaxis)
    if positive:
        plain_numbers(axes.yaxis)
    legend(drawn, list(results), numbers=numbers)
    return drawn


@plot
def propensities(curves: Sequence[PropensityCurve], numbers: Sequence[int] | None = None) -> Figure:
    """Draw propensity against training rows, with a dot for every count that labels have: the larger, the more labels.

    Parameters
    ----------
    curves : sequence of PropensityCurve
    numbers : sequence of int, optional
        Number of the first model of each curve, for its colour; 0, 1, 2, ... by default.
    """
    drawn, (axes,) = figure(*PLOT_SIZE)
    for number, curve in zip(numbers or range(len(curves)), curves, strict=True):
        areas = _SMALLEST + (_LARGEST - _SMALLEST) * curve.n_labels / curve.n_labels.max()
        axes.plot(curve.counts, curve.propensities, color=colour(number), linewidth=1.2)
        axes.scatter(
            curve.label_counts, curve.label_propensities, s=areas, color=colour(number), alpha=0.4, linewidth=0
        )
    axes.set_xscale("symlog", linthresh=1, linscale=0.4)
    smallest = min(int(curve.label_counts[0]) for curve in curves)
    largest = max(int(curve.label_counts[-1]) for curve in curves)
    left, right = -0.35 if smallest == 0 else 0.75 * smallest, max(largest, 2) * 1.4
    steps = (1, 2, 5) if right < SHORT_AXIS * max(left, 1) else (1,)
    ticks = np.array([0, *(step * 10.0**power for power in range(int(np.log10(right)) + 1) for step in steps)])
    axes.set_xticks(ticks[(ticks >= left) & (ticks <= right)])
    axes.set_xlim(left, right)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set(xlabel=_ROWS, ylabel="propensity", ylim=(0, 1.04))
    if len(curves) > 1:
        legend(drawn, [" and ".join(curve.names) for curve in curves], numbers=numbers, bars=True)
    return drawn


@plot
def fitted_curve(fitted: FittedPropensity) -> Figure:
    """Draw the bins of labels, the fitted curve with its interval, and the published curves for comparison.

    Parameters
    ----------
    fitted : FittedPropensity
        As returned by `PropensityPoints.fit`.
    """
    from longtail.propensity import JainPropensity

    points = fitted.points_
    drawn, (axes,) = figure()
    low, high = min(1.0, points.counts.min()), max(points.counts.max() * 1.15, 2.0)
    grid = np.geomspace(max(low, 0.5), min(high, points.n_rows), 200)
    for (name, (a, b)), dashes in zip(PUBLISHED.items(), _DASHES, strict=True):
        curve = JainPropensity(a=a, b=b).propensities(grid, points.n_rows)
        axes.plot(grid, curve, color=INK, linewidth=0.9, linestyle=dashes, label=f"{name}: A = {a:g}, B = {b:g}")
    axes.fill_between(grid, *fitted.band(grid), color=COLOURS[0], alpha=0.18, linewidth=0, zorder=2)
    label = f"fitted: A = {fitted.a:.3g}, B = {fitted.b:.3g}"
    axes.plot(grid, fitted.propensities(grid, points.n_rows), color=COLOURS[0], label=label, zorder=3)
    mean = round(float(points.n_labels.mean()))
    axes.scatter(
        points.counts, points.propensities, s=16, color=COLOURS[1], linewidth=0, zorder=4,
        alpha=0.85 if len(points) < 200 else 0.4, label=f"bins of {mean} labels" if mean > 1 else "labels",
    )  # fmt: skip
    axes.set(xscale="log", xlabel=_ROWS, ylabel="propensity", ylim=(-0.02, 1.02))
    plain_numbers(axes.xaxis)
    axes.legend(loc="upper left", fontsize=8)
    axes.set_title(f"shaded: {100 * fitted.level_:g} % interval", fontsize=9.5)
    return drawn


@plot
def norms_and_shares(results: Mapping[str, Diagnosis]) -> Figure:
    """Draw norms against the rank of the label by frequency, and the shares of recorded and predicted labels.

    On the left, the line is the median over labels of similar frequency and the band the interquartile range. On
    the right, a model whose line lies below the dashed one predicts labels of that decile less often than they are
    recorded; a decile without predictions has no point. Models without classifiers appear on the right only.

    Parameters
    ----------
    results : mapping of str to Diagnosis
        By model; of the same test rows.
    """
    drawn, (left, right) = figure(9.2, 3.6, columns=2)
    earlier: list[Float64] = []
    for number, found in enumerate(results.values()):
        if found.norms is not None:
            same = any(np.array_equal(found.norms, norms, equal_nan=True) for norms in earlier)
            ranks, lower, median, upper = smoothed(found)
            left.fill_between(ranks, lower, upper, color=colour(number), alpha=0.16, linewidth=0)
            # Dashed where another model has the same norms, so that both are visible.
            left.plot(ranks, median, color=colour(number), linestyle=BROKEN if same else "-")
            earlier.append(found.norms)
        shares = np.array([share.predicted_share for share in found.deciles])
        right.plot(*_above_zero(shares), **look(number))
    first = next(iter(results.values()))
    true = np.array([share.true_share for share in first.deciles])
    right.plot(*_above_zero(true), color=INK, linestyle=BROKEN, linewidth=1.3, label="recorded labels")
    left.set(xlabel="labels, the most frequent first", ylabel="norm of the classifier", ylim=(0, None))
    left.locator_params(axis="x", nbins=6)
    left.xaxis.set_major_formatter(lambda value, place: f"{value:,.0f}")
    right.set(xlabel=_DECILES, ylabel="share, percent", yscale="log")
    right.set_xticks(range(1, len(true) + 1))
    right.legend(loc="upper right")
    plain_numbers(right.yaxis)
    legend(drawn, list(results))
    return drawn


def smoothed(found: Diagnosis) -> Float64:
    """Return mean rank, lower quartile, median and upper quartile of the norms in windows of ranks, one per row."""
    norms = np.empty(0) if found.norms is None else found.norms
    order = np.argsort(-found.label_counts, kind="stable")
    order = order[np.isfinite(norms[order])]
    edges = np.unique(np.linspace(0, len(order), min(_WINDOWS, len(order)) + 1).round().astype(int))
    windows = [norms[order[start:stop]] for start, stop in pairwise(edges)]
    ranks = (edges[:-1] + 1 + edges[1:]) / 2
    quartiles = np.array([np.percentile(window, [25, 50, 75]) for window in windows]).reshape(-1, 3)
    return np.vstack([ranks, quartiles.T])


def _above_zero(shares: Float64) -> tuple[Int64, Float64]:
    """Return deciles and their shares, NaN for 0, because the axis is logarithmic."""
    return np.arange(1, len(shares) + 1), np.where(shares > 0, shares, np.nan)

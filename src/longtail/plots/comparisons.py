"""Figures that compare models: calibration, sensitivity to the propensity model, missing labels, a Pareto front."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from longtail.plots.style import BROKEN, INK, PLOT_SIZE, colour, figure, legend, look, plot

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from longtail.metrics.propensity_sensitivity import Sensitivity
    from longtail.plots.curves import ScoreCurve
    from longtail.studies.missing import MissingStudy, Outcome
    from longtail.tuning.front import Point

_MOST_PLOTS = 4


@plot
def score_curves(
    results: Mapping[str, ScoreCurve], numbers: Sequence[int] | None = None, *, probabilities: bool = False
) -> Figure:
    """Draw the share of recorded labels against the mean score of each bin.

    Parameters
    ----------
    results : mapping of str to ScoreCurve
        By model.
    numbers : sequence of int, optional
        Numbers of the models, for their colours; 0, 1, 2, ... by default.
    probabilities : bool
        Whether the scores are probabilities: a diagonal then shows perfect calibration.
    """
    drawn, (axes,) = figure(*PLOT_SIZE)
    for number, curve in zip(numbers or range(len(results)), results.values(), strict=True):
        axes.plot([found.mean for found in curve.bins], [found.share for found in curve.bins], **look(number))
    if probabilities:
        highest = max((found.mean for curve in results.values() for found in curve.bins), default=1.0)
        axes.plot([0, highest], [0, 100 * highest], color=INK, linewidth=0.9, linestyle=BROKEN)
        axes.set_xlim(left=0)
    axes.set(xlabel="probability" if probabilities else "score", ylabel="recorded labels, percent", ylim=(0, None))
    legend(drawn, list(results), numbers=numbers)
    return drawn


@plot
def sensitivity_curves(result: Sensitivity, k: int | None = None) -> Figure:
    """Draw PSP@k against A, a plot per value of B, with a tick at the bottom where the order of the models changes.

    Parameters
    ----------
    result : Sensitivity
        As returned by `longtail.metrics.sensitivity`. Of more than four values of B, four are drawn.
    k : int, optional
        One of its cutoffs; the last by default.
    """
    cutoff = result.ks[-1] if k is None else k
    shown = np.unique(np.linspace(0, len(result.b) - 1, min(len(result.b), _MOST_PLOTS)).round().astype(int))
    drawn, plots = figure(max(2.3 * len(shown), 4.4), 3.5, columns=len(shown))
    values = result.psp[..., result.ks.index(cutoff)][:, shown]
    low, high = float(values.min()), float(values.max())
    space = 0.08 * max(high - low, 1.0)
    order = np.argsort(result.a)
    a = np.array(result.a)[order]
    for at, (axes, column) in enumerate(zip(plots, shown, strict=True)):
        b = result.b[column]
        for number in range(len(result.models)):
            axes.plot(a, values[order, at, number], **look(number))
        changed = [one for one in a if (one, b) in result.changes(cutoff)]
        axes.plot(changed, [low - 1.6 * space] * len(changed), color=INK, marker="|", markersize=9, linestyle="")
        axes.set(xlabel="A", ylim=(low - 2.4 * space, high + space))
        axes.locator_params(axis="x", nbins=4)
        axes.set_title(f"B = {b:g}")
        if at:
            axes.tick_params(labelleft=False)
    plots[0].set_ylabel(f"PSP@{cutoff}, percent")
    legend(drawn, list(result.models))
    if result.changes(cutoff):
        note = f"|  order differs from that with A = {result.base[0]:g}, B = {result.base[1]:g}"
        drawn.supxlabel(note, fontsize=8, x=0.01, ha="left")
    return drawn


@plot
def missing_labels(study: MissingStudy, outcomes: Sequence[Outcome], metric: str) -> Figure:
    """Draw a metric against the share of labels that is kept, and against the propensities that recipes are given."""
    drawn, (by_share, by_given) = figure(9.6, 4.2, columns=2)
    kept = {severity: 100 * study.kept(severity) for severity in study.severities}
    for number, recipe in enumerate(study.all):
        is_base = recipe in study.bases
        style = look(number) | {"linestyle": "--" if is_base else "-"}
        own = sorted((o for o in outcomes if o.recipe == recipe), key=lambda o: kept.get(o.given or 0, 0))
        right = [o for o in own if o.severity is not None and (is_base or o.given == o.severity)]
        right.sort(key=lambda o: kept[o.severity or 0])
        wrong = [o for o in own if o.severity == study.reference]
        if is_base:
            by_given.axhline(wrong[0].scores[metric].value, color=colour(number), linestyle="--", linewidth=1)
            wrong = []
        for axes, found, x in (
            (by_share, right, [kept[o.severity or 0] for o in right]),
            (by_given, wrong, [kept[o.given or 0] for o in wrong]),
        ):
            means = [o.scores[metric] for o in found]
            axes.errorbar(x, [m.value for m in means], yerr=[m.half or 0 for m in means], capsize=2, **style)
        for whole in (o for o in own if o.severity is None):
            by_share.plot([100], [whole.scores[metric].value], **style)
    by_given.axvline(kept[study.reference], color="0.6", linewidth=0.8, zorder=0)
    measured = f"{metric} on all test labels"
    by_share.set(xlabel="training labels kept, %", ylabel=measured)
    by_given.set(xlabel="training labels kept according to the given propensities, %", ylabel=measured)
    by_given.set_title(f"{kept[study.reference]:.0f} % of the labels kept", fontsize=9)
    legend(drawn, study.all)
    return drawn


@plot
def pareto_front(
    points: Sequence[Point], front: Sequence[Point], picks: Mapping[str, Point], objectives: Sequence[str]
) -> Figure:
    """Draw all points, faint, the Pareto front as a line, and the picks with their names.

    Parameters
    ----------
    points, front : sequence of Point
    picks : mapping of str to Point
    objectives : sequence of str
        Names of the two metrics.
    """
    drawn, (axes,) = figure(6.4, 4.6)
    best = np.max([point.scores for point in points], axis=0)
    worst = np.min([point.scores for point in front], axis=0)
    room = np.maximum(best - worst, 1.0)
    low, high = worst - 0.6 * room, best + 0.15 * room
    points = [point for point in points if (np.array(point.scores) >= low).all()]
    recipes = sorted({point.recipe for point in points})
    for number, recipe in enumerate(recipes):
        x, y = zip(*(point.scores for point in points if point.recipe == recipe), strict=True)
        axes.scatter(x, y, s=14, alpha=0.45, linewidth=0, **look(number))
    x, y = zip(*sorted(point.scores for point in front), strict=True)
    axes.plot(x, y, color="0.35", linewidth=1, drawstyle="steps-pre", zorder=1)
    named: dict[tuple[float, ...], list[str]] = {}
    for name, point in picks.items():
        named.setdefault(point.scores, []).append(name)
    for (across, up), names in named.items():
        axes.scatter([across], [up], s=70, facecolor="none", edgecolor="0.1", linewidth=1.2, zorder=3)
        axes.annotate(", ".join(names), (across, up), xytext=(6, -12), textcoords="offset points", fontsize=9)
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), xlabel=objectives[0], ylabel=objectives[1])
    legend(drawn, recipes)
    return drawn

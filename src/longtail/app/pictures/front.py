"""What a search found: two measures against each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from longtail.app.pictures.models import colour, legend, marker
from longtail.app.pictures.style import figure, picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from longtail.app.tuning.front import Point


@picture
def pareto_front(
    points: Sequence[Point], front: Sequence[Point], picks: Mapping[str, Point], objectives: Sequence[str]
) -> Figure:
    """Draw all points, faint, the front as a line, and the picks with their names.

    Parameters
    ----------
    points, front : sequence of Point
    picks : mapping of str to Point
    objectives : sequence of str
        Names of the two measures.
    """
    drawn, (axes,) = figure(6.4, 4.6)
    best = [max(point.scores[number] for point in points) for number in range(2)]
    worst = [min(point.scores[number] for point in front) for number in range(2)]
    room = [max(best[number] - worst[number], 1.0) for number in range(2)]
    limits = [(worst[number] - 0.6 * room[number], best[number] + 0.15 * room[number]) for number in range(2)]
    points = [point for point in points if all(at >= low for at, (low, _) in zip(point.scores, limits, strict=True))]
    recipes = sorted({point.recipe for point in points})
    for number, recipe in enumerate(recipes):
        x, y = zip(*(point.scores for point in points if point.recipe == recipe), strict=True)
        axes.scatter(x, y, s=14, color=colour(number), marker=marker(number), alpha=0.45, linewidth=0)
    x, y = zip(*sorted(point.scores for point in front), strict=True)
    axes.plot(x, y, color="0.35", linewidth=1, drawstyle="steps-pre", zorder=1)
    named: dict[tuple[float, float], list[str]] = {}
    for name, point in picks.items():
        named.setdefault((point.scores[0], point.scores[1]), []).append(name)
    for (across, up), names in named.items():
        axes.scatter([across], [up], s=70, facecolor="none", edgecolor="0.1", linewidth=1.2, zorder=3)
        axes.annotate(", ".join(names), (across, up), xytext=(6, -12), textcoords="offset points", fontsize=9)
    axes.set(xlim=limits[0], ylim=limits[1])
    axes.set(xlabel=objectives[0], ylabel=objectives[1])
    legend(drawn, recipes)
    return drawn

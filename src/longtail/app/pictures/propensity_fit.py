"""A fitted propensity curve over the points that it was fitted to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from longtail.app.pictures.models import plain_numbers
from longtail.app.pictures.style import COLOURS, INK, figure, picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from longtail.propensity import FittedPropensity

PUBLISHED = {"other data": (0.55, 1.5), "Wikipedia": (0.5, 0.4), "Amazon": (0.6, 2.6)}
"""Constants of Jain et al. 2016, for comparison."""

_DASHES: dict[str, tuple[int, tuple[int, ...]]] = {
    "other data": (0, (5, 2)),
    "Wikipedia": (0, (1, 1.5)),  # type: ignore[dict-item]
    "Amazon": (0, (5, 2, 1, 2)),
}


@picture
def fitted_curve(fitted: FittedPropensity) -> Figure:
    """Draw the bins of labels, the fitted curve with its interval, and the published curves for comparison.

    Parameters
    ----------
    fitted : FittedPropensity
        As made by `PropensityPoints.fit`.
    """
    from longtail.propensity import JainPropensity

    points = fitted.points_
    drawn, (axes,) = figure()
    low, high = min(1.0, points.counts.min()), max(points.counts.max() * 1.15, 2.0)
    grid = np.geomspace(max(low, 0.5), min(high, points.n_rows), 200)
    for name, (a, b) in PUBLISHED.items():
        curve = JainPropensity(a=a, b=b).propensities(grid, points.n_rows)
        label = f"{name}: A = {a:g}, B = {b:g}"
        axes.plot(grid, curve, color=INK, linewidth=0.9, linestyle=_DASHES[name], label=label)
    axes.fill_between(grid, *fitted.band(grid), color=COLOURS[0], alpha=0.18, linewidth=0, zorder=2)
    label = f"fitted: A = {fitted.a:.3g}, B = {fitted.b:.3g}"
    axes.plot(grid, fitted.propensities(grid, points.n_rows), color=COLOURS[0], label=label, zorder=3)
    mean = round(float(points.n_labels.mean()))
    axes.scatter(
        points.counts,
        points.propensities,
        s=16,
        color=COLOURS[1],
        linewidth=0,
        alpha=0.85 if len(points) < 200 else 0.4,
        zorder=4,
        label=f"bins of {mean} labels" if mean > 1 else "labels",
    )
    axes.set(xscale="log", xlabel="training rows of the label", ylabel="propensity", ylim=(-0.02, 1.02))
    plain_numbers(axes.xaxis)
    axes.legend(loc="upper left", fontsize=8)
    axes.set_title(f"{100 * fitted.level_:g} % interval shaded", fontsize=9.5)
    return drawn

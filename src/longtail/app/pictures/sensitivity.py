"""How the order of models by PSP@k depends on the constants of the propensity model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from longtail.app.pictures.models import colour, legend, marker
from longtail.app.pictures.style import INK, figure, picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from longtail.metrics.sensitivity import Sensitivity

_MOST_PLOTS = 4


@picture
def sensitivity_curves(result: Sensitivity, k: int | None = None) -> Figure:
    """Draw PSP@k against A, a plot for each B, with a bar at the foot where the order of the models is another.

    Parameters
    ----------
    result : Sensitivity
        As made by `longtail.metrics.sensitivity.sensitivity`. Of more than four values of B, four are drawn.
    k : int, optional
        One of its places; the last by default.
    """
    place = result.ks[-1] if k is None else k
    shown = np.unique(np.linspace(0, len(result.b) - 1, min(len(result.b), _MOST_PLOTS)).round().astype(int))
    drawn, plots = figure(max(2.3 * len(shown), 4.4), 3.5, columns=len(shown))
    values = result.psp[:, shown, :, result.ks.index(place)]
    low, high = float(values.min()), float(values.max())
    space = 0.08 * max(high - low, 1.0)
    rank = np.argsort(result.a)
    a = np.array(result.a)[rank]
    for axes, column in zip(plots, shown, strict=True):
        b = result.b[column]
        for number in range(len(result.models)):
            line = result.psp[rank, column, number, result.ks.index(place)]
            axes.plot(a, line, color=colour(number), marker=marker(number))
        changed = [one for one in a if (one, b) in result.changes(place)]
        axes.plot(changed, [low - 1.6 * space] * len(changed), color=INK, marker="|", markersize=9, linestyle="")
        axes.set(xlabel="A", ylim=(low - 2.4 * space, high + space))
        axes.locator_params(axis="x", nbins=4)
        axes.set_title(f"B = {b:g}")
        if axes is not plots[0]:
            axes.tick_params(labelleft=False)
    plots[0].set_ylabel(f"PSP@{place}, percent")
    legend(drawn, list(result.models))
    if result.changes(place):
        note = f"|  another order than with A = {result.base[0]:g}, B = {result.base[1]:g}"
        drawn.supxlabel(note, fontsize=8, x=0.01, ha="left")
    return drawn

"""How likely a true label was recorded, by its training rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from longtail.app.pictures.models import PLOT, colour, legend
from longtail.app.pictures.style import figure, picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from longtail.app.report.curves import PropensityCurve

_SMALLEST, _LARGEST = 14.0, 260.0  # areas of dots, in square points
_SHORT_AXIS = 100


@picture
def propensities(curves: Sequence[PropensityCurve], numbers: Sequence[int] | None = None) -> Figure:
    """Draw propensity against training rows, with a dot for every count that labels have: the larger, the more labels.

    Parameters
    ----------
    curves : sequence of PropensityCurve
    numbers : sequence of int, optional
        Which model each is the first of, for their colours; 0, 1, 2, ... by default.
    """
    drawn, (axes,) = figure(*PLOT)
    chosen = list(range(len(curves))) if numbers is None else list(numbers)
    for number, curve in zip(chosen, curves, strict=True):
        share = curve.n_labels / curve.n_labels.max()
        axes.plot(curve.counts, curve.propensities, color=colour(number), linewidth=1.2)
        axes.scatter(
            curve.label_counts,
            curve.label_propensities,
            s=_SMALLEST + (_LARGEST - _SMALLEST) * share,
            color=colour(number),
            alpha=0.4,
            linewidth=0,
        )
    largest = max(int(curve.label_counts[-1]) for curve in curves)
    axes.set_xscale("symlog", linthresh=1, linscale=0.4)
    smallest = min(int(curve.label_counts[0]) for curve in curves)
    left, right = -0.35 if smallest == 0 else 0.75 * smallest, max(largest, 2) * 1.4
    steps = (1, 2, 5) if right < _SHORT_AXIS * max(left, 1) else (1,)
    ticks = np.array([0, *(step * 10.0**power for power in range(int(np.log10(right)) + 1) for step in steps)])
    axes.set_xticks(ticks[(ticks >= left) & (ticks <= right)])
    axes.set_xlim(left, right)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set(xlabel="training rows of the label", ylabel="propensity", ylim=(0, 1.04))
    if len(curves) > 1:
        legend(drawn, [" and ".join(curve.names) for curve in curves], numbers=chosen, bars=True)
    return drawn

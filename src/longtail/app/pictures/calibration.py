"""How often a prediction of a given score is a recorded label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from longtail.app.pictures.models import PLOT, colour, legend, marker
from longtail.app.pictures.style import INK, figure, picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from longtail.app.report.curves import ScoreCurve


@picture
def score_curves(
    results: Mapping[str, ScoreCurve], numbers: Sequence[int] | None = None, *, probabilities: bool = False
) -> Figure:
    """Draw the share of recorded labels against the mean score of each bin.

    Parameters
    ----------
    results : mapping of str to ScoreCurve
        By model.
    numbers : sequence of int, optional
        Which models they are, for their colours; 0, 1, 2, ... by default.
    probabilities : bool
        Whether the scores are probabilities: then a diagonal shows where share and score agree.
    """
    drawn, (axes,) = figure(*PLOT)
    chosen = list(range(len(results))) if numbers is None else list(numbers)
    for number, curve in zip(chosen, results.values(), strict=True):
        scores = [found.mean for found in curve.bins]
        axes.plot(scores, [found.share for found in curve.bins], color=colour(number), marker=marker(number))
    if probabilities:
        highest = max((found.mean for curve in results.values() for found in curve.bins), default=1.0)
        axes.plot([0, highest], [0, 100 * highest], color=INK, linewidth=0.9, linestyle=(0, (5, 3)))
        axes.set_xlim(left=0)
    axes.set(xlabel="probability" if probabilities else "score", ylabel="recorded labels, percent", ylim=(0, None))
    legend(drawn, list(results), numbers=chosen)
    return drawn

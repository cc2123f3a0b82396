"""How long the weights of a label are, by its training rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from longtail.app.pictures.models import PLOT, colour, legend, marker, plain_numbers
from longtail.app.pictures.style import figure, picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from longtail.app.report.curves import CountBin


@picture
def weight_norms(results: Mapping[str, Sequence[CountBin]], numbers: Sequence[int] | None = None) -> Figure:
    """Draw the median norm of the labels' weights against their training rows, with the middle half as a band.

    Parameters
    ----------
    results : mapping of str to sequence of CountBin
        By model.
    numbers : sequence of int, optional
        Which models they are, for their colours; 0, 1, 2, ... by default.
    """
    drawn, (axes,) = figure(*PLOT)
    chosen = list(range(len(results))) if numbers is None else list(numbers)
    for number, bins in zip(chosen, results.values(), strict=True):
        counts = np.array([found.mean_count for found in bins])
        lower, median, upper = np.array([found.quartiles for found in bins]).reshape(-1, 3).T
        axes.fill_between(counts, lower, upper, color=colour(number), alpha=0.14, linewidth=0)
        axes.plot(counts, median, color=colour(number), marker=marker(number))
    positive = all(found.quartiles[0] > 0 for bins in results.values() for found in bins)
    axes.set(xscale="log", xlabel="training rows of the label", ylabel="norm of the weights")
    axes.set_yscale("log" if positive else "linear")
    plain_numbers(axes.xaxis)
    if positive:
        plain_numbers(axes.yaxis)
    legend(drawn, list(results), numbers=chosen)
    return drawn

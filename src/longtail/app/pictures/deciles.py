"""Results by how frequent the labels are, model beside model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from longtail.app.pictures.models import PLOT, colour, legend
from longtail.app.pictures.style import INK, figure, picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from longtail.metrics import Interval


@picture
def by_decile(metric: str, results: Mapping[str, Sequence[Interval]]) -> Figure:
    """Draw a bar with its interval for each model in each tenth of the labels.

    Parameters
    ----------
    metric : str
        What the values are, for the axis.
    results : mapping of str to sequence of Interval
        By model; one value a tenth, the most frequent labels first. A tenth without a value has no bar.
    """
    drawn, (axes,) = figure(*PLOT)
    width = 0.84 / len(results)
    for number, values in enumerate(results.values()):
        present = [place for place, one in enumerate(values) if np.isfinite(one.value)]
        heights = np.array([values[place].value for place in present])
        x = np.array(present) + 1 + (number - (len(results) - 1) / 2) * width
        axes.bar(x, heights, width * 0.9, color=colour(number))
        low = np.array([values[place].low for place in present])
        high = np.array([values[place].high for place in present])
        known = np.isfinite(low) & np.isfinite(high)
        axes.vlines(x[known], low[known], high[known], color=INK, linewidth=min(1.1, 4 * width))
    axes.set(xlabel="tenth of the labels, the most frequent first", ylabel=f"{metric}, percent")
    axes.set_xticks(range(1, max(map(len, results.values())) + 1))
    axes.set_xlim(0.45, max(map(len, results.values())) + 0.55)
    axes.set_ylim(bottom=0)
    axes.grid(visible=False, axis="x")
    axes.set_axisbelow(True)
    legend(drawn, list(results), bars=True)
    return drawn

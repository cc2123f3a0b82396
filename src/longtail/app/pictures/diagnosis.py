"""Whether a model suppresses the tail: norms of labels sorted by frequency, and shares by tenths of the labels."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from longtail.app.pictures.models import colour, legend, marker, plain_numbers
from longtail.app.pictures.style import INK, figure, picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from longtail.tail import Diagnosis

_WINDOWS = 40
_BROKEN = (0, (4, 3))


@picture
def suppression(results: Mapping[str, Diagnosis]) -> Figure:
    """Draw norms against the rank of the label by frequency, and beside it what is true and what is predicted.

    On the left, the line is the median of some labels of like frequency and the band holds the middle half of them. On
    the right, a model whose line lies below the broken one predicts labels of that tenth less often than they are true;
    a tenth without predictions has no point. Models without classifiers are only there.

    Parameters
    ----------
    results : mapping of str to Diagnosis
        By model; of the same test rows.
    """
    drawn, (left, right) = figure(9.2, 3.6, columns=2)
    earlier: list[Diagnosis] = []
    for number, found in enumerate(results.values()):
        if found.norms is not None:
            same = any(
                np.array_equal(found.norms, one.norms, equal_nan=True) for one in earlier if one.norms is not None
            )
            _draw_norms(left, found, number, _BROKEN if same else "-")
        earlier.append(found)
        shares = np.array([share.predicted_share for share in found.deciles])
        right.plot(*_above_nought(shares), color=colour(number), marker=marker(number))
    first = next(iter(results.values()))
    true = np.array([share.true_share for share in first.deciles])
    right.plot(*_above_nought(true), color=INK, linestyle=_BROKEN, linewidth=1.3, label="true labels")
    left.set(xlabel="labels, the most frequent first", ylabel="norm of the classifier", ylim=(0, None))
    left.locator_params(axis="x", nbins=6)
    left.xaxis.set_major_formatter(lambda value, place: f"{value:,.0f}")
    right.set(xlabel="tenth of the labels, the most frequent first", ylabel="share, percent", yscale="log")
    right.set_xticks(range(1, len(true) + 1))
    right.legend(loc="upper right")
    plain_numbers(right.yaxis)
    legend(drawn, list(results))
    return drawn


def _draw_norms(axes: Axes, found: Diagnosis, number: int, style: str | tuple[int, tuple[int, int]]) -> None:
    """Draw the line broken where another model has the same norms, so that both are seen."""
    ranks, lower, median, upper = smoothed(found)
    axes.fill_between(ranks, lower, upper, color=colour(number), alpha=0.16, linewidth=0)
    axes.plot(ranks, median, color=colour(number), linestyle=style)


def smoothed(found: Diagnosis) -> npt.NDArray[np.float64]:
    """Mean rank, lower quartile, median and upper quartile of the norms of neighbours in frequency, a column each."""
    norms = np.empty(0) if found.norms is None else found.norms
    order = np.argsort(-found.label_counts, kind="stable")
    order = order[np.isfinite(norms[order])]
    edges = np.unique(np.linspace(0, len(order), min(_WINDOWS, len(order)) + 1).round().astype(int))
    windows = [norms[order[start:stop]] for start, stop in pairwise(edges)]
    ranks = (edges[:-1] + 1 + edges[1:]) / 2
    quartiles = np.array([np.percentile(window, [25, 50, 75]) for window in windows]).reshape(-1, 3)
    return np.vstack([ranks, quartiles.T])


def _above_nought(shares: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Tenths and their shares; gaps where nothing is, because the axis is logarithmic."""
    return np.arange(1, len(shares) + 1), np.where(shares > 0, shares, np.nan)

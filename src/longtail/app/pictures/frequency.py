"""How frequent the labels are, and the power law that comes nearest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from longtail.app.pictures.models import PLOT, plain_numbers
from longtail.app.pictures.style import COLOURS, INK, figure, picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from longtail.app.report.curves import PowerLaw


@picture
def label_frequencies(
    frequencies: npt.NDArray[np.int64], law: PowerLaw | None = None, ends: Mapping[str, int] | None = None
) -> Figure:
    """Draw the training rows of each label against its rank, both on logarithmic axes.

    Parameters
    ----------
    frequencies : ndarray of int64
        Training rows of the labels that have any, the most frequent first.
    law : PowerLaw, optional
        Drawn as a broken line with its exponent.
    ends : mapping of str to int, optional
        Last rank of each part of the labels, such as head and torso, marked where it ends.
    """
    drawn, (axes,) = figure(*PLOT)
    ranks = np.arange(1, len(frequencies) + 1)
    corners = np.flatnonzero(np.diff(frequencies, prepend=-1, append=-1))  # where a new frequency begins; the end
    shown = np.unique(np.concatenate([corners[:-1], corners[1:] - 1]))
    axes.plot(ranks[shown], frequencies[shown], color=COLOURS[0], label="labels")
    if law is not None:
        line = np.array([1, len(frequencies)])
        name = f"fitted: rank$^{{{-law.exponent:.2f}}}$"
        axes.plot(line, law.at(line), color=COLOURS[1], linestyle=(0, (5, 3)), linewidth=1.4, label=name)
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

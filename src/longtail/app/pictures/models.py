"""What pictures of several models share: a colour and a marker for each, and a legend above the plot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from longtail.app.pictures.style import COLOURS

if TYPE_CHECKING:
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

MARKERS = ("o", "s", "^", "D", "v", "P")
"""Of the first, second, ... model, for readers who see no colours."""
PLOT = (4.8, 3.3)
"""Width and height in inches of a picture that is read on a telephone too."""

_SHORT_AXIS = 100
_LONGEST_NAME = 26
_LINE_HEIGHT = 0.2  # inches
_LEGEND_WIDTH = 54  # characters that fit above a plot of this width


def colour(model: int) -> str:
    """Colour of the model with this number, counted from 0."""
    return COLOURS[model % len(COLOURS)]


def marker(model: int) -> str:
    """Marker of the model with this number, counted from 0."""
    return MARKERS[model % len(MARKERS)]


def plain_numbers(axis: Axis) -> None:
    """Write the ticks of a logarithmic axis as people do, 1,000 and 0.1; on a short axis also those at 2 and 5."""
    from matplotlib.ticker import LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    axis.set_major_formatter(_plain)
    if low > 0 and high / low < _SHORT_AXIS:
        axis.set_minor_locator(LogLocator(subs=(2, 5)))
        axis.set_minor_formatter(_plain)
    else:
        axis.set_minor_formatter(NullFormatter())


def _plain(value: float, place: object) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def legend(figure: Figure, names: Sequence[str], *, numbers: Sequence[int] | None = None, bars: bool = False) -> None:
    """Name the models above the plot, in as many columns as fit; the picture grows with the lines it takes.

    Parameters
    ----------
    figure : Figure
    names : sequence of str
    numbers : sequence of int, optional
        Which models they are, for their colours; 0, 1, 2, ... by default.
    bars : bool
        Whether the plot has bars, not lines with markers.
    """
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    half = _LONGEST_NAME // 2
    shown = [name if len(name) <= _LONGEST_NAME else f"{name[: half - 1]}…{name[-half:]}" for name in names]
    handles = [
        Patch(color=colour(number)) if bars else Line2D([], [], color=colour(number), marker=marker(number))
        for number in (numbers if numbers is not None else range(len(names)))
    ]
    columns = max(1, min(len(names), _LEGEND_WIDTH // (max(map(len, shown)) + 6)))
    lines = -(-len(names) // columns)
    figure.set_figheight(figure.get_figheight() + _LINE_HEIGHT * (lines - 1))
    # Placeholders first: matplotlib leaves out names that begin with an underscore and sets those with $ as formulas.
    box = figure.legend(handles, [str(number) for number in range(len(names))], loc="outside upper left", ncols=columns)
    for text, name in zip(box.get_texts(), shown, strict=True):
        text.set_parse_math(False)
        text.set_text(name)

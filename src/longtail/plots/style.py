"""Style of all figures, what figures of several models share, and output to a file or as SVG for a page."""

from __future__ import annotations

import functools
import io
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

from longtail.data.streams import write_whole
from longtail.runtime.disk import check_out_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

Arguments = ParamSpec("Arguments")

COLOURS = ("#2563a8", "#c2571a", "#2f8f5b", "#8a4fa3", "#b0892c", "#5d6b7a")
"""Colours of the first, second, ... model or curve; distinguishable for colour-blind readers too."""
MARKERS = ("o", "s", "^", "D", "v", "P")
"""Markers of the first, second, ... model."""
INK, FAINT, PAPER = "#22262b", "#d5dae0", "#ffffff"
BROKEN = (0, (5, 3))
"""A dashed line, for reference curves."""
PLOT_SIZE = (4.8, 3.3)
"""Width and height in inches of a figure that is readable on a telephone too."""
PLOT_SUFFIXES = (".png", ".svg", ".pdf")

SHORT_AXIS = 100  # ratio of its ends
_LONGEST_NAME = 26
_LINE_HEIGHT = 0.2  # inches
_LEGEND_WIDTH = 54  # characters that fit above a plot of width PLOT_SIZE
_VARIABLES = {INK: "var(--ink)", FAINT: "var(--line)", PAPER: "var(--paper)"} | {
    colour: f"var(--series-{number})" for number, colour in enumerate(COLOURS, 1)
}
_COLOURS = re.compile("|".join(_VARIABLES))
_SETTINGS = {
    "axes.edgecolor": FAINT,
    "axes.facecolor": PAPER,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "figure.facecolor": PAPER,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9.5,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "lines.markersize": 4,
    "svg.fonttype": "none",
    "svg.hashsalt": "longtail",
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


def plot(draw: Callable[Arguments, Figure]) -> Callable[Arguments, Figure]:
    """Decorate a function that returns a figure, so that it draws in the common style."""

    @functools.wraps(draw)
    def drawn(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Figure:
        from matplotlib import rc_context

        with rc_context(_SETTINGS):  # type: ignore[arg-type]
            return draw(*args, **kwargs)

    return drawn


def figure(width: float = 6.4, height: float = 4.0, *, columns: int = 1, rows: int = 1) -> tuple[Figure, list[Axes]]:
    """Return a figure with a grid of axes, inside a function decorated with `plot`; sizes in inches.

    Examples
    --------
    >>> @plot
    ... def line(values):
    ...     drawn, (axes,) = figure()
    ...     axes.plot(values, color=COLOURS[0])
    ...     return drawn
    >>> line([1, 2, 3]).axes[0].lines[0].get_color()
    '#2563a8'
    """
    from matplotlib.figure import Figure

    made = Figure(figsize=(width, height), layout="constrained")
    return made, [made.add_subplot(rows, columns, place + 1) for place in range(rows * columns)]


def colour(model: int) -> str:
    """Return the colour of a model by its number, from 0."""
    return COLOURS[model % len(COLOURS)]


def look(model: int) -> dict[str, Any]:
    """Return colour and marker of a model by its number, from 0, as arguments of matplotlib's functions."""
    return {"color": colour(model), "marker": MARKERS[model % len(MARKERS)]}


def plain_numbers(axis: Axis) -> None:
    """Write the ticks of a logarithmic axis as 1,000 and 0.1, and on a short axis also those at 2 and 5."""
    from matplotlib.ticker import LogLocator, NullFormatter

    def plain(value: float, place: object) -> str:
        return f"{value:,.0f}" if value >= 1 else f"{value:g}"

    low, high = axis.get_view_interval()
    is_short = low > 0 and high / low < SHORT_AXIS
    axis.set_major_formatter(plain)
    axis.set_minor_formatter(plain if is_short else NullFormatter())
    if is_short:
        axis.set_minor_locator(LogLocator(subs=(2, 5)))


def legend(figure: Figure, names: Sequence[str], *, numbers: Sequence[int] | None = None, bars: bool = False) -> None:
    """Write the names of the models above the plot, in as many columns as fit; the figure grows with the lines.

    Parameters
    ----------
    figure : Figure
    names : sequence of str
    numbers : sequence of int, optional
        Numbers of the models, for their colours; 0, 1, 2, ... by default.
    bars : bool
        Whether the plot has bars, not lines with markers.
    """
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    shown = [shortened(name) for name in names]
    handles = [
        Patch(color=colour(number)) if bars else Line2D([], [], **look(number))
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


def shortened(name: str) -> str:
    """Return a name without its middle if it is long."""
    half = _LONGEST_NAME // 2
    return name if len(name) <= _LONGEST_NAME else f"{name[: half - 1]}…{name[-half:]}"


def check_plot(path: Path, name: str = "plot") -> None:
    """Raise an error if no figure can be written to a path."""
    check_out_file(path, *PLOT_SUFFIXES, name=name)


def save(figure: Figure, path: Path | str) -> None:
    """Write a figure as .png, .svg or .pdf, by the suffix of the path."""
    from matplotlib import rc_context

    target = Path(path)
    check_plot(target)
    suffix = target.suffix.lower()
    undated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}, ".png": {}}[suffix]
    with rc_context(_SETTINGS), write_whole(target) as file:  # type: ignore[arg-type]
        figure.savefig(file, format=suffix[1:], dpi=110, metadata=undated)


def svg(figure: Figure, description: str, titles: Mapping[str, str] | None = None) -> str:
    """Return a figure as an SVG element whose colours are the page's ``--ink``, ``--line``, ``--series-1``, ...

    It scales with its container; `description` is the text for screen readers. `titles` are tooltips by gid.
    """
    from html import escape

    from matplotlib import rc_context

    out = io.StringIO()
    with rc_context(_SETTINGS):  # type: ignore[arg-type]
        figure.savefig(out, format="svg", metadata={"Date": None})
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1))
    text = in_tags(_COLOURS, lambda colour: _VARIABLES[colour[0]], text)
    text = text.replace("<svg ", f'<svg role="img" aria-label="{escape(description, quote=True)}" ', 1)
    if titles:

        def titled(part: re.Match[str]) -> str:
            return f"{part[0]}<title>{escape(titles[part[1]])}</title>" if part[1] in titles else part[0]

        text = re.sub(r'<g id="([^"]*)">', titled, text)
    return text.strip()


def in_tags(pattern: re.Pattern[str], replacement: Callable[[re.Match[str]], str], text: str) -> str:
    """Replace the matches of a pattern in the tags of an SVG, not in the text between them.

    Examples
    --------
    >>> in_tags(re.compile("a"), lambda found: "b", "<g id='a'>a</g>")
    "<g id='b'>a</g>"
    """
    return re.sub(r"<[^>]*>", lambda tag: pattern.sub(replacement, tag[0]), text)

"""The look of every picture, and the ways out: a file, or SVG that takes its colours from the page it stands in."""

from __future__ import annotations

import functools
import io
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec

from longtail.errors import InputError, ParameterError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Arguments = ParamSpec("Arguments")

COLOURS = ("#2563a8", "#c2571a", "#2f8f5b", "#8a4fa3", "#b0892c", "#5d6b7a")
"""Of the first, second, ... model or curve of a picture; apart from each other for colour-blind readers too."""
INK, FAINT, PAPER = "#22262b", "#d5dae0", "#ffffff"
FORMATS = (".png", ".svg", ".pdf")

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


def picture(draw: Callable[Arguments, Figure]) -> Callable[Arguments, Figure]:
    """Give a function that draws the house's look."""

    @functools.wraps(draw)
    def drawn(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Figure:
        from matplotlib import rc_context

        with rc_context(_SETTINGS):  # type: ignore[arg-type]
            return draw(*args, **kwargs)

    return drawn


def figure(width: float = 6.4, height: float = 4.0, *, columns: int = 1, rows: int = 1) -> tuple[Figure, list[Axes]]:
    """Start a picture of plots beside and below each other, inside a function marked `picture`; sizes in inches.

    Examples
    --------
    >>> @picture
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


def check_picture(path: Path) -> None:
    """Refuse a name that no picture can be written to."""
    if path.suffix.lower() not in FORMATS:
        raise ParameterError("picture", str(path), f"must end in {', '.join(FORMATS)}")
    if not path.resolve().parent.is_dir():
        raise InputError(f"can't be written: {path.resolve().parent} is not a directory.", path=path)


def save(figure: Figure, path: Path | str) -> None:
    """Write a picture; the end of the name decides the format: .png, .svg or .pdf."""
    from matplotlib import rc_context

    target = Path(path)
    check_picture(target)
    undated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}, ".png": {}}[target.suffix.lower()]
    with rc_context(_SETTINGS):  # type: ignore[arg-type]
        figure.savefig(target, dpi=110, metadata=undated)


def svg(figure: Figure, description: str, titles: Mapping[str, str] | None = None) -> str:
    """Give a picture as an SVG element whose colours are the page's ``--ink``, ``--line``, ``--series-1``, ...

    It scales with its surroundings; `description` is what a screen reader says. `titles` are what shows when the mouse
    rests on a part of the picture, by the part's gid.
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
    """Replace what a pattern finds in the tags of an SVG, and leave the text between them as it is.

    Examples
    --------
    >>> in_tags(re.compile("a"), lambda found: "b", "<g id='a'>a</g>")
    "<g id='b'>a</g>"
    """
    return re.sub(r"<[^>]*>", lambda tag: pattern.sub(replacement, tag[0]), text)

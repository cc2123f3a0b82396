"""Figure of a label map: labels as points in the plane, close to each other where their embeddings are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from longtail.metrics.frequency import BIN_NAMES
from longtail.plots.formats import training_rows
from longtail.plots.placement import place_names
from longtail.plots.style import COLOURS, INK, MARKERS, PAPER, figure, plot, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from longtail.plots.label_points import LabelMap

_SIZE = (4.8, 4.6)
_COSTS = (10.0, 2.0, 1.0)  # of a name that covers a point of each bin
_MARKER_SIZES = (6.5, 4.5, 3.5)  # in points, as the numbers in the next two lines
_FONT_SIZE, _MARGIN, _CLEAR = 7.5, 1.5, 2.5
_GAPS = (2.5, 8.0, 16.0, 24.0, 32.0)  # between a point and its name; from the second on with a line
_MOST_NAMES, _NEEDED = 28, 12
_ALIGNMENTS = {-1: ("right", "top"), 0: ("center", "center"), 1: ("left", "bottom")}


@plot
def label_map(found: LabelMap) -> Figure:
    """Draw a point per label, and the names of the most frequent labels where there is room."""
    from matplotlib.lines import Line2D

    drawn, (axes,) = figure(*_SIZE)
    for point in reversed(range(len(found.names))):  # the most frequent last, on top
        x, y = found.positions[point]
        axes.add_line(Line2D([x], [y], gid=_gid(point), **_look(found.bins[point])))
    axes.margins(0.06)
    axes.autoscale_view()
    axes.set(xticks=[], yticks=[])
    axes.set_aspect("equal", adjustable="datalim")
    axes.spines[:].set_visible(False)
    bins = np.unique(found.bins).tolist()
    handles = [Line2D([], [], **_look(bin)) for bin in bins]
    names = [BIN_NAMES[bin] for bin in bins]
    drawn.legend(handles, names, loc="outside upper left", ncols=3, handletextpad=0, columnspacing=1)
    _write_names(drawn, axes, found)
    return drawn


def point_titles(found: LabelMap) -> dict[str, str]:
    """Return name and training rows of each label by the gid of its point, for `style.svg`."""
    return {
        _gid(point): f"{name} ({training_rows((count, count))})"
        for point, (name, count) in enumerate(zip(found.names, found.counts.tolist(), strict=True))
    }


def _write_names(drawn: Figure, axes: Axes, found: LabelMap) -> None:
    """Write names where there is room, the most frequent first; a few of them may cover points."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.font_manager import FontProperties

    canvas: Any = FigureCanvasAgg(drawn)
    renderer, font = canvas.get_renderer(), FontProperties(size=_FONT_SIZE)
    drawn.draw_without_rendering()  # lays out the axes
    pixels = drawn.dpi / 72  # per point
    names = [shortened(name) for name in found.names]
    sizes = (renderer.get_text_width_height_descent(name, font, ismath=False)[:2] for name in names)
    chosen = place_names(
        axes.transData.transform(found.positions) / pixels,
        ((width / pixels + 2 * _MARGIN, height / pixels + 2 * _MARGIN) for width, height in sizes),
        [edge / pixels for edge in axes.bbox.extents],
        _GAPS,
        clear=_CLEAR,
        costs=np.array(_COSTS)[found.bins],
        needed=min(_NEEDED, int((found.bins == 0).sum())),
        most=_MOST_NAMES,
    )
    for place in chosen:
        dx, dy = place.move
        line = {"arrowstyle": "-", "color": INK, "linewidth": 0.5, "shrinkA": 1, "shrinkB": 2}
        axes.annotate(
            names[place.point],
            found.positions[place.point],
            (dx + np.sign(dx) * _MARGIN, dy + np.sign(dy) * _MARGIN),
            textcoords="offset points",
            ha=_ALIGNMENTS[int(np.sign(dx))][0],
            va=_ALIGNMENTS[int(np.sign(dy))][1],
            fontsize=_FONT_SIZE,
            parse_math=False,
            in_layout=False,
            bbox={"facecolor": PAPER, "edgecolor": "none", "alpha": 0.75, "pad": 0.5},
            arrowprops=line if np.hypot(dx, dy) > _GAPS[0] else None,
        )


def _look(bin: int) -> dict[str, Any]:
    return {
        "linestyle": "",
        "marker": MARKERS[bin],
        "color": COLOURS[bin],
        "markersize": _MARKER_SIZES[bin],
        "markeredgecolor": PAPER,
        "markeredgewidth": 0.5,
    }


def _gid(point: int) -> str:
    return f"label-{point}"

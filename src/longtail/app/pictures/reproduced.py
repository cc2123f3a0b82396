"""A paper's gains and ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from longtail.app.pictures.models import colour, legend, marker
from longtail.app.pictures.style import figure, picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from longtail.app.reproduce.panels import Panel
    from longtail.app.reproduce.tables import Cell, Gain

_FEW = 4  # places whose names fit beside each other
_BESIDE = 3  # panels


@picture
def gains_beside(gains: Sequence[Gain]) -> Figure:
    """Draw what methods add to their bases, with intervals, and the paper's range as a grey bar behind.

    Parameters
    ----------
    gains : sequence of Gain
    """
    metrics = _shown(list(dict.fromkeys(gain.metric for gain in gains)))
    methods = list(dict.fromkeys(gain.method for gain in gains))
    sets = list(dict.fromkeys(gain.data for gain in gains))
    drawn, axes = figure(max(3.2 * len(metrics), 4.8), 1.6 + 0.5 * len(methods), columns=len(metrics))
    apart = 0.7 / max(len(sets), 1)
    for column, metric in enumerate(metrics):
        for row, method in enumerate(methods):
            own = [gain for gain in gains if (gain.metric, gain.method) == (metric, method)]
            paper = next((list(gain.paper.values()) for gain in own if gain.paper), [])
            if paper:
                low, high = min(paper), max(paper)
                axes[column].barh(row, high - low or 0.05, left=low, height=0.8, color="0.88", zorder=0)
            for gain in own:
                number = sets.index(gain.data)
                place = row + (number - (len(sets) - 1) / 2) * apart
                axes[column].errorbar(
                    [gain.ours], [place], xerr=[[gain.ours - gain.low], [gain.high - gain.ours]], capsize=2,
                    color=colour(number), marker=marker(number), markersize=4, linestyle="none",
                )  # fmt: skip
        axes[column].axvline(0, color="0.4", linewidth=0.8)
        axes[column].set_yticks(range(len(methods)), methods if column == 0 else [""] * len(methods))
        axes[column].set_xlabel(f"gain in {metric}")
        axes[column].invert_yaxis()
    if any(gain.paper for gain in gains):
        axes[0].set_title("grey: the paper's data sets", fontsize=8, loc="left")
    legend(drawn, sets)
    return drawn


@picture
def cells_beside(direct: Mapping[tuple[str, str], Sequence[Cell]]) -> Figure:
    """Draw the paper's numbers, hollow, and ours with intervals, full: a row a method, a column a data set.

    Parameters
    ----------
    direct : mapping of data set and method to sequence of Cell
    """
    sets = list(dict.fromkeys(data for data, _ in direct))
    metrics = _shown(list(dict.fromkeys(cell.metric for cells in direct.values() for cell in cells)))
    most = max(sum(data == one for one, _ in direct) for data in sets)
    drawn, axes = figure(max(4.2 * len(sets), 4.8), 1.6 + 0.5 * most, columns=len(sets))
    for data, own in zip(sets, axes, strict=True):
        methods = [method for one, method in direct if one == data]
        for row, method in enumerate(methods):
            for cell in (cell for cell in direct[data, method] if cell.metric in metrics and cell.ours is not None):
                number = metrics.index(cell.metric)
                how = {"color": colour(number), "marker": marker(number), "linestyle": "none"}
                own.errorbar([cell.ours], [row], xerr=[cell.half or 0], capsize=2, **how)  # type: ignore[arg-type]
                if cell.paper is not None:
                    own.plot([cell.paper], [row - 0.2], fillstyle="none", **how)  # type: ignore[arg-type]
        own.set_yticks(range(len(methods)), methods)
        own.invert_yaxis()
        own.set_xlabel("percent")
        own.set_title(f"{data}; hollow: the paper", fontsize=9)
    legend(drawn, metrics)
    return drawn


@picture
def panels_beside(panels: Sequence[Panel]) -> Figure:
    """Draw the panels of a figure, three beside each other, with intervals.

    Parameters
    ----------
    panels : sequence of Panel
    """
    names = list(dict.fromkeys(name for panel in panels for name in panel.curves))
    is_shared = all(list(panel.curves) == names for panel in panels)
    columns = min(len(panels), _BESIDE)
    rows = -(-len(panels) // columns)
    drawn, axes = figure(max(3.4 * columns, 4.8), 3.2 * rows, columns=columns, rows=rows)
    for own in axes[len(panels) :]:
        own.remove()
    for panel, own in zip(panels, axes, strict=False):
        shown_names = names if is_shared else list(panel.curves)
        for name, values in panel.curves.items():
            at = [place for place, value in enumerate(values) if value is not None]
            shown = [value for value in values if value is not None]
            own.errorbar(
                at, [value for value, _ in shown], yerr=[half or 0 for _, half in shown], capsize=2,
                color=colour(shown_names.index(name)), marker=marker(shown_names.index(name)),
                label=name.strip("`"),
            )  # fmt: skip
        own.set_xticks(range(len(panel.places)), panel.places, rotation=20 if len(panel.places) > _FEW else 0)
        own.set_xlabel(panel.across)
        own.set_ylabel(panel.up)
        own.set_title(panel.title.partition(",")[0], fontsize=9)
        if not is_shared:
            own.legend(fontsize=7, title=panel.legend or None, title_fontsize=7)
    if is_shared:
        legend(drawn, [name.strip("`") for name in names])
    return drawn


def _shown(metrics: list[str]) -> list[str]:
    """Four metrics at most: those of the first and the fifth place before others."""
    wanted: list[str] = [
        metric for metric in ("P@1", "P@5", "PSP@1", "PSP@5", "nDCG@5", "PSnDCG@5") if metric in metrics
    ]
    return (wanted or metrics)[:4]

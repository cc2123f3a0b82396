"""Figures of `longtail reproduce`: numbers, gains and figures of a paper beside measured ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from longtail.plots.style import figure, legend, look, plot

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from longtail.reproduce.markdown import Panel
    from longtail.reproduce.tables import FigureNumber, Gain

_FEW = 4  # names that fit side by side on an axis
_BESIDE = 3  # panels in a row


@plot
def gains_beside(gains: Sequence[Gain]) -> Figure:
    """Draw the gain of each method over its base, with intervals, and the range in the paper as a grey bar."""
    metrics = _shown(list(dict.fromkeys(gain.metric for gain in gains)))
    methods = list(dict.fromkeys(gain.method for gain in gains))
    sets = list(dict.fromkeys(gain.data for gain in gains))
    drawn, plots = figure(max(3.2 * len(metrics), 4.8), 1.6 + 0.5 * len(methods), columns=len(metrics))
    apart = 0.7 / max(len(sets), 1)
    for axes, metric in zip(plots, metrics, strict=True):
        for row, method in enumerate(methods):
            own = [gain for gain in gains if (gain.metric, gain.method) == (metric, method)]
            paper = next((list(gain.paper.values()) for gain in own if gain.paper), [])
            if paper:
                low, high = min(paper), max(paper)
                axes.barh(row, high - low or 0.05, left=low, height=0.8, color="0.88", zorder=0)
            for gain in own:
                number = sets.index(gain.data)
                place = row + (number - (len(sets) - 1) / 2) * apart
                half = [[gain.measured - gain.low], [gain.high - gain.measured]]
                axes.errorbar([gain.measured], [place], xerr=half, capsize=2, linestyle="none", **look(number))
        axes.axvline(0, color="0.4", linewidth=0.8)
        axes.set_yticks(range(len(methods)), methods if axes is plots[0] else [""] * len(methods))
        axes.set_xlabel(f"gain in {metric}")
        axes.invert_yaxis()
    if any(gain.paper for gain in gains):
        plots[0].set_title("grey: range over the paper's data sets", fontsize=8, loc="left")
    legend(drawn, sets)
    return drawn


@plot
def numbers_beside(direct: Mapping[tuple[str, str], Sequence[FigureNumber]]) -> Figure:
    """Draw the paper's numbers, hollow, and the measured ones, filled: a row per method, a column per data set."""
    sets = list(dict.fromkeys(data for data, _ in direct))
    metrics = _shown(list(dict.fromkeys(cell.metric for cells in direct.values() for cell in cells)))
    most = max(sum(data == one for one, _ in direct) for data in sets)
    drawn, axes = figure(max(4.2 * len(sets), 4.8), 1.6 + 0.5 * most, columns=len(sets))
    for data, own in zip(sets, axes, strict=True):
        methods = [method for one, method in direct if one == data]
        for row, method in enumerate(methods):
            for cell in (cell for cell in direct[data, method] if cell.metric in metrics and cell.measured is not None):
                style = look(metrics.index(cell.metric)) | {"linestyle": "none"}
                own.errorbar([cell.measured], [row], xerr=[cell.half or 0], capsize=2, **style)  # type: ignore[arg-type]
                if cell.paper is not None:
                    own.plot([cell.paper], [row - 0.2], fillstyle="none", **style)
        own.set_yticks(range(len(methods)), methods)
        own.invert_yaxis()
        own.set_xlabel("percent")
        own.set_title(f"{data}; hollow: the paper", fontsize=9)
    legend(drawn, metrics)
    return drawn


@plot
def panels_beside(panels: Sequence[Panel]) -> Figure:
    """Draw the panels of a figure, three in a row, with intervals."""
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
                label=name.strip("`"), **look(shown_names.index(name)),
            )  # fmt: skip
        own.set_xticks(range(len(panel.x)), panel.x, rotation=20 if len(panel.x) > _FEW else 0)
        own.set(xlabel=panel.xlabel, ylabel=panel.ylabel)
        own.set_title(panel.title.partition(",")[0], fontsize=9)
        if not is_shared:
            own.legend(fontsize=7, title=panel.legend or None, title_fontsize=7)
    if is_shared:
        legend(drawn, [name.strip("`") for name in names])
    return drawn


def _shown(metrics: list[str]) -> list[str]:
    """Return at most four metrics, those with k = 1 and k = 5 first."""
    wanted: list[str] = [
        metric for metric in ("P@1", "P@5", "PSP@1", "PSP@5", "nDCG@5", "PSnDCG@5") if metric in metrics
    ]
    return (wanted or metrics)[:4]

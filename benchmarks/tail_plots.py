"""The front of P@k against PSP@k: each recipe a point, its tail dial a curve."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from longtail.plots.style import figure, look, plot, save

DRAWN = ("dismec", "pw-cb-dismec", "bonsai", "ranknet+bonsai", "taug+bonsai", "fastxml", "longtail-tail")
OURS = "longtail-tail"  # in black: there are six colours
AXES = {"1": ("p_at_1", "psp_at_1"), "5": ("p_at_k", "psp_at_k")}


def draw_fronts(results: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """Save the fronts of all data sets: P@1 against PSP@1 and P@5 against PSP@5."""
    save(fronts(results), path)


@plot
def fronts(results: Mapping[str, Mapping[str, Any]]) -> Any:
    """Draw a row of two plots for each data set, side by side."""
    drawn, axes = figure(4.4 * 2 * len(results), 4.2, columns=2 * len(results))
    for at, (name, found) in enumerate(results.items()):
        for place, (k, (across, up)) in enumerate(AXES.items()):
            plot = axes[2 * at + place]
            for number, recipe in enumerate(recipe for recipe in DRAWN if recipe in found):
                row = found[recipe]
                style = {"color": "#111111", "marker": "*"} if recipe == OURS else look(number)
                curve = [(point[across], point[up]) for point in row["curve"]]
                plot.plot(*zip(*curve, strict=True), color=style["color"], linewidth=1.2, alpha=0.8)
                plot.plot(
                    row[f"P@{k}"], row[f"PSP@{k}"], label=recipe, **style,
                    linestyle="none", markersize=10 if recipe == OURS else 7,
                )  # fmt: skip
            others = [row for recipe, row in found.items() if recipe not in DRAWN]
            plot.plot(
                [row[f"P@{k}"] for row in others], [row[f"PSP@{k}"] for row in others], "x", color="#888888",
                label="other recipes", markersize=5,
            )  # fmt: skip
            best, least = max(row[f"P@{k}"] for row in found.values()), min(row[f"PSP@{k}"] for row in found.values())
            plot.set(title=name, xlabel=f"P@{k}", ylabel=f"PSP@{k}", xlim=(0.86 * best, 1.01 * best))
            plot.set_ylim(bottom=0.97 * least)
            if not at and not place:
                plot.legend(fontsize=7)
    return drawn

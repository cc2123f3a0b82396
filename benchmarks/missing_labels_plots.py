"""Plots and tables of the simulations of missing labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from longtail.plots.style import COLOURS, INK, plot
from longtail.propensity import JainPropensity
from measure import table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row = dict[str, Any]

PLAIN, CONTROL, SCORED = "fastxml", "fastxml, DCG", "pfastxml"
PLACE = ("A", ("a", "{:g}"))
CURVE = dict([PLACE]) | {
    "labels kept %": ("kept", "{:.1f}"),
    "lowest propensity": ("lowest", "{:.3f}"),
    "highest": ("highest", "{:.3f}"),
}
ESTIMATED = dict([PLACE]) | {
    "metric": ("metric", "{}"),
    "on complete labels": ("complete", "{:.2f}"),
    "plain": ("plain", "{}"),
    "too low": ("falls", "{}"),
    "propensity-scored": ("scored", "{}"),
    "right on average": ("unbiased", "{}"),
    "deviation of one masking": ("scored deviation", "{:.2f}"),
}
TRAINED = dict([PLACE]) | {
    "fastxml": ("plain", "{}"),
    "fastxml, DCG": ("control", "{}"),
    "pfastxml": ("scored", "{}"),
    "pfastxml - fastxml": ("gain", "{}"),
    "above": ("trained", "{}"),
    "of it by DCG": ("dcg", "{}"),
    "by propensities": ("propensity", "{}"),
}
GIVEN = {
    "A given": ("a", "{:g}"),
    "pfastxml": ("scored", "{}"),
    "minus fastxml": ("gain", "{}"),
    "above": ("wrong", "{}"),
    "minus fastxml, DCG": ("propensity", "{}"),
    "minus true propensities": ("right", "{}"),
}
FREQUENCY = {"trained": ("system", "{}"), "C@3": ("C@3", "{:.1f}")} | {
    f"{part}, {key}": (f"{part} {key}", "{:.2f}") for key in ("P@3", "recall@3") for part in ("head", "torso", "tail")
}
DIFFERENCES = ("gain", "dcg", "propensity", "right")
CLAIMS = {
    "unbiased": "Propensity-scored metrics on the test labels that are left are right on average",
    "falls": "Plain metrics on the test labels that are left are too low, the lower the fewer are left",
    "trained": "Whatever the curve, pfastxml with the true propensities is above fastxml",
    "wrong": "Pfastxml with the propensities of another curve than the reference is above fastxml",
}
"""What the figures of the paper show, by the key under which each row of the results answers it."""


@plot
def draw(name: str, found: Row) -> Figure:
    """Draw the four panels of figure 3 for one data set: curves, metrics, training, other propensities."""
    drawn = Figure(figsize=(10.4, 7.6), layout="constrained")
    (curves, metrics), (trained, wrong) = drawn.subplots(2, 2)
    _curves(curves, found)
    _metrics(metrics, found)
    _trained(trained, found)
    _wrong(wrong, found)
    drawn.suptitle(f"{name}: labels hidden from a data set taken as complete", x=0.01, ha="left", fontsize=12)
    return drawn


def _curves(axes: Axes, found: Row) -> None:
    counts = np.unique(np.geomspace(1, found["largest_count"], 60).astype(int))
    for number, curve in enumerate(found["curves"]):
        bold = curve["a"] == found["reference"]
        propensities = JainPropensity(a=curve["a"], b=curve["b"]).propensities(counts, found["rows"])
        axes.plot(
            counts,
            propensities,
            color=INK if bold else COLOURS[number % len(COLOURS)],
            linewidth=3.0 if bold else 1.6,
            label=f"A = {curve['a']:g}: {curve['kept']:.0f} % kept",
        )
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set(title="(a) Propensities, B = 1.5", xlabel="training rows of the label", ylabel="propensity", ylim=(0, 1))
    handles, names = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], names[::-1], loc="upper left", fontsize=8)


def _metrics(axes: Axes, found: Row) -> None:
    for number, metric in enumerate(("P@3", "nDCG@3, table 1")):
        rows = [row for row in found["estimates"] if row["metric"] == metric]
        a, colour = [row["a"] for row in rows], COLOURS[number]
        axes.axhline(rows[0]["complete"], color=colour, linewidth=0.8)
        axes.set_xticks(a, [f"{one:g}" for one in a])
        for which, name, style in (("scored", "propensity-scored", "-"), ("plain", "plain", ":")):
            spread = [1.96 * row[f"{which} deviation"] for row in rows]
            axes.errorbar(
                a,
                [row[which] for row in rows],
                spread,
                color=colour,
                linestyle=style,
                marker="os"[number],
                capsize=3,
                label=f"{metric.split(',')[0]}, {name}",
            )
    axes.set(title="(b) One ranking, test labels hidden", xlabel="A of the curve that hides", ylabel="percent")
    axes.axhline(0, color=INK, linewidth=0.8, label="thin lines: on complete labels")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=8, loc="lower right")


def _trained(axes: Axes, found: Row) -> None:
    rows = found["trained"]
    _differences(axes, rows, "gain", SCORED, 1)
    _differences(axes, rows, "dcg", CONTROL, 2)
    axes.set_xticks([row["a"] for row in rows], [f"{row['a']:g}\n{row['plain']:.1f}" for row in rows])
    axes.set_xlabel("A of the curve that hides and is given; below, nDCG@3 of fastxml")
    axes.set_title(f"(c) Training labels hidden; fastxml has {found['runs'][0]['nDCG@3']:.1f} with all of them")


def _wrong(axes: Axes, found: Row) -> None:
    a = found["reference"]
    reference = next(row for row in found["trained"] if row["a"] == a)
    _differences(axes, found["wrong"], "gain", SCORED, 1)
    half = reference["dcg half"] or 0.0
    axes.axhline(reference["dcg"], color=COLOURS[2], linestyle=":", label=CONTROL)
    axes.axhspan(reference["dcg"] - half, reference["dcg"] + half, color=COLOURS[2], alpha=0.12, linewidth=0)
    axes.axvline(a, color=INK, linewidth=0.8, linestyle="--")
    axes.set_xticks([row["a"] for row in found["wrong"]], [f"{row['a']:g}" for row in found["wrong"]])
    axes.set_xlabel(f"A of the curve that is given; {a:g} is true")
    axes.set_title(f"(d) Training labels hidden by A = {a:g}; fastxml has {reference['plain']:.1f}")
    axes.legend(fontsize=8, loc="best")


def _differences(axes: Axes, rows: list[Row], key: str, name: str, number: int) -> None:
    """Differences to fastxml with their intervals, against A; a second one stands a little beside the first."""
    axes.axhline(0, color=COLOURS[0], label=None if axes.lines else PLAIN)
    axes.errorbar(
        [row["a"] + 0.012 * (number - 1) for row in rows],
        [row[key] for row in rows],
        [row[f"{key} half"] or 0.0 for row in rows],
        color=COLOURS[number],
        marker="os^"[number],
        linestyle=":" if number > 1 else "-",
        capsize=3,
        label=name,
    )
    axes.set_ylabel("nDCG@3, minus that of fastxml")
    axes.legend(fontsize=8, loc="best")


def written(rows: list[Row]) -> list[Row]:
    """Write means together with half of their intervals, differences with their sign, in the place of numbers."""
    texts = []
    for row in rows:
        text = dict(row)
        for key in (key for key in row if f"{key} half" in row):
            half = row[f"{key} half"]
            text[key] = f"{row[key]:{'+' if key in DIFFERENCES else ''}.2f}" + (
                "" if half is None else f" ± {half:.2f}"
            )
        texts.append(text)
    return texts


def sections(name: str, found: Row) -> list[str]:
    """Lines of Markdown on one data set."""
    reference, tallies = found["reference"], []
    for key, claim in CLAIMS.items():
        answers = found["answers"][key]
        cases = ", ".join(f"{answers.count(one)} {one}" for one in sorted(set(answers), reverse=True))
        holds = next((one for one in ("no", "undecided") if one in answers), "yes")
        tallies.append({"claim": claim, "holds": holds, "cases": cases})
    frequency = []
    for system in (PLAIN, CONTROL, SCORED):
        same = [
            row
            for row in found["runs"]
            if (row["a"], row["system"]) == (reference, system) and row["given_a"] in (None, reference)
        ]
        means = {
            key: float(np.mean([row[key] for row in same])) for _, (key, style) in FREQUENCY.items() if style != "{}"
        }
        frequency.append({"system": system} | means)
    complete = found["runs"][0]["nDCG@3"]
    tables: list[tuple[str, Mapping[str, tuple[str, str]], list[Row]]] = [
        ("What the paper shows:", {key: (key, "{}") for key in tallies[0]}, tallies),
        ("(a) The curves:", CURVE, found["curves"]),
        (
            f"(b) A ranking by fastxml, trained on all labels; means of {found['maskings']} maskings:",
            ESTIMATED,
            found["estimates"],
        ),
        (f"(c) nDCG@3 after training on what a curve left; {complete:.2f} with all labels:", TRAINED, found["trained"]),
        (
            f"(d) nDCG@3 after training on what A = {reference:g} left, with the propensities of A given:",
            GIVEN,
            found["wrong"],
        ),
        (f"By label frequency, trained on what A = {reference:g} left:", FREQUENCY, frequency),
    ]
    lines = [
        f"## {name}",
        "",
        f"{found['rows']:,} training rows, {found['test_rows']:,} test rows, {found['labels']:,} labels; "
        f"{found['trees']} trees, {found['seeds']} seeds; {found['processor_seconds'] / 60:.1f} minutes of processor "
        "time, over all threads.",
        "",
        f"![The four panels of figure 3 on {name}](missing_labels_{name}.svg)",
        "",
    ]
    for heading, columns, rows in tables:
        lines += [heading, "", *table(columns, written(rows)), ""]
    return lines

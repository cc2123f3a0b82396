"""Tables of a report; cells have the exact number beside the text shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

import numpy as np

from longtail.metrics import Interval
from longtail.plots.curves import ScoreCurve, by_count, falling_frequencies
from longtail.plots.formats import as_percent, round_numbers, rows_of, span, training_rows
from longtail.plots.label_points import LabelMap
from longtail.propensity import FittedPropensity, JainPropensity, Propensity
from longtail.report.examples import LabelResult
from longtail.report.gather import KS, METRICS, ModelResults, Report

NOTHING = "–"


@dataclass(frozen=True)
class Cell:
    """A table cell: its text, the exact number, a note below it, and whether it is the best of its line."""

    text: str
    value: float | None = None
    note: str = ""
    best: bool = False


@dataclass(frozen=True)
class ReportTable:
    """A table whose first column names the rows."""

    name: str  # id in the page
    caption: str
    columns: tuple[str, ...]
    groups: tuple[tuple[str, tuple[tuple[Cell, ...], ...]], ...]  # rows with a title, which may be empty
    models: int = 0  # number of last columns that are models


def scores_tables(report: Report) -> list[ReportTable]:
    """Return the plain and the propensity-scored metrics of all models with intervals, the best of each line marked."""
    return [
        _scores_table(report, "plain-scores", "All labels weighted equally, percent", METRICS["plain"]),
        _scores_table(report, "tail-scores", "Rare labels weighted more, percent", METRICS["tail"]),
    ]


def _scores_table(report: Report, name: str, caption: str, metrics: Sequence[str]) -> ReportTable:
    groups = []
    for metric in metrics:
        lines = []
        for k in KS:
            key = f"{metric}@{k}"
            values = [_measured(model.scores[key], model.intervals.get(key)) for model in report.models]
            lines.append((Cell(key), *_marked(values)))
        groups.append(("", tuple(lines)))
    return ReportTable(name, caption, ("", *_names(report)), tuple(groups), len(report.models))


def bins_table(report: Report) -> ReportTable:
    """Return the table of head, torso and tail, a line per model; bin sizes are columns only where models differ."""
    keys = ("P@5", "PSP@5", "recall@5", "C@5")
    sizes = ("labels", "training rows", "in test rows")
    alike = all(_sizes(model) == _sizes(report.models[0]) for model in report.models)
    groups = []
    for place, found in enumerate(report.models[0].bins):
        columns = [
            _marked([_measured(m.bins[place].scores[key], m.bin_intervals[found.name].get(key)) for m in report.models])
            for key in keys
        ]
        lines = []
        for number, model in enumerate(report.models):
            mine = model.bins[place]
            size = (count(mine.n_labels), Cell(rows_of(mine.counts)), count(mine.n_true))
            lines.append((Cell(model.name), *(() if alike else size), *(column[number] for column in columns)))
        detail = f"{found.n_labels:,} labels of {training_rows(found.counts)}, {found.n_true:,} in test rows"
        groups.append((f"{found.name}: {detail}" if alike else found.name, tuple(lines)))
    shown = ("", *(() if alike else sizes), *keys)
    return ReportTable("bins", "Head, torso and tail, percent", shown, tuple(groups))


def _sizes(model: ModelResults) -> list[tuple[int, tuple[int, int], int]]:
    return [(found.n_labels, found.counts, found.n_true) for found in model.bins]


def deciles_table(report: Report, metric: str) -> ReportTable:
    """Return the numbers of a figure by deciles of the labels."""
    key = f"{metric}@{KS[-1]}"
    lines = [
        (
            Cell(str(place + 1)),
            Cell(rows_of(found.counts) if found.n_labels else NOTHING),
            count(found.n_true),
            *(_measured(m.deciles[place].scores[key], m.decile_intervals[found.name].get(key)) for m in report.models),
        )
        for place, found in enumerate(report.models[0].deciles)
    ]
    columns = ("decile", "training rows", "in test rows", *_names(report))
    return ReportTable(
        f"deciles-{metric}", f"{key} by deciles of the labels, percent", columns, _one(lines), len(report.models)
    )


def frequencies_table(report: Report) -> ReportTable:
    """Return frequencies at some ranks, and those of the power law."""
    found, law = falling_frequencies(report.label_counts), report.power_law
    lines = []
    for rank in _round_numbers(len(found)):
        fitted = Cell(NOTHING) if law is None else number(float(law.at(rank)), ",.1f")
        lines.append((Cell(f"{rank:,}"), count(int(found[rank - 1])), fitted))
    return ReportTable(
        "frequencies", "Training rows by rank of the label", ("rank", "training rows", "fitted"), _one(lines)
    )


def propensities_table(report: Report, curve: int) -> ReportTable:
    """Return propensities of labels of similar frequency."""
    model = next(one for one in report.models if one.name == report.propensities[curve].names[0])
    p, counts = 1 / model.inverse_propensity, model.label_counts
    lines = []
    if (counts == 0).any():
        lines.append((Cell("0"), count(int((counts == 0).sum())), Cell(_range(p[counts == 0]))))
    for found in by_count(p, counts):
        inside = p[(counts >= found.low) & (counts <= found.high)]
        lines.append((Cell(found.name), count(found.n_labels), Cell(_range(inside))))
    names = ", ".join(report.propensities[curve].names)
    return ReportTable(
        f"propensities-{curve + 1}", f"Propensities: {names}", ("training rows", "labels", "p"), _one(lines)
    )


def norms_table(models: Sequence[ModelResults], numbers: Sequence[int]) -> list[ReportTable]:
    """Return norms of the weights of labels of similar frequency, a table per model."""
    return [
        ReportTable(
            f"norms-{place + 1}",
            f"Norm of the weights: {model.name}",
            ("training rows", "labels", "lower quartile", "median", "upper quartile"),
            _one(
                (Cell(found.name), count(found.n_labels), *(number(value, ".3f") for value in found.quartiles))
                for found in model.norms or ()
            ),
        )
        for place, model in zip(numbers, models, strict=True)
    ]


def score_curve_table(kind: str, place: int, name: str, curve: ScoreCurve) -> ReportTable:
    """Return the bins of scores or probabilities of one model."""
    lines = [
        (
            Cell(f"{found.low:.3f} to {found.high:.3f}"),
            number(found.mean, ".3f"),
            count(found.n_predictions),
            count(found.n_recorded),
            number(found.share),
        )
        for found in curve.bins
    ]
    columns = (kind, f"mean {kind}", "predictions", "recorded", "percent")
    return ReportTable(f"{kind}-{place + 1}", f"{kind.capitalize()} and recorded labels: {name}", columns, _one(lines))


def label_map_tables(place: int, name: str, found: LabelMap) -> list[ReportTable]:
    """Return the nearest pairs of labels on the map of one model, and the labels nearest to the most frequent ones."""
    return [
        ReportTable(
            f"{kind}-{place}",
            f"{caption}: {name}",
            ("label", other, "inner product"),
            _one((Cell(near.label), Cell(near.other), number(near.product, ".3f")) for near in pairs),
        )
        for kind, caption, other, pairs in (
            ("nearest-pairs", "Nearest pairs of labels on the map", "other label", found.pairs),
            ("nearest-labels", "Nearest to the most frequent labels", "nearest label", found.nearest),
        )
    ]


def models_table(report: Report) -> ReportTable:
    """Return the training and size of each model."""
    facts: dict[str, Callable[[ModelResults], Cell]] = {
        "recipe": lambda model: Cell(model.recipe or NOTHING),
        "learner": lambda model: Cell(model.learner),
        "trained on": lambda model: Cell(str(model.training.get("data") or NOTHING)),
        "training time": lambda model: _seconds(model.training),
        "size": lambda model: Cell(NOTHING) if model.size is None else number(model.size / 1e6, ",.1f", " MB"),
        "training rows": lambda model: count(model.n_rows),
        "features": lambda model: count(model.n_features),
        "labels": lambda model: count(model.n_labels),
        "propensity": lambda model: Cell(_described(model.propensity)),
    }
    lines = [(Cell(title), *(fact(model) for model in report.models)) for title, fact in facts.items()]
    return ReportTable("models", "Training and size", ("", *_names(report)), _one(lines), len(report.models))


def labels_table(name: str, caption: str, labels: Iterable[LabelResult]) -> ReportTable:
    """Return a table of labels with their recall."""
    lines = [
        (
            Cell(one.name),
            count(one.count),
            Cell(f"{one.n_found:,} of {one.n_true:,}"),
            number(one.recall),
            count(one.n_predicted),
        )
        for one in labels
    ]
    columns = ("label", "training rows", "found", "percent", "predicted")
    return ReportTable(name, caption, columns, _one(lines))


def count(value: int) -> Cell:
    """Return a cell with an integer."""
    return Cell(f"{value:,}", value)


def number(value: float, form: str = ".2f", unit: str = "") -> Cell:
    """Return a cell with a number, or a dash if it is not finite."""
    return Cell(f"{value:{form}}{unit}", value) if isfinite(value) else Cell(NOTHING)


def _measured(value: float, interval: Interval | None) -> Cell:
    if not isfinite(value):
        return Cell(NOTHING)
    known = interval is not None and isfinite(interval.low) and isfinite(interval.high)
    return Cell(as_percent(value), value, span(interval) if known and interval is not None else "")


def _marked(cells: Sequence[Cell]) -> list[Cell]:
    """Mark the highest of several cells, and all with the same text."""
    values = [cell.value for cell in cells if cell.value is not None]
    if len(cells) < 2 or not values or max(values) <= 0:
        return list(cells)
    highest = as_percent(max(values))
    return [Cell(cell.text, cell.value, cell.note, best=cell.text == highest) for cell in cells]


def _names(report: Report) -> tuple[str, ...]:
    return tuple(model.name for model in report.models)


def _one(lines: Iterable[tuple[Cell, ...]]) -> tuple[tuple[str, tuple[tuple[Cell, ...], ...]], ...]:
    return (("", tuple(lines)),)


def _round_numbers(last: int) -> list[int]:
    return [*round_numbers(last), last] if last else []


def _range(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> str:
    low, high = f"{values.min():.3f}", f"{values.max():.3f}"
    return low if low == high else f"{low} to {high}"


def _seconds(training: Mapping[str, object]) -> Cell:
    seconds = training.get("seconds")
    return number(float(seconds), ",.1f", " s") if isinstance(seconds, int | float) else Cell("not recorded")


def _described(propensity: Propensity) -> str:
    if not isinstance(propensity, JainPropensity):
        return "given"
    fitted = ", fitted" if isinstance(propensity, FittedPropensity) else ""
    return f"A = {propensity.a:g}, B = {propensity.b:g}{fitted}"

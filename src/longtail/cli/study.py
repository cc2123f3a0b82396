"""`longtail study`: experiments with known true labels."""

from __future__ import annotations

from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.cli.arguments import parse_numbers, parse_recipes, read
from longtail.cli.console import guarded, output, output_json, output_table, run_settings, save_plot, step
from longtail.cli.loading import labelled_rows
from longtail.cli.options import FORMATS, AsJson, Threads, plot_option, rows_argument
from longtail.errors import InputError, ParameterError

if TYPE_CHECKING:
    from longtail.data import Dataset

study = typer.Typer(help="Run experiments with known true labels.", no_args_is_help=True)

_TOO_WIDE = 50  # percent of what hiding labels costs


@study.callback()
def _group() -> None:
    """Run experiments with known true labels."""


@study.command()
@guarded
def missing(
    data: Annotated[str, rows_argument("DATA", "Rows whose labels are taken as complete")],
    test: Annotated[
        str | None, typer.Option(metavar="TEST", help=f"Test rows: {FORMATS}; by default a fifth of DATA.")
    ] = None,
    recipes: Annotated[
        str,
        typer.Option(
            metavar="NAME,NAME...", help="Recipes with a correction to evaluate; the uncorrected recipe is trained too."
        ),
    ] = "pw-dismec,pw-cb-dismec",
    severities: Annotated[
        str, typer.Option(metavar="A,A...", help="Constants A of the propensity model: the lower, the more is hidden.")
    ] = "0.1,0.3,0.55,0.9",
    seeds: Annotated[int, typer.Option(min=1, help="Repetitions of each masking and training.")] = 3,
    threads: Threads = None,
    plot: Annotated[Path | None, plot_option("the results")] = None,
    as_json: AsJson = False,
) -> None:
    """Hide labels of a data set by known propensities, train on the rest, and evaluate on all labels.

    Shows how much of the loss each correction recovers, and the effect of wrong propensities.
    """
    names, levels = parse_recipes(recipes), _levels(severities)
    with step("studying missing labels"):
        from longtail.runtime.progress import progress_bar, show_progress
        from longtail.studies.missing import MissingStudy

        train, judged = _split(data, test)
        made = MissingStudy(train, judged, names, levels, seeds=seeds)
        bar = progress_bar("training", len(made.runs), "models")
        with run_settings(threads=threads), bar as advance, show_progress(False):
            outcomes = made.run(lambda number, what: advance(1, what))
    if plot is not None:
        from longtail.plots.comparisons import missing_labels

        save_plot(missing_labels(made, outcomes, "nDCG@5"), plot)
    if as_json:
        output_json(_as_json(made, outcomes))
    else:
        _show(made, outcomes)


def _split(data: str, test: str | None) -> tuple[Dataset, Dataset]:
    """Return training and test rows."""
    from longtail.data import iterative_split

    train = read(data)
    if test is None:
        train, judged = iterative_split(train, test_size=0.2, random_state=0)
    else:
        judged = labelled_rows(test, train.labels)
    _check_rows(train, judged, data, test)
    return train, judged


def _check_rows(train: Dataset, judged: Dataset, data: str, test: str | None) -> None:
    """Refuse training rows without labels, and test rows that don't fit them."""
    if not train.Y.nnz:
        raise InputError("has no labels: there is nothing to hide.", path=data)
    if (train.X is None) is not (judged.X is None):
        kinds = ["texts" if part.X is None else "features" for part in (judged, train)]
        raise ParameterError("--test", test, f"must have {kinds[1]} as {data} has, not {kinds[0]}")
    known = train.label_counts > 0
    if not known[judged.Y.indices[judged.Y.indices < len(known)]].any():
        raise ParameterError("--test", test or data, f"must have rows with labels of the training rows of {data}")


def _show(made: Any, outcomes: list[Any]) -> None:
    from longtail.studies.missing import METRICS

    def put(mean: Any, sign: str = "") -> str:
        if mean is None:
            return ""
        if isnan(mean.value):
            return "-"
        return f"{mean.value:{sign}.2f}" + ("" if mean.half is None else f" ± {mean.half:.2f}")

    rows = []
    for o in outcomes:
        if o.severity is not None and o.given not in (None, o.severity):
            continue
        left = "100" if o.severity is None else f"{100 * made.kept(o.severity):.0f}"
        gains = [put(o.against_base.get("nDCG@5"), "+"), put(o.recovered.get("nDCG@5"))]
        rows.append([o.recipe, left, *(put(o.scores[metric]) for metric in METRICS), *gains])
    columns = ["recipe", "% of labels left", *METRICS, "nDCG@5 over its base", "% recovered"]
    output_table("Trained on the labels left, with the true propensities; evaluated on all labels", columns, rows)
    by_given = [
        [o.recipe, f"{o.given:g}", *(put(o.scores[metric]) for metric in METRICS), put(o.against_base["nDCG@5"], "+")]
        for o in outcomes
        if o.severity == made.reference and o.against_base
    ]
    if len(made.severities) > 1 and by_given:
        title = f"Trained with the propensities of each A; the true ones have A = {made.reference:g}"
        output_table(title, ["recipe", "given A", *METRICS, "nDCG@5 over its base"], by_given)
    if made.seeds > 1:
        output(f"± is half of a 95 % interval over {made.seeds} seeds, each with its own masking.")
    if any((o.recovered["nDCG@5"].half or 0) > _TOO_WIDE for o in outcomes if "nDCG@5" in o.recovered):
        output("Some of these intervals are too wide to be conclusive: give more rows or more --seeds.")


def _as_json(made: Any, outcomes: list[Any]) -> dict[str, Any]:
    def means(of: dict[str, Any]) -> dict[str, Any]:
        return {
            name: {"value": None if isnan(mean.value) else round(mean.value, 4), "half": _number(mean.half)}
            for name, mean in of.items()
        }

    rows = [
        {
            "recipe": o.recipe,
            "a": o.severity,
            "given_a": o.given,
            "left": 1.0 if o.severity is None else round(made.kept(o.severity), 4),
            "scores": means(o.scores),
            "against_base": means(o.against_base),
            "recovered_percent": means(o.recovered),
        }
        for o in outcomes
    ]
    return {"rows": made.train.n_rows, "labels": made.train.n_labels, "seeds": made.seeds, "outcomes": rows}


def _number(value: float | None) -> float | None:
    """Round a number; JSON has no NaN."""
    return None if value is None or isnan(value) else round(value, 4)


def _levels(text: str) -> list[float]:
    levels = parse_numbers(text, float)
    if not levels or not all(0 < a < 100 for a in levels) or len(set(levels)) < len(levels):
        raise ParameterError(
            "--severities", text, "must be different numbers above 0 and below 100, separated by commas"
        )
    return levels

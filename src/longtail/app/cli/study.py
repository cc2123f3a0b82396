"""`longtail study`: experiments in which the truth is known."""

from __future__ import annotations

from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.app.cli.arguments import load_labelled
from longtail.app.cli.console import give, give_json, give_table, guarded, step
from longtail.errors import InputError, ParameterError

if TYPE_CHECKING:
    from longtail.corpus import Dataset

study = typer.Typer(help="Experiments in which the truth is known.", no_args_is_help=True)

_TOO_WIDE = 50  # percent of what hiding labels cost


@study.callback()
def _group() -> None:
    """Experiments in which the truth is known."""


@study.command()
@guarded
def missing(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA", help="File or data set's name, taken as completely labelled.", show_default=False
        ),
    ],
    test: Annotated[
        str | None, typer.Option(metavar="TEST", help="Rows to judge by; a fifth of DATA by default.")
    ] = None,
    recipes: Annotated[
        str, typer.Option(metavar="NAME,NAME...", help="Corrections to try; what they correct is trained besides.")
    ] = "pw-dismec,pw-cb-dismec",
    severities: Annotated[
        str, typer.Option(metavar="A,A...", help="Constants A of the propensity curve: the lower, the more is hidden.")
    ] = "0.1,0.3,0.55,0.9",
    seeds: Annotated[int, typer.Option(min=1, help="Maskings and trainings of each kind.")] = 3,
    threads: Annotated[int | None, typer.Option(min=1, help="Every core by default.")] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Draw the results: .svg, .png or .pdf.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Give everything as one JSON object.")] = False,
) -> None:
    """Hide labels of a data set by known propensities, train on the rest, and judge by all labels.

    Shows how much of what the hidden labels cost each correction makes good, and what wrong propensities do to it.
    """
    names, levels = _names(recipes), _levels(severities)
    with step("studying missing labels"):
        from longtail.app.studies.missing import MissingStudy
        from longtail.corpus import iterative_split
        from longtail.engine.progress import progress_bar, show_progress

        if plot is not None:
            from longtail.app.pictures.style import check_picture

            check_picture(plot)
        with step(f"reading {data}"):
            train = load_labelled(data, None)
        if test is None:
            train, judged = iterative_split(train, test_share=0.2, seed=0)
        else:
            with step(f"reading {test}"):
                judged = load_labelled(test, train.label_names)
            if judged.n_labels < train.n_labels:
                told = f"has {judged.n_labels:,} labels, and {data} has {train.n_labels:,}: give rows of the same data"
                raise ParameterError("--test", test, told)
        _check_rows(train, judged, data, test)
        made = MissingStudy(train, judged, names, levels, seeds=seeds, threads=threads)
        with show_progress(), progress_bar("training", len(made.runs), "models") as advance, show_progress(False):
            outcomes = made.run(lambda number, what: advance(1, what))
    if plot is not None:
        with step(f"drawing {plot}"):
            from longtail.app.pictures.missing import missing_labels
            from longtail.app.pictures.style import save

            save(missing_labels(made, outcomes, "nDCG@5"), plot)
    if as_json:
        give_json(_as_json(made, outcomes))
        return
    _show(made, outcomes)


def _check_rows(train: Dataset, judged: Dataset, data: str, test: str | None) -> None:
    """Refuse rows from which nothing can be learnt, or by which nothing can be judged."""
    if not train.Y.nnz:
        raise InputError("has no labels: there is nothing to hide.", path=data)
    if (train.X is None) is not (judged.X is None):
        kinds = ["texts" if part.X is None else "features" for part in (judged, train)]
        raise ParameterError("--test", test, f"must have {kinds[1]} as {data} has, not {kinds[0]}")
    known = train.label_counts > 0
    if not known[judged.Y.indices[judged.Y.indices < len(known)]].any():
        raise ParameterError("--test", test or data, f"must have rows with labels of the training rows of {data}")


def _show(made: Any, outcomes: list[Any]) -> None:
    from longtail.app.studies.missing import METRICS

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
    columns = ["recipe", "% of labels left", *METRICS, "nDCG@5 over its base", "% made good"]
    give_table("Trained on what is left, with the true propensities; judged by all labels", columns, rows)
    wrong = [
        [o.recipe, f"{o.given:g}", *(put(o.scores[metric]) for metric in METRICS), put(o.against_base["nDCG@5"], "+")]
        for o in outcomes
        if o.severity == made.reference and o.against_base
    ]
    if wrong:
        title = f"Told other propensities than the true ones, which have A = {made.reference:g}"
        give_table(title, ["recipe", "told A", *METRICS, "nDCG@5 over its base"], wrong)
    if made.seeds > 1:
        give(f"± is half of a 95 % interval over {made.seeds} seeds, each with a masking of its own.")
    if any((o.recovered["nDCG@5"].half or 0) > _TOO_WIDE for o in outcomes if "nDCG@5" in o.recovered):
        give("Some of these intervals are too wide to tell anything: give more rows or more --seeds.")


def _as_json(made: Any, outcomes: list[Any]) -> dict[str, Any]:
    def means(of: dict[str, Any]) -> dict[str, Any]:
        return {
            name: {"value": None if isnan(mean.value) else round(mean.value, 4), "half": _number(mean.half)}
            for name, mean in of.items()
        }

    rows = [
        {
            "recipe": o.recipe,
            "A": o.severity,
            "told A": o.given,
            "left": 1.0 if o.severity is None else round(made.kept(o.severity), 4),
            "scores": means(o.scores),
            "against_base": means(o.against_base),
            "made_good_percent": means(o.recovered),
        }
        for o in outcomes
    ]
    return {"rows": made.train.n_rows, "labels": made.train.n_labels, "seeds": made.seeds, "outcomes": rows}


def _number(value: float | None) -> float | None:
    """A number for JSON, which has none for what isn't one."""
    return None if value is None or isnan(value) else round(value, 4)


def _names(text: str) -> list[str]:
    from longtail.recipes import find

    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise ParameterError("--recipes", text, "must be names of recipes, parted by commas")
    for name in names:
        find(name)
    return names


def _levels(text: str) -> list[float]:
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or not all(0 < a < 100 for a in found) or len(set(found)) < len(found):
        raise ParameterError("--severities", text, "must be different numbers above 0, parted by commas")
    return found

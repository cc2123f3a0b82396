"""`longtail diagnose`: whether a model neglects rare labels, and whether the norms of its weights explain that."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.cli.arguments import capped
from longtail.cli.console import guarded, output, output_json, output_table, save_plot, step
from longtail.cli.loading import model_and_rows, ranked, rows_for
from longtail.cli.options import AsJson, ModelPath, TailPosition, TestRows, k_option, plot_option
from longtail.errors import counted

if TYPE_CHECKING:
    from longtail.data import Dataset
    from longtail.rerank import Diagnosis
    from longtail.store import Model


@guarded
def diagnose(
    model: ModelPath,
    test: TestRows,
    before: Annotated[
        Path | None,
        typer.Option("--before", metavar="MODEL", help="An earlier model of the same labels to compare with."),
    ] = None,
    k: Annotated[int, k_option("Labels per row that count as predicted")] = 5,
    tail: TailPosition = None,
    plot: Annotated[Path | None, plot_option("norms and shares")] = None,
    normalise: Annotated[
        bool,
        typer.Option("--normalise", help="Add the metrics of MODEL with all label weight vectors scaled to one norm."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show how often a model predicts frequent and rare labels, and how large the norms of their weights are.

    A ratio below 1 means that labels of this frequency have a smaller share of the predictions than of the true \
labels. Then the correlation of a label's weight norm with its training rows, and of its predictions with its norm: \
if the norm alone decided, predictions would be proportional to it (correlation 1, exponent 1).
    """
    with step("diagnosing", outcome="Nothing was written." if plot else ""):
        models, dataset = _models_and_rows(model, before, test)
        found = {name: _diagnosed(one, dataset, k, tail if name == "model" else None) for name, one in models.items()}
        scores = _scores(models["model"], dataset, k, tail) if normalise else {}
        names = _names(model, before, tail)
        if plot is not None:
            from longtail.plots.by_frequency import norms_and_shares

            save_plot(norms_and_shares({names[name]: one for name, one in found.items()}), plot)
    if as_json:
        output_json(_as_json(found, names, scores))
    else:
        _output_shares(
            found,
            names,
            f"{model} on {test}: {counted(dataset.n_rows, 'row')}, {'first rank' if k == 1 else f'first {k} ranks'}",
        )
        _output_correlations(found, names)
        if scores:
            metrics = list(scores["as it is"])
            rows = [[name, *(f"{of[metric]:.2f}" for metric in metrics)] for name, of in scores.items()]
            output_table("\nMetrics with weight vectors of equal norm, percent", ["", *metrics], rows)


def _models_and_rows(model: Path, before: Path | None, test: str) -> tuple[dict[str, Model], Dataset]:
    """Load the model, the earlier one before it if there is one, and the test rows."""
    from longtail.store import Model
    from longtail.store.several import check_same_labels, model_names

    if before is None:
        loaded, dataset = model_and_rows(model, test)
        return {"model": loaded}, dataset
    models = [Model.load(path) for path in (before, model)]
    named = dict(zip(model_names([before, model]), models, strict=True))
    check_same_labels(named, "diagnose models of the same labels")
    roles = dict(zip(("before", "model"), models, strict=True))
    return roles, rows_for(named, test)


def _as_json(found: dict[str, Diagnosis], names: dict[str, str], scores: dict[str, dict[str, float]]) -> dict[str, Any]:
    values: dict[str, Any] = {"name": names["model"], **found["model"].to_dict()}
    if "before" in found:
        values["before"] = {"name": names["before"], **found["before"].to_dict()}
    if scores:
        values["scores"] = {
            name: {metric: round(value, 4) for metric, value in of.items()} for name, of in scores.items()
        }
    return values


def _names(model: Path, before: Path | None, tail: float | None) -> dict[str, str]:
    """Return the names of the models: their directories, or their paths where the directories have the same name."""
    from longtail.store.several import model_names

    paths = {"model": model} if before is None else {"before": before, "model": model}
    named = dict(zip(paths, model_names(list(paths.values())), strict=True))
    return named if tail is None else {**named, "model": f"{named['model']}, tail {tail:g}"}


def _diagnosed(model: Model, dataset: Dataset, k: int, tail: float | None) -> Diagnosis:
    from longtail.rerank import Diagnosis, label_norms

    Y, counts, _ = model.truth(dataset)
    return Diagnosis.of(ranked(model, dataset, capped(k, model), tail), Y, counts, label_norms(model.learner))


def _scores(model: Model, dataset: Dataset, k: int, tail: float | None) -> dict[str, dict[str, float]]:
    """Return P and PSP of the model, and of its two forms with weight vectors of equal norm."""
    from dataclasses import replace

    from longtail.rerank import normalised

    made = {
        "as it is": model,
        "normalised": replace(model, learner=normalised(model.learner), calibration=None),
        "bias kept": replace(model, learner=normalised(model.learner, bias="kept"), calibration=None),
    }
    ks = tuple(dict.fromkeys((1, k)))
    wanted = [f"{metric}@{cutoff}" for metric in ("P", "PSP") for cutoff in ks]
    scores = {name: one.evaluate(dataset, ks=ks, tail=tail) for name, one in made.items()}
    return {name: {metric: of[metric] for metric in wanted} for name, of in scores.items()}


def _output_shares(found: dict[str, Diagnosis], names: dict[str, str], title: str) -> None:
    from longtail.rerank.diagnosis import written_shares

    several = len(found) > 1
    columns = ["", "labels", "training rows", "true"]
    for name in found:
        columns += [f"{names[name]}: predicted" if several else "predicted", "ratio"]
    rows = []
    for shares in zip(*((*one.bins, *one.deciles) for one in found.values()), strict=True):
        last = shares[-1]
        cells = [last.name, f"{last.n_labels:,}", last.shown_counts, written_shares(last)[0]]
        for share in shares:
            cells += written_shares(share)[1:]
        rows.append(cells)
    output_table(f"{title}, shares in percent", columns, rows)


def _output_correlations(found: dict[str, Diagnosis], names: dict[str, str]) -> None:
    rows = []
    for name, one in found.items():
        for title, of in (
            ("norm by training rows", one.norm_by_frequency),
            ("predictions by norm", one.prediction_by_norm),
        ):
            if of is None:
                continue
            numbers = (of.spearman, of.partial, of.pearson, of.exponent)
            cells = ["" if number != number else f"{number:.2f}" for number in numbers]
            rows.append([title if len(found) == 1 else f"{names[name]}: {title}", *cells, f"{of.n_positive:,}"])
    if not rows:
        output("\nThe model has no weight vectors of labels whose norms could be compared.")
        return
    columns = ["", "rank correlation", "at equal frequency", "of logarithms", "exponent", "labels"]
    output_table("\nNorms of the weight vectors of labels", columns, rows)

"""`longtail diagnose`: whether a model suppresses the tail, and whether its weights are to blame."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.app.cli.arguments import capped
from longtail.app.cli.console import give, give_json, give_table, guarded, note, step
from longtail.errors import InputError

if TYPE_CHECKING:
    from longtail.corpus import Dataset
    from longtail.store import Model
    from longtail.tail import Diagnosis

_METRICS = ("P", "PSP")


@guarded
def diagnose(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Directory of the model.", show_default=False)],
    test: Annotated[
        str,
        typer.Argument(
            metavar="TEST",
            help="File in XC text, JSONL or .npz format, or a data set's name such as debian-depends:test.",
            show_default=False,
        ),
    ],
    before: Annotated[
        Path | None,
        typer.Option(
            "--before", metavar="MODEL", help="A model of the same labels to show beside it, as it was before."
        ),
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Places that count as predicted.")] = 5,
    tail: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Turn the tail dial of MODEL: the higher, the more rare labels are favoured."),
    ] = None,
    picture: Annotated[
        Path | None, typer.Option("--picture", metavar="FILE", help="Draw norms and shares: .png, .svg or .pdf.")
    ] = None,
    normalise: Annotated[
        bool,
        typer.Option("--normalise", help="Add the scores of MODEL with the weights of all labels made equally long."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Give the results as one JSON object.")] = False,
) -> None:
    """Show which labels a model predicts, from the most frequent to the rarest, and how long their classifiers are.

    A ratio below 1 says that labels of this frequency are a smaller part of the predictions than of the true labels. \
Then how the norm of a label's classifier goes with its training rows, and how often a label is predicted with its \
norm, which would be proportional (correlation 1, exponent 1) if the norm alone decided.
    """
    with step("diagnosing", outcome="Nothing was written." if picture else ""):
        from longtail.app.pictures.style import check_picture, save
        from longtail.corpus import load
        from longtail.engine.progress import show_progress
        from longtail.store import Model

        if picture is not None:
            check_picture(picture)
        models = {"model": Model.load(model)}
        if before is not None:
            models = {"before": Model.load(before), **models}
            _check_labels(models)
        with show_progress():
            with step(f"reading {test}"):
                dataset = load(test, label_names=models["model"].label_names)
            found = {
                name: _diagnosed(one, dataset, k, tail if name == "model" else None) for name, one in models.items()
            }
            scores = _scores(models["model"], dataset, k, tail) if normalise else {}
        names = _names(model, before, tail)
        if picture is not None:
            from longtail.app.pictures.diagnosis import suppression

            save(suppression({names[name]: one for name, one in found.items()}), picture)
    if as_json:
        values: dict[str, Any] = {name: one.to_dict() for name, one in found.items()}
        give_json({**values["model"], **({"before": values["before"]} if before else {}), **_rounded(scores)})
    else:
        _give_shares(found, names, f"{model} on {test}: {dataset.n_rows:,} rows, first {k} places")
        _give_correlations(found, names)
        if normalise:
            _give_scores(scores, k)
    if picture is not None:
        note(f"Wrote {picture}.")


def _names(model: Path, before: Path | None, tail: float | None) -> dict[str, str]:
    """What the models are called: their directories, or their paths where these have the same name."""
    short = model.resolve().name
    named = {"model": short if tail is None else f"{short}, tail {tail:g}"}
    if before is not None:
        other = before.resolve().name
        if other == named["model"]:
            named, other = {"model": str(model)}, str(before)
        named = {"before": other, **named}
    return named


def _check_labels(models: dict[str, Model]) -> None:
    before, after = models["before"], models["model"]
    if before.n_labels != after.n_labels or (
        before.label_names is not None and after.label_names is not None and before.label_names != after.label_names
    ):
        raise InputError("MODEL and the one before know different labels: diagnose models of the same labels.")


def _diagnosed(model: Model, dataset: Dataset, k: int, tail: float | None) -> Diagnosis:
    import numpy as np

    from longtail.app.cli.evaluate import ranked
    from longtail.tail import Diagnosis, label_norms

    Y, n_new = model.aligned_labels(dataset)
    counts = np.pad(model.label_counts, (0, n_new))
    return Diagnosis.of(ranked(model, dataset, capped(k, model), tail), Y, counts, label_norms(model.learner))


def _scores(model: Model, dataset: Dataset, k: int, tail: float | None) -> dict[str, dict[str, float]]:
    """P and PSP of the model and of the two forms of it with classifiers of the same length."""
    from dataclasses import replace

    from longtail.tail import normalised

    made = {
        "as it is": model,
        "normalised": replace(model, learner=normalised(model.learner), calibration=None),
        "bias kept": replace(model, learner=normalised(model.learner, bias="kept"), calibration=None),
    }
    ks = tuple(dict.fromkeys((1, k)))
    wanted = [f"{metric}@{place}" for metric in _METRICS for place in ks]
    scores = {name: one.evaluate(dataset, ks=ks, tail=tail) for name, one in made.items()}
    return {name: {metric: of[metric] for metric in wanted} for name, of in scores.items()}


def _rounded(scores: dict[str, dict[str, float]]) -> dict[str, Any]:
    if not scores:
        return {}
    return {"scores": {name: {metric: round(value, 4) for metric, value in of.items()} for name, of in scores.items()}}


def _give_shares(found: dict[str, Diagnosis], names: dict[str, str], title: str) -> None:
    from longtail.tail.diagnosis import written_counts, written_shares

    several = len(found) > 1
    columns = ["", "labels", "training rows", "true"]
    for name in found:
        columns += [f"{names[name]}: predicted" if several else "predicted", "ratio"]
    rows = []
    for shares in zip(*((*one.parts, *one.deciles) for one in found.values()), strict=True):
        last = shares[-1]
        cells = [last.name, f"{last.n_labels:,}", written_counts(last), written_shares(last)[0]]
        for share in shares:
            cells += written_shares(share)[1:]
        rows.append(cells)
    give_table(f"{title}, shares in percent", columns, rows)


def _give_correlations(found: dict[str, Diagnosis], names: dict[str, str]) -> None:
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
        give("\nThe model has no classifiers of labels whose lengths could be looked at.")
        return
    columns = ["", "rank correlation", "at equal frequency", "of logarithms", "exponent", "labels"]
    give_table("\nLengths of the labels' classifiers", columns, rows)


def _give_scores(scores: dict[str, dict[str, float]], k: int) -> None:
    metrics = list(next(iter(scores.values())))
    rows = [[name, *(f"{of[metric]:.2f}" for metric in metrics)] for name, of in scores.items()]
    give_table("\nScores with all classifiers made equally long, percent", ["", *metrics], rows)

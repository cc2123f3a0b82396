"""`longtail blend`: several models as one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from longtail.app.cli.console import give, give_json, guarded, note, step
from longtail.errors import InputError, ParameterError

if TYPE_CHECKING:
    from longtail.store import Model

_TOO_GOOD = 99.0  # for rows that a model hasn't seen
_METRICS = ("P@1", "P@5", "nDCG@5", "PSP@1", "PSP@5")


@guarded
def blend(
    models: Annotated[
        list[Path], typer.Argument(metavar="MODEL...", help="Directories of two models or more.", show_default=False)
    ],
    on: Annotated[
        str,
        typer.Option(
            "--on",
            metavar="DEV",
            help="Rows that no model was trained on, with labels: a file or a name.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="MODEL", help="Directory for the blend.", show_default=False)],
    weights: Annotated[
        str | None,
        typer.Option(metavar="W,W...", help="Weights of the models; those with the best nDCG@5 on DEV when left out."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Give the figures as one JSON object.")] = False,
) -> None:
    """Blend models: their scores as log-odds, weighted and added up. The blend is a model like any other.

    What is printed is measured on DEV, on which the weights were found: judge the blend on other rows.
    """
    if len(models) < 2:
        raise ParameterError("MODEL", str(models[0]), "must be two models at least")
    places = [path.resolve() for path in models]
    if len(set(places)) < len(places):
        raise ParameterError("MODEL", str(models[0]), "must be different models: one is given twice")
    if out.resolve() in places:
        raise ParameterError("--out", str(out), "must be another directory than those of the models")
    given = None if weights is None else _numbers(weights, len(models))
    with step("blending", outcome="No model was written."):
        from longtail.corpus import load
        from longtail.engine.progress import show_progress
        from longtail.learners import Blend
        from longtail.store import Model
        from longtail.store.manifest import check_target

        check_target(out)
        loaded = [Model.load(path, verify=True) for path in models]
        _check_alike(models, loaded)
        first = loaded[0]
        names = [model.recipe or path.name for model, path in zip(loaded, models, strict=True)]
        if len(set(names)) < len(names):
            names = [path.name for path in models]
        with show_progress():
            with step(f"reading {on}"):
                dataset = load(on, label_names=first.label_names)
            if any(dataset.name is not None and model.training.get("data") == dataset.name for model in loaded):
                note(f"A model was trained on {dataset.name}: give rows that none has seen, or it gets all the weight.")
            Y, n_new = first.aligned_labels(dataset)
            if n_new:
                note(f"{n_new:,} labels of {on} are in no model.")
            learner = Blend(names=names, weights=given)
            learner.join([model.learner for model in loaded], first.rows(dataset), Y[:, : first.n_labels])
            blended = Model(
                learner,
                label_names=first.label_names,
                propensity=first.propensity,
                recipe="blend",
                training={"models": names, "data": dataset.name or on},
            )
            scores = [model.evaluate(dataset) for model in (*loaded, blended)]
        with step("saving the model"):
            blended.save(out)
    rows = [
        {"name": name, "weight": weight, **{metric: round(found[metric], 2) for metric in _METRICS}}
        for name, weight, found in zip([*names, "blend"], [*learner.weights_.tolist(), None], scores, strict=True)
    ]
    if as_json:
        give_json({"rows": dataset.n_rows, "models": rows[:-1], "blend": {m: rows[-1][m] for m in _METRICS}})
        note(f"Saved to {out}.")
        return
    wide = max(len(name) for name in (*names, "blend"))
    give(f"{'':{wide}}  weight  " + "  ".join(f"{metric:>6}" for metric in _METRICS))
    for row in rows:
        weight = "" if row["weight"] is None else f"{row['weight']:.3f}"
        give(f"{row['name']:{wide}}  {weight:>6}  " + "  ".join(f"{row[metric]:6.2f}" for metric in _METRICS))
    seen = next((row for row in rows[:-1] if row["nDCG@5"] >= _TOO_GOOD), None)
    if seen is not None:
        note(f"{seen['name']} has an nDCG@5 of {seen['nDCG@5']:.2f} on {on}: was it trained on these rows?")
    source = ", where the weights come from: judge it on other rows" if weights is None else ""
    give(f"Saved to {out}. Measured on {on}{source}.")


def _numbers(text: str, n: int) -> list[float]:
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if len(found) != n or min(found) < 0 or not 0 < sum(found) < float("inf"):
        raise ParameterError("--weights", text, f"must be {n} numbers of at least 0, parted by commas, not all 0")
    return found


def _check_alike(paths: list[Path], models: list[Model]) -> None:
    """Refuse models whose labels, or whose kind of rows, are not the same."""
    first = models[0]
    for path, model in zip(paths[1:], models[1:], strict=True):
        if model.n_labels != first.n_labels or model.label_names != first.label_names:
            raise InputError(f"has other labels than {paths[0]}: blend models of the same training data.", path=path)
        if model.takes_texts != first.takes_texts:
            kinds = ["texts" if one.takes_texts else "features" for one in (model, first)]
            raise InputError(f"takes {kinds[0]}, and {paths[0]} takes {kinds[1]}.", path=path)

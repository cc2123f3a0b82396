"""`longtail blend`: several models as one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.cli.arguments import parse_numbers
from longtail.cli.console import guarded, note, output, output_json, step
from longtail.cli.loading import models_and_rows, note_trained_on
from longtail.cli.options import FORMATS, AsJson, NewModel
from longtail.errors import InputError, ParameterError

if TYPE_CHECKING:
    from longtail.data import Dataset
    from longtail.store import Model

_TOO_GOOD = 99.0  # nDCG@5 of a model on rows that it wasn't trained on
_METRICS = ("P@1", "P@5", "nDCG@5", "PSP@1", "PSP@5")


@guarded
def blend(
    models: Annotated[
        list[Path], typer.Argument(metavar="MODEL", help="Directories of two or more models.", show_default=False)
    ],
    on: Annotated[
        str,
        typer.Option(
            "--on", metavar="DEV", help=f"Labelled rows that no model was trained on: {FORMATS}.", show_default=False
        ),
    ],
    out: NewModel,
    weights: Annotated[
        str | None,
        typer.Option(metavar="W,W...", help="Weights of the models; by default those with the best nDCG@5 on DEV."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Blend models: a weighted sum of their log-odds. The blend is a model like any other.

    The metrics printed are those on DEV, on which the weights were chosen: evaluate the blend on other rows.
    """
    given = _check_arguments(models, out, weights)
    with step("blending", outcome="No model was written."):
        from longtail.store.manifest import check_target

        check_target(out)
        named, dataset = models_and_rows(models, on, "blend models of the same training data", verify=True)
        _check_kinds(named)
        blended = _blended(named, given, dataset, on)
        scores = [model.evaluate(dataset) for model in (*named.values(), blended)]
        with step("saving the model"):
            blended.save(out)
    names = blended.training["models"]
    learner: Any = blended.learner
    rows = [
        {"name": name, "weight": weight, **{metric: round(found[metric], 2) for metric in _METRICS}}
        for name, weight, found in zip([*names, "blend"], [*learner.weights_.tolist(), None], scores, strict=True)
    ]
    if as_json:
        output_json({"rows": dataset.n_rows, "models": rows[:-1], "blend": {m: rows[-1][m] for m in _METRICS}})
        note(f"Saved to {out}.")
        return
    width = max(len(row["name"]) for row in rows)
    output(f"{'':{width}}  weight  " + "  ".join(f"{metric:>6}" for metric in _METRICS))
    for row in rows:
        weight = "" if row["weight"] is None else f"{row['weight']:.3f}"
        output(f"{row['name']:{width}}  {weight:>6}  " + "  ".join(f"{row[metric]:6.2f}" for metric in _METRICS))
    seen = next((row for row in rows[:-1] if row["nDCG@5"] >= _TOO_GOOD), None)
    if seen is not None:
        note(f"{seen['name']} has an nDCG@5 of {seen['nDCG@5']:.2f} on {on}: was it trained on these rows?")
    source = ", on which the weights were chosen: evaluate the blend on other rows" if weights is None else ""
    output(f"Saved to {out}. Metrics on {on}{source}.")


def _check_arguments(models: list[Path], out: Path, weights: str | None) -> list[float] | None:
    """Refuse models or weights that can't be blended; return the weights."""
    if len(models) < 2:
        raise ParameterError("MODEL", str(models[0]), "must be at least two models")
    resolved = [path.resolve() for path in models]
    if out.resolve() in resolved:
        raise ParameterError("--out", str(out), "must be another directory than those of the models")
    if weights is None:
        return None
    found = parse_numbers(weights, float)
    if len(found) != len(models) or min(found) < 0 or not 0 < sum(found) < float("inf"):
        requirement = f"must be {len(models)} numbers of at least 0, separated by commas, not all 0"
        raise ParameterError("--weights", weights, requirement)
    return found


def _blended(named: dict[str, Model], weights: list[float] | None, dataset: Dataset, source: str) -> Model:
    from longtail.learners import Blend
    from longtail.store import Model

    models = list(named.values())
    first = models[0]
    names = [model.recipe or name for name, model in named.items()]
    if len(set(names)) < len(names):
        names = list(named)
    note_trained_on(models, dataset, "it gets all the weight")
    if dataset.n_labels > first.n_labels:
        note(f"{dataset.n_labels - first.n_labels:,} labels of {source} are in no model.")
    learners, X, y = [model.learner for model in models], first.rows(dataset), dataset.Y[:, : first.n_labels]
    learner = Blend.from_fitted(learners, X, y, names=names, weights=weights)
    return Model(
        learner,
        label_names=first.label_names,
        propensity=first.propensity,
        recipe="blend",
        training={"models": names, "data": dataset.name or source},
    )


def _check_kinds(models: dict[str, Model]) -> None:
    """Refuse models with different kinds of rows."""
    (first, base), *others = models.items()
    for name, model in others:
        if model.takes_texts != base.takes_texts:
            kinds = ["texts" if one.takes_texts else "features" for one in (model, base)]
            raise InputError(f"{name} takes {kinds[0]}, and {first} takes {kinds[1]}: blend models of the same data.")

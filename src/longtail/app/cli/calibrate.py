"""`longtail calibrate`: probabilities from held-out rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from longtail.app.cli.console import give, give_json, guarded, note, step
from longtail.errors import InputError, ParameterError

if TYPE_CHECKING:
    from longtail.corpus import Dataset
    from longtail.learners.calibration import Bins, Method
    from longtail.store import Model


@guarded
def calibrate(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Directory of the model.", show_default=False)],
    held_out: Annotated[
        str,
        typer.Argument(
            metavar="HELD-OUT",
            help="Rows that the model wasn't trained on, with labels: a file or a data set's name.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="MODEL", help="Where the calibrated model goes; it replaces MODEL by default."),
    ] = None,
    method: Annotated[str, typer.Option(help="isotonic, or platt for few rows.")] = "isotonic",
    bins: Annotated[
        str, typer.Option(help="Maps of their own for labels by frequency: head-torso-tail, deciles or none.")
    ] = "head-torso-tail",
    k: Annotated[int, typer.Option("-k", min=1, help="Labels a row to learn from.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Give the figures as one JSON object.")] = False,
) -> None:
    """Learn from held-out rows how often a score is right, so that predictions come with probabilities.

    Afterwards longtail predict --probabilities gives them. They are probabilities that the label is recorded.
    """
    if method not in ("isotonic", "platt"):
        raise ParameterError("--method", method, "must be isotonic or platt")
    if bins not in ("head-torso-tail", "deciles", "none"):
        raise ParameterError("--bins", bins, "must be head-torso-tail, deciles or none")
    how, maps = cast("Method", method), None if bins == "none" else cast("Bins", bins)
    target = out or model
    with step("calibrating", outcome="No model was written."):
        from longtail.corpus import load
        from longtail.engine.progress import show_progress
        from longtail.store import Model
        from longtail.store.manifest import check_target

        check_target(target)
        loaded = Model.load(model, verify=True)
        with show_progress():
            with step(f"reading {held_out}"):
                dataset = load(held_out, label_names=loaded.label_names)
            if dataset.name is not None and loaded.training.get("data") == dataset.name:
                note(f"The model was trained on {dataset.name}: give rows that it hasn't seen, or it will be too sure.")
            loaded.calibrate(dataset, method=how, bins=maps, k=k)
            error = _error_on_other_half(loaded, dataset, how, maps, k)
        with step("saving the model"):
            loaded.save(target)
    places = (1, min(k, 5))
    if as_json:
        rounded = [None if error is None else round(value, 4) for value in error or places]
        give_json({"rows": dataset.n_rows, **{f"ECE@{at}": value for at, value in zip(places, rounded, strict=True)}})
        note(f"Saved to {target}.")
        return
    measured = "They are too few to measure the calibration error on a half of them."
    if error is not None:
        measured = (
            "Expected calibration error, learned on one half of them and measured on the other: "
            + ", ".join(f"{value:.2f} % at {place}" for place, value in zip(places, error, strict=True))
            + "."
        )
    give(f"Calibrated {model} on {dataset.n_rows:,} rows. {measured}\nSaved to {target}.")


def _error_on_other_half(
    model: Model, dataset: Dataset, method: Method, bins: Bins | None, k: int
) -> tuple[float, float] | None:
    """Calibrate a copy on one half of the rows and measure it on the other; None where a half is too small."""
    import copy

    from longtail.corpus import random_split
    from longtail.metrics import calibration_error

    trial = copy.copy(model)
    first, second = random_split(dataset, test_share=0.5, seed=0)
    try:
        trial.calibrate(first, method=method, bins=bins, k=k)
    except InputError:
        return None
    top = trial.predict_topk(second, min(k, 5), probabilities=True)
    Y, _ = trial.aligned_labels(second)
    return calibration_error(top, Y, 1), calibration_error(top, Y, min(k, 5))

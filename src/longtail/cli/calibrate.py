"""`longtail calibrate`: probabilities from held-out rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from longtail.cli.console import guarded, note, output, output_json, step
from longtail.cli.loading import model_and_rows, note_trained_on
from longtail.cli.options import AsJson, ModelPath, TargetModel, k_option, rows_argument
from longtail.errors import InputError, counted
from longtail.validation import LARGEST_INT

if TYPE_CHECKING:
    from longtail.data import Dataset
    from longtail.learners.calibration import Method
    from longtail.metrics.frequency import NamedBins
    from longtail.store import Model


@guarded
def calibrate(
    model: ModelPath,
    held_out: Annotated[str, rows_argument("HELD-OUT", "Labelled rows that the model wasn't trained on")],
    out: TargetModel = None,
    method: Annotated[Literal["isotonic", "platt"], typer.Option(help="Calibration; platt for few rows.")] = "isotonic",
    bins: Annotated[
        Literal["head-torso-tail", "deciles", "none"],
        typer.Option(help="Bins of labels by frequency, calibrated separately."),
    ] = "head-torso-tail",
    k: Annotated[int, k_option("Predicted labels per row to fit on", most=LARGEST_INT)] = 20,
    as_json: AsJson = False,
) -> None:
    """Calibrate a model on held-out rows, so that its predictions come with probabilities.

    Afterwards, longtail predict --probabilities prints them. They are probabilities that a label is recorded.
    """
    target, maps = out or model, None if bins == "none" else bins
    with step("calibrating", outcome="No model was written."):
        from longtail.store.manifest import check_target

        check_target(target)
        loaded, dataset = model_and_rows(model, held_out, verify=True)
        note_trained_on([loaded], dataset, "its probabilities will be too high")
        loaded.calibrate(dataset, method=method, bins=maps, k=k)
        error = _error_on_other_half(loaded, dataset, method, maps, k)
        with step("saving the model"):
            loaded.save(target)
    ks = (1, min(k, 5))
    if as_json:
        rounded = [None if error is None else round(value, 4) for value in error or ks]
        output_json({"rows": dataset.n_rows, **{f"ECE@{at}": value for at, value in zip(ks, rounded, strict=True)}})
        note(f"Saved to {target}.")
        return
    measured = "They are too few to measure the calibration error on one half of them."
    if error is not None:
        values = ", ".join(f"{value:.2f} % at {at}" for at, value in zip(ks, error, strict=True))
        measured = f"Expected calibration error, fitted on one half of them and measured on the other: {values}."
    output(f"Calibrated {model} on {counted(dataset.n_rows, 'row')}. {measured}\nSaved to {target}.")


def _error_on_other_half(
    model: Model, dataset: Dataset, method: Method, bins: NamedBins | None, k: int
) -> tuple[float, float] | None:
    """Calibrate a copy on one half of the rows and evaluate it on the other; None where a half is too small."""
    import copy

    from longtail.data import random_split
    from longtail.metrics import calibration_error

    trial = copy.copy(model)
    first, second = random_split(dataset, test_size=0.5, random_state=0)
    try:
        trial.calibrate(first, method=method, bins=bins, k=k)
    except InputError:
        return None
    top = trial.predict_topk(second, min(k, 5), probabilities=True)
    Y, _, _ = trial.truth(second)
    return calibration_error(top, Y, 1), calibration_error(top, Y, min(k, 5))

"""`longtail update`: incremental training of a model on new rows."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.cli.console import errors_of, guarded, note, output, output_json, run_settings, step
from longtail.cli.options import AsJson, ModelPath, TargetModel, Threads, rows_argument
from longtail.errors import InputError, counted

if TYPE_CHECKING:
    from longtail.data import Dataset
    from longtail.store import Model


@guarded
def update(
    model: ModelPath,
    rows: Annotated[str, rows_argument("ROWS", "New or corrected rows with labels")],
    train: Annotated[
        str | None,
        typer.Option(
            "--train",
            metavar="OLD",
            help="The rows that the model was trained on. With them, new labels, and those that change much, are "
            "trained on all rows, and new rows replace old ones with the same id or text.",
        ),
    ] = None,
    out: TargetModel = None,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Update a model with new or corrected rows, and their new labels, without training from scratch."""
    target = out or model
    with step("updating", outcome="No model was written."):
        from longtail.store import Model
        from longtail.store.manifest import check_target

        check_target(target)
        loaded = Model.load(model, verify=True)
        dataset = _rows_for(loaded, rows)
        if not dataset.Y.nnz and dataset.rejected is None:
            raise InputError("has no labels: there is nothing to learn.", path=rows)
        earlier = None if train is None else _rows_for(loaded, train, repeated_ids=True)
        if earlier is not None and earlier.n_rows != loaded.n_rows:
            note(
                f"The model was trained on {loaded.n_rows:,} rows, and {train} has {earlier.n_rows:,}: these are used "
                "as all earlier rows."
            )
        start = time.perf_counter()
        with errors_of(model), run_settings(threads=threads):
            loaded.update(dataset, train=earlier)
        seconds = round(time.perf_counter() - start, 3)
        with step("saving the model"):
            loaded.save(target)
    done = loaded.training["updates"][-1]
    unknown = done["unknown_rejections"]
    if unknown:
        more = f" and {len(unknown) - 3:,} more" if len(unknown) > 3 else ""
        names = ", ".join(map(repr, unknown[:3]))
        note(f"Rejected labels that the model doesn't have, which changes nothing: {names}{more}.")
    if as_json:
        output_json({"seconds": seconds, **done, "all_rows": loaded.n_rows, "all_labels": loaded.n_labels})
        note(f"Saved to {target}.")
    else:
        _output(loaded, done, seconds, target)


def _output(model: Model, done: dict[str, Any], seconds: float, target: Path) -> None:
    replaced = f", {done['replaced']:,} of them in place of earlier ones" if done["replaced"] else ""
    new = f" {counted(done['new_labels'], 'new label')}." if done["new_labels"] else ""
    if done["forgotten_labels"]:
        new += f" {counted(done['forgotten_labels'], 'label')} without a row removed."
    output(
        f"Learned from {counted(done['rows'], 'row')}{replaced} in {seconds:,.1f} s.{new}\n"
        f"Saved to {target}: {counted(model.n_rows, 'row')} and {counted(model.n_labels, 'label')}, "
        f"update {len(model.training['updates'])}."
    )


def _rows_for(model: Model, rows: str, repeated_ids: bool = False) -> Dataset:
    """Read rows for a model, which matches their labels by name where both have names."""
    from longtail.data import load

    with step(f"reading {rows}"):
        dataset = load(rows, corrections=True, repeated_ids=repeated_ids)
    with errors_of(rows):
        model.rows(dataset)
    return dataset

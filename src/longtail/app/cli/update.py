"""`longtail update`: a model learns from rows that came later."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from longtail.app.cli.console import give, give_json, guarded, note, step
from longtail.errors import InputError

if TYPE_CHECKING:
    from longtail.corpus import Dataset
    from longtail.store import Model


@guarded
def update(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Directory of the model.", show_default=False)],
    rows: Annotated[
        str,
        typer.Argument(
            metavar="ROWS",
            help="New or corrected rows with their labels: a file in XC text, JSONL or .npz format, or a data set.",
            show_default=False,
        ),
    ],
    train: Annotated[
        str | None,
        typer.Option(
            "--train",
            metavar="OLD",
            help="The rows that the model was trained on: new labels, and those that change much, are then trained on "
            "all rows, and new rows with the id or the text of an old one replace it.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="MODEL2", help="Where the updated model goes; it replaces MODEL by default."),
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads to use; all cores by default.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Give the figures as one JSON object.")] = False,
) -> None:
    """Let a model learn from new or corrected rows, and the labels that they bring, without starting over."""
    target = out or model
    with step("updating", outcome="No model was written."):
        from longtail.app.cli.train import without_threads
        from longtail.engine.progress import show_progress
        from longtail.learners.base import nested
        from longtail.store import Model
        from longtail.store.manifest import check_target

        check_target(target)
        loaded = Model.load(model, verify=True)
        with show_progress():
            with step(f"reading {rows}"):
                dataset = _rows_for(loaded, rows)
            if not dataset.Y.nnz and dataset.rejected is None:
                raise InputError("has no labels: there is nothing to learn.", path=rows)
            earlier = None
            if train is not None:
                with step(f"reading {train}"):
                    earlier = _rows_for(loaded, train, repeated_ids=True)
                if earlier.n_rows != loaded.n_rows:
                    note(
                        f"The model has learned from {loaded.n_rows:,} rows, and {train} has {earlier.n_rows:,}: it is "
                        "taken for all that came before."
                    )
            for path, part in nested(loaded.learner):
                if hasattr(part, "threads"):
                    loaded.learner.set_params(**{f"{path}threads": threads})
            start = time.perf_counter()
            try:
                loaded.update(dataset, train=earlier)
            except InputError as error:
                raise InputError(error.reason, path=error.path or model) from None
        seconds = round(time.perf_counter() - start, 3)
        with step("saving the model"):
            without_threads(loaded.learner)
            loaded.save(target)
    done = loaded.training["updates"][-1]
    unheard = done["unknown_rejections"]
    if unheard:
        more = f" and {len(unheard) - 3:,} more" if len(unheard) > 3 else ""
        names = ", ".join(map(repr, unheard[:3]))
        note(f"Rejected, but no label of the model: {names}{more}. Such names change nothing.")
    if as_json:
        give_json({"seconds": seconds, **done, "all_rows": loaded.n_rows, "all_labels": loaded.n_labels})
        note(f"Saved to {target}.")
        return
    replaced = f", {done['replaced']:,} of them in place of earlier ones" if done["replaced"] else ""
    learned = f"{done['rows']:,} row{'s' * (done['rows'] != 1)}"
    new = f" {done['new_labels']:,} new label{'s' * (done['new_labels'] > 1)}." if done["new_labels"] else ""
    if done["forgotten_labels"]:
        new += f" {done['forgotten_labels']:,} label{'s' * (done['forgotten_labels'] > 1)} without a row forgotten."
    times = len(loaded.training["updates"])
    give(
        f"Learned from {learned}{replaced} in {seconds:,.1f} s.{new}\n"
        f"Saved to {target}: {loaded.n_rows:,} rows and {loaded.n_labels:,} labels, update {times}."
    )


def _rows_for(model: Model, rows: str, repeated_ids: bool = False) -> Dataset:
    """Read rows for a model; that they are features and the model takes texts, or the other way, is said first."""
    from longtail.corpus import load

    try:
        return load(rows, label_names=model.label_names, corrections=True, repeated_ids=repeated_ids)
    except InputError as error:
        try:
            found = load(rows, corrections=True, repeated_ids=repeated_ids)
        except InputError:
            raise error from None
        try:
            model.rows(found)
        except InputError as other:
            raise InputError(other.reason, path=rows) from None
        raise

"""`longtail report`: models side by side on the same test rows, as a page to look at."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from longtail.app.cli.arguments import check_out_file
from longtail.app.cli.console import guarded, note, step
from longtail.errors import InputError, ParameterError

_ENDINGS = (".html", ".htm")


@guarded
def report(
    models: Annotated[
        list[Path],
        typer.Argument(
            metavar="MODEL", help="Directories of one to six models of the same labels.", show_default=False
        ),
    ],
    test: Annotated[
        str,
        typer.Argument(
            metavar="TEST",
            help="File in XC text, JSONL or .npz format, or a data set's name such as debian-depends:test.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="HTML file to write, such as report.html.", show_default=False)
    ],
    resamples: Annotated[int, typer.Option(min=2, help="Draws of the test rows behind each interval.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of these draws.")] = 0,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads for the intervals; all cores by default.")] = None,
) -> None:
    """Show models side by side on rows whose labels are known.

    Writes one HTML file with pictures and tables that needs no network and no other file: scores with intervals, \
results by label frequency, label frequencies and propensities, weights, calibration, training, and the documents and \
labels that went best and worst.
    """
    with step("making the report", outcome="Nothing was written."):
        from datetime import datetime

        from longtail.app.report import gather, load_models, shared_names, write
        from longtail.corpus import load
        from longtail.engine.progress import show_progress

        check_out_file(out)
        if out.suffix.lower() not in _ENDINGS:
            raise ParameterError("--out", str(out), f"must end in {' or '.join(_ENDINGS)}")
        if out.exists() and os.path.exists(test) and os.path.samefile(test, out):
            raise InputError("is both what to read and what to write: give another name.", path=out)
        loaded = load_models(models)
        with show_progress():
            with step(f"reading {test}", outcome="Nothing was written."):
                dataset = load(test, label_names=shared_names(loaded))
            results = gather(
                loaded,
                dataset,
                test="/".join(Path(test).parts[-2:]) if os.path.exists(test) else test,
                directories=dict(zip(loaded, models, strict=True)),
                resamples=resamples,
                seed=seed,
                threads=threads,
            )
        write(results, out, made=datetime.now())
    note(
        f"Wrote {out}: {len(loaded)} {'model' if len(loaded) == 1 else 'models'}, {dataset.n_rows:,} rows, "
        f"{out.stat().st_size / 1e6:,.1f} MB."
    )

"""`longtail report`: models side by side on the same test rows, as an HTML page."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from longtail.cli.arguments import check_not_input
from longtail.cli.console import guarded, note, run_settings, step
from longtail.cli.loading import rows_for
from longtail.cli.options import Resamples, Seed, TestRows, Threads
from longtail.errors import counted
from longtail.runtime.disk import check_out_file, shown_size


@guarded
def report(
    models: Annotated[
        list[Path],
        typer.Argument(
            metavar="MODEL", help="Directories of one to six models of the same labels.", show_default=False
        ),
    ],
    test: TestRows,
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="HTML file to write, such as report.html.", show_default=False)
    ],
    resamples: Resamples = 1000,
    seed: Seed = 0,
    threads: Threads = None,
) -> None:
    """Compare models on labelled rows in an HTML page.

    Writes one self-contained HTML file with plots and tables: metrics with intervals, results by label frequency, \
label frequencies and propensities, weights, calibration, training, and the documents and labels with the best and \
the worst predictions.
    """
    with step("making the report", outcome="Nothing was written."):
        from datetime import datetime

        from longtail.report import gather, load_models, write

        check_out_file(out, ".html", ".htm", name="--out")
        check_not_input(test, out)
        loaded = load_models(models)
        dataset = rows_for(loaded, test)
        with run_settings(threads=threads):
            results = gather(
                loaded,
                dataset,
                test="/".join(Path(test).parts[-2:]) if os.path.exists(test) else test,
                directories=dict(zip(loaded, models, strict=True)),
                resamples=resamples,
                random_state=seed,
            )
        write(results, out, made=datetime.now())
    note(
        f"Wrote {out}: {counted(len(loaded), 'model')}, {counted(dataset.n_rows, 'row')}, "
        f"{shown_size(out.stat().st_size)}."
    )

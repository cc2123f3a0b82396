"""`longtail evaluate`: how good a model is on rows whose labels are known."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from longtail.app.cli.arguments import parse_places
from longtail.app.cli.console import give_json, give_table, guarded, step


@guarded
def evaluate(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Directory of the model.", show_default=False)],
    test: Annotated[
        str,
        typer.Argument(
            metavar="TEST",
            help="File in XC text, JSONL or .npz format, or a data set's name such as debian-depends:test.",
            show_default=False,
        ),
    ],
    k: Annotated[str, typer.Option("-k", metavar="K,K...", help="Places at which to measure.")] = "1,3,5",
    as_json: Annotated[bool, typer.Option("--json", help="Give the scores as one JSON object.")] = False,
) -> None:
    """Measure a model on rows whose labels are known.

    All scores are in percent: precision P, nDCG, their propensity-scored forms PSP and PSnDCG, which count rare \
labels more, recall R, and C, the share of labels that are found at least once.
    """
    ks = parse_places(k)
    with step("evaluating"):
        from longtail.corpus import load
        from longtail.engine.progress import show_progress
        from longtail.store import Model

        loaded = Model.load(model)
        with show_progress():
            with step(f"reading {test}"):
                dataset = load(test, label_names=loaded.label_names)
            scores = loaded.evaluate(dataset, ks=ks)
    if as_json:
        give_json({name: round(value, 4) for name, value in scores.items()})
        return
    metrics = dict.fromkeys(name.partition("@")[0] for name in scores)
    rows = [[metric, *(f"{scores[f'{metric}@{place}']:.2f}" for place in ks)] for metric in metrics]
    give_table(f"{model} on {test}: {dataset.n_rows:,} rows, percent", ["", *(f"@{place}" for place in ks)], rows)

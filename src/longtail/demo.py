"""The demo: three recipes on bundled data, with a table, three example documents and an HTML report.

Run it with ``python -m longtail.demo``. Models are saved, so that a second run only predicts.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from longtail.data import Dataset
    from longtail.metrics import Scores
    from longtail.report import ModelResults
    from longtail.store import Model

DATA = "debian-depends"
RECIPES = ("dismec", "pw-dismec", "pw-cb-dismec")
KS = (1, 3, 5)
METRICS = ("P", "nDCG", "PSP", "PSnDCG")
DOCUMENTS = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Train or load the models, print the results and write the report; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m longtail.demo", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("demo"), help="directory of the results (default: demo)")
    parser.add_argument("--threads", type=int, help="number of threads (default: all cores)")
    options = parser.parse_args(arguments)

    from rich.console import Console

    from longtail import datasets
    from longtail.config import config_context
    from longtail.errors import Interrupted, LongtailError
    from longtail.report import gather, write
    from longtail.runtime.progress import show_progress

    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    try:
        with config_context(n_jobs=options.threads), show_progress():
            console.print(f"[bold]{DATA}[/]: predict the dependencies of a Debian package from its description.")
            train, test = datasets.load(DATA, "train"), datasets.load(DATA, "test")
            console.print(
                f"{train.n_rows:,} training and {test.n_rows:,} test descriptions, {train.n_labels:,} labels; "
                f"four in five labels have fewer than five training rows.\n"
            )
            options.out.mkdir(parents=True, exist_ok=True)
            models = {name: _model(name, train, options.out, console) for name in RECIPES}
            report = gather(models, test, directories={name: options.out / name for name in RECIPES})
        page = options.out / "report.html"
        write(report, page)
        results = {result.name: result for result in report.models}
        _print_table({name: result.scores for name, result in results.items()}, console)
        _print_documents(results["pw-cb-dismec"], train, test, console)
        console.print(f"\nThe models are in {options.out}/. Try: longtail evaluate {options.out}/dismec {DATA}:test")
        console.print(f"Plots and all results are in {page}: open it in a browser.", markup=False)
    except LongtailError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    except KeyboardInterrupt as error:
        sys.stderr.write(f"{error if isinstance(error, Interrupted) else 'Stopped.'}\n")
        return 130
    return 0


def _model(name: str, train: Dataset, out: Path, console: Console) -> Model:
    """Load the model of an earlier run, or train it."""
    import time

    from longtail.errors import ModelError
    from longtail.learners import TextLearner
    from longtail.propensity import preset
    from longtail.recipes import recipe
    from longtail.store import Model

    place = out / name
    if place.exists():
        try:
            model = Model.load(place)
            console.print(f"{name}: loaded from {place}")
            return model
        except ModelError as error:
            console.print(f"{name}: trained again, because the old model can't be read. {error}")
    propensity = preset(DATA)
    learner = TextLearner(learner=recipe(name, propensity=propensity))
    started = time.perf_counter()
    learner.fit(train.texts or [], train.Y)
    seconds = time.perf_counter() - started
    console.print(f"{name}: {train.n_labels:,} labels trained in {seconds:.1f} s")
    training = {
        "seconds": round(seconds, 3), "rows": train.n_rows, "features": learner.n_features_in_,
        "labels": train.n_labels, "data": train.name,
    }  # fmt: skip
    model = Model(learner, label_names=train.label_names, propensity=propensity, recipe=name, training=training)
    model.save(place)
    return model


def _print_table(scores: dict[str, Scores], console: Console) -> None:
    from rich.table import Table

    from longtail.metrics import relative_change

    table = Table(title="Metrics in percent, and the mean relative change from dismec (equation 30)", box=None)
    for column in ("", *scores):
        table.add_column(column, justify="right" if column else "left")
    for metric in METRICS:
        for k in KS:
            name = f"{metric}@{k}"
            table.add_row(name, *(f"{row[name]:.2f}" for row in scores.values()), end_section=k == KS[-1])
    changes = [relative_change(row, scores[RECIPES[0]]) for row in scores.values()]
    for group, title in (("vanilla", "change, P and nDCG"), ("PS", "change, PSP and PSnDCG")):
        table.add_row(title, *(f"{change[group]:+.1f} %" for change in changes))
    console.print(table)


def _print_documents(result: ModelResults, train: Dataset, test: Dataset, console: Console) -> None:
    """Print the first test documents with a rare recorded label that the model predicted."""
    counts, names, texts = train.label_counts, test.label_names or [], test.texts or []
    shown = 0
    console.print("\n[bold]Three test documents[/] (pw-cb-dismec; ✓ recorded, number of training rows in brackets)")
    for row in range(test.n_rows):
        recorded = test.Y.indices[test.Y.indptr[row] : test.Y.indptr[row + 1]]
        predicted = [label for label in result.top.labels[row, :5] if label >= 0]
        if not any(0 < counts[label] <= 10 for label in set(predicted) & set(recorded)):
            continue
        console.print("\n" + textwrap.shorten(texts[row], 230, placeholder=" ..."), style="italic", markup=False)
        marked = (f"{'✓ ' if label in recorded else '  '}{names[label]} ({counts[label]:,})" for label in predicted)
        console.print("  predicted: " + "  ".join(marked), markup=False)
        console.print("  recorded:  " + ", ".join(names[label] for label in recorded), markup=False)
        shown += 1
        if shown == DOCUMENTS:
            return


if __name__ == "__main__":
    sys.exit(main())

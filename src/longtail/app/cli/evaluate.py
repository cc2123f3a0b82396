"""`longtail evaluate`: how good a model is on rows whose labels are known."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.app.cli.arguments import load_labelled, parse_places, parse_position
from longtail.app.cli.clusters import OnCluster, on_cluster
from longtail.app.cli.console import give_json, give_table, guarded, step

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from longtail.corpus import Dataset
    from longtail.store import Model


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
    k: Annotated[
        list[str] | None, typer.Option("-k", metavar="K,K...", help="Places at which to measure; 1,3,5 by default.")
    ] = None,
    tail: Annotated[
        str | None,
        typer.Option(metavar="T", help="Turn the tail dial, from 0 to 1: the higher, the more rare labels come up."),
    ] = None,
    intervals: Annotated[
        bool, typer.Option("--intervals", help="Add 95 % intervals from 1,000 drawings of the test rows.")
    ] = False,
    cluster: OnCluster = None,
    as_json: Annotated[bool, typer.Option("--json", help="Give the scores as one JSON object.")] = False,
) -> None:
    """Measure a model on rows whose labels are known.

    All scores are in percent: precision P, nDCG, their propensity-scored forms PSP and PSnDCG, which count rare \
labels more, recall R, and C, the share of labels that are found at least once. Then PSR, the reciprocal rank MRR, the \
average discounted gain ADG, F1 of deciding for the first k labels, and the Hamming loss of that, where less is better.
    """
    ks = parse_places("1,3,5" if k is None else ",".join(k))
    with step("evaluating"), ExitStack() as scope:
        from longtail.engine.progress import show_progress
        from longtail.metrics import bootstrap
        from longtail.metrics.scores import shown
        from longtail.store import Model

        position = parse_position(tail)
        loaded = Model.load(model)
        ranges = {}
        scope.enter_context(on_cluster(cluster))
        with show_progress():
            with step(f"reading {test}"):
                dataset = load_labelled(test, loaded.label_names)
            if intervals:
                Y, inverse = loaded.truth_and_weights(dataset)
                found = bootstrap(ranked(loaded, dataset, max(ks), position), Y, inverse_propensity=inverse, ks=ks)
                scores = {name: interval.value for name, interval in found.items()}
                ranges = {name: (interval.low, interval.high) for name, interval in found.items()}
                if loaded.calibration is not None and position is None:
                    scores |= {
                        name: value
                        for name, value in loaded.evaluate(dataset, ks=ks, tail=position).items()
                        if name not in scores
                    }
            else:
                scores = dict(loaded.evaluate(dataset, ks=ks, tail=position))
    if as_json:
        values: dict[str, Any] = {name: rounded(name, value) for name, value in scores.items()}
        if intervals:
            values["intervals"] = {name: [rounded(name, end) for end in ends] for name, ends in ranges.items()}
        give_json(values)
        return
    rows = []
    for metric in dict.fromkeys(name.partition("@")[0] for name in scores):
        cells = [metric]
        for name in (f"{metric}@{place}" for place in ks):
            cells.append(shown(name, scores[name]))
            if intervals:
                cells += [shown(name, end) for end in ranges[name]] if name in ranges else ["", ""]
        rows.append(cells)
    columns = [title for place in ks for title in ([f"@{place}", "low", "high"] if intervals else [f"@{place}"])]
    kind = "percent, with 95 % intervals" if intervals else "percent"
    give_table(f"{model} on {test}: {dataset.n_rows:,} rows, {kind}", ["", *columns], rows)


def ranked(model: Model, dataset: Dataset, k: int, tail: float | None = None) -> npt.NDArray[np.int32]:
    """Label ids of the k best labels of each row."""
    import numpy as np

    return np.concatenate([np.empty((0, k), np.int32), *(top.labels for top in model.iter_topk(dataset, k, tail=tail))])


def rounded(name: str, value: float) -> float:
    """Round a percentage to four decimals; Hamming, which is tiny with many labels, to four digits.

    Examples
    --------
    >>> rounded("P@1", 66.66666), rounded("Hamming@1", 0.000123456)
    (66.6667, 0.0001235)
    """
    return float(f"{value:.4g}") if name.startswith("Hamming@") and abs(value) < 1 else round(value, 4)

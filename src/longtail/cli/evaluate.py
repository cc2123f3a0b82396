"""`longtail evaluate`: the metrics of a model on labelled rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.cli.arguments import parse_cutoffs
from longtail.cli.console import guarded, output_json, output_table, run_settings, step
from longtail.cli.loading import model_and_rows, ranked
from longtail.cli.options import AsJson, Cluster, Cutoffs, ModelPath, TailPosition, TestRows
from longtail.errors import counted

if TYPE_CHECKING:
    from longtail.data import Dataset
    from longtail.store import Model

Ranges = dict[str, tuple[float, float]]


@guarded
def evaluate(
    model: ModelPath,
    test: TestRows,
    k: Cutoffs = None,
    tail: TailPosition = None,
    intervals: Annotated[
        bool, typer.Option("--intervals", help="Add 95 % intervals from 1,000 bootstrap resamples of the test rows.")
    ] = False,
    cluster: Cluster = None,
    as_json: AsJson = False,
) -> None:
    """Evaluate a model on labelled rows.

    All metrics are in percent: precision P, nDCG, their propensity-scored forms PSP and PSnDCG, which give more \
weight to rare labels, recall R, coverage C (the share of labels found at least once), the propensity-scored recall \
PSR, the mean reciprocal rank MRR, the average discounted gain ADG, the F1 of predicting the first k labels, and its \
Hamming loss, where less is better.
    """
    ks = parse_cutoffs(k)
    with step("evaluating"), run_settings(cluster):
        loaded, dataset = model_and_rows(model, test)
        scores, ranges = _with_intervals(loaded, dataset, ks, tail) if intervals else ({}, {})
        if not intervals or (loaded.calibration is not None and tail is None):
            scores = {**loaded.evaluate(dataset, ks=ks, tail=tail), **scores}
    if as_json:
        values: dict[str, Any] = {name: rounded(name, value) for name, value in scores.items()}
        if intervals:
            values["intervals"] = {name: [rounded(name, end) for end in ends] for name, ends in ranges.items()}
        output_json(values)
        return
    kind = "percent, with 95 % intervals" if intervals else "percent"
    _output_scores(f"{model} on {test}: {counted(dataset.n_rows, 'row')}, {kind}", ks, scores, ranges)


def _with_intervals(
    model: Model, dataset: Dataset, ks: tuple[int, ...], tail: float | None
) -> tuple[dict[str, float], Ranges]:
    from longtail.metrics import bootstrap

    Y, _, inverse = model.truth(dataset)
    found = bootstrap(ranked(model, dataset, max(ks), tail), Y, inverse_propensity=inverse, ks=ks)
    scores = {name: interval.value for name, interval in found.items()}
    return scores, {name: (interval.low, interval.high) for name, interval in found.items()}


def _output_scores(title: str, ks: tuple[int, ...], scores: dict[str, float], ranges: Ranges) -> None:
    from longtail.metrics.scores import shown

    rows = []
    for metric in dict.fromkeys(name.partition("@")[0] for name in scores):
        cells = [metric]
        for name in (f"{metric}@{k}" for k in ks):
            cells.append(shown(name, scores[name]))
            if ranges:
                cells += [shown(name, end) for end in ranges[name]] if name in ranges else ["", ""]
        rows.append(cells)
    columns = [column for k in ks for column in ([f"@{k}", "low", "high"] if ranges else [f"@{k}"])]
    output_table(title, ["", *columns], rows)


def rounded(name: str, value: float) -> float:
    """Round a percentage to four decimals; Hamming, which is tiny with many labels, to four digits.

    Examples
    --------
    >>> rounded("P@1", 66.66666), rounded("Hamming@1", 0.000123456)
    (66.6667, 0.0001235)
    """
    return float(f"{value:.4g}") if name.startswith("Hamming@") and abs(value) < 1 else round(value, 4)

"""`longtail compare`: which of two models is better, and whether that could be chance."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from longtail.cli.arguments import parse_cutoffs, parse_names
from longtail.cli.console import guarded, note, output_json, output_table, step
from longtail.cli.loading import labelled_rows, ranked
from longtail.cli.options import AsJson, Cutoffs, Resamples, Seed, TestRows
from longtail.errors import InputError, ParameterError, counted, did_you_mean
from longtail.kernels.types import Float64, Int32

if TYPE_CHECKING:
    import scipy.sparse as sp

    from longtail.data import Dataset
    from longtail.metrics.comparison import Comparison
    from longtail.store import Model

_PERCENTAGES = ("a", "b", "difference", "low", "high")


@guarded
def compare(
    model_a: Annotated[Path, typer.Argument(metavar="MODEL_A", help="Directory of a model.", show_default=False)],
    model_b: Annotated[Path, typer.Argument(metavar="MODEL_B", help="Directory of another model.", show_default=False)],
    test: TestRows,
    k: Cutoffs = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="NAME@K,...", help="Metrics to compare, such as P@1,PSP@5: fewer metrics need less correction."
        ),
    ] = None,
    correction: Annotated[
        Literal["holm", "benjamini-hochberg", "none"],
        typer.Option(help="Correction of the p-values for multiple comparisons."),
    ] = "holm",
    resamples: Resamples = 1000,
    permutations: Annotated[int, typer.Option(min=1, help="Permutations for the p-values.")] = 10000,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Compare two models on the same test rows.

    For each metric: the value of both models, b - a with a 95 % interval, and the p-value of a paired permutation \
test: the probability of a difference at least as large if both models were equally good.
    """
    ks = parse_cutoffs(k)
    with step("comparing"):
        from longtail.metrics import compare as compare_rankings
        from longtail.store import Model

        chosen = None if metrics is None else _parse_metrics(metrics, ks)
        a, b = Model.load(model_a), Model.load(model_b)
        _check_labels(a, b)
        dataset = labelled_rows(test, a.labels, {str(model_a): a, str(model_b): b})
        new_ids, Y, inverse = _shared_ids(a, b, dataset)
        found = compare_rankings(
            ranked(a, dataset, max(ks)),
            new_ids[ranked(b, dataset, max(ks))],
            Y,
            inverse_propensity=inverse,
            ks=ks,
            resamples=resamples,
            permutations=permutations,
            correction=correction,
            random_state=seed,
            metrics=chosen,
        )
    if _differ_in_training(a, b):
        note(f"The models had different training rows or propensities: those of {model_a} are used.")
    if as_json:
        output_json(_as_json(found))
    else:
        rows = counted(found.n_rows, "row")
        title = f"a: {model_a}, b: {model_b}, on {test}: {rows}, percent, with 95 % intervals of b - a"
        _output_table(title, found)


def _as_json(found: Comparison) -> dict[str, Any]:
    from longtail.cli.evaluate import rounded

    return {
        "rows": found.n_rows,
        "level": found.level,
        "correction": found.correction,
        "permutations": found.permutations,
        "metrics": {
            name: {
                **{part: rounded(name, getattr(item, part)) for part in _PERCENTAGES},
                "p": round(item.p_value, 6),
                "adjusted_p": round(item.adjusted, 6),
            }
            for name, item in found.items()
        },
    }


def _output_table(title: str, found: Comparison) -> None:
    from longtail.metrics.scores import shown

    rows = []
    for name, item in found.items():
        percentages = [shown(name, getattr(item, part)) for part in _PERCENTAGES]
        rows.append([name, *percentages, f"{item.p_value:.4f}", f"{item.adjusted:.4f}"])
    output_table(title, ["", "a", "b", "b - a", "low", "high", "p", f"p, {found.correction}"], rows)


def _parse_metrics(text: str, ks: tuple[int, ...]) -> list[str]:
    from longtail.metrics.evaluation import METRICS

    names = parse_names(text)
    known = {f"{metric}@{k}" for metric in METRICS for k in ks}
    for name in names or [text]:
        if name not in known:
            metric, _, k = name.partition("@")
            if metric in METRICS and k.isdecimal():
                cutoffs = ",".join(map(str, sorted({*ks, int(k)})))
                raise ParameterError("--metrics", name, f"must be at cutoffs of -k: give -k {cutoffs}, too")
            hint = did_you_mean(name, sorted(known), key=str.lower)
            listed = f"one of {', '.join(METRICS)} at a cutoff of -k"
            raise ParameterError("--metrics", name, f"must be {listed}, such as P@{ks[0]}{hint}")
    return names


def _check_labels(a: Model, b: Model) -> None:
    if a.n_labels != b.n_labels and not (a.labels.is_unique and b.labels.is_unique):
        raise InputError(
            f"The models know {a.n_labels:,} and {b.n_labels:,} labels, and these have no names: "
            "compare models of the same labels."
        )
    if a.labels.is_unique and b.labels.is_unique and not set(a.label_names or ()) & set(b.label_names or ()):
        raise InputError("The models have no label in common: compare models that were trained on the same labels.")


def _shared_ids(a: Model, b: Model, dataset: Dataset) -> tuple[Int32, sp.csr_array, Float64]:
    """Return the ids of b's labels in a, with -1 for padding, and the true labels and weights by these ids."""
    import numpy as np

    from longtail.data.label_index import LabelIndex
    from longtail.data.sparse import with_columns

    Y, _, inverse = a.truth(dataset)
    if a.label_names == b.label_names or not (a.labels.is_unique and b.labels.is_unique):
        return np.append(np.arange(b.n_labels, dtype=np.int32), np.int32(-1)), Y, inverse
    shared = LabelIndex(a.labels.extended(dataset.label_names).names)
    new_ids = np.append(shared.extend(b.label_names or ()), np.int32(-1))
    only_b = np.ones(len(shared) - Y.shape[1])  # weights without effect: no row has these labels
    return new_ids, with_columns(Y, len(shared)), np.append(inverse, only_b)


def _differ_in_training(a: Model, b: Model) -> bool:
    """Return whether the models differ in training rows, label counts or propensities."""
    import numpy as np

    if a.n_rows != b.n_rows or not np.array_equal(a.label_counts, b.label_counts):
        return True
    return repr(a.propensity) != repr(b.propensity)

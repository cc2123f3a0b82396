"""`longtail compare`: which of two models is better, and whether that could be chance."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from longtail.app.cli.arguments import parse_places
from longtail.app.cli.console import give_json, give_table, guarded, note, step
from longtail.errors import InputError, ParameterError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from longtail.corpus import Dataset
    from longtail.metrics.comparison import Correction
    from longtail.store import Model

_PERCENTS = ("a", "b", "difference", "low", "high")
_CORRECTIONS = ("holm", "benjamini-hochberg", "none")


@guarded
def compare(
    model_a: Annotated[Path, typer.Argument(metavar="MODEL_A", help="Directory of a model.", show_default=False)],
    model_b: Annotated[Path, typer.Argument(metavar="MODEL_B", help="Directory of the other.", show_default=False)],
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
    metrics: Annotated[
        str | None,
        typer.Option(metavar="NAME@K,...", help="Compare these alone, such as P@1,PSP@5; fewer need less correction."),
    ] = None,
    correction: Annotated[
        str, typer.Option(help="For the number of metrics: holm, benjamini-hochberg or none.")
    ] = "holm",
    resamples: Annotated[int, typer.Option(min=1, help="Drawings of the test rows, for the intervals.")] = 1000,
    permutations: Annotated[int, typer.Option(min=1, help="Swaps of the models' rows, for the p-values.")] = 10000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of both.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Give the comparison as one JSON object.")] = False,
) -> None:
    """Compare two models on the same test rows.

    For every metric: the value of both, b - a with a 95 % interval, and p, the chance of a difference as large if it \
didn't matter which model a row's labels came from.
    """
    ks = parse_places("1,3,5" if k is None else ",".join(k))
    if correction not in _CORRECTIONS:
        raise ParameterError("--correction", correction, f"must be one of {', '.join(_CORRECTIONS)}")
    with step("comparing"):
        from longtail.app.cli.evaluate import ranked, rounded
        from longtail.corpus import load
        from longtail.engine.progress import show_progress
        from longtail.metrics import compare as compare_rankings
        from longtail.metrics.scores import shown
        from longtail.store import Model

        chosen = None if metrics is None else _parse_metrics(metrics, ks)
        a, b = Model.load(model_a), Model.load(model_b)
        _check_labels(a, b)
        with show_progress():
            with step(f"reading {test}"):
                dataset = load(test, label_names=a.label_names)
            Y, inverse = a.truth_and_weights(dataset)
            new_ids, Y, inverse = _shared_ids(a, b, dataset, Y, inverse)
            tops = [ranked(model, dataset, max(ks)) for model in (a, b)]
            found = compare_rankings(
                tops[0],
                new_ids[tops[1]],
                Y,
                inverse_propensity=inverse,
                ks=ks,
                resamples=resamples,
                permutations=permutations,
                correction=cast("Correction", correction),
                seed=seed,
                metrics=chosen,
            )
    if _differ_in_training(a, b):
        note(f"The models had different training rows or propensities: those of {model_a} are used.")
    if as_json:
        give_json(
            {
                "rows": found.n_rows,
                "level": found.level,
                "correction": found.correction,
                "permutations": found.permutations,
                "metrics": {
                    name: {
                        **{part: rounded(name, getattr(item, part)) for part in _PERCENTS},
                        "p": round(item.p_value, 6),
                        "adjusted_p": round(item.adjusted, 6),
                    }
                    for name, item in found.items()
                },
            }
        )
        return
    rows = []
    for name, item in found.items():
        percents = [shown(name, getattr(item, part)) for part in _PERCENTS]
        rows.append([name, *percents, f"{item.p_value:.4f}", f"{item.adjusted:.4f}"])
    give_table(
        f"a: {model_a}, b: {model_b}, on {test}: {found.n_rows:,} rows, percent, with 95 % intervals of b - a",
        ["", "a", "b", "b - a", "low", "high", "p", f"p, {correction}"],
        rows,
    )


def _parse_metrics(text: str, ks: tuple[int, ...]) -> list[str]:
    from longtail.metrics.evaluator import METRICS

    names = [part.strip() for part in text.split(",")]
    known = {f"{metric}@{place}" for metric in METRICS for place in ks}
    for name in names:
        if name not in known:
            raise ParameterError("--metrics", name, f"must be names such as P@{ks[0]}, at places that -k gives")
    return names


def _check_labels(a: Model, b: Model) -> None:
    if a.n_labels != b.n_labels and not _have_names(a, b):
        raise InputError(
            f"The models know {a.n_labels:,} and {b.n_labels:,} labels, and these have no names to tell them apart: "
            "compare models of the same labels."
        )


def _have_names(a: Model, b: Model) -> bool:
    """Whether every label of both models has a name of its own."""
    return all(model.label_names is not None and len(set(model.label_names)) == model.n_labels for model in (a, b))


def _shared_ids(
    a: Model, b: Model, dataset: Dataset, Y: Any, inverse: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.int32], Any, npt.NDArray[np.float64]]:
    """Give the ids of b's labels among a's, and one for padding; widen Y and the weights for labels b alone has."""
    import numpy as np
    import scipy.sparse as sp

    if a.label_names is None or b.label_names is None or a.label_names == b.label_names or not _have_names(a, b):
        return np.append(np.arange(b.n_labels, dtype=np.int32), np.int32(-1)), Y, inverse
    ids = {name: index for index, name in enumerate(a.label_names)}
    if Y.shape[1] > a.n_labels:
        for name in dataset.label_names or ():
            ids.setdefault(name, len(ids))
    new_ids = np.array([*(ids.setdefault(name, len(ids)) for name in b.label_names), -1], np.int32)
    wider = sp.csr_array((Y.data, Y.indices, Y.indptr), shape=(Y.shape[0], len(ids)))
    return new_ids, wider, np.append(inverse, np.ones(len(ids) - Y.shape[1]))  # true nowhere, so they weigh nothing


def _differ_in_training(a: Model, b: Model) -> bool:
    """Whether the models saw different numbers of rows, or of rows of any label, or have other propensities."""
    import numpy as np

    if a.n_rows != b.n_rows or not np.array_equal(a.label_counts, b.label_counts):
        return True
    return repr(a.propensity) != repr(b.propensity)

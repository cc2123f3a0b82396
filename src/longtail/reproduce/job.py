"""The process of one job: reads its description from standard input, trains, evaluates, and writes the result.

Run as ``python -m longtail.reproduce.job``.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone

from longtail.config import config_context
from longtail.data import Dataset
from longtail.errors import LongtailError
from longtail.kernels.types import Array
from longtail.learners import Learner
from longtail.metrics import bootstrap, evaluate
from longtail.recipes.compose import is_network, learner_and_rows, plan_of
from longtail.reproduce.jobs import FREQUENCIES, METRICS, RECALLS
from longtail.reproduce.sets import AvailableSet
from longtail.rerank import label_norms
from longtail.runtime.disk import directory_size
from longtail.runtime.memory import peak_memory
from longtail.store import Model
from longtail.studies.missing import MissingStudy, base_of

_WARM_ROWS = 64
_STUDIED = "nDCG@3"
_STUDY_SEEDS = 2
_JUDGED_ROWS = 5000  # training rows for the generalisation gap


def main() -> int:
    """Run one job."""
    order = json.loads(sys.stdin.read())
    task = _TASKS[order.get("task", "ranking")]
    data = AvailableSet(order["name"], order["train"], order["test"])
    try:
        with config_context(n_jobs=order["threads"]):
            figures, labels = task(order, data, *data.read())
    except LongtailError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    figures |= {"data": data.name, "recipe": order["recipe"], "settings": order["settings"]}
    out = Path(order["out"])
    np.save(out.with_suffix(".npy"), labels)
    out.with_suffix(".json").write_text(json.dumps(figures))
    return 0


def _made(order: dict[str, Any], data: AvailableSet, train: Dataset) -> tuple[Learner, Any]:
    """Return the unfitted recipe for the rows of a data set, and these rows as it takes them."""
    plan = plan_of(
        order["recipe"], order["settings"], data.propensity, random_state=order["seed"],
        label_names=train.label_names,
    )  # fmt: skip
    return learner_and_rows(plan, train)


def ranking(order: dict[str, Any], data: AvailableSet, train: Dataset, test: Dataset) -> tuple[dict[str, Any], Array]:
    """Return the metrics and costs of a recipe on a data set, and its five best labels of the test rows."""
    learner, rows = _made(order, data, train)
    if not is_network(order["recipe"]):  # kernels are compiled before the clock starts
        few = rows[:_WARM_ROWS]
        clone(learner).fit(few, train.Y[:_WARM_ROWS]).predict_topk(few, 5)
    start, cpu_start = time.perf_counter(), time.process_time()
    learner.fit(rows, train.Y)
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
    model = Model(learner, label_names=train.label_names, propensity=data.propensity)
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model")
        size = directory_size(Path(folder) / "model")
    truth, _, inverse = model.truth(test)
    start, predicted = time.perf_counter(), time.process_time()
    top = model.predict_topk(test, 5)
    predicting, predicted = time.perf_counter() - start, time.process_time() - predicted
    found = bootstrap(top, truth, inverse_propensity=inverse)
    figures: dict[str, Any] = {
        "rows": train.n_rows, "labels": train.n_labels, "train_seconds": seconds, "threads": order["threads"],
        "train_cpu_seconds": cpu_seconds, "predict_cpu_ms": 1e3 * predicted / max(test.n_rows, 1),
        "predict_ms": 1e3 * predicting / max(test.n_rows, 1), "peak_memory_mb": peak_memory() / 1e6,
        "model_mb": size / 1e6,
    }  # fmt: skip
    for metric in METRICS:
        if metric in found:
            figures[metric] = found[metric].value
            figures[f"half {metric}"] = (found[metric].high - found[metric].low) / 2
    some = train.take(np.arange(0, train.n_rows, -(-train.n_rows // _JUDGED_ROWS)))
    own = evaluate(model.predict_topk(some, 1), model.truth(some)[0], ks=(1,))["P@1"]
    epochs = _epochs(learner) if is_network(order["recipe"]) else 1
    figures |= {
        "train accuracy %": own, "test accuracy %": figures["P@1"], "generalization gap %": own - figures["P@1"],
        "train ms/sample": 1e3 * seconds / train.n_rows / epochs, "inference ms/sample": figures["predict_ms"],
        "model GB": figures["model_mb"] / 1e3, "norms": _norms(learner),
    }  # fmt: skip
    return figures, top.labels


def _epochs(learner: Learner) -> int:
    """Return the epochs of the network in a learner, which may be inside another one."""
    from longtail.learners import NeuralClassifier

    network = learner.find(NeuralClassifier)
    return 1 if network is None else int(network.epochs)


def _norms(learner: Any) -> list[float | None] | None:
    """Return mean norms of the classifiers by training rows of the labels; None where there are no classifiers."""
    norms = label_norms(learner)
    if norms is None:
        return None
    group = np.searchsorted(FREQUENCIES, learner.label_counts_, side="right") - 1
    chosen = [norms[(group == number) & np.isfinite(norms)] for number in range(len(FREQUENCIES))]
    return [float(one.mean()) if len(one) else None for one in chosen]


def recall(order: dict[str, Any], data: AvailableSet, train: Dataset, test: Dataset) -> tuple[dict[str, Any], Array]:
    """Return the recall of a recipe at many labels."""
    learner, rows = _made(order, data, train)
    model = Model(learner.fit(rows, train.Y), label_names=train.label_names)
    truth, _, _ = model.truth(test)
    cutoffs = [k for k in RECALLS if k <= train.n_labels]
    top = model.predict_topk(test, max(cutoffs, default=1))
    found = evaluate(top, truth, ks=cutoffs or (1,))
    return {f"R@{k}": found[f"R@{k}"] for k in cutoffs}, np.empty((0, 0), np.int32)


def missing(order: dict[str, Any], data: AvailableSet, train: Dataset, test: Dataset) -> tuple[dict[str, Any], Array]:
    """Return the scores of a recipe and its base with hidden labels, by the true propensities and by others."""
    recipe, base = order["recipe"], base_of(order["recipe"])
    study = MissingStudy(train, test, [recipe], seeds=_STUDY_SEEDS)
    outcomes = study.run()
    severities = sorted(study.severities, key=study.kept)

    def scored(name: str, severity: float, by: float | None) -> list[float | None]:
        own = next(o for o in outcomes if (o.recipe, o.severity, o.given) == (name, severity, by))
        return [own.scores[_STUDIED].value, own.scores[_STUDIED].half]

    right = {base: [scored(base, at, None) for at in severities], recipe: [scored(recipe, at, at) for at in severities]}
    given = {
        base: [scored(base, study.reference, None) for _ in severities],
        recipe: [scored(recipe, study.reference, at) for at in severities],
    }
    figures = {
        "left": [f"{100 * study.kept(at):.0f}" for at in severities], "metric": _STUDIED,
        "reference_left": 100 * study.kept(study.reference), "right": right, "given": given,
    }  # fmt: skip
    return figures, np.empty((0, 0), np.int32)


_TASKS: dict[str, Callable[[dict[str, Any], AvailableSet, Dataset, Dataset], tuple[dict[str, Any], Array]]] = {
    "ranking": ranking, "recall": recall, "missing": missing,
}  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())

"""The process of one job: reads what to do from standard input, trains, measures, and writes what came out.

Run as ``python -m longtail.app.reproduce.job``.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from longtail.app.plans import plan_of
from longtail.app.reproduce.jobs import FREQUENCIES, METRICS, RECALLS
from longtail.app.reproduce.sets import AtHand
from longtail.app.studies.missing import MissingStudy, base_of
from longtail.corpus import Dataset
from longtail.engine.memory import peak_memory
from longtail.errors import LongtailError
from longtail.metrics import bootstrap, evaluate
from longtail.store import Model
from longtail.tail import label_norms

Labels = np.ndarray[Any, Any]

_WARM_ROWS = 64
_STUDIED = "nDCG@3"
_STUDY_SEEDS = 2
_JUDGED_ROWS = 5000  # training rows by which the gap to the test rows is told


def main() -> int:
    """Do one job."""
    order = json.loads(sys.stdin.read())
    task = _TASKS[order.get("task", "ranking")]
    data = AtHand(order["name"], order["train"], order["test"])
    try:
        figures, labels = task(order, data, *data.read())
    except LongtailError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    figures |= {"data": data.name, "recipe": order["recipe"], "settings": order["settings"]}
    out = Path(order["out"])
    _written(out.with_suffix(".npy"), lambda path: np.save(path, labels))
    _written(out.with_suffix(".json"), lambda path: path.write_text(json.dumps(figures)))
    return 0


def _made(order: dict[str, Any], data: AtHand, train: Dataset) -> Any:
    """The recipe for the rows of a data set, unfitted."""
    plan = plan_of(
        order["recipe"], order["settings"], data.propensity, threads=order["threads"], seed=order["seed"],
        label_names=train.label_names,
    )  # fmt: skip
    return plan if train.X is None else plan.learner


def ranking(order: dict[str, Any], data: AtHand, train: Dataset, test: Dataset) -> tuple[dict[str, Any], Labels]:
    """All metrics of a recipe on a data set, what it takes, and its five best labels of the test rows."""
    rows: Any = train.texts if train.X is None else train.X
    learner = _made(order, data, train)
    is_network = train.X is None and getattr(learner.learner, "head_rate", None) is not None
    if not is_network:  # kernels are compiled before the clock starts
        few = rows[:_WARM_ROWS]
        _made(order, data, train).fit(few, train.Y[:_WARM_ROWS]).predict_topk(few, 5)
    start, worked = time.perf_counter(), time.process_time()
    learner.fit(rows, train.Y)
    seconds, worked = time.perf_counter() - start, time.process_time() - worked
    model = Model(learner, label_names=train.label_names, propensity=data.propensity)
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model")
        size = sum(file.stat().st_size for file in (Path(folder) / "model").iterdir())
    truth, inverse = model.truth_and_weights(test)
    start, predicted = time.perf_counter(), time.process_time()
    top = model.predict_topk(test, 5)
    predicting, predicted = time.perf_counter() - start, time.process_time() - predicted
    found = bootstrap(top, truth, inverse_propensity=inverse)
    figures: dict[str, Any] = {
        "rows": train.n_rows, "labels": train.n_labels, "train_seconds": seconds, "threads": order["threads"],
        "train_cpu_seconds": worked, "predict_cpu_ms": 1e3 * predicted / max(test.n_rows, 1),
        "predict_ms": 1e3 * predicting / max(test.n_rows, 1), "peak_memory_mb": peak_memory() / 1e6,
        "model_mb": size / 1e6,
    }  # fmt: skip
    for metric in METRICS:
        if metric in found:
            figures[metric] = found[metric].value
            figures[f"half {metric}"] = (found[metric].high - found[metric].low) / 2
    some = train.take(np.arange(0, train.n_rows, -(-train.n_rows // _JUDGED_ROWS)))
    own = evaluate(model.predict_topk(some, 1), model.truth_and_weights(some)[0], ks=(1,))["P@1"]
    passes = int(getattr(learner.learner, "passes", 1)) if is_network else 1
    figures |= {
        "train accuracy %": own, "test accuracy %": figures["P@1"], "generalization gap %": own - figures["P@1"],
        "train ms/sample": 1e3 * seconds / train.n_rows / passes, "inference ms/sample": figures["predict_ms"],
        "model GB": figures["model_mb"] / 1e3, "norms": _norms(learner),
    }  # fmt: skip
    return figures, top.labels


def _norms(learner: Any) -> list[float | None] | None:
    """Mean length of the classifiers of labels, by their training rows; None where there are no classifiers."""
    norms = label_norms(learner)
    if norms is None:
        return None
    group = np.searchsorted(FREQUENCIES, learner.label_counts_, side="right") - 1
    chosen = [norms[(group == number) & np.isfinite(norms)] for number in range(len(FREQUENCIES))]
    return [float(one.mean()) if len(one) else None for one in chosen]


def recall(order: dict[str, Any], data: AtHand, train: Dataset, test: Dataset) -> tuple[dict[str, Any], Labels]:
    """Share of the true labels among the many that a recipe retrieves."""
    rows: Any = train.texts if train.X is None else train.X
    model = Model(_made(order, data, train).fit(rows, train.Y), label_names=train.label_names)
    truth, _ = model.truth_and_weights(test)
    places = [k for k in RECALLS if k <= train.n_labels]
    top = model.predict_topk(test, max(places, default=1))
    found = evaluate(top, truth, ks=places or (1,))
    return {f"R@{k}": found[f"R@{k}"] for k in places}, np.empty((0, 0), np.int32)


def missing(order: dict[str, Any], data: AtHand, train: Dataset, test: Dataset) -> tuple[dict[str, Any], Labels]:
    """What a recipe mends where labels are hidden, with the true propensities and with others."""
    recipe, base = order["recipe"], base_of(order["recipe"])
    study = MissingStudy(train, test, [recipe], seeds=_STUDY_SEEDS, threads=order["threads"])
    outcomes = study.run()
    severities = sorted(study.severities, key=study.kept)

    def scored(name: str, severity: float, given: float | None) -> list[float | None]:
        own = next(o for o in outcomes if (o.recipe, o.severity, o.given) == (name, severity, given))
        return [own.scores[_STUDIED].value, own.scores[_STUDIED].half]

    right = {base: [scored(base, at, None) for at in severities], recipe: [scored(recipe, at, at) for at in severities]}
    told = {
        base: [scored(base, study.reference, None) for _ in severities],
        recipe: [scored(recipe, study.reference, at) for at in severities],
    }
    figures = {
        "left": [f"{100 * study.kept(at):.0f}" for at in severities], "metric": _STUDIED,
        "reference_left": 100 * study.kept(study.reference), "right": right, "told": told,
    }  # fmt: skip
    return figures, np.empty((0, 0), np.int32)


def _written(path: Path, write: Any) -> None:
    """Write a file whole or not at all."""
    new = path.with_name(f"new-{os.getpid()}-{path.name}")
    write(new)
    os.replace(new, path)


_TASKS: dict[str, Callable[[dict[str, Any], AtHand, Dataset, Dataset], tuple[dict[str, Any], Labels]]] = {
    "ranking": ranking, "recall": recall, "missing": missing,
}  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())

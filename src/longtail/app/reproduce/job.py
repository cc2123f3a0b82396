"""The process of one job: reads what to do from standard input, trains, measures, and writes what came out.

Run as ``python -m longtail.app.reproduce.job``.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from longtail.app.plans import compose
from longtail.app.reproduce.jobs import METRICS
from longtail.app.reproduce.sets import AtHand
from longtail.engine.memory import peak_memory
from longtail.errors import LongtailError
from longtail.metrics import bootstrap
from longtail.store import Model

_WARM_ROWS = 64


def main() -> int:
    """Do one job."""
    order = json.loads(sys.stdin.read())
    try:
        figures, labels = measured(order)
    except LongtailError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    out = Path(order["out"])
    _written(out.with_suffix(".npy"), lambda path: np.save(path, labels))
    _written(out.with_suffix(".json"), lambda path: path.write_text(json.dumps(figures)))
    return 0


def measured(order: dict[str, Any]) -> tuple[dict[str, Any], np.ndarray[Any, Any]]:
    """Figures of a recipe on a data set, and its ranking of the test rows."""
    data = AtHand(order["name"], order["train"], order["test"])
    train, test = data.read()
    params = {name.replace(".", "__"): value for name, value in order["settings"].items()}

    def made() -> Any:
        plan = compose(
            order["recipe"], params, data.propensity, threads=order["threads"], seed=order["seed"], memory_limit=None
        )
        reader = next((part for part in (plan.learner,) if getattr(part, "reads_label_texts", False)), None)
        if reader is not None and train.label_names is not None:
            plan.set_params(learner__label_texts=train.label_names)
        return plan if train.X is None else plan.learner

    rows: Any = train.texts if train.X is None else train.X
    is_network = train.X is None and getattr(made().learner, "head_rate", None) is not None
    if not is_network:  # kernels are compiled before the clock starts
        few = rows[:_WARM_ROWS]
        made().fit(few, train.Y[:_WARM_ROWS]).predict_topk(few, 5)
    learner = made()
    start = time.perf_counter()
    learner.fit(rows, train.Y)
    seconds = time.perf_counter() - start
    model = Model(learner, label_names=train.label_names, propensity=data.propensity)
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model")
        size = sum(file.stat().st_size for file in (Path(folder) / "model").iterdir())
    truth, inverse = model.truth_and_weights(test)
    start = time.perf_counter()
    top = model.predict_topk(test, 5)
    predicting = time.perf_counter() - start
    found = bootstrap(top, truth, inverse_propensity=inverse)
    figures: dict[str, Any] = {
        "data": data.name, "recipe": order["recipe"], "settings": order["settings"], "rows": train.n_rows,
        "labels": train.n_labels, "train_seconds": seconds, "predict_ms": 1e3 * predicting / max(test.n_rows, 1),
        "peak_memory_mb": peak_memory() / 1e6, "model_mb": size / 1e6,
    }  # fmt: skip
    for metric in METRICS:
        if metric in found:
            figures[metric] = found[metric].value
            figures[f"half {metric}"] = (found[metric].high - found[metric].low) / 2
    return figures, top.labels


def _written(path: Path, write: Any) -> None:
    """Write a file whole or not at all."""
    new = path.with_name(f"new-{path.name}")
    write(new)
    os.replace(new, path)


if __name__ == "__main__":
    sys.exit(main())

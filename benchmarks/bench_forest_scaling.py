"""How instance trees scale: training with the number of rows, prediction with the number of labels.

Training: rows of eurlex57k, a few trees. Prediction: synthetic data with a power law, one thread for single rows.
Targets: training close to N log N, single rows with fifty trees under 1.5 ms at any size, prediction no worse than
logarithmic in the labels.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import longtail
from data import prepare
from longtail.data import generate
from measure import CACHE, RESULTS, machine, table, write

SIZES = {10_000: (50_000, 20_000), 100_000: (100_000, 50_000), 1_000_000: (200_000, 100_000)}
"""Labels: rows and features."""
ROW_SHARES = (8, 4, 2, 1)
TRAINING_TREES, TREES = 4, 50
CALLS = 500
ROW_COLUMNS = {
    "rows": ("rows", "{:,}"),
    "train s": ("train_seconds", "{:.1f}"),
    "over N log N": ("over_n_log_n", "{:.2f}"),
}
LABEL_COLUMNS = {
    "labels": ("labels", "{:,}"),
    "rows": ("rows", "{:,}"),
    "features": ("features", "{:,}"),
    "trees": ("trees", "{}"),
    "train s": ("train_seconds", "{:.1f}"),
    "estimated s": ("estimate_seconds", "{:.1f}"),
    "model MB": ("model_mb", "{:,.0f}"),
    "estimated model MB": ("estimate_model_mb", "{:,.0f}"),
    "predict us/row": ("batch_us", "{:.0f}"),
    "single row p50 us": ("single_us_p50", "{:.0f}"),
    "single row p99 us": ("single_us_p99", "{:.0f}"),
}


def main() -> int:
    """Measure, write the results and print the tables."""
    options = _options()
    path = RESULTS / "forest_scaling.json"
    if not options.labels_only:
        write(path, "rows", {str(row["rows"]): row for row in grow_rows(options.data)})
    for n_labels in options.sizes:
        write(path, "labels", {str(n_labels): grow_labels(n_labels, options.trees)})
    text = markdown(json.loads(path.read_text()))
    path.with_suffix(".md").write_text(text)
    print(text)
    return 0


def grow_rows(source: Path) -> list[dict[str, Any]]:
    """Train on an eighth of the rows, a quarter, a half and all."""
    folder = prepare("eurlex57k", source, CACHE, as_is=True)
    X, Y = (sp.csr_array(sp.load_npz(folder / f"train.{part}.npz")) for part in "XY")
    longtail.recipe("fastxml", n_trees=2).fit(X[:200], Y[:200])
    order, found = np.random.default_rng(0).permutation(X.shape[0]), []
    for share in ROW_SHARES:
        rows = np.sort(order[: len(order) // share])
        start = time.perf_counter()
        longtail.recipe("fastxml", n_trees=TRAINING_TREES, n_jobs=2).fit(X[rows], Y[rows])
        seconds = time.perf_counter() - start
        found.append({"rows": len(rows), "train_seconds": seconds})
        print(found[-1], flush=True)
    first = found[0]["train_seconds"] / _n_log_n(found[0]["rows"])
    return [row | {"over_n_log_n": row["train_seconds"] / _n_log_n(row["rows"]) / first} for row in found]


def _n_log_n(n: float) -> float:
    return n * math.log2(n)


def grow_labels(n_labels: int, trees: int) -> dict[str, Any]:
    """Train trees on synthetic data and predict rows, all at once and one by one."""
    n_rows, n_features = SIZES.get(n_labels, (max(50_000, n_labels // 5), max(20_000, n_labels // 10)))
    train, test = generate(n_rows, n_labels, n_features, random_state=0, test_rows=4000)
    recipe = longtail.recipe("fastxml", n_trees=trees, n_jobs=2)
    estimate = recipe.estimate(train.X, train.Y)
    start = time.perf_counter()
    forest = recipe.fit(train.X, train.Y)
    seconds = time.perf_counter() - start
    forest.predict_topk(test.X[:100])
    batch = min(_seconds(lambda: forest.predict_topk(test.X)) for _ in range(3))
    rows = [test.X[[row]] for row in range(CALLS)]
    forest.set_params(n_jobs=1).predict_topk(rows[0])
    single = 1e6 * np.array([_seconds(lambda row=row: forest.predict_topk(row)) for row in rows])
    figures = {
        "labels": n_labels, "trees": trees, "rows": n_rows, "features": n_features, "train_seconds": seconds,
        "estimate_seconds": estimate.seconds, "estimate_model_mb": estimate.model_mb,
        "model_mb": sum(getattr(forest.trees_, name).nbytes for name in forest.trees_._stored[2:]) / 1e6,
        "batch_us": 1e6 * batch / test.n_rows, "single_us_p50": float(np.median(single)),
        "single_us_p99": float(np.quantile(single, 0.99)),
    }  # fmt: skip
    print(figures, flush=True)
    return figures


def _seconds(call: Any) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def markdown(report: dict[str, Any]) -> str:
    """Return both tables, with the growth between sizes."""
    by_rows = sorted(report.get("rows", {}).values(), key=lambda row: row["rows"])
    by_labels = sorted(report.get("labels", {}).values(), key=lambda row: row["labels"])
    lines = [
        machine(report), "",
        f"Training of {TRAINING_TREES} trees (fastxml) on rows of eurlex57k, two threads; the last column is time over "
        "N log N, beside that of the fewest rows.", "", *table(ROW_COLUMNS, by_rows), "",
        "fastxml on synthetic data; batches on two threads, single rows on one.", "",
        *table(LABEL_COLUMNS, by_labels), "",
    ]  # fmt: skip
    for small, large in pairwise(by_labels):
        growth = math.log(large["labels"]) / math.log(small["labels"])
        lines.append(
            f"From {small['labels']:,} to {large['labels']:,} labels their logarithm grows by {growth:.2f}; single "
            f"rows take {large['single_us_p50'] / small['single_us_p50']:.2f} times as long, batches "
            f"{large['batch_us'] / small['batch_us']:.2f} times."
        )
    return "\n".join([*lines, ""])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(__file__).resolve().parents[2] / "shared" / "data")
    parser.add_argument("--sizes", type=lambda text: [int(size) for size in text.split(",")], default=list(SIZES))
    parser.add_argument("--trees", type=int, default=TREES)
    parser.add_argument("--labels-only", action="store_true", help="skip the measurement by rows")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

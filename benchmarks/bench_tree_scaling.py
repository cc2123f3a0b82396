"""How a label tree scales with the number of labels: estimate, training, memory, model, prediction and accuracy.

The data are synthetic: power laws of labels and features, topics of labels that occur together. Twice as many rows as
labels, at least 50,000, and half as many features, 20,000 to 500,000. Each size is trained in its own process.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from contextlib import AbstractContextManager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import longtail
from longtail.config import parse_memory
from measure import CACHE, RESULTS, System, alternate, gather, machine, run_options, score, system_name, table, write
from peers.runner import run
from run_longtail import Longtail

RECIPE = "longtail-tree"
MEMORY_LIMIT = "12GB"
SIZES = (10_000, 100_000, 1_000_000)
TEST_ROWS = 10_000
AS_SYSTEM = "--as-system"
COLUMNS = {
    "labels": ("labels", "{:,}"),
    "rows": ("rows", "{:,}"),
    "features": ("features", "{:,}"),
    "train s": ("train_seconds", "{:.1f}"),
    "estimated s": ("estimate_seconds", "{:.1f}"),
    "peak MB": ("peak_memory_mb", "{:,.0f}"),
    "estimated MB": ("estimate_peak_memory_mb", "{:,.0f}"),
    "below limit": ("below_limit", "{}"),
    "model MB": ("model_mb", "{:,.1f}"),
    "estimated model MB": ("estimate_model_mb", "{:,.1f}"),
    "predict us/row": ("predict_batch_us_per_row", "{:.1f}"),
    "single row p50 us": ("predict_single_us_p50", "{:.0f}"),
    "single row p99 us": ("predict_single_us_p99", "{:.0f}"),
}
SCORES = ("P@1", "P@5", "PSP@5")
SCORE_COLUMNS = {"labels": ("labels", "{:,}")} | {
    f"{key}{whose}": (f"{prefix}{key}", "{:.2f}")
    for key in SCORES
    for prefix, whose in (("", ""), ("popularity ", ", popularity"))
}
GROWTH = {
    "rows": "rows",
    "features": "features",
    "train s": "train_seconds",
    "peak MB": "peak_memory_mb",
    "model MB": "model_mb",
    "predict us/row": "predict_batch_us_per_row",
    "single row p50 us": "predict_single_us_p50",
}


class Limited(Longtail):
    """A recipe with a memory limit, which estimates its cost first."""

    def __init__(self, options: argparse.Namespace, *rest: object) -> None:
        super().__init__(options, *rest)
        self.memory_limit: str = options.memory_limit
        self.name = system_name(self.recipe)

    def prepare(self, X: sp.csr_matrix, Y: sp.csr_matrix) -> None:
        """Compile, then estimate."""
        super().prepare(X, Y)
        start = time.perf_counter()
        with self._settings():
            self.estimate = longtail.recipe(self.recipe).estimate(X, Y)
        self.estimate_took = time.perf_counter() - start

    def fit(self) -> None:
        """Train the recipe within the memory limit."""
        with self._settings():
            self.learner = longtail.recipe(self.recipe).fit(self.X, self.Y)

    def more(self, X: sp.csr_matrix) -> dict[str, float]:
        """Return the estimate, in the units of the measured figures."""
        return {
            "estimate_seconds": self.estimate.seconds,
            "estimate_peak_memory_mb": self.estimate.peak_memory_mb * 1e6 / 2**20,
            "estimate_model_mb": self.estimate.model_mb * 1e6 / 2**20,
            "estimate_took_seconds": self.estimate_took,
        }

    def _settings(self) -> AbstractContextManager[None]:
        return longtail.config_context(n_jobs=self.threads, memory_limit=self.memory_limit)


def main() -> int:
    """Run the sizes without results, write the results and print the tables."""
    options = _options()
    system = System(
        system_name(options.recipe),
        Path(sys.executable),
        Path(__file__).resolve(),
        (AS_SYSTEM, "--recipe", options.recipe, "--memory-limit", options.memory_limit),
    )
    stem = "tree_scaling" if options.recipe == RECIPE else f"tree_scaling-{options.recipe}"
    path = RESULTS / f"{stem}.json"
    failed = 0
    for n_labels in sorted(options.sizes):
        data = prepare(n_labels, fresh=options.fresh)
        runs = CACHE / "runs" / f"{data.name}-{options.memory_limit}"
        failed += alternate(
            [system], data, runs, repeat=1, threads=options.threads, fresh=options.fresh, timeout=options.timeout
        )
        for row in gather([system], data, runs, ours=None, repeat=1):
            figures = row | describe(data) | {"memory_limit": options.memory_limit}
            below = figures["peak_memory_mb"] * 2**20 <= parse_memory(options.memory_limit)
            write(path, "sizes", {str(n_labels): figures | {"below_limit": "yes" if below else "no"}})
    if not path.exists():
        return 1
    text = markdown(json.loads(path.read_text()))
    path.with_suffix(".md").write_text(text)
    print(text)
    return 1 if failed else 0


def prepare(n_labels: int, *, fresh: bool) -> Path:
    """Return the folder of the synthetic matrices, which are generated the first time or if `fresh`."""
    from longtail.data import generate

    folder = CACHE / "data" / f"generated-{n_labels}"
    finished = folder / "finished"
    if fresh or not finished.exists():
        finished.unlink(missing_ok=True)
        print(f"{folder.name}: generating", flush=True)
        folder.mkdir(parents=True, exist_ok=True)
        n_rows, n_features = max(2 * n_labels, 50_000), min(max(n_labels // 2, 20_000), 500_000)
        train, test = generate(n_rows, n_labels, n_features, random_state=0, test_rows=TEST_ROWS)
        for part, dataset in (("train", train), ("test", test)):
            for name, matrix in (("X", dataset.X), ("Y", dataset.Y)):
                sp.save_npz(folder / f"{part}.{name}.npz", sp.csr_matrix(matrix, dtype=np.float32), compressed=False)
        finished.touch()
    return folder


def describe(data: Path) -> dict[str, Any]:
    """Sizes of the data, and what ranking the most frequent labels scores."""
    X = sp.load_npz(data / "train.X.npz")
    (n_rows, n_features), n_values = X.shape, X.nnz
    del X
    Y_test, Y_train = (sp.csr_matrix(sp.load_npz(data / f"{part}.Y.npz")) for part in ("test", "train"))
    popularity = longtail.Popularity().fit(sp.csr_array((n_rows, 1), dtype=np.float32), Y_train)
    ranked = popularity.predict_topk(sp.csr_array((Y_test.shape[0], 1), dtype=np.float32), k=5).labels
    scores = score(ranked, Y_test, Y_train)
    sizes = {"labels": Y_train.shape[1], "rows": n_rows, "features": n_features, "values": n_values}
    seen = {"labels_with_rows": int(np.count_nonzero(popularity.label_counts_))}
    return sizes | seen | {f"popularity {key}": scores[key] for key in SCORES}


def markdown(report: dict[str, Any]) -> str:
    """Figures, scores and growth as Markdown tables."""
    rows = sorted(report["sizes"].values(), key=lambda row: row["labels"])
    growth = [
        {"step": f"{small['labels']:,} to {large['labels']:,}", "labels": large["labels"] / small["labels"]}
        | {key: large[key] / small[key] for key in GROWTH.values() if key in large and key in small}
        for small, large in pairwise(rows)
    ]
    columns = {"labels from, to": ("step", "{}"), "labels": ("labels", "x {:.3g}")}
    columns |= {heading: (key, "x {:.3g}") for heading, key in GROWTH.items()}
    limits = " and ".join(sorted({row["memory_limit"] for row in rows}))
    lines = [
        f"{machine(report)} {rows[0]['system']} with memory_limit {limits} on synthetic data; {TEST_ROWS:,} test rows. "
        "Estimates were made beforehand in the same process. Peak memory is that of the process during training, data "
        "included; MB are 2^20 bytes, and the limit is in powers of ten.",
        "",
        *table(COLUMNS, rows),
        "",
        "Scores in percent beside those of the most frequent labels:",
        "",
        *table(SCORE_COLUMNS, rows),
        "",
    ]
    if growth:
        lines += ["Growth from one size to the next:", "", *table(columns, growth), ""]
    return "\n".join(lines)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=_sizes, default=list(SIZES), help="numbers of labels, comma-separated")
    _system_options(parser)
    run_options(parser)
    return parser.parse_args()


def _system_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--recipe", default=RECIPE)
    parser.add_argument("--memory-limit", default=MEMORY_LIMIT)


def _sizes(text: str) -> list[int]:
    return [int(size.replace("_", "")) for size in text.split(",") if size]


if __name__ == "__main__":
    if AS_SYSTEM in sys.argv:
        parser = argparse.ArgumentParser()
        parser.add_argument(AS_SYSTEM, action="store_true")
        _system_options(parser)
        run(Limited, parser)
    else:
        sys.exit(main())

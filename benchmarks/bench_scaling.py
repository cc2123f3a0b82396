"""How training time scales with labels and rows, and the throughput of the kernel compared with the processor's peak.

The data are synthetic: feature and label frequencies follow a power law, and each label has a few typical features.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numba import njit

from longtail import OneVsRest
from longtail.kernels.lanes import LANES, lane_dot

RESULTS = Path(__file__).resolve().parent / "results"
ROWS, LABELS, FEATURES = 20_000, 2_000, 30_000
WORDS, LABELS_A_ROW = 60, 4


def power_law(n_rows: int, n_labels: int, n_features: int = FEATURES, seed: int = 0) -> tuple[Any, Any]:
    """Rows of words and labels with frequencies of rank ** -0.8, each label tied to eight words."""
    rng = np.random.default_rng(seed)
    share = np.arange(1, n_labels + 1) ** -0.8
    labels = rng.choice(n_labels, (n_rows, LABELS_A_ROW), p=share / share.sum())
    words = rng.integers(0, n_features, (n_labels, 8))
    common = np.arange(1, n_features + 1) ** -0.8
    noise = rng.choice(n_features, (n_rows, WORDS - 8 * LABELS_A_ROW // 2), p=common / common.sum())
    told = words[labels].reshape(n_rows, -1)
    told = rng.permuted(told, axis=1)[:, : 8 * LABELS_A_ROW // 2]
    columns = np.concatenate([told, noise], axis=1)
    offsets = np.arange(n_rows + 1)
    X = sp.csr_array((np.ones(columns.size, np.float32), columns.ravel(), offsets * columns.shape[1]),
                     shape=(n_rows, n_features))  # fmt: skip
    Y = sp.csr_array((np.ones(labels.size, np.float32), labels.ravel(), offsets * LABELS_A_ROW),
                     shape=(n_rows, n_labels))  # fmt: skip
    X.sum_duplicates()
    Y.sum_duplicates()
    return X, Y


def train_seconds(n_rows: int, n_labels: int, threads: int, repeat: int) -> float:
    """Best time of training the default one-vs-rest."""
    X, Y = power_law(n_rows, n_labels)
    times = []
    for _ in range(repeat):
        started = time.perf_counter()
        OneVsRest(n_jobs=threads, max_iter=10).fit(X, Y)
        times.append(time.perf_counter() - started)
    return min(times)


@njit
def score_all(indptr: Any, indices: Any, values: Any, weights: Any, total: Any) -> None:
    """Score every row for one block of labels: the loop that training spends most of its time in."""
    for row in range(len(indptr) - 1):
        lane_dot(indices, values, indptr[row], indptr[row + 1], weights, 0, total, 0)


def multiply_adds(features: int, power: float, repeat: int = 5) -> float:
    """Multiply-adds a second, in billions, on one thread, of rows over that many features with rank ** -power."""
    rng = np.random.default_rng(0)
    share = np.arange(1, features + 1) ** -power
    indices = rng.choice(features, 2_000_000, p=share / share.sum()).astype(np.int32)
    indptr = np.arange(0, len(indices) + 1, 200)
    values = rng.random(len(indices), np.float32)
    weights, total = rng.random((features, LANES), np.float32), np.zeros(LANES, np.float32)
    score_all(indptr, indices, values, weights, total)
    times = []
    for _ in range(repeat):
        started = time.perf_counter()
        score_all(indptr, indices, values, weights, total)
        times.append(time.perf_counter() - started)
    return len(indices) * LANES / min(times) / 1e9


def main() -> None:
    """Measure and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    train_seconds(500, 100, options.threads, 1)
    growth = {}
    base = train_seconds(ROWS, LABELS, options.threads, options.repeat)
    for name, rows, labels in (
        ("labels x 2", ROWS, 2 * LABELS),
        ("labels x 4", ROWS, 4 * LABELS),
        ("rows x 2", 2 * ROWS, LABELS),
        ("rows x 4", 4 * ROWS, LABELS),
    ):
        growth[name] = round(train_seconds(rows, labels, options.threads, options.repeat) / base, 2)
    kernel = {
        "weights in the first-level cache (64 features)": round(multiply_adds(64, 0.0), 1),
        "weights in the second-level cache (1,000 features)": round(multiply_adds(1_000, 0.0), 1),
        "56,000 features, frequencies as in text": round(multiply_adds(56_000, 0.9), 1),
        "56,000 features, all equally frequent": round(multiply_adds(56_000, 0.0), 1),
    }
    limit = next(iter(kernel.values()))
    report = {"base_seconds": round(base, 2), "growth": growth, "billion_multiply_adds_a_second": kernel}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "scaling.json").write_text(json.dumps(report, indent=1) + "\n")
    lines = [
        f"Training {ROWS:,} rows with {LABELS:,} labels takes {base:.2f} s; relative to that:", "",
        "| change | time |", "|---|---|", *(f"| {name} | x {ratio} |" for name, ratio in growth.items()), "",
        "Multiply-adds a second of the scoring loop on one thread. With the weights in the first-level cache only "
        "arithmetic limits it; the rest is the price of reading weights from further away:", "",
        "| data | billion a second | share of the first |", "|---|---|---|",
        *(f"| {name} | {rate} | {100 * rate / limit:.0f} % |" for name, rate in kernel.items()), "",
    ]  # fmt: skip
    (RESULTS / "scaling.md").write_text("\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()

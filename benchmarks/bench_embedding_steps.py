"""Time of a training step of an embedding model, and of label search, by number of labels.

Rows, labels and embeddings are synthetic. Three tables: a profile of the step on rows like those of eurlex57k, the time
of a step by number of labels, and the time of a search by number of label embeddings.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import longtail
from longtail.config import own_jobs
from longtail.learners.embedding import training
from longtail.learners.embedding.search import Lanes, PlattScaling, VectorIndex, exact_topk, kind_of_index
from longtail.learners.training.fit import time_steps
from measure import RESULTS, machine, table, write

PLAIN = PlattScaling(np.float32(1), np.float32(0))


def synthetic(n: int, features: int, labels: int, per_row: int = 230, own: int = 5, seed: int = 0) -> Any:
    """Return rows with as many features as those of eurlex57k, and labels, both by a power law."""
    rng = np.random.default_rng(seed)

    def sampled(columns: int, each: int, power: float) -> sp.csr_array:
        picked = (columns * rng.random((n, each)) ** power).astype(np.int64)
        indptr = np.arange(0, n * each + 1, each)
        matrix = sp.csr_array((np.ones(n * each, np.float32), picked.ravel(), indptr), shape=(n, columns))
        matrix.sum_duplicates()
        return matrix

    X, Y = sampled(features, per_row, 3.0), sampled(labels, own, 2.0)
    Y.data[:] = 1
    return X, Y


def model_of(X: sp.csr_array, Y: sp.csr_array, threads: int, **params: Any) -> training.TrainableEmbedding:
    """Return the model that the recipe glas trains."""
    learner = longtail.recipe("glas", **params)
    with own_jobs(threads):
        return training.TrainableEmbedding(learner._scaled(X), Y, np.ones(Y.shape[1], np.float32), learner)


def profile(steps: int) -> list[dict[str, Any]]:
    """Return the share of each part in the time of a step on one thread; torch is measured by its profiler."""
    import torch

    torch.set_num_threads(1)
    X, Y = synthetic(20_000, 56_000, 4_300)
    model = model_of(X, Y, 1)
    model.start_epoch(0)
    model.training_step(0)
    with _watched() as taken, torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as found:
        start = time.perf_counter()
        for step in range(1, steps + 1):
            model.training_step(step)
        whole = time.perf_counter() - start
    own = {event.key: event.self_cpu_time_total / 1e6 for event in found.key_averages()}
    products = sum(own.get(name, 0.0) for name in ("aten::mm", "aten::addmm", "aten::bmm"))
    parts = {
        "sums of bags": taken["sum_bags"],
        "gradients and updates of bags": taken["step_features"],
        "matrix products": products,
        "updates of labels": taken["step_units"],
        "other operations of torch": sum(own.values()) - products,
    }
    rows = [{"part": part, "ms": 1e3 * value / steps, "share": 100 * value / whole} for part, value in parts.items()]
    rows.append({"part": "everything", "ms": 1e3 * whole / steps, "share": 100.0})
    bags = sum(row["share"] for row in rows[:3])
    rows.append({"part": "matrix products and bags together, target >= 70", "share": bags})
    return rows


@contextmanager
def _watched() -> Iterator[dict[str, float]]:
    """Seconds in kernels, by name."""
    names = ("sum_bags", "step_features", "step_units")
    taken, originals = dict.fromkeys(names, 0.0), {name: getattr(training, name) for name in names}

    def timed(name: str) -> Any:
        def call(*arguments: Any) -> Any:
            start = time.perf_counter()
            result = originals[name](*arguments)
            taken[name] += time.perf_counter() - start
            return result

        return call

    for name in names:
        setattr(training, name, timed(name))
    try:
        yield taken
    finally:
        for name, original in originals.items():
            setattr(training, name, original)


def growth(sizes: list[int]) -> list[dict[str, Any]]:
    """Measure a step by number of labels, on the same rows."""
    rows = []
    for labels in sizes:
        X, Y = synthetic(20_000, 56_000, labels)
        model = model_of(X, Y, 2, n_negatives=4096, embedding_dim=128)
        best = min(time_steps(model, 10)[2:])  # after two that warm up
        rows.append({"labels": labels, "ms": 1e3 * best * X.shape[0] / model.steps_per_epoch})
        model.close()
        print(rows[-1], flush=True)
    return rows


def embeddings(n: int, width: int, seed: int = 0, clusters: int = 2000) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return unit vectors in clusters."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((clusters, width), np.float32)
    found = np.empty((n, width), np.float32)
    for first in range(0, n, 100_000):
        part = found[first : first + 100_000]
        part[:] = centres[rng.integers(0, clusters, len(part))]
        part += np.float32(0.8) * rng.standard_normal(part.shape, np.float32)
        part /= np.linalg.norm(part, axis=1, keepdims=True)
    return found


def searching(labels: int, width: int, kind: str | None) -> dict[str, Any]:
    """Measure a search among label embeddings; recall is on other rows than those the index was tuned on."""
    vectors = embeddings(labels, width)
    rng = np.random.default_rng(1)
    queries = vectors[rng.integers(0, labels, 1200)] + np.float32(0.5 / width**0.5) * rng.standard_normal(
        (1200, width), np.float32
    )
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    lanes = Lanes.of(vectors, np.ones(labels, np.bool_))
    best = exact_topk(queries[500:1000], lanes, PLAIN, 10, None)
    row: dict[str, Any] = {"labels": labels, "dimensions": width, "search": kind or "exact", "recall": 100.0}
    index, start = None, time.perf_counter()
    if kind is not None:
        index = VectorIndex.build(lanes, kind, queries[:500], 0)
        row["build s"] = time.perf_counter() - start
        if index is None:
            return row | {"search": f"{kind}: none reaches 99 %"}
        row |= {"recall": 100 * index.recall_of(queries[500:1000], best.labels, lanes), "effort": index.effort}
    times = []
    for number in range(1000, 1200):
        start = time.perf_counter()
        one = queries[number : number + 1]
        exact_topk(one, lanes, PLAIN, 5, None) if index is None else index.topk(one, lanes, PLAIN, 5)
        times.append(time.perf_counter() - start)
    start = time.perf_counter()
    exact_topk(queries[:256], lanes, PLAIN, 5, None) if index is None else index.topk(queries[:256], lanes, PLAIN, 5)
    row["batch ms"] = 1e3 * (time.perf_counter() - start) / 256
    return row | {"p50 ms": 1e3 * float(np.median(times)), "p99 ms": 1e3 * float(np.quantile(times, 0.99))}


def main() -> int:
    """Measure, write the results and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--parts", type=lambda text: text.split(","), default=["profile", "growth", "search"], help="tables"
    )
    options = parser.parse_args()
    path = RESULTS / "embedding_steps.json"
    if "profile" in options.parts:
        write(path, "profile", {"rows": profile(12)})
    if "growth" in options.parts:
        write(path, "growth", {"rows": growth([10_000, 100_000, 1_000_000])})
    if "search" in options.parts:
        rows = []
        for labels, width in ((4_000, 512), (100_000, 512), (3_000_000, 128)):
            for kind in dict.fromkeys((None, kind_of_index("auto", labels))):
                rows.append(searching(labels, width, kind))
                print(rows[-1], flush=True)
        write(path, "search", {"rows": rows})
    report = json.loads(path.read_text())
    text = markdown(report)
    Path(path).with_suffix(".md").write_text(text)
    print(text)
    return 0


def markdown(report: dict[str, Any]) -> str:
    """Return the three tables."""
    lines = [machine(report), ""]
    if "profile" in report:
        columns = {"part of a step": ("part", "{}"), "ms": ("ms", "{:.1f}"), "%": ("share", "{:.0f}")}
        lines += ["One thread, 512 rows with 230 features, 4,300 labels, 512 dimensions:", ""]
        lines += [*table(columns, report["profile"]["rows"]), ""]
    if "growth" in report:
        columns = {"labels": ("labels", "{:,}"), "ms per step": ("ms", "{:.1f}")}
        lines += ["Two threads, 512 rows, 4,096 sampled negatives, 128 dimensions:", ""]
        lines += [*table(columns, report["growth"]["rows"]), ""]
    if "search" in report:
        columns = {
            "labels": ("labels", "{:,}"), "dimensions": ("dimensions", "{}"), "search": ("search", "{}"),
            "recall %": ("recall", "{:.2f}"), "build s": ("build s", "{:.0f}"), "one row, p50 ms": ("p50 ms", "{:.3f}"),
            "p99 ms": ("p99 ms", "{:.3f}"), "256 rows, ms per row": ("batch ms", "{:.3f}"),
        }  # fmt: skip
        lines += ["Search of the five best labels, synthetic embeddings; recall of the ten best:", ""]
        lines += [*table(columns, report["search"]["rows"]), ""]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())

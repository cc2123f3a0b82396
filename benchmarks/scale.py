"""The cost of training at very large scale: a cost model, fitted to small runs, checked on larger ones, extrapolated.

One formula per family of learners gives the CPU seconds of training. Its rates are fitted to small runs, in CPU time of
one thread, best of several, and checked on larger runs. The table for data sets that don't fit on one machine uses the
formulas and `TrainingCost.on_nodes`, as ``longtail estimate --nodes`` does.

    one-vs-rest   blocks * (a * values + b * features) + c * positive values
    label tree    a * values * blocks that a row visits + b * blocks * features of a node
    forest        trees * levels * (a * values + b * rows)

`values` are the non-zeros of X, `positive values` the sum over rows of non-zeros times labels; a block is 64 labels.
All are multiplied by (values / a million) ^ drift, because larger data exceed one cache after another: drift is fitted
with the rates, to the same runs.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import nnls

from longtail import InstanceForest, LabelTree, Model, OneVsRest
from longtail.data import generate
from longtail.learners.cost import DISK, NETWORK, TrainingCost
from longtail.learners.linear.training import block_bytes
from longtail.learners.linear.weights import BlockWeights

RESULTS = Path(__file__).resolve().parent / "results"
LANES, TREES, LEAF, NEGATIVES, ARITY = 64, 50, 64, 16, 512
THREADS, DOLLARS = 32, 1.5
"""Threads of a node on paper, and what it is taken to cost an hour."""


@dataclass(frozen=True)
class Size:
    """How large a data set is."""

    name: str
    rows: int
    features: int
    labels: int
    a_row: float
    labels_a_row: float

    @property
    def values(self) -> float:
        """Non-zeros of X."""
        return self.rows * self.a_row

    @property
    def positive(self) -> float:
        """Non-zeros of each row, once for each of its labels."""
        return self.values * self.labels_a_row

    @property
    def blocks(self) -> int:
        """Blocks of 64 labels."""
        return math.ceil(self.labels / LANES)

    @property
    def data_mb(self) -> float:
        """Size of rows and labels in memory."""
        return (8 * self.values + 8 * self.rows * self.labels_a_row + 8 * self.rows) / 1e6


class Rates(NamedTuple):
    """Seconds a unit of each term, and how both grow with the data."""

    each: tuple[float, ...]
    drift: float


PAPER = (
    Size("Amazon-670K", 490_449, 135_909, 670_091, 76.0, 5.45),
    Size("Wikipedia-500K", 1_813_391, 2_381_304, 501_070, 385.0, 4.77),
    Size("ten million labels", 100_000_000, 5_000_000, 10_000_000, 75.0, 5.0),
)
FITTED = {
    "one-vs-rest": (
        *((6000, 8000, 1024, 60.0), (12_000, 8000, 1024, 30.0), (24_000, 20_000, 2048, 60.0)),
        *((40_000, 40_000, 4096, 40.0), (60_000, 30_000, 1024, 50.0), (20_000, 150_000, 2048, 40.0)),
    ),
    "label tree": (
        *((12_000, 8000, 1024, 30.0), (24_000, 20_000, 4096, 60.0), (40_000, 40_000, 16_384, 40.0)),
        *((60_000, 30_000, 2048, 50.0), (30_000, 150_000, 16_384, 40.0), (60_000, 60_000, 65_536, 30.0)),
        *((100_000, 60_000, 16_384, 50.0), (150_000, 100_000, 65_536, 30.0)),
    ),
    "forest": (
        *((6000, 8000, 1024, 60.0), (12_000, 8000, 1024, 30.0), (24_000, 20_000, 2048, 30.0)),
        *((12_000, 40_000, 4096, 60.0), (40_000, 20_000, 1024, 40.0)),
    ),
}
"""Rows, features, labels and values per row of the runs that rates are fitted to."""
CHECKED = {
    "one-vs-rest": ((100_000, 60_000, 2048, 50.0), (50_000, 100_000, 8192, 40.0)),
    "label tree": ((50_000, 20_000, 10_000, 30.0), (80_000, 100_000, 32_768, 60.0), (200_000, 50_000, 100_000, 30.0)),
    "forest": ((40_000, 40_000, 4096, 40.0),),
}


def terms(family: str, size: Size) -> list[float]:
    """What the rates of a family are multiplied by."""
    if family == "one-vs-rest":
        return [size.blocks * size.values, size.blocks * size.features, size.positive]
    if family == "label tree":
        visits, blocks, node_values = tree_visits(size)
        return [size.values * visits, blocks * min(node_values, size.features)]
    levels = max(1.0, math.log2(size.rows / 10))
    return [TREES * levels * size.values, TREES * levels * size.rows]


def tree_visits(size: Size) -> tuple[float, float, float]:
    """Blocks that a row visits in training, blocks of all nodes, and values of the rows of a leaf."""
    leaves = max(1, math.ceil(size.labels / LEAF))
    levels = max(1, math.ceil(math.log(max(leaves, 2)) / math.log(ARITY)))
    arity = leaves ** (1 / levels)
    visits = max(1.0, arity / LANES)  # the root sees every row
    blocks, nodes = visits, arity
    for level in range(1, levels + 1):
        sent = min(NEGATIVES, nodes)
        own = max(1.0, arity / LANES) if level < levels else 1.0
        visits += sent * own
        blocks += nodes * own
        nodes *= arity
    return visits, blocks, size.values * min(NEGATIVES, leaves) / leaves


def learner_of(family: str) -> Any:
    """Return the learner with the constants of its recipe, on one thread; eight iterations, as most labels need."""
    if family == "one-vs-rest":
        return OneVsRest(n_jobs=1, max_iter=8)
    if family == "label tree":
        return LabelTree(n_jobs=1)
    return InstanceForest(n_jobs=1, n_trees=2)


def measured(family: str, run: Sequence[Any], repeat: int) -> tuple[Size, float, dict[str, float]]:
    """Train on synthetic data; returns the size, the best CPU seconds and further figures."""
    rows, features, labels, a_row = run
    for size, seconds, more in known_runs(family) if repeat else ():
        if (size.rows, size.features, size.labels, round(size.a_row)) == (rows, features, labels, round(a_row)):
            return size, seconds, more
    repeat = max(repeat, 1)
    data = generate(rows, labels, features, features_per_row=a_row, random_state=0, n_jobs=1)
    size = Size("", rows, features, labels, data.X.nnz / rows, data.Y.nnz / rows)
    best, more = math.inf, {}
    for _ in range(repeat):
        with timed_assembly() as assembled:
            started = time.process_time()
            learner = learner_of(family).fit(data.X, data.Y)
            best = min(best, time.process_time() - started)
    if family == "forest":
        best *= TREES / 2
    weights = getattr(learner, "weights_", None) or learner.trees_
    model = sum(getattr(weights, name).nbytes for name in weights._stored if hasattr(getattr(weights, name), "nbytes"))
    started, n = time.process_time(), 0
    for top in Model(learner).iter_topk(data.take(np.arange(min(rows, 2000))), 5):
        n += len(top)
    more = {
        "model_mb": model * (TREES / 2 if family == "forest" else 1) / 1e6,
        "predict_us": (time.process_time() - started) / n * 1e6 * (TREES / 2 if family == "forest" else 1),
        "assembled_s": assembled[0],
    }
    return size, best, more


def known_runs(family: str) -> list[tuple[Size, float, dict[str, float]]]:
    """Return earlier runs; ``--repeat 0`` repeats all of them."""
    path = RESULTS / "scale.json"
    runs = json.loads(path.read_text())["runs"].get(family, []) if path.exists() else []
    return [(Size(**size), seconds, more) for size, seconds, more in runs]


class timed_assembly:  # noqa: N801
    """Measure the time that one-vs-rest takes to assemble its blocks."""

    def __enter__(self) -> list[float]:
        self._original, seconds = BlockWeights.assemble, [0.0]
        original = self._original.__func__

        def assemble(cls: Any, *args: Any, **kwargs: Any) -> Any:
            started = time.process_time()
            made = original(cls, *args, **kwargs)
            seconds[0] = time.process_time() - started
            return made

        BlockWeights.assemble = classmethod(assemble)  # type: ignore[method-assign]
        return seconds

    def __exit__(self, *error: object) -> None:
        BlockWeights.assemble = self._original  # type: ignore[method-assign]


def fit_rates(family: str, runs: list[tuple[Size, float, Any]]) -> Rates:
    """Fit rates and a drift of at least 0 by least relative errors."""
    found = []
    for drift in np.linspace(0, 0.5, 51).tolist():
        rows = np.array([[term * grown(size, drift) / s for term in terms(family, size)] for size, s, _ in runs])
        scale = rows.max(axis=0)
        rates, error = nnls(rows / scale, np.ones(len(rows)))
        found.append((error, drift, tuple((rates / scale).tolist())))
    _, drift, each = min(found)
    return Rates(each, drift)


def grown(size: Size, drift: float) -> float:
    """Return the factor of the drift, 1 at a million values."""
    return (size.values / 1e6) ** drift


def predicted(family: str, size: Size, rates: Rates) -> float:
    """Processor seconds."""
    return float(np.dot(rates.each, terms(family, size))) * grown(size, rates.drift)


def memory_of_thread(family: str, size: Size) -> float:
    """Return the working memory per thread, in MB."""
    if family == "one-vs-rest":
        return block_bytes(size.rows, size.features) / 1e6
    if family == "label tree":
        return (block_bytes(size.rows, size.features) + 8 * size.values) / 1e6  # at the root, all rows
    return (8 * (size.values + size.rows) + 52 * size.features + 64 * size.labels + 64 * size.rows) / 1e6


def on_paper(rates: dict[str, Rates], bytes_of: dict[str, float], nodes: Sequence[int]) -> list[dict[str, Any]]:
    """Return the cost of each family on each data set, by number of nodes."""
    found = []
    for size in PAPER:
        for family, own in rates.items():
            seconds = predicted(family, size, own)
            model = bytes_of[family] * size.positive / 1e6
            blocks = {"one-vs-rest": size.blocks, "label tree": int(tree_visits(size)[1]), "forest": TREES}[family]
            least = {"one-vs-rest": seconds / blocks * 3, "label tree": 0.0, "forest": seconds / TREES}[family]
            if family == "label tree":
                root = own.each[0] * size.values + own.each[1] * size.features
                least = root * grown(size, own.drift)  # a block of it
            one = TrainingCost(
                seconds=max(least, seconds / THREADS),
                peak_memory_mb=0.0,
                model_mb=model,
                block_mb=memory_of_thread(family, size),
                threads=THREADS,
                blocks=blocks,
                least_seconds=least,
                data_mb=size.data_mb,
            )
            for count in nodes:
                cluster = one.on_nodes(count)
                hours = cluster.seconds / 3600
                found.append(
                    {"data": size.name, "family": family, "processor_hours": seconds / 3600, "model_gb": model / 1e3,
                     "data_gb": size.data_mb / 1e3, "dollars": hours * count * DOLLARS, **asdict(cluster)}
                )  # fmt: skip
    return found


def told(seconds: float) -> str:
    """Format a time with the largest fitting unit."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{seconds:,.0f} s"


def main() -> None:
    """Measure, fit, check, extrapolate and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=1, help="repetitions of each run; 0 repeats earlier runs too")
    parser.add_argument("--nodes", default="1,16,128")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    rates, checks, runs_of, bytes_of = {}, [], {}, {}
    predict_us = {}
    for family in ("one-vs-rest", "label tree", "forest"):
        learner_of(family).fit(*(lambda data: (data.X, data.Y))(generate(500, 128, 300, random_state=0)))  # kernels
        runs = [measured(family, run, options.repeat) for run in FITTED[family]]
        rates[family] = fit_rates(family, runs)
        runs_of[family] = runs
        for run in CHECKED[family]:
            size, seconds, more = measured(family, run, min(options.repeat, 1))
            runs.append((size, seconds, more))
            checks.append({"family": family, "measured": seconds, "predicted": predicted(family, size, rates[family]),
                           "size": asdict(size), **more})  # fmt: skip
            print(checks[-1], flush=True)
        bytes_of[family] = float(np.median([more["model_mb"] * 1e6 / size.positive for size, _, more in runs]))
        predict_us[family] = runs[-1][2]["predict_us"]
    known = json.loads((RESULTS / "tree_scaling.json").read_text())
    found = known["sizes"]["1000000"]
    size = Size("", found["rows"], found["features"], found["labels"], found["values"] / found["rows"], 5.0)
    checks.append({"family": "label tree, two threads (bench_tree_scaling.py)", "measured": found["train_cpu_seconds"],
                   "predicted": predicted("label tree", size, rates["label tree"]),
                   "size": asdict(size)})  # fmt: skip
    paper = on_paper(rates, bytes_of, [int(count) for count in options.nodes.split(",")])
    assembled = max((check for check in checks if check.get("assembled_s")), key=lambda check: check["model_mb"])
    figures = {
        "rates": {family: own._asdict() for family, own in rates.items()}, "checks": checks, "paper": paper,
        "model_bytes_a_positive_value": bytes_of,
        "runs": {family: [[asdict(size), seconds, more] for size, seconds, more in runs]
                 for family, runs in runs_of.items()},
        "predict_us": predict_us, "assembled_mb_a_second": assembled["model_mb"] / assembled["assembled_s"],
        "assumed": {"threads": THREADS, "dollars_an_hour": DOLLARS, "network": NETWORK, "disk": DISK},
    }  # fmt: skip
    (options.results / "scale.json").write_text(json.dumps(figures, indent=1) + "\n")
    (options.results / "scale.md").write_text(page(figures, runs_of))


def page(figures: dict[str, Any], runs_of: dict[str, Any]) -> str:
    """Results as Markdown."""
    lines = ["# Cost at scale", "", *(__doc__ or "").split("\n\n", 1)[1].splitlines(), "## Rates", "",
             "| family | rates a, b, c in nanoseconds | drift | mean error on the runs they were fitted to |",
             "|---|---|---|---|"]  # fmt: skip
    for family, own in figures["rates"].items():
        rates = Rates(**own)
        fitted = runs_of[family][: len(FITTED[family])]
        errors = [abs(predicted(family, size, rates) / seconds - 1) for size, seconds, _ in fitted]
        shown = ", ".join(f"{rate * 1e9:.3g}" for rate in rates.each)
        lines.append(f"| {family} | {shown} | {rates.drift:.2f} | {100 * np.mean(errors):.0f} % |")
    lines += ["", "## Checked", "", "Processor seconds of runs that the rates were not fitted to.", "",
              "| family | rows | features | labels | values per row | measured | predicted | ratio |",
              "|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for check in figures["checks"]:
        size = check["size"]
        ratio = check["predicted"] / check["measured"]
        lines.append(
            f"| {check['family']} | {size['rows']:,} | {size['features']:,} | {size['labels']:,} | "
            f"{size['a_row']:.0f} | {check['measured']:,.1f} | {check['predicted']:,.1f} | {ratio:.2f} |"
        )
    lines += ["", f"Blocks are put together at {figures['assembled_mb_a_second']:,.0f} MB of model a second.", "",
              "## On paper", "",
              f"Nodes of {THREADS} threads at ${DOLLARS:g} an hour, 1.25 GB/s between them.", "",
              "| data | family | nodes | time | of it sending, gathering | cost | memory of a node | a thread's "
              "share | model |", "|---|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for row in figures["paper"]:
        size = next(size for size in PAPER if size.name == row["data"])
        each = memory_of_thread(row["family"], size)
        lines.append(
            f"| {row['data']} | {row['family']} | {row['nodes']} | {told(row['seconds'])} | "
            f"{told(row['sending_seconds'])}, {told(row['gathering_seconds'])} | ${row['dollars']:,.0f} | "
            f"{row['node_memory_mb'] / 1e3:,.0f} GB | {each / 1e3:,.1f} GB | {row['model_gb']:,.0f} GB |"
        )
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()

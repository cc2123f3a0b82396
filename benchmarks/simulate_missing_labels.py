"""The effect of propensities on missing labels: figure 3 of Jain, Prabhu and Varma (KDD 2016) on other data.

Data sets are taken as completely labelled. Labels are hidden by known propensities, so that metrics and models on the
rest can be compared with the truth: (a) the propensity curves; (b) metrics on the test labels that are left, plain and
propensity-scored; (c) forests trained on the training labels that are left, by nDCG and by propensity-scored nDCG; (d)
the same with wrong propensities.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.stats import t

from longtail import TopK, recipe
from longtail.data import load, mask_labels
from longtail.metrics import by_frequency, evaluate, unbiased_estimate
from longtail.plots.style import save
from longtail.propensity import GivenPropensity, JainPropensity
from measure import RESULTS, machine, write
from missing_labels_plots import CLAIMS, CONTROL, PLAIN, SCORED, draw, sections

Row = dict[str, Any]
Array = npt.NDArray[np.float64]

K = 3
A, B = 0.55, 1.5
CURVES = (0.1, 0.3, A, 0.9)
MASKINGS = 200
METRICS = {"P@3": "P", "nDCG@3, table 1": "DCG", "nDCG@3": "nDCG"}
"""What is estimated, and its name among `longtail.metrics.ESTIMATORS`."""
FIRST_TEST_SEED = 1_000
"""Training labels are hidden with the seeds below."""
LEVEL = 0.95
HOW = f"""\

Data sets are taken as completely labelled, and a label is kept with the propensity that the curve of A, with B = {B:g},
has at its training rows before any is hidden. ± is half of a {100 * LEVEL:g} % interval of the mean, by Student's t.

- **(b)** is about means over maskings of the test labels. Propensity-scored metrics are those of table 1 of the paper:
  every label counts 1/p. There nDCG is divided by the discounts of three places. The other nDCG, that of `evaluate`, is
  divided by those of as many as the row has labels, and its estimate is told how many there are. "Right on average":
  the value on complete labels lies in the interval; all of a data set hold together with {100 * LEVEL:g} %
  (Bonferroni). In the plot, bars reach as far as {100 * LEVEL:g} % of single maskings.
- **(c), (d)** are about means over seeds, each with its own masking and its own trees; differences are taken seed by
  seed. "Above" is decided where the interval of a difference, alone, leaves out 0. pfastxml differs from fastxml in
  two ways: labels gain 1/p, and the gain of a row is not divided by the largest possible (DCG, not nDCG). "fastxml,
  DCG" has the second alone, and parts the difference in two.
- **By label frequency**: P@3 is the part of each group in the whole, recall@3 the share of its labels that are found.
  The head holds half of all training labels, head and torso nine tenths.
"""


@dataclass(frozen=True)
class Size:
    """How much is trained on a data set unless told otherwise."""

    trees: int
    seeds: int


DATASETS = {"bibtex": Size(trees=50, seeds=4), "eurlex57k": Size(trees=6, seeds=3)}


@dataclass(frozen=True)
class Complete:
    """A data set that is taken as completely labelled."""

    X: sp.csr_array
    Y: sp.csr_array
    X_test: sp.csr_array
    Y_test: sp.csr_array

    @cached_property
    def label_counts(self) -> npt.NDArray[np.int64]:
        """Training rows of each label."""
        return np.bincount(self.Y.indices, minlength=self.Y.shape[1])

    def propensities(self, a: float) -> Array:
        """Points of the curve at the complete counts."""
        return JainPropensity(a=a, b=B).propensities(self.label_counts, self.Y.shape[0])


def read(folder: Path) -> Complete:
    """Read a data set with its features as they come: the trees of the papers take them so."""
    train, test = (load(folder / f"{part}.txt.xz") for part in ("train", "test"))
    return Complete(cast(sp.csr_array, train.X), train.Y, cast(sp.csr_array, test.X), test.Y)


@dataclass(frozen=True)
class Trials:
    """Forests over one data set, scored on its complete test labels."""

    name: str
    data: Complete
    size: Size
    threads: int

    def run(self, a: float | None, seed: int, system: str, given_a: float | None = None) -> tuple[Row, TopK]:
        """Hide training labels by the curve of `a` (None: hide nothing), train on the rest and score.

        `given_a` names the curve from which pfastxml takes propensities.
        """
        Y = (
            self.data.Y
            if a is None
            else mask_labels(self.data.Y, self.data.propensities(a), random_state=seed).observed
        )
        settings: Row = {"n_trees": self.size.trees, "random_state": seed, "n_jobs": self.threads}
        if given_a is not None:
            settings["propensity"] = GivenPropensity(values=self.data.propensities(given_a))
        if system == CONTROL:
            settings["criterion"] = "dcg"
        forest = recipe(system.split(",")[0], **settings)
        start = time.perf_counter()
        forest.fit(self.data.X, Y)
        seconds = time.perf_counter() - start
        top = forest.predict_topk(self.data.X_test, K)
        scores = evaluate(top, self.data.Y_test, ks=(K,))
        row: Row = {"a": a, "seed": seed, "system": system, "given_a": given_a, "seconds": seconds}
        row |= {key: scores[key] for key in ("nDCG@3", "P@3", "C@3")}
        for part in by_frequency(top, self.data.Y_test, self.data.label_counts, ks=(K,)):
            row |= {f"{part.name} P@3": part.scores["P@3"], f"{part.name} recall@3": part.scores["recall@3"]}
        hidden = "nothing hidden" if a is None else f"hidden by A = {a}"
        given = "" if given_a is None else f" given A = {given_a}"
        print(
            f"{self.name}: {hidden}, seed {seed}, {system}{given}: nDCG@3 {row['nDCG@3']:.2f} in {seconds:.1f} s",
            flush=True,
        )
        return row, top

    def all(self) -> tuple[list[Row], TopK]:
        """Everything that is trained, and the ranking of the forest that saw all labels."""
        row, top = self.run(None, 0, PLAIN)
        rows = [row]
        for seed in range(self.size.seeds):
            for a in CURVES:
                rows += [self.run(a, seed, system)[0] for system in (PLAIN, CONTROL)]
                rows += [self.run(a, seed, SCORED, given_a)[0] for given_a in (CURVES if a == A else (a,))]
        return rows, top


def estimate(data: Complete, top: TopK) -> list[Row]:
    """Metrics of one ranking on complete test labels, and on what many maskings leave: plain and propensity-scored."""
    n_true = np.diff(data.Y_test.indptr)
    ones = np.ones(data.Y_test.shape[1])
    rows: list[Row] = []
    for a in CURVES:
        propensities = data.propensities(a)
        found: dict[str, list[tuple[float, float]]] = {key: [] for key in METRICS}
        for seed in range(FIRST_TEST_SEED, FIRST_TEST_SEED + MASKINGS):
            observed = mask_labels(data.Y_test, propensities, random_state=seed).observed
            for key, name in METRICS.items():
                plain = unbiased_estimate(name, top, observed, ones, K, np.diff(observed.indptr))
                found[key].append((plain, unbiased_estimate(name, top, observed, 1 / propensities, K, n_true)))
        for key, pairs in found.items():
            complete = unbiased_estimate(METRICS[key], top, data.Y_test, ones, K, n_true)
            row = {"a": a, "metric": key, "complete": complete, "maskings": MASKINGS}
            for which, values in zip(("plain", "scored"), np.array(pairs).T, strict=True):
                row |= {which: float(values.mean()), f"{which} deviation": float(values.std(ddof=1))}
            rows.append(row)
    return rows


def half_width(deviation: float, n: int, level: float = LEVEL) -> float | None:
    """Half of the interval of a mean over n values with that standard deviation, by Student's t; None if n is 1."""
    return None if n < 2 else float(t.ppf((1 + level) / 2, n - 1) * deviation / np.sqrt(n))


def interval(values: Array) -> tuple[float, float | None]:
    """Mean of values and half of its interval."""
    deviation = values.std(ddof=1) if len(values) > 1 else 0.0
    return float(values.mean()), half_width(deviation, len(values))


def answer(difference: float, half: float | None) -> str:
    """Whether a difference is above 0, if its interval decides it."""
    if half is None or abs(difference) <= half:
        return "undecided"
    return "yes" if difference > 0 else "no"


def judge_estimates(rows: list[Row]) -> None:
    """Add intervals and answers to the rows of `estimate`; those of one data set are answered jointly (Bonferroni)."""
    before: dict[str, float] = {}
    for row in sorted(rows, key=lambda row: -row["a"]):  # the larger A, the more labels are kept
        n, joint = row["maskings"], 1 - (1 - LEVEL) / len(rows)
        for which in ("plain", "scored"):
            row[f"{which} half"] = half_width(row[f"{which} deviation"], n)
            row[f"{which} joint half"] = half_width(row[f"{which} deviation"], n, joint)
        apart = {
            which: answer(row[which] - row["complete"], row[f"{which} joint half"]) for which in ("plain", "scored")
        }
        row["unbiased"] = "yes" if apart["scored"] == "undecided" else "no"
        row["falls"] = "yes" if apart["plain"] == "no" and row["plain"] < before.get(row["metric"], np.inf) else "no"
        before[row["metric"]] = row["plain"]


def compare(runs: list[Row], seeds: int) -> tuple[list[Row], list[Row]]:
    """Compare the trained ones by nDCG@3 seed by seed: with true propensities by curve, and with wrong ones."""

    def scores(a: float, system: str, given_a: float | None = None) -> Array:
        wanted = [row for row in runs if (row["a"], row["system"], row["given_a"]) == (a, system, given_a)]
        return np.array([row["nDCG@3"] for seed in range(seeds) for row in wanted if row["seed"] == seed])

    def put(row: Row, **values: Array) -> Row:
        for key, value in values.items():
            row[key], row[f"{key} half"] = interval(value)
        return row

    trained, wrong = [], []
    for a in CURVES:
        plain, control, scored = scores(a, PLAIN), scores(a, CONTROL), scores(a, SCORED, a)
        row = put({"a": a}, plain=plain, control=control, scored=scored)
        put(row, gain=scored - plain, dcg=control - plain, propensity=scored - control)
        trained.append(row | {"trained": answer(row["gain"], row["gain half"])})
        given = scores(A, SCORED, a)
        row = put({"a": a}, scored=given, gain=given - scores(A, PLAIN), propensity=given - scores(A, CONTROL))
        if a != A:
            put(row, right=given - scores(A, SCORED, A))
            row["wrong"] = answer(row["gain"], row["gain half"])
        wrong.append(row)
    return trained, wrong


def simulate(name: str, folder: Path, size: Size, threads: int) -> Row:
    """Everything about one data set."""
    start, worked = time.perf_counter(), time.process_time()
    data = read(folder)
    runs, top = Trials(name, data, size, threads).all()
    estimates = estimate(data, top)
    judge_estimates(estimates)
    trained, wrong = compare(runs, size.seeds)
    curves = []
    for a in CURVES:
        p = data.propensities(a)
        ends = {"lowest": float(p.min()), "highest": float(p.max())}
        curves.append({"a": a, "b": B, "kept": float(100 * p[data.Y.indices].mean())} | ends)
    sizes: Row = {"rows": data.Y.shape[0], "test_rows": data.Y_test.shape[0], "labels": data.Y.shape[1]}
    sizes |= {"largest_count": int(data.label_counts.max()), "reference": A, "maskings": MASKINGS}
    found = {"curves": curves, "estimates": estimates, "trained": trained, "wrong": wrong, "runs": runs}
    answers = {key: [row[key] for rows in found.values() for row in rows if row.get(key)] for key in CLAIMS}
    took = {"seconds": time.perf_counter() - start, "processor_seconds": time.process_time() - worked}
    return sizes | vars(size) | took | {"answers": answers} | found


def publish(path: Path) -> str:
    """Make the tables and plots of a results file; gives the tables."""
    report = json.loads(path.read_text())
    lines = [machine(report), HOW]
    for name in (name for name in DATASETS if name in report["datasets"]):
        found = report["datasets"][name]
        save(draw(name, found), path.with_name(f"missing_labels_{name}.svg"))
        lines += sections(name, found)
    text = "\n".join(lines)
    path.with_suffix(".md").write_text(text)
    return text


def main() -> int:
    """Simulate on the data sets that are asked for, write the results and the plots, and print the tables."""
    options = _options()
    unknown = [name for name in options.datasets if name not in DATASETS]
    missing = [name for name in options.datasets if not (options.data / name).is_dir()]
    if unknown or missing:
        why = (
            f"Unknown: {', '.join(unknown)}. Known: {', '.join(DATASETS)}."
            if unknown
            else (f"No {', '.join(missing)} in {options.data}: give the folder of the data sets with --data.")
        )
        print(why, file=sys.stderr)
        return 2
    path = options.results / "missing_labels.json"
    for name in options.datasets:
        size = Size(options.trees or DATASETS[name].trees, options.seeds or DATASETS[name].seeds)
        write(path, "datasets", {name: simulate(name, options.data / name, size, options.threads)})
    print(publish(path))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = Path(__file__).resolve().parents[2] / "shared" / "data"
    parser.add_argument("--data", type=Path, default=data, help="folder of the data sets")
    parser.add_argument("--datasets", type=lambda text: text.split(","), default=list(DATASETS), help="comma-separated")
    parser.add_argument("--trees", type=int, help="of each forest; by default few enough for half an hour in all")
    parser.add_argument("--seeds", type=int, help="maskings of the training labels, each with forests of its own")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder to write to")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

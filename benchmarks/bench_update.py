"""Updating a model against refitting it on all rows, when a tenth of the rows arrives late.

Two cases: the late rows are random, or those with any of some labels, which the first training has never seen. A model
of the other rows is updated with the late rows alone, and with the earlier rows; a third is trained on all rows from
scratch. Times are from texts to the model, in alternating runs, the fastest counts. Metrics are on the test rows, with
the propensities of all training rows.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail import JainPropensity, TextLearner, recipe
from longtail.data import Dataset, load
from longtail.metrics import evaluate
from measure import RESULTS, machine, table, write

METRICS = ("P@1", "P@5", "PSP@5", "nDCG@5")
RECIPES = ("dismec", "pw-cb-dismec", "longtail-tree")
COLUMNS = {
    "recipe": ("recipe", "{}"),
    "late rows": ("case", "{}"),
    "model": ("model", "{}"),
    "s": ("seconds", "{:.2f}"),
    "CPU s": ("cpu_seconds", "{:.2f}"),
    "faster than refit": ("ratio", "{:.1f}"),
    "CPU, faster": ("cpu_ratio", "{:.1f}"),
    **{name: (name, "{:.2f}") for name in METRICS},
    "largest loss": ("largest_loss", "{:.2f}"),
}


def main() -> int:
    """Measure all cases, write the results and print the table."""
    options = _options()
    train = load(options.data / "train.jsonl.xz")
    test = load(options.data / f"{options.part}.jsonl.xz", label_names=train.label_names)
    train.Y.resize((train.n_rows, test.n_labels))
    rows = []
    for case, is_late, order in _cases(train, options.share):
        for name in options.recipes:
            rows += _measured(name, case, is_late, order, train, test, options)
            print(*table(COLUMNS, rows[-4:]), sep="\n", flush=True)
    path, name = RESULTS / "update.json", f"{options.data.name}, {options.part} rows"
    before = json.loads(path.read_text())["datasets"].get(name, []) if path.exists() else []
    rows = _in_order([*(row for row in before if row["recipe"] not in options.recipes), *rows])
    report = write(path, "datasets", {name: rows})
    text = machine(report) + "\n"
    for name, measured in report["datasets"].items():
        text += "\n".join(["", f"### {name}", "", *table(COLUMNS, measured), ""])
    path.with_suffix(".md").write_text(text)
    print(text)
    return 0


def _in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The random case first, and in each case the recipes as they are listed above."""
    return sorted(rows, key=lambda row: (row["case"] != "random", RECIPES.index(row["recipe"])))


def _cases(train: Dataset, share: float) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """Name of each case, which rows are late, and the labels in the order of ids: those that come late are last."""
    rng, n = np.random.default_rng(0), train.n_rows
    random = np.zeros(n, bool)
    random[rng.choice(n, int(share * n), replace=False)] = True
    columns, counts = train.Y.tocsc(), np.bincount(train.Y.indices, minlength=train.n_labels)
    with_new, chosen = np.zeros(n, bool), []
    for label in rng.permutation(np.flatnonzero((counts > 0) & (counts <= 200))):
        if with_new.sum() >= share * n:
            break
        with_new[columns.indices[columns.indptr[label] : columns.indptr[label + 1]]] = True
        chosen.append(int(label))
    others = np.setdiff1d(np.arange(train.Y.shape[1]), chosen)
    return [
        ("random", random, np.arange(train.Y.shape[1])),
        (f"with {len(chosen)} new labels", with_new, np.concatenate([others, chosen])),
    ]


def _measured(
    name: str,
    case: str,
    is_late: np.ndarray,
    order: np.ndarray,
    train: Dataset,
    test: Dataset,
    options: argparse.Namespace,
) -> list[dict[str, Any]]:
    Y, Y_test = sp.csr_array(train.Y[:, order]), sp.csr_array(test.Y[:, order])
    texts = train.texts or []
    old, late = ([texts[row] for row in np.flatnonzero(is_late == flag)] for flag in (False, True))
    n_old = int(np.flatnonzero(np.bincount(Y[~is_late].indices, minlength=Y.shape[1])).max()) + 1
    if case == "random":
        n_old = Y.shape[1]
    inverse = JainPropensity().inverse(np.bincount(Y.indices, minlength=Y.shape[1]), Y.shape[0])
    first = _made(name, options.threads).fit(old, Y[~is_late][:, :n_old])
    earlier = (old, Y[~is_late][:, :n_old])
    jobs: dict[str, Callable[[], Any]] = {
        "refit": lambda: _made(name, options.threads).fit(texts, Y),
        "updated, late rows alone": lambda: copy.copy(first).update(late, Y[is_late]),
        "updated, with the earlier rows": lambda: copy.copy(first).update(late, Y[is_late], train=earlier),
    }
    seconds: dict[str, list[tuple[float, float]]] = {job: [] for job in jobs}
    made: dict[str, Any] = {}
    for _ in range(options.repeat):
        for job, run in jobs.items():
            start = time.perf_counter(), time.process_time()
            made[job] = run()
            seconds[job].append((time.perf_counter() - start[0], time.process_time() - start[1]))
    rows = []
    for job, learner in {"before": first, **made}.items():
        top = learner.predict_topk(test.texts or [], 5)
        found = evaluate(top, Y_test, inverse_propensity=inverse, ks=(1, 5))
        row: dict[str, Any] = {
            "recipe": name,
            "case": case,
            "model": job,
            **{metric: found[metric] for metric in METRICS},
        }
        if job in seconds:
            row["seconds"], row["cpu_seconds"] = (min(run[at] for run in seconds[job]) for at in (0, 1))
        rows.append(row)
    refit = next(row for row in rows if row["model"] == "refit")
    for row in rows:
        row["largest_loss"] = max(refit[metric] - row[metric] for metric in METRICS)
        if "seconds" in row:
            row["ratio"] = refit["seconds"] / row["seconds"]
            row["cpu_ratio"] = refit["cpu_seconds"] / row["cpu_seconds"]
    return rows


def _made(name: str, threads: int) -> TextLearner:
    learner = recipe(name)
    return TextLearner(learner=learner.set_params(n_jobs=threads))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    here = Path(__file__).resolve().parent
    parser.add_argument("--data", type=Path, default=here.parent.parent / "shared" / "data" / "eurlex57k")
    parser.add_argument(
        "--recipes",
        type=lambda text: text.split(","),
        default=list(RECIPES),
        help="recipes to measure, separated by commas",
    )
    parser.add_argument("--part", default="test", help="rows to evaluate on: test or dev")
    parser.add_argument("--share", type=float, default=0.1, help="share of late rows")
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

"""Networks over texts: their accuracy on real data, and that a step doesn't grow with the labels.

Each run has a process of its own. A variant is a recipe, or a recipe with parameters behind it, as
``xgrank passes=3 features.max_length=64 label_texts=none``. What is wanted stands under the tables. ``--steps``
measures a step of X-GRank with clusters for growing numbers of labels instead.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import longtail
from longtail.app.cli.arguments import parse_settings
from longtail.app.cli.train import compose
from longtail.engine.memory import peak_memory
from longtail.metrics import bootstrap, compare
from measure import CACHE, RESULTS, machine, table, write

METRICS = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5", "PSnDCG@5", "nDCG@5")
DEBIAN = "features.max_length=64"
VARIANTS = {
    "debian-tags": (
        "dismec",
        f"xgrank passes=4 {DEBIAN}",
        f"xgrank-bce passes=4 {DEBIAN}",
        f"xgrank passes=4 {DEBIAN} label_texts=none",
    ),
    "eurlex57k": ("dismec", "xml-cnn passes=10 features.max_length=500"),
}
COLUMNS = {
    "variant": ("variant", "{}"),
    **{metric: (metric, "{:.2f}") for metric in ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5")},
    "P@5, difference to dismec": ("difference P@5", "{}"),
    "checks": ("checks", "{}"),
    "train min": ("minutes", "{:.1f}"),
    "predict ms/row": ("predict_ms", "{:.2f}"),
    "peak MB": ("peak_memory_mb", "{:.0f}"),
}
STEP_COLUMNS = {
    "labels": ("labels", "{:,}"),
    "clusters": ("clusters", "{:,}"),
    "step ms": ("ms", "{:.1f}"),
    "of 10,000 labels": ("ratio", "{:.2f}"),
    "more memory in steps, MB": ("memory_mb", "{:.0f}"),
}


def main() -> int:
    """Measure, write the results and print the tables."""
    options = _options()
    if options.step:
        print(json.dumps(one_step(options.step, options.threads)))
        return 0
    if options.run:
        print(json.dumps(run(*options.run, options.data, options.threads)))
        return 0
    path = RESULTS / "networks.json"
    if options.steps:
        write(path, "steps", {"rows": step_times(options.threads)})
    for name in [] if options.steps else options.datasets:
        known = json.loads(path.read_text()).get(name, {}) if path.exists() else {}
        for variant in options.variants or VARIANTS[name]:
            if variant in known and not options.again:
                continue
            command = [sys.executable, __file__, "--run", name, variant, "--data", str(options.data)]
            command += [] if options.threads is None else ["--threads", str(options.threads)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            figures = json.loads(done.stdout.splitlines()[-1])
            print(name, figures, flush=True)
            write(path, name, {variant: figures})
    text = markdown(json.loads(path.read_text()))
    path.with_suffix(".md").write_text(text)
    print(text)
    return 0


def run(name: str, variant: str, data: Path, threads: int | None) -> dict[str, Any]:
    """Train one variant and take its figures; its ranking is kept for the differences of others."""
    from longtail.corpus import load
    from longtail.store import Model

    recipe, *settings = variant.split(" ")
    if name.startswith("debian"):
        train, test = (load(f"{name}:{part}") for part in ("train", "test"))
    else:
        train = load(data / name / "train.jsonl.xz")
        test = load(data / name / "test.jsonl.xz")
    parameters = parse_settings(settings)
    with_texts = parameters.pop("label_texts", "names") != "none"
    plan = compose(recipe, parameters, longtail.JainPropensity(), threads=threads, seed=0, memory_limit=None)
    if with_texts and getattr(plan.learner, "reads_label_texts", False):
        plan.set_params(learner__label_texts=train.label_names)
    start = time.perf_counter()
    with longtail.show_progress():
        plan.fit(train.texts, train.Y)
    seconds = time.perf_counter() - start
    model = Model(plan, label_names=train.label_names)
    truth, inverse = model.truth_and_weights(test)
    start = time.perf_counter()
    top = model.predict_topk(test, 5)
    predict = time.perf_counter() - start
    scores = bootstrap(top, truth, inverse_propensity=inverse)
    figures: dict[str, Any] = {"variant": variant, "minutes": seconds / 60, "peak_memory_mb": peak_memory() / 1e6}
    figures |= {metric: scores[metric].value for metric in METRICS}
    figures |= {f"half {metric}": (scores[metric].high - scores[metric].low) / 2 for metric in METRICS}
    figures["predict_ms"] = 1e3 * predict / test.n_rows
    history = getattr(plan.learner_, "history_", {})
    figures |= {"checks": len(history.get("loss", [])), "history": history}
    kept = CACHE / "rankings" / name
    kept.mkdir(parents=True, exist_ok=True)
    np.save(kept / f"{variant}.npy", top.labels)
    if variant != "dismec" and (kept / "dismec.npy").exists():
        one = np.load(kept / "dismec.npy")
        found = compare(one, top, truth, inverse_propensity=inverse, metrics=("P@1", "P@5"), permutations=1000)
        for metric in ("P@1", "P@5"):
            apart = found[metric]
            figures[f"difference {metric}"] = f"{apart.difference:+.2f} ({apart.low:+.2f} to {apart.high:+.2f})"
    if variant != "dismec":
        place = CACHE / "networks" / name
        place.mkdir(parents=True, exist_ok=True)
        model.save(place / variant.replace(" ", "_").replace("=", "-"))
    return figures


def step_times(threads: int | None) -> list[dict[str, Any]]:
    """Time of a step of X-GRank with clusters, for growing numbers of labels; the encoder is a small CNN."""
    rows = []
    for labels in (10_000, 100_000, 300_000):
        command = [sys.executable, __file__, "--step", str(labels)]
        command += [] if threads is None else ["--threads", str(threads)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        rows[-1]["ratio"] = rows[-1]["ms"] / rows[0]["ms"]
        print(rows[-1], flush=True)
    return rows


def one_step(labels: int, threads: int | None) -> dict[str, Any]:
    """Best time of some steps."""
    from longtail.engine.pool import thread_count
    from longtail.engine.torch_threads import one_torch_thread
    from longtail.learners import CNN, NeuralClassifier, RankingHead
    from longtail.learners.neural.batches import TokenRows
    from longtail.learners.neural.parallel import Place
    from longtail.learners.neural.training import Trainer

    rng = np.random.default_rng(0)
    n = max(20_000, labels // 4)
    X = sp.csr_array(rng.integers(2, 20_000, (n, 32)).astype(np.float32))
    own = (labels * rng.random((n, 5)) ** 2).astype(np.int64)
    Y = sp.csr_array((np.ones(n * 5, np.float32), own.ravel(), np.arange(0, 5 * n + 1, 5)), shape=(n, labels))
    Y.sum_duplicates()
    Y.data[:] = 1
    head = RankingHead(dimensions=128, cluster_size=64, flat_below=0, retrieved=32)
    learner = NeuralClassifier(encoder=CNN(), head=head, loss="grank", threads=threads)
    learner.n_rows_, learner.label_counts_ = n, np.bincount(Y.indices, minlength=labels)
    tokens = TokenRows(X)
    (level,) = head.levels(tokens, Y, None, 0, threads)
    with one_torch_thread():
        network = learner._begin(learner.encoder, head, level, tokens, X.shape[1], [])
        trainer = Trainer(network, tokens, Y, None, learner._settings(), thread_count(threads), Place())
        times, running = [], trainer.run(0)
        next(running)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(15):
            start = time.perf_counter()
            next(running)
            times.append(time.perf_counter() - start)
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    clusters = len(level.arrays["members"])
    return {"labels": labels, "clusters": clusters, "ms": 1e3 * min(times), "memory_mb": (after - before) / 1e3}


def markdown(report: dict[str, Any]) -> str:
    """Tables of all data sets."""
    lines = [machine(report), ""]
    for name in (name for name in report if isinstance(report[name], dict) and name not in ("machine", "steps")):
        rows = list(report[name].values())
        lines += [f"### {name}", "", *table(COLUMNS, rows), ""]
    if "steps" in report:
        lines += ["### A step of X-GRank with clusters", "", *table(STEP_COLUMNS, report["steps"]["rows"]), ""]
        lines.append("Wanted: a step with 100,000 labels takes at most 1.5 times that with 10,000.")
    return "\n".join(lines) + "\n"


def _options() -> argparse.Namespace:
    def names(text: str) -> list[str]:
        return text.split(";")

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(__file__).resolve().parents[2] / "shared" / "data")
    parser.add_argument("--datasets", type=names, default=list(VARIANTS), help="semicolons between them")
    parser.add_argument("--variants", type=names, help="recipes with parameters, semicolons between them")
    parser.add_argument("--threads", type=int, help="all cores by default; scores are the same for any number")
    parser.add_argument("--steps", action="store_true", help="measure a step for growing numbers of labels")
    parser.add_argument("--again", action="store_true", help="measure also what the results hold already")
    parser.add_argument("--step", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--run", nargs=2, metavar=("DATASET", "VARIANT"), help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

"""Networks over texts: accuracy on real data, and time per training step by number of labels.

Each run has its own process. A variant is a recipe, optionally followed by parameters, such as
``xgrank epochs=3 features.max_length=64 label_texts=none``. Targets are printed under the tables. ``--steps`` measures
the training step of XGrank with clusters for growing numbers of labels instead.
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
from longtail.cli.arguments import parse_settings
from longtail.metrics import bootstrap, compare, evaluate
from longtail.recipes.compose import compose
from longtail.runtime.memory import peak_memory
from measure import CACHE, RESULTS, machine, table, write

METRICS = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5", "PSnDCG@5", "nDCG@5")
SCORED = ("PSP@1", "PSP@3", "PSP@5", "PSnDCG@3", "PSnDCG@5")  # PSnDCG@1 is PSP@1
SHORT = "features.max_length=64"
VECTORS = "encoder.vectors=benchmarks/.cache/glove.npz"  # longtail data vectors makes it
SMALL = (
    f"{VECTORS} epochs=5 encoder.hidden_size=64 head.hidden_layer_sizes=[32] {SHORT} "
    "batch_size=64 micro_batch_size=64 learning_rate=0.002 head_learning_rate=0.002 precision=bfloat16"
)
FAST = "encoder=word-bag learning_rate=0.006 head_learning_rate=0.006 batch_size=128 micro_batch_size=128"  # minutes
TUNED = f"{SHORT} encoder.freeze=3"  # three of six layers are trained
APLC = f"{FAST} head.hidden_size=256 epochs=8"
EMBEDDING = "features=tfidf+embedding features.embedding.max_length=64"
WEIGHTINGS = ("", "pw-", "pw-cb-")
SPLITS, RESAMPLES = ("train", "test"), 500
VARIANTS = {
    "debian-tags": (
        "dismec",
        f"dismec {EMBEDDING}",
        f"xgrank epochs=4 {TUNED} evals_per_epoch=2",
        f"xgrank epochs=4 {TUNED} evals_per_epoch=2 label_texts=none",
        f"xgrank epochs=4 {TUNED} evals_per_epoch=2 row_power=0",
        f"xgrank-bce epochs=4 {TUNED} evals_per_epoch=2",
        f"xgrank {FAST} epochs=8 row_power=0",
        f"xgrank {FAST} epochs=8 row_power=0 label_texts=none",
        f"xgrank-bce {FAST} epochs=8",
        *(f"{weighting}attentionxml {SMALL}" for weighting in WEIGHTINGS),
        *(f"{weighting}aplc-xlnet {APLC}" for weighting in WEIGHTINGS),
    ),
    "tate-subjects": (
        "dismec",
        *(f"{weighting}attentionxml {SMALL} head.flat_below=300 head.top_k=10" for weighting in WEIGHTINGS),
        *(f"{weighting}aplc-xlnet {APLC}" for weighting in WEIGHTINGS),
    ),
    "eurlex57k": (
        "dismec",
        f"dismec {EMBEDDING}",
        "word-bag epochs=14 learning_rate=0.006 head_learning_rate=0.006 batch_size=128",  # the recipe's own
    ),
}
COLUMNS = {
    "variant": ("variant", "{}"),
    **{metric: (metric, "{:.2f}") for metric in ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5")},
    "P@5, difference to dismec": ("difference P@5", "{}"),
    "evaluations": ("evaluations", "{}"),
    "train min": ("minutes", "{:.1f}"),
    "predict ms/row": ("predict_ms", "{:.2f}"),
    "peak MB": ("peak_memory_mb", "{:.0f}"),
}
PAIR_COLUMNS = {
    "variant": ("variant", "{}"),
    "against": ("against", "{}"),
    **{metric: (metric, "{}") for metric in ("P@1", "P@5", "PSP@1", "PSP@5")},
    "mean of the propensity-scored": ("mean", "{}"),
}
STEP_COLUMNS = {
    "encoder": ("encoder", "{}"),
    "labels": ("labels", "{:,}"),
    "clusters": ("clusters", "{:,}"),
    "step ms": ("ms", "{:.1f}"),
    "relative to 10,000 labels": ("ratio", "{:.2f}"),
    "memory growth, MB": ("memory_mb", "{:.0f}"),
}


def main() -> int:
    """Measure, write the results and print the tables."""
    options = _options()
    if options.step:
        print(json.dumps(one_step(options.step[0], int(options.step[1]), options.threads)))
        return 0
    if options.run:
        print(json.dumps(run(*options.run, options.data, options.threads)))
        return 0
    path = RESULTS / "networks.json"
    if options.blend:
        name, *both = options.blend
        write(path, "blends", {name: blend(name, *both, options.data)})
    if options.steps:
        write(path, "steps", {"rows": step_times(options.threads)})
    for name in [] if options.steps or options.blend else options.datasets:
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
    for name in [] if options.steps or options.blend else options.datasets:
        known = json.loads(path.read_text()).get(name, {})
        earlier = json.loads(path.read_text()).get("pairs", {}).get(name, {})
        write(path, "pairs", {name: earlier | pairs(name, known, options.data)})
    text = markdown(json.loads(path.read_text()))
    path.with_suffix(".md").write_text(text)
    print(text)
    return 0


def run(name: str, variant: str, data: Path, threads: int | None) -> dict[str, Any]:
    """Train and measure one variant; its ranking is kept to compare others with."""
    from longtail.store import Model

    recipe, *settings = variant.split(" ")
    train, test = parts_of(name, data)
    parameters = parse_settings(settings)
    with_texts = parameters.pop("label_texts", "names") != "none"
    plan = compose(recipe, parameters, longtail.JainPropensity())
    if with_texts and getattr(plan.learner, "reads_label_texts", False):
        plan.set_params(learner__label_texts=train.label_names)
    start = time.perf_counter()
    with longtail.config_context(n_jobs=threads), longtail.show_progress():
        plan.fit(train.texts, train.Y)
    seconds = time.perf_counter() - start
    model = Model(plan, label_names=train.label_names)
    truth, _, inverse = model.truth(test)
    start = time.perf_counter()
    top = model.predict_topk(test, 5)
    predict = time.perf_counter() - start
    scores = bootstrap(top, truth, inverse_propensity=inverse)
    figures: dict[str, Any] = {"variant": variant, "minutes": seconds / 60, "peak_memory_mb": peak_memory() / 1e6}
    figures |= {metric: scores[metric].value for metric in METRICS}
    figures |= {f"half {metric}": (scores[metric].high - scores[metric].low) / 2 for metric in METRICS}
    figures["predict_ms"] = 1e3 * predict / test.n_rows
    history = getattr(plan.learner_, "history_", {})
    figures |= {"evaluations": len(history.get("loss", [])), "history": history}
    ranking_of(name, variant).parent.mkdir(parents=True, exist_ok=True)
    np.save(ranking_of(name, variant), top.labels)
    if variant != "dismec" and ranking_of(name, "dismec").exists():
        one = np.load(ranking_of(name, "dismec"))
        found = compare(one, top, truth, inverse_propensity=inverse, metrics=("P@1", "P@5"), permutations=1000)
        for metric in ("P@1", "P@5"):
            apart = found[metric]
            figures[f"difference {metric}"] = f"{apart.difference:+.2f} ({apart.low:+.2f} to {apart.high:+.2f})"
    place_of(name, variant).parent.mkdir(parents=True, exist_ok=True)
    model.save(place_of(name, variant))
    return figures


def place_of(name: str, variant: str) -> Path:
    """Return the directory of a trained variant."""
    return CACHE / "networks" / name / variant.replace(" ", "_").replace("=", "-").replace("/", "-")


def ranking_of(name: str, variant: str) -> Path:
    """Return the file with the five best labels of each test row."""
    return CACHE / "rankings" / name / f"{place_of(name, variant).name}.npy"


def blend(name: str, first: str, second: str, data: Path) -> dict[str, Any]:
    """Blend two trained variants with weights from the dev rows, and compare the blend with both on the test rows."""
    from longtail.data import load
    from longtail.learners import Blend
    from longtail.store import Model

    models = [Model.load(place_of(name, variant)) for variant in (first, second)]
    dev = load(data / name / "dev.jsonl.xz", label_names=models[0].label_names)
    test = load(data / name / "test.jsonl.xz", label_names=models[0].label_names)
    truth, _, _ = models[0].truth(dev)
    learners, X, y = [model.learner for model in models], models[0].rows(dev), truth[:, : models[0].n_labels]
    learner = Blend.from_fitted(learners, X, y, names=[first, second])
    models.append(Model(learner, label_names=models[0].label_names))
    truth, _, inverse = models[-1].truth(test)
    tops = [model.predict_topk(test, 5) for model in models]
    scores = [bootstrap(top, truth, inverse_propensity=inverse) for top in tops]
    figures: dict[str, Any] = {"variant": f"blend of {first} and {second}", "weights": learner.weights_.tolist()}
    figures |= {metric: scores[-1][metric].value for metric in METRICS}
    for number, variant in enumerate((first, second)):
        found = compare(tops[number], tops[-1], truth, inverse_propensity=inverse, metrics=("P@1", "P@5"))
        for metric in ("P@1", "P@5"):
            apart = found[metric]
            figures[f"{metric} against {variant}"] = f"{apart.difference:+.2f} ({apart.low:+.2f} to {apart.high:+.2f})"
    return figures


def parts_of(name: str, data: Path) -> tuple[Any, Any]:
    """Return training and test rows as texts, with the same label ids."""
    from longtail.data import load

    files = [f"{name}:{part}" if name.startswith("debian") else data / name / f"{part}.jsonl.xz" for part in SPLITS]
    train = load(files[0])
    return train, load(files[1], label_names=train.label_names)


def base_of(variant: str) -> str | None:
    """Return the variant to compare with: the same without the weighting, or without what it adds."""
    for added in ("pw-cb-", "pw-"):
        if variant.startswith(added):
            return variant.removeprefix(added)
    if " features=tfidf+embedding" in variant:
        return variant.partition(" features=")[0]
    if variant.startswith("xgrank ") and "label_texts=none" not in variant:
        return variant.replace("xgrank", "xgrank-bce", 1).replace(" row_power=0", "")
    return variant.removesuffix(" label_texts=none") if "label_texts=none" in variant else None


def pairs(name: str, known: dict[str, Any], data: Path) -> dict[str, Any]:
    """Return differences between variants and their bases on the same test rows, with bootstrap intervals."""
    wanted = [
        (variant, base)
        for variant in known
        if (base := base_of(variant)) in known and all(ranking_of(name, one).exists() for one in (variant, base))
    ]
    if not wanted:
        return {}
    train, test = parts_of(name, data)
    counts = np.pad(train.label_counts, (0, test.n_labels - train.n_labels))
    inverse = longtail.JainPropensity().inverse(counts, train.n_rows)
    rng, found = np.random.default_rng(0), {}
    resamples = [np.arange(test.n_rows), *(rng.integers(0, test.n_rows, test.n_rows) for _ in range(RESAMPLES))]
    for variant, base in wanted:
        tops = [np.load(ranking_of(name, one)) for one in (base, variant)]
        rows: dict[str, list[float]] = {}
        for chosen in resamples:
            one, other = (evaluate(top[chosen], test.Y[chosen], inverse_propensity=inverse) for top in tops)
            apart = {metric: other[metric] - one[metric] for metric in (*SCORED, "P@1", "P@5")}
            apart["mean"] = float(np.mean([apart[metric] for metric in SCORED]))
            for metric, value in apart.items():
                rows.setdefault(metric, []).append(value)
        told = {}
        for metric, values in rows.items():
            low, high = np.percentile(values[1:], [2.5, 97.5])
            told[metric] = f"{values[0]:+.2f} ({low:+.2f} to {high:+.2f})"
        found[variant] = {"variant": variant, "against": base, **told}
    return found


def step_times(threads: int | None) -> list[dict[str, Any]]:
    """Measure a training step of XGrank with clusters, for growing numbers of labels.

    The encoder is that of the recipe, or a small CNN, so that the head takes a larger share of the time.
    """
    rows: list[dict[str, Any]] = []
    for encoder in ("minilm", "cnn"):
        first = len(rows)
        for labels in (10_000, 100_000, 300_000):
            command = [sys.executable, __file__, "--step", encoder, str(labels)]
            command += [] if threads is None else ["--threads", str(threads)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            rows.append(json.loads(done.stdout.splitlines()[-1]))
            rows[-1]["ratio"] = rows[-1]["ms"] / rows[first]["ms"]
            print(rows[-1], flush=True)
    return rows


def one_step(encoder: str, labels: int, threads: int | None) -> dict[str, Any]:
    """Return the best time of 15 steps with rows of 64 tokens."""
    from longtail.config import own_jobs
    from longtail.learners import CNN, NeuralClassifier, Pretrained, RankingHead
    from longtail.learners.neural.batches import TokenRows
    from longtail.learners.neural.training import TrainableNetwork
    from longtail.runtime.library_threads import one_torch_thread

    rng = np.random.default_rng(0)
    n = max(20_000, labels // 4)
    X = sp.csr_array(rng.integers(2, 20_000, (n, 64)).astype(np.float32))
    own = (labels * rng.random((n, 5)) ** 2).astype(np.int64)
    Y = sp.csr_array((np.ones(n * 5, np.float32), own.ravel(), np.arange(0, 5 * n + 1, 5)), shape=(n, labels))
    Y.sum_duplicates()
    Y.data[:] = 1
    head = RankingHead(embedding_dim=512, cluster_size=64, flat_below=0, retrieved=32)
    body = CNN() if encoder == "cnn" else Pretrained("minilm", layers=5)
    learner = NeuralClassifier(encoder=body, head=head, loss="grank", n_jobs=threads)
    learner.n_rows_, learner.label_counts_ = n, np.bincount(Y.indices, minlength=labels)
    tokens = TokenRows(X)
    (level,) = head.levels(tokens, Y, None, 0)
    with one_torch_thread(), own_jobs(threads):
        network = learner._begin(learner.encoder, head, level, tokens, X.shape[1], [])
        model = TrainableNetwork(network, tokens, Y, None, learner)
        times = []
        model.start_epoch(0)
        model.training_step(0)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for step in range(1, 16):
            start = time.perf_counter()
            model.training_step(step)
            times.append(time.perf_counter() - start)
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    clusters = len(level.arrays["members"])
    return {
        "encoder": encoder,
        "labels": labels,
        "clusters": clusters,
        "ms": 1e3 * min(times),
        "memory_mb": (after - before) / 1e3,
    }


def markdown(report: dict[str, Any]) -> str:
    """Return the tables of all data sets."""
    lines = [machine(report), ""]
    for name in (name for name in report if name in VARIANTS):
        lines += [f"### {name}", "", *table(COLUMNS, list(report[name].values())), ""]
        if report.get("pairs", {}).get(name):
            lines += ["Differences on the same test rows, with 95 % intervals:", ""]
            lines += [*table(PAIR_COLUMNS, list(report["pairs"][name].values())), ""]
    for name, found in report.get("blends", {}).items():
        lines += [f"### Blend on {name}", ""]
        lines += [
            f"- {key}: {value:.2f}" if isinstance(value, float) else f"- {key}: {value}" for key, value in found.items()
        ]
        lines.append("")
    if "steps" in report:
        lines += ["### A step of XGrank with clusters", "", *table(STEP_COLUMNS, report["steps"]["rows"]), ""]
        lines.append(
            "32 rows of 64 tokens; 32 clusters of 64 labels are retrieved; embeddings of size 512. Target: a step with "
            "100,000 labels takes at most 1.5 times as long as one with 10,000."
        )
    return "\n".join(lines) + "\n"


def _options() -> argparse.Namespace:
    def names(text: str) -> list[str]:
        return text.split(";")

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(__file__).resolve().parents[2] / "shared" / "data")
    parser.add_argument("--datasets", type=names, default=list(VARIANTS), help="data sets, separated by semicolons")
    parser.add_argument("--variants", type=names, help="recipes with parameters, separated by semicolons")
    parser.add_argument("--threads", type=int, help="all cores by default; scores are the same for any number")
    parser.add_argument("--steps", action="store_true", help="measure training steps for growing numbers of labels")
    parser.add_argument(
        "--blend",
        nargs=3,
        metavar=("DATASET", "VARIANT", "VARIANT"),
        help="blend two trained variants, with weights from the dev rows",
    )
    parser.add_argument("--again", action="store_true", help="measure again what the results contain already")
    parser.add_argument("--step", nargs=2, metavar=("ENCODER", "LABELS"), help=argparse.SUPPRESS)
    parser.add_argument("--run", nargs=2, metavar=("DATASET", "VARIANT"), help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

"""GLaS: the ablation of table 1 of the paper, and the generalisation gap of its table 2.

Each variant changes one parameter of the recipe `glas`. Each run has its own process and reports its scores with
intervals, their differences to the recipe on the same rows, P@1 on training rows, time and memory. Targets are printed
under each table.
"""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import longtail
from data import prepare
from longtail.metrics import bootstrap, compare
from longtail.runtime.memory import peak_memory
from measure import CACHE, RESULTS, machine, table, write

DATASETS = ("eurlex57k", "tate-subjects")
METRICS = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5")
DIFFERENCES = (
    "Differences are to GLaS with the same dropout and seed for other regularisers, and to the recipe otherwise; 95 % "
    "intervals on the same test rows are in parentheses."
)
REGULARISERS = ("None", "spread-out", "gravity", "glas")
VARIANTS: dict[str, dict[str, Any]] = {  # regulariser_weight per label, 0.1 in the recipe
    "glas": {},
    "dismec": {},
    "regulariser=None": {"regulariser": None},
    "regulariser=spread-out": {"regulariser": "spread-out"},
    "regulariser=gravity": {"regulariser": "gravity"},
    "regulariser=laplacian": {"regulariser": "laplacian"},
    **{f"random_state={seed}": {"random_state": seed} for seed in (1, 2)},
    **{
        f"regulariser={regulariser},random_state={seed}": {"regulariser": regulariser, "random_state": seed}
        for regulariser in (None, "spread-out", "gravity")
        for seed in (1, 2)
    },
    "input_dropout=0": {"input_dropout": 0.0},
    "input_dropout=0,random_state=1": {"input_dropout": 0.0, "random_state": 1},
    **{
        f"regulariser={regulariser},input_dropout=0{seeded}": {
            "regulariser": regulariser,
            "input_dropout": 0.0,
            "random_state": seed,
        }
        for regulariser in (None, "spread-out", "gravity")
        for seed, seeded in ((0, ""), (1, ",random_state=1"))
    },
    "regulariser_weight / 10": {"regulariser_weight": 0.01},
    "regulariser_weight * 10": {"regulariser_weight": 1.0},
    "sampling=rows": {"sampling": "rows"},
    "input_dropout=0.5": {"input_dropout": 0.5},
    "batch_size=256": {"batch_size": 256},
    "batch_size=1024": {"batch_size": 1024},
    "embedding_dim=256": {"embedding_dim": 256},
    "embedding_dim=1024": {"embedding_dim": 1024},
    "activation=linear": {"activation": "linear"},
    "hidden_layer_sizes=512": {"hidden_layer_sizes": [512]},
    "loss=softmax": {"loss": "softmax"},
    "loss=margin": {"loss": "margin"},
    "loss=negative-mining": {"loss": "negative-mining"},
    "adjacency=geometric": {"adjacency": "geometric"},
    "adjacency=jaccard": {"adjacency": "jaccard"},
    "adjacency=pmi": {"adjacency": "pmi"},
    "weighting=pw-cb": {"weighting": "pw-cb"},
}
COLUMNS = {
    "variant": ("variant", "{}"),
    **{metric: (metric, "{:.2f}") for metric in METRICS},
    "P@1, difference": ("difference P@1", "{}"),
    "PSP@1, difference": ("difference PSP@1", "{}"),
    "validation nDCG@5": ("validation", "{:.2f}"),
    "P@1 in training": ("train P@1", "{:.2f}"),
    "gap": ("gap", "{:.2f}"),
    "epochs": ("epochs", "{}"),
    "train s": ("seconds", "{:.0f}"),
    "peak MB": ("peak_memory_mb", "{:.0f}"),
    "predict us/row": ("predict_us", "{:.0f}"),
}


def main() -> int:
    """Measure, write the results and print the tables."""
    options = _options()
    if options.run:
        print(json.dumps(run(*options.run, options.data, options.threads)))
        return 0
    path = RESULTS / "embeddings.json"
    for name in options.datasets:
        known = json.loads(path.read_text()).get(name, {}) if path.exists() else {}
        for variant in options.variants:
            if variant in known and not options.again:
                continue
            command = [sys.executable, __file__, "--run", name, variant, "--data", str(options.data)]
            command += [] if options.threads is None else ["--threads", str(options.threads)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            figures = json.loads(done.stdout.splitlines()[-1])
            print(name, figures, flush=True)
            write(path, name, {variant: figures})
    report = json.loads(path.read_text())
    text = markdown(report)
    path.with_suffix(".md").write_text(text)
    print(text)
    return 0


def run(name: str, variant: str, data: Path, threads: int | None) -> dict[str, Any]:
    """Train and measure one variant; its ranking is kept to compare others with."""
    folder = prepare(name, data, CACHE, as_is=True)
    X, Y, X_test, Y_test = (
        sp.csr_array(sp.load_npz(folder / f"{part}.{matrix}.npz")) for part in ("train", "test") for matrix in "XY"
    )
    params = dict(VARIANTS.get(variant) or given(variant))
    if "regulariser_weight" in params:
        params["regulariser_weight"] *= Y.shape[1]
    learner = longtail.recipe("dismec" if variant == "dismec" else "glas", n_jobs=threads, **params)
    start = time.perf_counter()
    learner.fit(X, Y)
    seconds = time.perf_counter() - start
    memory = peak_memory()
    top = learner.predict_topk(X_test, 5)
    predict = min(_seconds(lambda: learner.predict_topk(X_test, 5)) for _ in range(3))
    inverse = longtail.JainPropensity().inverse(learner.label_counts_, learner.n_rows_)
    scores = bootstrap(top, Y_test, inverse_propensity=inverse)
    sample = np.sort(np.random.default_rng(0).choice(X.shape[0], X_test.shape[0], replace=False))
    trained = longtail.evaluate(learner.predict_topk(X[sample], 1), Y[sample], ks=(1,))["P@1"]
    figures: dict[str, Any] = {"variant": variant, "seconds": seconds, "peak_memory_mb": memory / 1e6}
    figures |= {metric: scores[metric].value for metric in METRICS}
    figures |= {f"half {metric}": (scores[metric].high - scores[metric].low) / 2 for metric in METRICS}
    figures |= {"train P@1": trained, "gap": trained - figures["P@1"], "predict_us": 1e6 * predict / X_test.shape[0]}
    kept = CACHE / "rankings" / name
    kept.mkdir(parents=True, exist_ok=True)
    np.save(kept / f"{variant.replace('/', 'over')}.npy", top.labels)
    base = base_of(variant)
    if variant != base and (kept / f"{base}.npy").exists():
        one = np.load(kept / f"{base}.npy")
        found = compare(one, top, Y_test, inverse_propensity=inverse, metrics=("P@1", "PSP@1"), permutations=1000)
        for metric in ("P@1", "PSP@1"):
            apart = found[metric]
            figures[f"difference {metric}"] = f"{apart.difference:+.2f} ({apart.low:+.2f} to {apart.high:+.2f})"
    if variant != "dismec":
        figures["epochs"] = len(learner.history_["loss"])
        figures["validation"] = max(learner.history_["validation"])
        figures["rows_per_second"] = float(np.mean(learner.history_["rows_per_second"]))
    return figures


def base_of(variant: str) -> str:
    """Return what to compare with: GLaS with the same dropout and seed for other regularisers, else the recipe."""
    parts = variant.split(",")
    if not parts[0].startswith("regulariser="):
        return "glas"
    return ",".join(parts[1:]) or "glas"


def given(variant: str) -> dict[str, Any]:
    """Return the parameters of a variant without a name, given as name=value,name=value."""
    pairs = (part.split("=", 1) for part in variant.split(",") if "=" in part)
    return {name: _value(text) for name, text in pairs}


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _seconds(call: Any) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def markdown(report: dict[str, Any]) -> str:
    """Return the tables of all data sets."""
    lines = [machine(report), "", DIFFERENCES, ""]
    for name in (name for name in DATASETS if name in report):
        found = report[name]
        rows = [found[variant] for variant in (*VARIANTS, *(set(found) - set(VARIANTS))) if variant in found]
        lines += [f"### {name}", "", *table(COLUMNS, rows), ""]
        lines += ["| compared | measured | target | reached |", "|---|---|---|---|", *_bars(name, found), ""]
    return "\n".join(lines)


def _bars(name: str, found: dict[str, Any]) -> Iterator[str]:
    dropout = max(
        ("", ",input_dropout=0"), key=lambda dropout: _mean_of_seeds(found, "glas", dropout).get("validation", 0.0)
    )
    means = {regulariser: _mean_of_seeds(found, regulariser, dropout) for regulariser in REGULARISERS}
    means = {regulariser: mean for regulariser, mean in means.items() if mean}
    if len(means) > 1 and "glas" in means:
        where = f"mean of {means['glas']['seeds']} seeds, with the dropout that is best on validation rows"
        for metric in ("P@1", "PSP@1"):
            listed = ", ".join(f"{regulariser} {mean[metric]:.2f}" for regulariser, mean in means.items())
            best = max(mean[metric] for regulariser, mean in means.items() if regulariser != "glas")
            what = f"{metric} over the best other regulariser, {where}{dropout or ', that of the recipe'} ({listed})"
            yield _bar(what, means["glas"][metric] - best, -0.3)
        if "regulariser=None,input_dropout=0" in found:
            more = found["regulariser=None,input_dropout=0"]["gap"] - found["glas"]["gap"]
            yield _bar("gap without regulariser and dropout over that of glas (table 2)", more, 0.0)
    if name == "eurlex57k" and "glas" in found:
        ours = found["glas"]
        mean = _mean_of_seeds(found, "glas", "")
        yield _bar("PSP@1, mean of the seeds", mean["PSP@1"], 49.0)
        yield _bar("P@1, mean of the seeds", mean["P@1"], 89.5)
        yield _bar("training, minutes", ours["seconds"] / 60, 20.0, below=True)
        yield _bar("peak memory, GB", ours["peak_memory_mb"] / 1e3, 4.0, below=True)


def _mean_of_seeds(found: dict[str, Any], regulariser: str, dropout: str) -> dict[str, float]:
    """Return means over the runs with a regulariser and a dropout that differ only in the seed."""
    plain = f"regulariser={regulariser}{dropout}" if regulariser != "glas" else dropout[1:]
    seeded = [",".join(filter(None, (plain, f"random_state={seed}"))) for seed in (1, 2)]
    rows = [found[variant] for variant in (plain or "glas", *seeded) if variant in found]
    if not rows:
        return {}
    names = (*METRICS, "gap", "validation")
    return {"seeds": len(rows), **{key: float(np.mean([row[key] for row in rows])) for key in names}}


def _bar(what: str, measured: float, wanted: float, *, below: bool = False) -> str:
    reached = measured <= wanted if below else measured >= wanted
    return f"| {what} | {measured:.2f} | {'<=' if below else '>='} {wanted:g} | {'yes' if reached else 'no'} |"


def _options() -> argparse.Namespace:
    def names(text: str) -> list[str]:
        return text.split(";")

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(__file__).resolve().parents[2] / "shared" / "data")
    parser.add_argument("--datasets", type=names, default=list(DATASETS), help="data sets, separated by semicolons")
    parser.add_argument(
        "--variants",
        type=names,
        default=list(VARIANTS),
        help="variants, separated by semicolons; others as name=value,name=value",
    )
    parser.add_argument("--threads", type=int, help="all cores by default; scores are the same for any number")
    parser.add_argument("--again", action="store_true", help="measure again what the results contain already")
    parser.add_argument("--run", nargs=2, metavar=("DATASET", "VARIANT"), help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

"""Methods for rare labels around other learners: the tail dial, RankNet, TAug and stacking.

For each recipe: scores with intervals, the curve of its tail dial, training and prediction time. RankNet is compared
with the dial of its own base at equal P@1, and with a RankNet trained on scores of rows that the base was trained on.
Targets are printed under each table.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

import longtail
from data import prepare
from longtail.metrics import bootstrap, compare
from longtail.rerank import RankNet, dial_curve
from measure import CACHE, RESULTS, machine, table, write
from tail_plots import draw_fronts

DATASETS = ("bibtex", "tate-subjects", "eurlex57k")
RECIPES = (
    "dismec", "pw-cb-dismec", "ranknet+dismec", "ranknet+pw-cb-dismec", "taug+dismec", "parabel", "ranknet+parabel",
    "bonsai", "ips+bonsai", "ranknet+bonsai", "taug+bonsai", "ranknet+taug+bonsai", "pw-cb-bonsai",
    "ranknet+pw-cb-bonsai", "taug+pw-cb-bonsai", "ranknet+taug+pw-cb-bonsai", "longtail-tree", "longtail-tail",
    "fastxml", "ranknet+fastxml",
)  # fmt: skip
TAILS = tuple(step / 10 for step in range(11))
METRICS = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5")
COLUMNS = {
    "recipe": ("recipe", "{}"),
    **{metric: (metric, "{:.2f}") for metric in METRICS},
    "± PSP@1": ("half PSP@1", "{:.2f}"),
    "± PSP@5": ("half PSP@5", "{:.2f}"),
    "train s": ("train_seconds", "{:.1f}"),
    "RankNet s": ("ranknet_seconds", "{:.1f}"),
    "predict us/row": ("predict_us", "{:.0f}"),
}
AGAINST_DIAL = {
    "RankNet around": ("base", "{}"),
    "P@1": ("P@1", "{:.2f}"),
    "dial at": ("tail", "{:.2f}"),
    **{f"{metric} - dial's": (f"{metric} text", "{}") for metric in ("P@1", "P@5", "PSP@1", "PSP@3", "PSP@5")},
}


class Data(NamedTuple):
    """Rows and labels to train on and to test on."""

    X: sp.csr_array
    Y: sp.csr_array
    X_test: sp.csr_array
    Y_test: sp.csr_array


def main() -> int:
    """Measure, write the results and print the tables."""
    options = _options()
    path = RESULTS / "tail.json"
    for name in options.datasets:
        folder = prepare(name, options.data, CACHE, as_is=True)
        files = (folder / f"{part}.{matrix}.npz" for part in ("train", "test") for matrix in "XY")
        data = Data(*(sp.csr_array(sp.load_npz(file)) for file in files))
        known = json.loads(path.read_text()).get(name, {}) if path.exists() else {}
        for recipe in options.recipes:
            if recipe in known and not options.again:
                continue
            figures = measure(recipe, data)
            print(name, {key: value for key, value in figures.items() if key != "curve"}, flush=True)
            write(path, name, {recipe: figures})
    report = json.loads(path.read_text())
    text = markdown(report)
    path.with_suffix(".md").write_text(text)
    draw_fronts({name: report[name] for name in DATASETS if name in report}, RESULTS / "tail_fronts.svg")
    print(text)
    return 0


def measure(recipe: str, data: Data) -> dict[str, Any]:
    """Train and measure a recipe."""
    X, Y, X_test, Y_test = data
    learner = longtail.recipe(recipe, n_jobs=2)
    with _timed_ranknet() as of_ranknet:
        start = time.perf_counter()
        learner.fit(X, Y)
        seconds = time.perf_counter() - start
    top = learner.predict_topk(X_test, 5)
    predict = min(_seconds(lambda: learner.predict_topk(X_test, 5)) for _ in range(3))
    inverse = longtail.JainPropensity().inverse(np.bincount(Y.indices, minlength=Y.shape[1]), Y.shape[0])
    scores = bootstrap(top, Y_test, inverse_propensity=inverse)
    figures: dict[str, Any] = {
        "recipe": recipe,
        "train_seconds": seconds,
        "predict_us": 1e6 * predict / X_test.shape[0],
    }
    figures |= {metric: scores[metric].value for metric in METRICS}
    figures |= {f"half {metric}": (scores[metric].high - scores[metric].low) / 2 for metric in METRICS}
    figures["curve"] = [point._asdict() for point in dial_curve(learner, X_test, Y_test, tails=TAILS)]
    if isinstance(learner, RankNet):
        figures |= {"ranknet_seconds": of_ranknet[0], "tail": learner.tail_}
        figures["against_dial"] = against_dial(learner, top, X_test, Y_test, inverse)
        if recipe == "ranknet+dismec":
            figures["in_sample"] = in_sample(learner, data, inverse)
    return figures


def against_dial(net: RankNet, top: longtail.TopK, X: sp.csr_array, Y: sp.csr_array, inverse: Any) -> dict[str, Any]:
    """Compare RankNet with the dial position of its base that is closest in P@1; of several, the highest."""
    wanted = longtail.evaluate(top, Y, ks=(1,))["P@1"]
    tails = [step / 20 for step in range(21)]
    at_1 = [longtail.evaluate(net.learner_.predict_topk(X, 1, tail=tail), Y, ks=(1,))["P@1"] for tail in tails]
    tail = max(tails, key=lambda tail: (-abs(at_1[tails.index(tail)] - wanted), tail))
    dialled = net.learner_.predict_topk(X, 5, tail=tail)
    names = ("P@1", "P@5", "PSP@1", "PSP@3", "PSP@5")
    found = compare(dialled, top, Y, inverse_propensity=inverse, metrics=names, permutations=1000)
    return {"tail": tail} | {name: [found[name].difference, found[name].low, found[name].high] for name in names}


def in_sample(net: RankNet, data: Data, inverse: Any) -> dict[str, float]:
    """Return the scores of a RankNet trained on scores of rows that the base was trained on."""
    params = net.get_params(deep=False) | {"folds": 1, "tail": net.tail_}
    top = RankNet(**params).fit(data.X, data.Y).predict_topk(data.X_test, 5)
    scores = longtail.evaluate(top, data.Y_test, inverse_propensity=inverse)
    return {metric: scores[metric] for metric in METRICS}


class _timed_ranknet:  # noqa: N801
    """Sum the seconds of training RankNet itself."""

    def __enter__(self) -> list[float]:
        self._train, seconds = RankNet._train, [0.0]

        def timed(net: RankNet, *arguments: Any) -> None:
            start = time.perf_counter()
            self._train(net, *arguments)
            seconds[0] += time.perf_counter() - start

        RankNet._train = timed  # type: ignore[method-assign]
        return seconds

    def __exit__(self, *error: object) -> None:
        RankNet._train = self._train  # type: ignore[method-assign]


def _seconds(call: Any) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def markdown(report: dict[str, Any]) -> str:
    """Return the tables of all data sets."""
    lines = [machine(report), "", "± is half of a 95 % bootstrap interval.", ""]
    for name in (name for name in DATASETS if name in report):
        rows = [report[name][recipe] for recipe in RECIPES if recipe in report[name]]
        lines += [f"### {name}", "", *table(COLUMNS, rows), ""]
        nets = [row for row in rows if "against_dial" in row]
        if nets:
            lines += ["At equal P@1, RankNet and the dial of its own base:", ""]
            lines += [*table(AGAINST_DIAL, (_against(row) for row in nets)), ""]
        for row in (row for row in nets if "in_sample" in row):
            found = ", ".join(f"{metric} {row['in_sample'][metric]:.2f}" for metric in METRICS)
            lines += [f"{row['recipe']} trained on scores of rows that its base had seen: {found}.", ""]
        lines += ["| compared | measured | target | reached |", "|---|---|---|---|", *_bars(name, report[name]), ""]
    return "\n".join(lines)


def _against(row: dict[str, Any]) -> dict[str, Any]:
    found = row["against_dial"]
    text = {
        f"{name} text": f"{value[0]:+.2f} ({value[1]:+.2f} to {value[2]:+.2f})"
        for name, value in found.items()
        if name != "tail"
    }
    return {"base": row["recipe"].removeprefix("ranknet+"), "P@1": row["P@1"], "tail": found["tail"], **text}


def _bars(name: str, found: dict[str, Any]) -> Iterator[str]:
    for base in ("bonsai", "parabel", "fastxml"):
        if {base, f"ranknet+{base}"} <= set(found):
            plain, net = found[base], found[f"ranknet+{base}"]
            yield _bar(f"ranknet+{base}, PSP@1", net["PSP@1"] - plain["PSP@1"], 4.0 if name == "eurlex57k" else 0.0)
            yield _bar(f"ranknet+{base}, mean PSP", _mean(net) - _mean(plain), 2.5 if name == "eurlex57k" else 0.0)
            yield _bar(f"ranknet+{base}, P@1", net["P@1"] - plain["P@1"], -2.0)
            yield _bar(
                f"RankNet's training over {base}'s", net["ranknet_seconds"] / plain["train_seconds"], 1.0, below=True
            )
            yield _bar(
                f"ranknet+{base}, time per row over {base}'s", net["predict_us"] / plain["predict_us"], 1.5, below=True
            )
    if name == "bibtex":
        return  # so many rows per label that there is no tail
    if {"bonsai", "taug+bonsai"} <= set(found):
        yield _bar("taug+bonsai, mean PSP", _mean(found["taug+bonsai"]) - _mean(found["bonsai"]), 1.0)
        yield _bar(
            "taug+bonsai, training over bonsai's",
            found["taug+bonsai"]["train_seconds"] / found["bonsai"]["train_seconds"], 5.0, below=True,
        )  # fmt: skip
    if {"bonsai", "ranknet+taug+bonsai"} <= set(found):
        yield _bar("ranknet+taug+bonsai, PSP@1", found["ranknet+taug+bonsai"]["PSP@1"] - found["bonsai"]["PSP@1"], 5.0)
    wanted = {"eurlex57k": (91.0, 58.5, 68.2), "tate-subjects": (74.0, 33.0, 39.5)}
    if name in wanted and "longtail-tail" in found:
        for metric, least in zip(("P@1", "PSP@1", "PSP@5"), wanted[name], strict=True):
            yield _bar(f"longtail-tail, {metric}", found["longtail-tail"][metric], least)
        best = found["longtail-tail"]
        rivals = [row["PSP@5"] for row in found.values() if row["P@1"] >= best["P@1"] and row is not best]
        yield _bar("longtail-tail, PSP@5 over any with as high a P@1", best["PSP@5"] - max(rivals, default=0.0), 0.0)


def _mean(row: dict[str, Any]) -> float:
    return float(np.mean([row[f"PSP@{k}"] for k in (1, 3, 5)]))


def _bar(what: str, measured: float, wanted: float, *, below: bool = False) -> str:
    reached = measured <= wanted if below else measured >= wanted
    sign = "<=" if below else ">="
    return f"| {what} | {measured:.2f} | {sign} {wanted:g} | {'yes' if reached else 'no'} |"


def _options() -> argparse.Namespace:
    def names(text: str) -> list[str]:
        return text.split(",")

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(__file__).resolve().parents[2] / "shared" / "data")
    parser.add_argument("--datasets", type=names, default=list(DATASETS))
    parser.add_argument("--recipes", type=names, default=list(RECIPES))
    parser.add_argument("--again", action="store_true", help="measure again what the results contain already")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

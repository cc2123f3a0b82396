"""longtail's text features against scikit-learn's TfidfVectorizer: same texts, same settings, alternating runs.

fit_transform of the training texts, transform of the test texts, and transform of one short text at a time as in a
server. scikit-learn is single-threaded. The values must agree to 1e-5.
"""

from __future__ import annotations

import argparse
import json
import lzma
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

from longtail.features.tfidf.tfidf import Tfidf

HERE = Path(__file__).resolve().parent
TOLERANCE = 1e-5
SHORT = 300


def main() -> int:
    """Measure both in turns, check that the features agree, write the results and print the table."""
    options = _options()
    train, test = (_texts(options.data / f"{part}.jsonl.xz")[: options.rows] for part in ("train", "test"))
    short = [text[:SHORT] for text in test[:500]]
    Tfidf(min_df=1).fit(train[:2]).transform(test[:2])  # compile

    seconds: dict[str, dict[str, list[float]]] = {}
    for _ in range(options.repeat):
        features, names = {}, {}
        systems: dict[str, Any] = {
            "longtail": Tfidf(ngram_range=(1, options.ngrams), idf="smooth", n_jobs=options.threads),
            "scikit-learn": TfidfVectorizer(ngram_range=(1, options.ngrams), sublinear_tf=True, min_df=2),
        }
        for name, system in systems.items():
            runs = seconds.setdefault(name, {"fit_transform": [], "transform": [], "one short text": []})
            features[name] = _timed(runs["fit_transform"], system.fit_transform, train)
            names[name] = system.get_feature_names_out().tolist()
            _timed(runs["transform"], system.transform, test)
            single: list[float] = []
            for text in short:
                _timed(single, system.transform, [text])
            runs["one short text"].append(float(np.median(single)))
        difference = float(abs(features["longtail"] - features["scikit-learn"]).max())
        same = names["longtail"] == names["scikit-learn"] and difference <= TOLERANCE

    best = {name: {job: min(runs) for job, runs in jobs.items()} for name, jobs in seconds.items()}
    ratio = {job: best["scikit-learn"][job] / best["longtail"][job] for job in best["longtail"]}
    result = {
        "data": options.data.name,
        "train_rows": len(train),
        "test_rows": len(test),
        "short_characters": SHORT,
        "ngrams": options.ngrams,
        "threads": options.threads,
        "features": features["longtail"].shape[1],
        "seconds": seconds,
        "ratio": ratio,
        "largest_difference": difference,
        "same_features": same,
    }
    lines = [
        f"| {options.data.name}, n-grams to {options.ngrams}, {options.threads} threads, best of {options.repeat} "
        "| longtail | scikit-learn | ratio |",
        "|---|---|---|---|",
    ]
    labels = {
        "fit_transform": (f"fit_transform, {len(train):,} texts", 1, "s"),
        "transform": (f"transform, {len(test):,} texts", 1, "s"),
        "one short text": (f"transform, one text of {SHORT} characters, p50", 1e6, "us"),
    }
    for job, (label, unit, suffix) in labels.items():
        times = [f"{unit * best[name][job]:.3g} {suffix}" for name in ("longtail", "scikit-learn")]
        lines.append(f"| {label} | {' | '.join(times)} | {ratio[job]:.1f} |")
    table = "\n".join(lines)
    results = HERE / "results"
    results.mkdir(exist_ok=True)
    stem = "text" if options.ngrams == 1 else f"text-{options.ngrams}grams"
    (results / f"{stem}.json").write_text(json.dumps(result, indent=2) + "\n")
    (results / f"{stem}.md").write_text(table + "\n")
    print(table)
    print(f"same features: {same}; largest difference of values: {difference:.1e}")
    return 0 if same else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Path(__file__).resolve().parents[2] / "shared" / "data" / "eurlex57k"
    parser.add_argument(
        "data", nargs="?", type=Path, default=default, help="folder with train.jsonl.xz and test.jsonl.xz"
    )
    parser.add_argument("--rows", type=int, help="maximum number of texts per split")
    parser.add_argument("--ngrams", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=3)
    return parser.parse_args()


def _texts(path: Path) -> list[str]:
    with lzma.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line)["text"] for line in file]


def _timed(seconds: list[float], work: Callable[[list[str]], Any], texts: list[str]) -> Any:
    start = time.perf_counter()
    result = work(texts)
    seconds.append(time.perf_counter() - start)
    return result


if __name__ == "__main__":
    sys.exit(main())

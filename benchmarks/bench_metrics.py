"""longtail's metrics against napkinXC's: P, nDCG, PSP and PSnDCG at every k up to 5, on the same rankings.

napkinXC takes rankings as lists of lists or as a CSR matrix of scores; both are measured, CSR on the first rows only
because it takes minutes. Its inputs are built outside the timing, and the ratio is to the faster of the two. longtail's
time is that of the whole call from a TopK and a CSR matrix, input checks included; it also computes R, coverage, the
second PSnDCG and the counts per label.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

HERE = Path(__file__).resolve().parent
K = 5
METRICS = ("P", "nDCG", "PSP", "PSnDCG")
TOLERANCE = 1e-6
CSR_ROWS = 5_000


def main() -> int:
    """Measure both in turns, check that the values agree, write the results and print the table."""
    options = _options()
    if options.as_peer:
        print(json.dumps(_napkinxc(options.as_peer)))
        return 0
    if not options.peers_python.exists():
        print("No environment for the peers: run benchmarks/setup_peers.sh first.", file=sys.stderr)
        return 2

    runs: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        _make_data(data, rows=options.rows, labels=options.labels, seed=options.seed)
        for _ in range(options.repeat):
            ours = _longtail(data)
            command = [options.peers_python, Path(__file__).resolve(), "--as-peer", data]
            theirs = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            for name, micros in {**ours["micros"], **theirs["micros"]}.items():
                runs.setdefault(name, []).append(micros)

    difference = max(abs(ours["values"][key] - value) for key, value in theirs["values"].items())
    best = {name: min(micros) for name, micros in runs.items()}
    fastest = min((name for name in best if name != "longtail"), key=best.__getitem__)
    result = {
        "rows": options.rows,
        "labels": options.labels,
        "metrics": [f"{name}@{k}" for name in METRICS for k in range(1, K + 1)],
        "microseconds_per_row": runs,
        "fastest_peer_form": fastest,
        "ratio": best[fastest] / best["longtail"],
        "largest_difference_percent": difference,
    }
    lines = [f"| {options.rows:,} rows | best of {options.repeat}, us per row | times longtail |", "|---|---|---|"]
    lines += [f"| {name} | {micros:.2f} | {micros / best['longtail']:.0f} |" for name, micros in best.items()]
    table = "\n".join(lines)
    results = HERE / "results"
    results.mkdir(exist_ok=True)
    (results / "metrics.json").write_text(json.dumps(result, indent=2) + "\n")
    (results / "metrics.md").write_text(table + "\n")
    print(table)
    print(f"largest difference of {len(theirs['values'])} values: {difference:.1e} percent")
    return 0 if difference <= TOLERANCE else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers-python", type=Path, default=HERE.parent / ".venv-bench" / "bin" / "python")
    parser.add_argument("--rows", type=int, default=150_000)
    parser.add_argument("--labels", type=int, default=50_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--as-peer", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def _make_data(folder: Path, *, rows: int, labels: int, seed: int) -> None:
    """Up to five true labels per row from a power law, rankings that hold about half of them, and a few empty rows."""
    rng = np.random.default_rng(seed)
    frequency = 1.0 / np.arange(1, labels + 1)
    drawn = rng.choice(labels, size=(rows, 2 * K), p=frequency / frequency.sum()).astype(np.int32)
    distinct = _distinct(drawn)
    true = np.where(np.arange(2 * K) < K, distinct, -1)
    true[:: max(rows // 100, 1)] = -1
    order = np.argsort(rng.random(distinct.shape), axis=1)
    ranked = np.take_along_axis(distinct, order, axis=1)
    padding_last = np.argsort(ranked < 0, axis=1, kind="stable")
    ranked = np.take_along_axis(ranked, padding_last, axis=1)[:, :K]
    np.savez(
        folder / "data.npz",
        indptr=np.concatenate([[0], np.cumsum((true >= 0).sum(axis=1))]),
        indices=np.sort(true, axis=1)[np.sort(true, axis=1) >= 0],
        shape=(rows, labels),
        ranked=ranked,
        inverse_propensity=1 + 20 * (np.arange(labels) / labels),
    )


def _distinct(drawn: np.ndarray) -> np.ndarray:
    """Replace repetitions in a row by -1."""
    kept = drawn.copy()
    for place in range(1, drawn.shape[1]):
        kept[(drawn[:, :place] == drawn[:, place, None]).any(axis=1), place] = -1
    return kept


def _load(folder: Path) -> tuple[np.ndarray, sp.csr_matrix, np.ndarray]:
    data = np.load(folder / "data.npz")
    ones = np.ones(len(data["indices"]), np.float32)
    Y = sp.csr_matrix((ones, data["indices"], data["indptr"]), shape=tuple(data["shape"]))
    return data["ranked"], Y, data["inverse_propensity"]


def _longtail(folder: Path) -> dict[str, Any]:
    from longtail.metrics import evaluate
    from longtail.topk import TopK

    ranked, Y, inverse_propensity = _load(folder)
    places = np.where(ranked >= 0, np.arange(K, 0, -1), -np.inf).astype(np.float32)
    top = TopK(ranked, places)
    ks = range(1, K + 1)
    evaluate(TopK(ranked[:10], places[:10]), Y[:10], inverse_propensity=inverse_propensity, ks=ks)  # compile
    start = time.perf_counter()
    scores = evaluate(top, Y, inverse_propensity=inverse_propensity, ks=ks)
    return {"micros": {"longtail": 1e6 * (time.perf_counter() - start) / Y.shape[0]}, "values": dict(scores)}


def _napkinxc(folder: Path) -> dict[str, Any]:
    from napkinxc import metrics

    ranked, Y, inverse_propensity = _load(folder)
    kept = ranked >= 0
    scores = np.broadcast_to(np.arange(K, 0, -1, dtype=np.float32), ranked.shape)
    ends = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
    forms = {
        "napkinXC, lists": (
            [row.tolist() for row in np.split(Y.indices, Y.indptr[1:-1])],
            [row[row >= 0].tolist() for row in ranked],
        ),
        "napkinXC, CSR": (Y[:CSR_ROWS], sp.csr_matrix((scores[kept], ranked[kept], ends), shape=Y.shape)[:CSR_ROWS]),
    }
    micros, values = {}, {}
    for form, (true, predicted) in forms.items():
        start = time.perf_counter()
        found = {
            "P": metrics.precision_at_k(true, predicted, k=K),
            "nDCG": metrics.ndcg_at_k(true, predicted, k=K),
            "PSP": metrics.psprecision_at_k(true, predicted, inverse_propensity, k=K),
            "PSnDCG": metrics.psndcg_at_k(true, predicted, inverse_propensity, k=K),
        }
        micros[form] = 1e6 * (time.perf_counter() - start) / (len(true) if isinstance(true, list) else true.shape[0])
        if isinstance(true, list):
            values = {f"{name}@{k}": 100 * float(found[name][k - 1]) for name in METRICS for k in range(1, K + 1)}
    return {"micros": micros, "values": values}


if __name__ == "__main__":
    sys.exit(main())

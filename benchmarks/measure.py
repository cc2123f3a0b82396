"""Running systems against one another: each run in a process of its own, taking turns, scored by the same code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail.metrics import evaluate, relative_change
from longtail.propensity import JainPropensity

HERE = Path(__file__).resolve().parent
THREAD_VARIABLES = ("OMP", "OPENBLAS", "MKL", "NUMBA", "RAYON")


@dataclass(frozen=True)
class System:
    """A system to run: its script, the interpreter that has its package, and the script's own options."""

    name: str
    python: Path
    script: Path
    options: tuple[str, ...] = ()


def known_systems(peers_python: Path) -> dict[str, System]:
    """All systems by name: longtail's recipes in this environment, the peers in theirs."""
    here = Path(sys.executable)
    recipes = [
        System(f"longtail-{recipe}", here, HERE / "run_longtail.py", ("--recipe", recipe))
        for recipe in ("dismec", "pw-dismec", "pw-cb-dismec")
    ]
    peers = [
        System(peer, peers_python, HERE / "peers" / f"run_{peer}.py")
        for peer in ("pecos", "napkinxc", "omikuji", "libmultilabel")
    ]
    return {system.name: system for system in recipes + peers}


def alternate(
    systems: Iterable[System], data: Path, runs: Path, *, repeat: int, threads: int, fresh: bool, timeout: float
) -> int:
    """Run every system once, then every system again, so that a slow minute of the machine hits them alike.

    A run that has left its ``result.json`` in `runs` is not done again unless `fresh`; one that failed is.
    Gives the number of runs that failed.
    """
    failed = 0
    for repetition in range(repeat):
        for system in systems:
            out = runs / system.name / str(repetition)
            if fresh:
                (out / "result.json").unlink(missing_ok=True)
            if not (out / "result.json").exists():
                failed += not _run(system, data, out, threads, timeout)
    return failed


def _run(system: System, data: Path, out: Path, threads: int, timeout: float) -> bool:
    """Run one system once and tell whether it went well; what it prints goes to ``log.txt`` beside its result."""
    out.mkdir(parents=True, exist_ok=True)
    print(f"{data.name}: {system.name}, run {out.name} ... ", end="", flush=True)
    command: list[str | Path] = [system.python, system.script, data, out, "--threads", str(threads), *system.options]
    environment = os.environ | {f"{name}_NUM_THREADS": str(threads) for name in THREAD_VARIABLES}
    start = time.perf_counter()
    try:
        with (out / "log.txt").open("w") as log:
            subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, env=environment, timeout=timeout, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        seconds = time.perf_counter() - start
        print(
            f"FAILED after {seconds:.0f} s ({type(error).__name__}), see {os.path.relpath(out / 'log.txt')}", flush=True
        )
        return False
    print(f"{json.loads((out / 'result.json').read_text())['train_seconds']:.2f} s training", flush=True)
    return True


def gather(systems: Iterable[System], data: Path, runs: Path, *, ours: str, repeat: int) -> list[dict[str, Any]]:
    """One row of figures a system: best times, largest sizes, mean scores, and how these compare with `ours`."""
    Y_test, Y_train = (sp.csr_matrix(sp.load_npz(data / f"{part}.Y.npz")) for part in ("test", "train"))
    rows = []
    for system in systems:
        outs = [runs / system.name / str(repetition) for repetition in range(repeat)]
        outs = [out for out in outs if (out / "result.json").exists()]
        if not outs:
            continue
        results = [json.loads((out / "result.json").read_text()) for out in outs]
        scores = [score(np.load(out / "labels.npy"), Y_test, Y_train) for out in outs]
        row: dict[str, Any] = {"system": system.name, "version": results[0]["version"], "runs": len(outs)}
        for key in (key for key, value in results[0].items() if isinstance(value, float)):
            best = max if key.endswith("_mb") else min
            row[key] = best(result[key] for result in results)
        row |= {key: float(np.mean([one[key] for one in scores])) for key in scores[0]}
        rows.append(row)
    reference = next((row for row in rows if row["system"] == ours), None)
    for row in rows:
        row["train_ratio"] = row["train_seconds"] / reference["train_seconds"] if reference else None
        row["ps_change"] = relative_change(row, reference)["PS"] if reference else None
    return rows


def score(labels: np.ndarray, Y_test: sp.csr_matrix, Y_train: sp.csr_matrix) -> dict[str, float]:
    """All of longtail's metrics at 1, 3 and 5, in percent, of ranked label ids padded with -1."""
    counts = np.bincount(Y_train.indices, minlength=Y_train.shape[1])
    inverse_propensity = JainPropensity().inverse(counts, Y_train.shape[0])
    return dict(evaluate(labels, Y_test, inverse_propensity=inverse_propensity))

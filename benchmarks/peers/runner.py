"""What every measured system shares: reading the data, timing, memory and the files it leaves behind.

A system is a subclass of :class:`System` in a script of its own, which ends in ``run(ThatSystem)``. Only numpy and
scipy are imported here, so the same module serves longtail's environment and the peers'.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import resource
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

SINGLE_CALLS = 1000
SINGLE_BUDGET_SECONDS = 20.0
WARM_UP_CALLS = 50
WARM_UP_BUDGET_SECONDS = 2.0
BATCH_BUDGET_SECONDS = 2.0


class System(ABC):
    """One system under measurement. Only `fit` and `predict` are timed."""

    name: str
    version: ClassVar[str]

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.threads: int = options.threads
        self.k: int = options.k
        self.folder = folder

    @abstractmethod
    def prepare(self, X: sp.csr_matrix, Y: sp.csr_matrix) -> None:
        """Take the training data in the form the system wants it (not timed)."""

    @abstractmethod
    def fit(self) -> None:
        """Train on what `prepare` was given (timed)."""

    @abstractmethod
    def make_ready(self) -> None:
        """Save the model to `folder`, and load it for prediction where that is a step of its own (not timed)."""

    def rows(self, X: sp.csr_matrix) -> Any:
        """Rows in the form `predict` wants them (not timed)."""
        return X

    @abstractmethod
    def predict(self, rows: Any) -> Any:
        """Best k labels of each row, in whatever form the system returns them (timed)."""

    @abstractmethod
    def labels(self, predicted: Any) -> np.ndarray:
        """Result of `predict` as an n by k array of label ids in rank order, padded with -1 (not timed)."""

    def more(self, X: sp.csr_matrix) -> dict[str, float]:
        """Further figures for ``result.json``, taken with the test rows after all others."""
        return {}

    def model_bytes(self) -> int:
        """Size of the saved model: all files in `folder` unless the system says otherwise."""
        return sum(file.stat().st_size for file in self.folder.rglob("*") if file.is_file())


def run(system_class: type[System], parser: argparse.ArgumentParser | None = None) -> None:
    """Fit, predict and write ``labels.npy`` and ``result.json``: the whole of a system's script.

    `parser` carries the system's own options, where it has any.
    """
    parser = parser or argparse.ArgumentParser()
    parser.add_argument("data", type=Path, metavar="DATA_DIR", help="holds {train,test}.{X,Y}.npz")
    parser.add_argument("out", type=Path, metavar="OUT_DIR", help="receives labels.npy and result.json")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--k", type=int, default=5)
    options = parser.parse_args()

    def matrix(name: str) -> sp.csr_matrix:
        return sp.csr_matrix(sp.load_npz(options.data / f"{name}.npz"))

    with tempfile.TemporaryDirectory() as folder:
        system = system_class(options, Path(folder))
        system.prepare(matrix("train.X"), matrix("train.Y"))
        before = _reset_peak_memory_mb()
        busy = time.process_time()
        train_seconds, _ = _timed(system.fit)
        busy = time.process_time() - busy
        peak = _peak_memory_mb()

        system.make_ready()
        X_test = matrix("test.X")
        batch_seconds, predicted = time_batch(system, X_test)
        result = {
            "system": system.name,
            "version": system.version,
            "train_seconds": train_seconds,
            "train_cpu_seconds": busy,
            "predict_batch_us_per_row": 1e6 * batch_seconds / X_test.shape[0],
            **_time_single(system, X_test),
            "model_mb": system.model_bytes() / 2**20,
            "peak_memory_mb": peak,
            "memory_before_fit_mb": before,
            **system.more(X_test),
        }
    options.out.mkdir(parents=True, exist_ok=True)
    np.save(options.out / "labels.npy", system.labels(predicted).astype(np.int32))
    (options.out / "result.json").write_text(json.dumps(result, indent=1) + "\n")


def pad(lists: list[list[int]], k: int) -> np.ndarray:
    """Ranked label lists as an n by k array padded with -1."""
    labels = np.full((len(lists), k), -1, dtype=np.int32)
    for row, found in enumerate(lists):
        labels[row, : len(found[:k])] = found[:k]
    return labels


def time_batch(system: System, X: sp.csr_matrix) -> tuple[float, Any]:
    """Seconds of the fastest pass over all rows, and its result; short passes are repeated."""
    system.predict(system.rows(X[:64]))  # starts thread pools and the like
    rows = system.rows(X)
    best, spent = float("inf"), 0.0
    while spent < BATCH_BUDGET_SECONDS:
        seconds, predicted = _timed(partial(system.predict, rows))
        best, spent = min(best, seconds), spent + seconds
    return best, predicted


def _time_single(system: System, X: sp.csr_matrix) -> dict[str, float]:
    """Median and 99th percentile of the microseconds of one call for one row, after calls that don't count.

    A system so slow that the calls don't fit the budget makes fewer of them, too few for a 99th percentile.
    """
    _single_calls(system, X[-WARM_UP_CALLS:], WARM_UP_CALLS, WARM_UP_BUDGET_SECONDS)
    micros = 1e6 * np.array(_single_calls(system, X, SINGLE_CALLS, SINGLE_BUDGET_SECONDS))
    figures = {"predict_single_us_p50": float(np.median(micros)), "predict_single_calls": len(micros)}
    if len(micros) == SINGLE_CALLS:
        figures["predict_single_us_p99"] = float(np.percentile(micros, 99))
    return figures


def _single_calls(system: System, X: sp.csr_matrix, calls: int, budget: float) -> list[float]:
    """Seconds of each call: so many, over the rows in turn, or as many as fit the budget."""
    seconds: list[float] = []
    while len(seconds) < calls and sum(seconds) <= budget:
        row = system.rows(X[len(seconds) % X.shape[0]])
        seconds.append(_timed(partial(system.predict, row))[0])
    return seconds


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def _reset_peak_memory_mb() -> float:
    """Forget the peak so far, where the system allows it (Linux), and give the present one."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _peak_memory_mb()


def _peak_memory_mb() -> float:
    """Peak resident memory. Linux's getrusage would count the parent process too, so it is the second choice."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return int(status.split("VmHWM:")[1].split()[0]) / 1024

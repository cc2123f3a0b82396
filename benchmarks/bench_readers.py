"""Reading speed: longtail's XC reader against scikit-learn's svmlight reader, one thread, same file, same matrix.

Usage: python benchmarks/bench_readers.py [FILE] [--repeats N] [--json]

FILE is a file in XC text format; without it, eurlex57k's training file among the shared benchmark data. The two readers
alternate, and the best time of each counts. scikit-learn gets the file without its header line.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_svmlight_file

from longtail.data import read_xc
from longtail.data.streams import ByteReader

DEFAULT = Path(__file__).resolve().parents[2] / "shared" / "data" / "eurlex57k" / "train.txt.xz"


def timed(work: Callable[[], Any]) -> tuple[float, float, Any]:
    """Run once; give seconds on the clock, seconds of processor time, and the result."""
    wall, processor = time.perf_counter(), time.process_time()
    result = work()
    return time.perf_counter() - wall, time.process_time() - processor, result


def peak_mb() -> float:
    """Largest resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def compare(path: Path, repeats: int) -> dict[str, Any]:
    """Time both readers on a plain-text copy of the file and check that they agree."""
    with tempfile.TemporaryDirectory() as folder:
        plain, bare = Path(folder, "rows.txt"), Path(folder, "rows.svm")
        with ByteReader(path) as stream, plain.open("wb") as target:
            shutil.copyfileobj(stream, target, 1 << 22)
        with plain.open("rb") as source, bare.open("wb") as target:
            n_features = int(source.readline().split()[1])
            shutil.copyfileobj(source, target, 1 << 22)

        tiny = Path(folder, "tiny.txt")
        tiny.write_text("1 1 1\n0 0:1\n")
        read_xc(tiny)  # compiles the kernels, or loads them from numba's cache
        before = peak_mb()
        dataset = read_xc(plain)
        extra = peak_mb() - before
        assert dataset.X is not None
        matrices = (dataset.X, dataset.Y)
        result_mb = (
            sum(part.nbytes for matrix in matrices for part in (matrix.data, matrix.indices, matrix.indptr)) / 2**20
        )

        def ours() -> Any:
            return read_xc(plain)

        def theirs() -> Any:
            return load_svmlight_file(bare, n_features=n_features, dtype=np.float32, multilabel=True, zero_based=True)

        times: dict[str, list[tuple[float, float]]] = {"longtail": [], "scikit-learn": []}
        for _ in range(repeats):
            for name, work in (("longtail", ours), ("scikit-learn", theirs)):
                wall, processor, result = timed(work)
                times[name].append((wall, processor))
        X, labels = result
        same = (
            np.array_equal(dataset.X.indptr, X.indptr)
            and np.array_equal(dataset.X.indices, X.indices)
            and np.array_equal(dataset.X.data, X.data)
            and np.array_equal(np.diff(dataset.Y.indptr), [len(row) for row in labels])
            and np.array_equal(dataset.Y.indices, [int(label) for row in labels for label in sorted(row)])
        )
        report: dict[str, Any] = {"file": path.name, "mb": plain.stat().st_size / 2**20, "same_matrix": bool(same)}
    for name, pairs in times.items():
        report[f"{name} seconds"] = min(wall for wall, _ in pairs)
        report[f"{name} processor seconds"] = min(processor for _, processor in pairs)
    report["ratio"] = report["scikit-learn seconds"] / report["longtail seconds"]
    report["ratio of processor time"] = report["scikit-learn processor seconds"] / report["longtail processor seconds"]
    report["result_mb"] = result_mb
    report["memory beyond the result, mb"] = extra - result_mb
    return report


def main() -> int:
    """Run the comparison; exit 1 if the matrices differ or the ratio is below 5."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path, default=DEFAULT)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    report = compare(arguments.file, arguments.repeats)
    if arguments.json:
        print(json.dumps(report))
    else:
        for key, value in report.items():
            print(f"{key:32} {value:.3f}" if isinstance(value, float) else f"{key:32} {value}")
    return 0 if report["same_matrix"] and report["ratio"] >= 5 else 1


if __name__ == "__main__":
    sys.exit(main())

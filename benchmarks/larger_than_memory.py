"""Train on data larger than memory, under a hard limit, and measure time and memory.

Rows of random features are written as a directory of arrays. Each learner is then trained on them twice, each time in
its own process: without a limit, and in a control group whose memory, page cache included, is a fraction of the data.
Both must give the same model. Creating a control group needs permission; without it the second run is left out.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).resolve().parent / "results"
GROUPS = Path("/sys/fs/cgroup")
LEARNERS = {
    "one-vs-rest": "OneVsRest(n_jobs=2, max_iter=2)",
    "label tree": "LabelTree(n_jobs=2, max_iter=2, leaf_size=32, arity=8)",
    "forest": "InstanceForest(n_trees=1, n_jobs=1, max_iter=1, max_inner_iter=1)",
}
WORKER = """
import json, sys, time
from longtail import InstanceForest, LabelTree, Model, OneVsRest, config_context
from longtail.data import load
from longtail.runtime.memory import MemoryWatch

path, out, limit = sys.argv[1], sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else None
data = load(path)
used = time.process_time()
started = time.perf_counter()
with config_context(memory_limit=limit), MemoryWatch() as watch:
    learner = {learner}.fit(data.X, data.Y)
    took = time.perf_counter() - started, time.process_time() - used
    model = Model(learner)
    rows = sum(len(top) for top in model.iter_topk(data, 5))
    model.save(out)
print(json.dumps({{"seconds": took[0], "processor_seconds": took[1], "held_mb": watch.peak / 1e6, "rows": rows}}))
"""


def make(path: Path, rows: int, features: int, labels: int, values: int) -> float:
    """Write rows whose labels depend on one feature; returns the MB of their features."""
    from longtail.data.readers.mapped import MappedWriter

    rng, width = np.random.default_rng(0), features // values
    with MappedWriter(path, features, labels) as writer:
        for first in range(0, rows, 2000):
            n = min(2000, rows - first)
            own = (rng.random(n) ** 2 * labels).astype(np.int32)
            indices = (rng.random((n, values)) * width).astype(np.int32) + np.arange(values, dtype=np.int32) * width
            data = rng.random((n, values), np.float32) + np.float32(0.1)
            data[np.arange(n), own % values] += 5
            ends = np.arange(1, n + 1)
            writer.append(ends * values, indices.ravel(), data.ravel(), ends, own)
        writer.finish("synthetic")
    return 8 * rows * values / 1e6


def limited(limit: int) -> Path | None:
    """Create a control group with a memory limit in bytes; None where that is not possible."""
    for folder, name in ((GROUPS / "memory", "memory.limit_in_bytes"), (GROUPS, "memory.max")):
        group = folder / f"longtail-{os.getpid()}"
        try:
            group.mkdir()
            (group / name).write_text(str(limit))
        except OSError:
            continue
        return group
    return None


def run(learner: str, data: Path, out: Path, limit: str | None, group: Path | None) -> dict[str, Any]:
    """Train in a new process, in a control group if there is one."""

    def enter() -> None:
        if group is not None:
            (group / "cgroup.procs").write_text(str(os.getpid()))

    command = [sys.executable, "-c", WORKER.format(learner=learner), str(data), str(out), *([limit] if limit else [])]
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=enter, check=False)
    if done.returncode:
        raise SystemExit(f"{learner} ended with {done.returncode}: {done.stderr[-2000:]}")
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    digests = {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in out.iterdir() if f.suffix == ".npy"}
    return figures | {"digest": hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()}


def main() -> None:
    """Make data, train, compare and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=150_000)
    parser.add_argument("--values", type=int, default=1000, help="features per row")
    parser.add_argument("--limit", type=int, default=480, help="memory limit in MB")
    parser.add_argument("--only", default=",".join(LEARNERS), help="learners, separated by commas")
    options = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        size = make(folder / "data", options.rows, 50_000, 128, options.values)
        group = limited(options.limit * 10**6)
        for learner in options.only.split(","):
            code = LEARNERS[learner]
            free = run(code, folder / "data", folder / "free", None, None)
            row = {"learner": learner, "data_mb": size, "free": free}
            if group is not None:
                row["limited"] = run(code, folder / "data", folder / "held", f"{options.limit}MB", group)
                if row["limited"]["digest"] != free["digest"]:
                    raise SystemExit(f"{learner}: the two models differ")
            found.append(row)
            print(row, flush=True)
        if group is not None:
            group.rmdir()
    (RESULTS / "larger_than_memory.json").write_text(json.dumps(found, indent=1) + "\n")
    (RESULTS / "larger_than_memory.md").write_text(page(found, options.rows, options.values, options.limit))


def page(found: list[dict[str, Any]], rows: int, values: int, limit: int) -> str:
    """Return the results as Markdown."""
    lines = [
        f"# {found[0]['data_mb']:,.0f} MB of features under {limit} MB of memory",
        "",
        *(__doc__ or "").split("\n\n", 1)[1].splitlines(),
        "",
        f"{rows:,} rows of {values:,} features. Peak MB is the memory of the process with its libraries, without pages",
        "of mapped files, which the system can evict. CPU seconds are in brackets.",
        "",
        "| learner | no limit: s | peak MB | with the limit: s | peak MB | same model |",
        "|---|---|---|---|---|---|",
    ]
    for row in found:
        cells = []
        for run_of in (row["free"], row.get("limited")):
            times = run_of and f"{run_of['seconds']:.0f} ({run_of['processor_seconds']:.0f})"
            cells += [times, f"{run_of['held_mb']:.0f}"] if run_of else ["-", "-"]
        lines.append(f"| {row['learner']} | " + " | ".join(cells) + f" | {'yes' if 'limited' in row else '-'} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()

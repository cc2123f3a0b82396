"""Compare systems: each run in its own process, in alternation, evaluated by the same code."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from data import DATASETS, is_there, prepare
from longtail.metrics import evaluate, relative_change
from longtail.propensity import JainPropensity

HERE = Path(__file__).resolve().parent
CACHE = HERE / ".cache"
RESULTS = HERE / "results"
THREAD_VARIABLES = ("OMP", "OPENBLAS", "MKL", "NUMBA", "RAYON")
RECIPES = (
    *("dismec", "pw-dismec", "pw-cb-dismec"),
    *("longtail-tree", "parabel", "bonsai", "pw-bonsai", "pw-cb-bonsai", "plt"),
)
PEERS = ("pecos", "napkinxc", "omikuji", "libmultilabel")
COLUMNS = {
    "system": ("system", "{}"),
    "train s": ("train_seconds", "{:.2f}"),
    "ratio to ours": ("train_ratio", "{:.2f}"),
    "P@1": ("P@1", "{:.2f}"),
    "P@5": ("P@5", "{:.2f}"),
    "PSP@1": ("PSP@1", "{:.2f}"),
    "PSP@5": ("PSP@5", "{:.2f}"),
    "PS change %": ("ps_change", "{:+.1f}"),
    "predict us/row": ("predict_batch_us_per_row", "{:.0f}"),
    "as trained us/row": ("predict_batch_as_trained_us_per_row", "{:.0f}"),
    "single row p50 us": ("predict_single_us_p50", "{:.0f}"),
    "single row p99 us": ("predict_single_us_p99", "{:.0f}"),
    "model MB": ("model_mb", "{:.1f}"),
    "peak MB": ("peak_memory_mb", "{:.0f}"),
}
"""Columns of the tables: heading, key in the results and how the value is written."""


@dataclass(frozen=True)
class System:
    """A system to run: its script, the interpreter that has its package, and the script's own options."""

    name: str
    python: Path
    script: Path
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Benchmark:
    """Which systems are compared on which data sets.

    `name` is that of the results files, and `ours` the system that the others are compared with. `too_slow` holds, by
    data set, systems that are left out for time unless --systems names them. `without` are columns that the table
    leaves out. `closing` may add to the report and gives the text that follows the tables.
    """

    name: str
    description: str | None
    ours: str
    systems: tuple[str, ...]
    datasets: tuple[str, ...]
    too_slow: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    closing: Callable[[dict[str, Any]], str] = lambda report: ""


def system_name(recipe: str) -> str:
    """Return the name of a recipe as a system: with longtail in it once."""
    return recipe if recipe.startswith("longtail-") else f"longtail-{recipe}"


def known_systems(peers_python: Path) -> dict[str, System]:
    """All systems by name: longtail's recipes in this environment, the peers in theirs."""
    here = Path(sys.executable)
    recipes = [System(system_name(name), here, HERE / "run_longtail.py", ("--recipe", name)) for name in RECIPES]
    peers = [System(peer, peers_python, HERE / "peers" / f"run_{peer}.py") for peer in PEERS]
    return {system.name: system for system in recipes + peers}


def run_benchmark(benchmark: Benchmark) -> int:
    """Run the missing measurements, write the results and print the tables."""
    options = _options(benchmark)
    if not options.peers_python.exists():
        print("No environment for the peers: run benchmarks/setup_peers.sh first.", file=sys.stderr)
        return 2
    everything = known_systems(options.peers_python)
    known = {name: everything[name] for name in benchmark.systems}
    unknown = [name for name in options.systems or () if name not in known]
    if unknown:
        print(f"Unknown: {', '.join(unknown)}. Known: {', '.join(known)}.", file=sys.stderr)
        return 2
    missing = [name for name in options.datasets if not is_there(name, options.data)]
    if missing:
        print(
            f"No {', '.join(missing)} in {options.data}: --data names the folder that has a folder for each data set, "
            "with train and test files in it.",
            file=sys.stderr,
        )
        return 2

    named = options.systems is not None
    systems = options.systems if named else list(known)
    path = RESULTS / f"{benchmark.name}.json"
    failed = 0
    for name in options.datasets:
        skipped = () if named else benchmark.too_slow.get(name, ())
        chosen = [known[system] for system in systems if system not in skipped]
        folder = prepare(name, options.data, CACHE)
        runs = CACHE / "runs" / name
        failed += alternate(
            chosen,
            folder,
            runs,
            repeat=options.repeat,
            threads=options.threads,
            fresh=options.fresh,
            timeout=options.timeout,
        )
        rows = gather(known.values(), folder, runs, ours=benchmark.ours, repeat=options.repeat)
        write(path, "datasets", {name: rows})
    report = json.loads(path.read_text())
    text = markdown(report, benchmark.without) + benchmark.closing(report)
    path.write_text(json.dumps(report, indent=1) + "\n")
    path.with_suffix(".md").write_text(text)
    print(text)
    return 1 if failed else 0


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


def gather(systems: Iterable[System], data: Path, runs: Path, *, ours: str | None, repeat: int) -> list[dict[str, Any]]:
    """One row of figures a system: best times, largest sizes, mean scores, and how these compare with `ours`.

    A figure that one of a system's runs lacks is left out, and so is a system without a run.
    """
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
        row["measured"] = [_written(out / "result.json") for out in outs]
        for key in (key for key, value in results[0].items() if isinstance(value, int | float)):
            if all(key in result for result in results):
                best = max if key.endswith("_mb") else min
                row[key] = best(result[key] for result in results)
        row |= {key: float(np.mean([one[key] for one in scores])) for key in scores[0]}
        rows.append(row)
    reference = next((row for row in rows if row["system"] == ours), None)
    for row in rows:
        row["train_ratio"] = row["train_seconds"] / reference["train_seconds"] if reference else None
        row["ps_change"] = relative_change(row, reference)["PS"] if reference else None
    return rows


def _written(path: Path) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(path.stat().st_mtime))


def score(labels: np.ndarray, Y_test: sp.csr_matrix, Y_train: sp.csr_matrix) -> dict[str, float]:
    """All of longtail's metrics at 1, 3 and 5, in percent, of ranked label ids padded with -1."""
    counts = np.bincount(Y_train.indices, minlength=Y_train.shape[1])
    inverse_propensity = JainPropensity().inverse(counts, Y_train.shape[0])
    return dict(evaluate(labels, Y_test, inverse_propensity=inverse_propensity))


def write(path: Path, section: str, entries: Mapping[str, Any]) -> dict[str, Any]:
    """Update a section of a results file; returns the whole report."""
    path.parent.mkdir(exist_ok=True)
    report: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    report["machine"] = {"processor": _processor(), "cores": os.cpu_count(), "python": platform.python_version()}
    report.setdefault(section, {}).update(entries)
    path.write_text(json.dumps(report, indent=1) + "\n")
    return report


def markdown(report: dict[str, Any], without: tuple[str, ...] = ()) -> str:
    """Return the results as one Markdown table per data set, without some columns."""
    columns = {heading: column for heading, column in COLUMNS.items() if heading not in without}
    lines = [machine(report), ""]
    measured = report["datasets"]
    for dataset in [
        *(name for name in DATASETS if name in measured),
        *(name for name in measured if name not in DATASETS),
    ]:
        lines += [f"### {dataset}", "", *table(columns, report["datasets"][dataset]), ""]
    return "\n".join(lines)


def machine(report: dict[str, Any]) -> str:
    """Return the sentence on the machine of a report."""
    return f"Measured on {report['machine']['processor']}, {report['machine']['cores']} cores."


def table(columns: Mapping[str, tuple[str, str]], rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the lines of a Markdown table; a missing value is a dash."""
    lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    for row in rows:
        cells = ["-" if row.get(key) is None else style.format(row[key]) for key, style in columns.values()]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _processor() -> str:
    """Name of the processor, as Linux tells it, or its kind."""
    try:
        return Path("/proc/cpuinfo").read_text().split("model name")[1].split(":", 1)[1].split("\n")[0].strip()
    except (OSError, IndexError):
        return platform.machine()


def _options(benchmark: Benchmark) -> argparse.Namespace:
    root = HERE.parent
    parser = argparse.ArgumentParser(description=benchmark.description)
    parser.add_argument("--data", type=Path, default=root.parent / "shared" / "data", help="folder of the data sets")
    parser.add_argument("--datasets", type=_names, default=list(benchmark.datasets), help="comma-separated")
    parser.add_argument("--systems", type=_names, default=None, help="comma-separated; all that are quick enough")
    parser.add_argument("--repeat", type=int, default=2, help="runs per system; the best time counts")
    parser.add_argument("--peers-python", type=Path, default=root / ".venv-bench" / "bin" / "python")
    run_options(parser)
    return parser.parse_args()


def run_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that every benchmark with runs of its own has."""
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=7200, help="timeout of a run in seconds")
    parser.add_argument("--fresh", action="store_true", help="run again what has been run before")


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]

"""longtail's linear recipes against the peers: training time, accuracy, prediction time, size and memory."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

from data import BUNDLED, DATASETS, prepare
from measure import HERE, alternate, gather, known_systems

OURS = "longtail-dismec"
TOO_SLOW = {"tate-subjects": ("libmultilabel",), "debian-depends": ("libmultilabel",)}
"""Systems that are left out for time on a data set, unless --systems names them."""
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
    "model MB": ("model_mb", "{:.1f}"),
    "peak MB": ("peak_memory_mb", "{:.0f}"),
}


def main() -> int:
    """Run what is asked for and is not there yet, write the results and print the table."""
    options = _options()
    if not options.peers_python.exists():
        print("No environment for the peers: run benchmarks/setup_peers.sh first.", file=sys.stderr)
        return 2
    known = known_systems(options.peers_python)
    unknown = [name for name in options.systems or () if name not in known] + [
        name for name in options.datasets if name not in DATASETS
    ]
    if unknown:
        print(f"Unknown: {', '.join(unknown)}. Known: {', '.join([*known, *DATASETS])}.", file=sys.stderr)
        return 2
    missing = [name for name in options.datasets if name not in BUNDLED and not (options.data / name).is_dir()]
    if missing:
        print(
            f"No {', '.join(missing)} in {options.data}: give the folder of the data sets with --data.", file=sys.stderr
        )
        return 2

    cache = HERE / ".cache"
    results = HERE / "results"
    results.mkdir(exist_ok=True)
    named = options.systems is not None
    systems = options.systems if named else list(known)
    failed = 0
    for name in options.datasets:
        skipped = () if named else TOO_SLOW.get(name, ())
        chosen = [known[system] for system in systems if system not in skipped]
        folder = prepare(name, options.data, cache)
        runs = cache / "runs" / name
        failed += alternate(
            chosen,
            folder,
            runs,
            repeat=options.repeat,
            threads=options.threads,
            fresh=options.fresh,
            timeout=options.timeout,
        )
        write(results / "linear.json", name, gather(known.values(), folder, runs, ours=OURS, repeat=options.repeat))
    table = markdown(json.loads((results / "linear.json").read_text()))
    (results / "linear.md").write_text(table)
    print(table)
    return 1 if failed else 0


def write(path: Path, dataset: str, rows: list[dict[str, Any]]) -> None:
    """Put the rows of one data set into the results file, leaving those of the others."""
    report = json.loads(path.read_text()) if path.exists() else {"datasets": {}}
    report["machine"] = {"processor": _processor(), "cores": os.cpu_count(), "python": platform.python_version()}
    report["datasets"][dataset] = rows
    path.write_text(json.dumps(report, indent=1) + "\n")


def markdown(report: dict[str, Any]) -> str:
    """Results as one Markdown table a data set."""
    lines = [f"Measured on {report['machine']['processor']}, {report['machine']['cores']} cores.", ""]
    for dataset in (name for name in DATASETS if name in report["datasets"]):
        lines += [f"### {dataset}", "", "| " + " | ".join(COLUMNS) + " |", "|---" * len(COLUMNS) + "|"]
        for row in report["datasets"][dataset]:
            cells = ["-" if row.get(key) is None else style.format(row[key]) for key, style in COLUMNS.values()]
            lines.append("| " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)


def _processor() -> str:
    """Name of the processor, as Linux tells it, or its kind."""
    try:
        return Path("/proc/cpuinfo").read_text().split("model name")[1].split(":", 1)[1].split("\n")[0].strip()
    except (OSError, IndexError):
        return platform.machine()


def _options() -> argparse.Namespace:
    root = HERE.parent
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=root.parent / "shared" / "data", help="folder of the data sets")
    parser.add_argument("--datasets", type=_names, default=list(DATASETS), help="comma-separated")
    parser.add_argument("--systems", type=_names, default=None, help="comma-separated; all that are quick enough")
    parser.add_argument("--repeat", type=int, default=2, help="runs of each system; the best time counts")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=7200, help="seconds after which a run is given up")
    parser.add_argument("--fresh", action="store_true", help="run again what has been run before")
    parser.add_argument("--peers-python", type=Path, default=root / ".venv-bench" / "bin" / "python")
    return parser.parse_args()


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


if __name__ == "__main__":
    sys.exit(main())

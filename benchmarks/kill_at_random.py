"""Kill training runs at random times, resume them, and check that nothing is lost.

Each run has its own process, which is killed with SIGKILL after a random time and restarted with --resume until it
finishes. After every kill the previous model at --out must load with valid checksums; at the end the new model must be
identical to that of an uninterrupted run. Saving a model over another one and converting data are killed likewise.

Processes are forked from this one, which has loaded all modules, so that a restart costs no imports. The times are
sampled with a fixed seed, but how far a process is at that time differs from run to run.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).resolve().parent / "results"


@dataclass(frozen=True)
class Case:
    """A training run to interrupt: recipe, data and settings."""

    name: str
    recipe: str
    data: str
    settings: tuple[str, ...] = ()

    def arguments(self, folder: Path, out: Path) -> list[str]:
        """Return the arguments of the command line."""
        settings = [part for setting in self.settings for part in ("--set", setting)]
        return ["train", self.recipe, str(folder / self.data), "--out", str(out), "--threads", "2", *settings]


CASES = (
    Case("one-vs-rest", "dismec", "rows.txt"),
    Case("label tree", "longtail-tree", "rows.txt", ("leaf_size=16", "arity=8")),
    Case("forest", "fastxml", "rows.txt", ("n_trees=12",)),
    Case(
        "embedding", "glas", "rows.txt", ("epochs=6", "embedding_dim=32", "hidden_layer_sizes=[64]", "batch_size=256")
    ),
    Case(
        "network",
        "xml-cnn",
        "texts.jsonl",
        ("epochs=3", "evals_per_epoch=2", "encoder.n_filters=8", "encoder.embedding_dim=16", "features.max_length=24"),
    ),
    Case("RankNet", "ranknet+dismec", "rows.txt", ("epochs=6",)),
    Case("TAug", "taug+bonsai", "rows.txt", ("n_trees=1",)),
)


HEADER = 200
"""Size in bytes up to which a block file contains no blocks."""
TORCH = ("embedding", "network")
"""Cases whose threads do not survive a fork."""


def make_data(folder: Path) -> None:
    """Write small data: rows of features with 640 labels, and texts."""
    from longtail import datasets
    from longtail.data import generate, save

    save(generate(6000, 1500, 3000, labels_per_row=4.0, features_per_row=40.0, random_state=0), folder / "rows.txt")
    save(datasets.load("debian-tags", "train").take(np.arange(400)), folder / "texts.jsonl")


def forked(work: Callable[[], None], log: Path) -> int:
    """Run a function in a forked process; returns its id."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    code = 70
    try:
        handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        work()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 70
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        sys.stdout.flush()
        os._exit(code)


def command(arguments: list[str]) -> Callable[[], None]:
    """The command line with these arguments."""

    def run() -> None:
        from longtail.cli import main

        sys.argv = ["longtail", *arguments]
        main()

    return run


def run_until(child: int, seconds: float | None, number: int = signal.SIGKILL) -> tuple[int | None, float]:
    """Wait for a process, killing it after a time; returns its exit code (None if killed) and the seconds."""
    started, sent = time.monotonic(), False
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        passed = time.monotonic() - started
        if done:
            was_killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
            return (None if was_killed else os.waitstatus_to_exitcode(status)), passed
        if seconds is not None and passed >= seconds and not sent:
            os.kill(child, number)
            sent = True
        time.sleep(0.001)


def contents(model: Path) -> dict[str, Any]:
    """Digest of every file of a model, and of what its description says besides times."""
    found: dict[str, Any] = {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in model.iterdir()
        if file.name != "model.json"
    }
    described = json.loads((model / "model.json").read_text())["model"]
    described.pop("training")
    return found | {"model.json": without_times(described)}


def without_times(described: Any) -> Any:
    """Return the description of a model without its training times."""
    if isinstance(described, list):
        return [without_times(item) for item in described]
    if not isinstance(described, dict):
        return described
    return {name: without_times(item) for name, item in described.items() if name != "rows_per_second"}


class LostError(Exception):
    """Something was lost."""


def check(holds: bool, what: str) -> None:
    """Raise an error where something was lost."""
    if not holds:
        raise LostError(what)


def disturb(case: Case, folder: Path, kills: int, rng: np.random.Generator) -> dict[str, Any]:
    """Kill a training `kills` times; restart it whenever it finishes."""
    from longtail import Model, Popularity

    place = folder / case.name.replace(" ", "-")
    place.mkdir()
    log, out, reference = place / "log.txt", place / "model", place / "reference"
    if case.name not in TORCH:  # kernels are loaded here, once for all
        with suppress(SystemExit):
            command(case.arguments(folder, reference))()
        shutil.rmtree(reference)
    code, whole = run_until(forked(command(case.arguments(folder, reference)), log), None)
    check(code == 0, f"{case.name}: the undisturbed run ended with {code}: {log.read_text()}")
    wanted = contents(reference)
    old = Model(Popularity().fit([[1.0]], [[1, 0]]), recipe="older")

    def renew() -> dict[str, Any]:
        shutil.rmtree(out, ignore_errors=True)
        old.save(out)
        return contents(out)

    before, done, ends, resumed = renew(), 0, 0, 0
    while done < kills or not ends:
        delay = float(rng.uniform(0, whole)) if done < kills else None
        kept = any(file.stat().st_size > HEADER for file in (place / "model.unfinished").glob("*.blocks"))
        code, _ = run_until(forked(command([*case.arguments(folder, out), "--resume"]), log), delay)
        now = contents(out)
        Model.load(out, verify=True)
        resumed += kept
        if code is None:
            done += 1
            check(now in (before, wanted), f"{case.name}: the model at --out is neither the old nor the new one")
            continue
        check(code == 0, f"{case.name}: ended with {code} after a kill: {log.read_text()}")
        differing = [name for name in now if now[name] != wanted.get(name)]
        check(not differing, f"{case.name}: {differing} differ from those of an undisturbed run")
        check(
            {file.name for file in place.iterdir()} == {"log.txt", "model", "reference"}, f"{case.name}: litter stays"
        )
        ends += 1
        before = renew()
    return {"case": case.name, "recipe": case.recipe, "seconds": round(whole, 2), "kills": done, "resumed": resumed,
            "ends": ends}  # fmt: skip


def disturb_saving(folder: Path, kills: int, rng: np.random.Generator) -> dict[str, Any]:
    """Kill a process that saves two models in turn over one another."""
    from longtail import Model, OneVsRest
    from longtail.data import load

    data = load(folder / "rows.txt")
    models = [Model(OneVsRest(C=c, prune_below=0.0).fit(data.X, data.Y), recipe=f"c{c}") for c in (0.5, 2)]
    place = folder / "saving"
    place.mkdir()
    for number, model in enumerate(models):
        model.save(place / f"{number}")
    wanted = [contents(place / f"{number}") for number in range(2)]
    out, seen = place / "model", []

    def save() -> None:
        while True:
            for model in models:
                model.save(out)

    models[0].save(out)
    for _ in range(kills):
        code, _ = run_until(forked(save, place / "log.txt"), float(rng.uniform(0, 0.5)))
        check(code is None, (place / "log.txt").read_text())
        Model.load(out, verify=True)
        now = contents(out)
        check(now in wanted, "saving: the model is neither of the two")
        seen.append(wanted.index(now))
    left = [file for file in place.iterdir() if file.name.startswith(".")]
    models[0].save(out)
    check(not [file for file in place.iterdir() if file.name.startswith(".")], "saving: litter stays")
    return {"case": "Model.save", "recipe": "", "seconds": None, "kills": kills, "resumed": None, "ends": None,
            "left": len(left)}  # fmt: skip


def disturb_converting(folder: Path, kills: int, rng: np.random.Generator) -> dict[str, Any]:
    """Kill a process that converts two data sets in turn into one directory."""
    from longtail.cli.program import program
    from longtail.data import generate, load, save
    from longtail.data.readers.mapped import read_mapped

    place = folder / "converting"
    place.mkdir()
    sources = [place / f"{number}.txt" for number in range(2)]
    for number, source in enumerate(sources):
        save(generate(20_000, 500, 2000, features_per_row=40.0, random_state=number), source)
    wanted = [load(source).X.sum() for source in sources]
    out, replaced = place / "data", 0

    def convert() -> None:
        while True:
            for source in sources:
                program(["data", "convert", str(source), str(out)], standalone_mode=False)

    started = time.monotonic()
    program(["data", "convert", str(sources[0]), str(out)], standalone_mode=False)
    whole = time.monotonic() - started
    for _ in range(kills):
        before = os.stat(out).st_ino
        code, _ = run_until(forked(convert, place / "log.txt"), float(rng.uniform(0, 3 * whole)))
        check(code is None, (place / "log.txt").read_text())
        replaced += os.stat(out).st_ino != before
        found = read_mapped(out, verify=True).X.sum()
        check(found in wanted, "converting: the data are neither of the two")
    return {"case": "data convert", "recipe": "", "seconds": whole, "kills": kills, "resumed": None, "ends": None,
            "replaced": replaced}  # fmt: skip


def table(rows: list[dict[str, Any]]) -> str:
    """Return the results as Markdown."""
    lines = ["| what | recipe | undisturbed | kills | starts with blocks to resume from | came to the end |",
             "|---|---|---|---|---|---|"]  # fmt: skip
    for row in rows:
        seconds = "" if row["seconds"] is None else f"{row['seconds']:.1f} s"
        shown = ("" if row[name] is None else row[name] for name in ("kills", "resumed", "ends"))
        lines.append(f"| {row['case']} | {row['recipe']} | {seconds} | " + " | ".join(map(str, shown)) + " |")
    total = sum(row["kills"] for row in rows)
    return "\n".join([*lines, f"| all | | | {total} | | |", ""])


def main() -> None:
    """Run the cases and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=15, help="kills per case")
    parser.add_argument("--only", default="", help="cases, separated by commas")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dry", action="store_true", help="write no results")
    parser.add_argument("--results", type=Path, default=RESULTS, help="directory of the results")
    options = parser.parse_args()
    chosen = options.only.split(",") if options.only else [*(case.name for case in CASES), "saving", "converting"]
    os.environ["LONGTAIL_DEBUG"] = "0"
    rng = np.random.default_rng(options.seed)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_data(folder)

        if any(name in chosen for name in TORCH):
            import torch  # noqa: F401
        for case in CASES:
            if case.name in chosen:
                rows.append(disturb(case, folder, options.kills, rng))
                print(rows[-1], flush=True)
        for other, run in (("saving", disturb_saving), ("converting", disturb_converting)):
            if other in chosen:
                rows.append(run(folder, options.kills, rng))
                print(rows[-1], flush=True)
    if not options.dry:
        (options.results / "kills.json").write_text(json.dumps(rows, indent=1) + "\n")
        (options.results / "kills.md").write_text(
            f"# Killed at random\n\n{__doc__.split(chr(10), 2)[2]}\n{table(rows)}"
        )


if __name__ == "__main__":
    main()

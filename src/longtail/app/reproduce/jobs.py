"""One recipe on one data set, in a process of its own; what came out is kept under a hash of all that it depends on."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import numpy as np

from longtail import __version__
from longtail.app.reproduce.methods import Ours
from longtail.app.reproduce.sets import AtHand
from longtail.engine.disk_cache import cache_directory
from longtail.engine.pool import StopFlag, run_blocks
from longtail.engine.portable import Portable, current_engine

METRICS = tuple(f"{name}@{k}" for name in ("P", "nDCG", "PSP", "PSnDCG", "C") for k in (1, 3, 5))
COSTS = (
    "train accuracy %",
    "test accuracy %",
    "generalization gap %",
    "train ms/sample",
    "inference ms/sample",
    "model GB",
)
"""Columns of the papers that are no metrics of rankings: P@1 by other names, and what a model takes."""
FREQUENCIES = (1, 2, 5, 10, 30, 100)
"""Where the groups of labels begin, by their training rows, whose classifiers' lengths are measured."""
RECALLS = (16, 32, 64, 128, 256, 512)
"""Numbers of retrieved labels whose recall the task of that name measures."""
_RUN = ("app/plans.py", "app/reproduce/job.py", "app/reproduce/sets.py", "app/studies/missing.py")
_OF_NETWORKS = ("learners/neural/", "recipes/networks.py")
Task = Literal["ranking", "recall", "missing"]


@dataclass(frozen=True)
class Job:
    """Something to train and to measure.

    Parameters
    ----------
    data : AtHand
    ours : Ours
    seed : int
    task : {"ranking", "recall", "missing"}
        Metrics of the five best labels; the recall of many; or the study of hidden labels.
    """

    data: AtHand
    ours: Ours
    seed: int = 0
    task: Task = "ranking"

    @property
    def is_sweep(self) -> bool:
        """Whether it is one of many: a recipe with other parameters than its own, or more than a ranking."""
        return bool(self.ours.settings) or self.task != "ranking"

    @property
    def key(self) -> str:
        """Hash of all that the result depends on: data, propensities, recipe, settings, seed, task and the code."""
        curve = self.data.propensity.get_params()
        described = [self.data.digest, curve, self.ours.recipe, dict(self.ours.settings), self.seed, self.task]
        described.append(code(self.ours.is_network))
        return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:32]


@dataclass(frozen=True)
class Result:
    """What a job gave: figures by name, and where its ranking is."""

    job: Job
    figures: dict[str, Any]
    ranking: Path

    def value(self, metric: str) -> float | None:
        """A figure; None where it has none."""
        return self.figures.get(metric)

    def half(self, metric: str) -> float | None:
        """Half of its 95 % interval over test rows."""
        return self.figures.get(f"half {metric}")

    def labels(self) -> np.ndarray[Any, Any]:
        """The five best labels of each test row."""
        return np.asarray(np.load(self.ranking, allow_pickle=False))


@cache
def code(networks: bool) -> str:
    """Hash of the version and of the code that results depend on: all rooms but the app, of which what runs a job.

    What is no network doesn't depend on the code of networks.
    """
    found, root = hashlib.sha256(__version__.encode()), resources.files("longtail")
    with resources.as_file(root) as folder:
        for file in sorted(folder.rglob("*.py")):
            name = file.relative_to(folder).as_posix()
            is_left_out = name.startswith("app/") or (not networks and name.startswith(_OF_NETWORKS))
            if not is_left_out or name in _RUN:
                found.update(name.encode() + file.read_bytes())
    return found.hexdigest()


@dataclass(frozen=True)
class Outcome:
    """How the process of a job ended: why it failed, or what it wrote."""

    failure: str = ""
    figures: bytes = b""
    ranking: bytes = b""


@dataclass(frozen=True)
class Station:
    """Runs the process of a job, here or wherever it is sent to.

    Parameters
    ----------
    limit : float, optional
        Most seconds of a job.
    """

    limit: float | None = None

    def run(self, order: dict[str, Any], stop: StopFlag | None = None) -> Outcome:
        """Run one job."""
        command = [sys.executable, "-m", "longtail.app.reproduce.job"]
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) / "job"
            given = json.dumps({**order, "out": str(place)})
            try:
                done = subprocess.run(
                    command, input=given, capture_output=True, text=True, timeout=self.limit, check=False
                )
            except subprocess.TimeoutExpired:
                return Outcome(f"took longer than {self.limit:,.0f} s")
            if done.returncode:
                killed = f"was killed by signal {-done.returncode}" if done.returncode < 0 else "stopped without a word"
                return Outcome((done.stderr.strip().splitlines() or [killed])[-1])
            return Outcome("", *(place.with_suffix(end).read_bytes() for end in (".json", ".npy")))


class Runner:
    """Runs jobs that have not run before: one after the other here, or all at once on a cluster.

    Parameters
    ----------
    directory : Path, optional
        Where results are kept; the user's cache when left out.
    threads : int, optional
        Of a job. On a cluster each has one core, unless it is given more.
    limit : float, optional
        Most seconds of a job; one that takes longer is stopped, and is tried again the next time.
    known_only : bool
        Whether to run nothing, and leave out what isn't known.
    """

    def __init__(
        self,
        directory: Path | None,
        threads: int | None = None,
        limit: float | None = None,
        known_only: bool = False,
    ) -> None:
        self.directory = directory or (cache_directory() or Path("longtail-cache")) / "reproduce"
        self.threads, self.limit = threads or (None if current_engine() is None else 1), limit
        self.known_only = known_only
        self.failed: dict[Job, str] = {}

    def _place(self, job: Job) -> Path:
        """Where a job's results are, without the end of the name; seconds and memory depend on the threads too."""
        return self.directory / f"{job.key}-{self.threads or 'all'}"

    def known(self, job: Job) -> Result | None:
        """What is kept of a job; None if it hasn't run."""
        place, ranking = (self._place(job).with_suffix(end) for end in (".json", ".npy"))
        if not (place.is_file() and ranking.is_file()):
            return None
        try:
            return Result(job, json.loads(place.read_text()), ranking)
        except ValueError:
            return None

    def run(self, jobs: Sequence[Job], told: Callable[[str], None]) -> dict[Job, Result]:
        """Run what isn't known yet, and give everything that succeeded.

        What has failed is not tried again by the same runner.
        """
        wanted = list(dict.fromkeys(jobs))
        new = [job for job in wanted if job not in self.failed and self.known(job) is None]
        new.sort(key=lambda job: job.ours.is_network)  # they take longest: last
        if self.known_only:
            self.failed |= {job: self._why_unknown(job) for job in new}
            new = []
        station = Station(self.limit)
        if current_engine() is None:
            for job in new:
                told(_named(job))
                self._keep(job, station.run(self._order(job)))
        elif new:
            told(_named(new[0]))
            work = Portable(station, "run", pack=self._order, cpus=self.threads or 1)
            for job, outcome in zip(new, run_blocks(work, new, description="training", unit="models"), strict=True):
                self._keep(job, outcome)
                told(_named(job))
        return {job: result for job in wanted if (result := self.known(job)) is not None}

    def _why_unknown(self, job: Job) -> str:
        found = sorted(self.directory.glob(f"{job.key}-*.json"))
        if not found:
            return "has not been run"
        threads = found[0].stem.rpartition("-")[2]
        return f"has been run with {'all threads' if threads == 'all' else f'--threads {threads}'} only"

    def _order(self, job: Job) -> dict[str, Any]:
        return {
            "name": job.data.name, "train": job.data.train, "test": job.data.test, "recipe": job.ours.recipe,
            "settings": dict(job.ours.settings), "seed": job.seed, "threads": self.threads, "task": job.task,
        }  # fmt: skip

    def _keep(self, job: Job, outcome: Outcome) -> None:
        if outcome.failure:
            self.failed[job] = outcome.failure
            return
        self.directory.mkdir(parents=True, exist_ok=True)
        for end, content in ((".npy", outcome.ranking), (".json", outcome.figures)):
            path = self._place(job).with_suffix(end)
            new = path.with_name(f"new-{os.getpid()}-{path.name}")
            new.write_bytes(content)
            os.replace(new, path)


def _named(job: Job) -> str:
    return f"{job.ours.name} on {job.data.name}"

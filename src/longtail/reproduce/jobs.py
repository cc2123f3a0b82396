"""One recipe on one data set in a process of its own; the result is cached under a hash of all that it depends on."""

from __future__ import annotations

import hashlib
import json
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
from longtail.reproduce.methods import RecipeSetup
from longtail.reproduce.sets import AvailableSet
from longtail.runtime.disk import replacing_file
from longtail.runtime.disk_cache import cache_directory
from longtail.runtime.pool import StopFlag, run_blocks
from longtail.runtime.task import RemoteTask, current_engine

METRICS = tuple(f"{name}@{k}" for name in ("P", "nDCG", "PSP", "PSnDCG", "C") for k in (1, 3, 5))
COSTS = (
    "train accuracy %",
    "test accuracy %",
    "generalization gap %",
    "train ms/sample",
    "inference ms/sample",
    "model GB",
)
"""Columns of the papers that are not ranking metrics: P@1 by other names, and costs."""
FREQUENCIES = (1, 2, 5, 10, 30, 100)
"""Lower ends of the bins of labels by training rows in which norms of classifiers are averaged."""
RECALLS = (16, 32, 64, 128, 256, 512)
"""Cutoffs k of the recall task."""
_RUN = ("reproduce/job.py", "reproduce/sets.py")
_UNUSED = ("cli/", "serve/", "report/", "reproduce/", "plots/", "tree_view/", "tuning/", "annif.py", "demo.py")
_OF_NETWORKS = ("learners/neural/", "recipes/networks.py")
Task = Literal["ranking", "recall", "missing"]


@dataclass(frozen=True)
class Job:
    """A recipe to train and evaluate on a data set."""

    data: AvailableSet
    recipe: RecipeSetup
    seed: int = 0
    task: Task = "ranking"  # metrics of the five best labels; recall of many labels; or the study of hidden labels

    @property
    def is_sweep(self) -> bool:
        """Whether it is part of a sweep: a recipe with other than its own parameters, or more than a ranking."""
        return bool(self.recipe.settings) or self.task != "ranking"

    @property
    def key(self) -> str:
        """Hash of all that the result depends on: data, propensities, recipe, settings, seed, task and the code."""
        curve = self.data.propensity.get_params()
        described = [self.data.digest, curve, self.recipe.recipe, dict(self.recipe.settings), self.seed, self.task]
        described.append(code(self.recipe.is_network))
        return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:32]


@dataclass(frozen=True)
class JobResult:
    """Result of a job: numbers by name, and the file of its ranking."""

    job: Job
    figures: dict[str, Any]
    ranking: Path

    def value(self, metric: str) -> float | None:
        """Return a number; None if there is none."""
        return self.figures.get(metric)

    def half(self, metric: str) -> float | None:
        """Return half of the 95 % bootstrap interval of a number."""
        return self.figures.get(f"half {metric}")

    def labels(self) -> np.ndarray[Any, Any]:
        """Return the five best labels of each test row."""
        return np.asarray(np.load(self.ranking, allow_pickle=False))


@cache
def code(networks: bool) -> str:
    """Return a hash of the version and of the code that results depend on, without that of networks if unused."""
    found, root = hashlib.sha256(__version__.encode()), resources.files("longtail")
    with resources.as_file(root) as folder:
        for file in sorted(folder.rglob("*.py")):
            name = file.relative_to(folder).as_posix()
            is_left_out = name.startswith(_UNUSED) or (not networks and name.startswith(_OF_NETWORKS))
            if not is_left_out or name in _RUN:
                found.update(name.encode() + file.read_bytes())
    return found.hexdigest()


@dataclass(frozen=True)
class JobOutcome:
    """End of a job's process: the reason of its failure, or its files."""

    failure: str = ""
    figures: bytes = b""
    ranking: bytes = b""


@dataclass(frozen=True)
class JobProcess:
    """Runs the process of a job, here or on a cluster."""

    limit: float | None = None  # seconds

    def run(self, order: dict[str, Any], stop: StopFlag | None = None) -> JobOutcome:
        """Run one job."""
        command = [sys.executable, "-m", "longtail.reproduce.job"]
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "job"
            given = json.dumps({**order, "out": str(out)})
            try:
                done = subprocess.run(
                    command, input=given, capture_output=True, text=True, timeout=self.limit, check=False
                )
            except subprocess.TimeoutExpired:
                return JobOutcome(f"took longer than {self.limit:,.0f} s")
            if done.returncode:
                silent = (
                    f"was killed by signal {-done.returncode}" if done.returncode < 0 else "failed without a message"
                )
                return JobOutcome((done.stderr.strip().splitlines() or [silent])[-1])
            return JobOutcome("", *(out.with_suffix(end).read_bytes() for end in (".json", ".npy")))


class Runner:
    """Runs jobs without a cached result: one after the other here, or in parallel on a cluster.

    Parameters
    ----------
    directory : Path, optional
        Directory of the results; in the user's cache by default.
    threads : int, optional
        Threads of a job; on a cluster one by default.
    limit : float, optional
        Maximum seconds of a job; one that takes longer is stopped, and tried again the next time.
    cached_only : bool
        Whether to run nothing and use cached results only.
    """

    def __init__(
        self, directory: Path | None, threads: int | None = None, limit: float | None = None, cached_only: bool = False
    ) -> None:
        self.directory = directory or (cache_directory() or Path("longtail-cache")) / "reproduce"
        self.threads, self.limit = threads or (None if current_engine() is None else 1), limit
        self.cached_only = cached_only
        self.failed: dict[Job, str] = {}

    def _place(self, job: Job) -> Path:
        """Return the path of a job's results without suffix; time and memory depend on the threads too."""
        return self.directory / f"{job.key}-{self.threads or 'all'}"

    def cached(self, job: Job) -> JobResult | None:
        """Return the cached result of a job; None if it hasn't run."""
        place, ranking = (self._place(job).with_suffix(end) for end in (".json", ".npy"))
        if not (place.is_file() and ranking.is_file()):
            return None
        try:
            return JobResult(job, json.loads(place.read_text()), ranking)
        except ValueError:
            return None

    def run(self, jobs: Sequence[Job], report: Callable[[str], None]) -> dict[Job, JobResult]:
        """Run the jobs without a result, and return all results; a failed job is not tried again by this runner."""
        wanted = list(dict.fromkeys(jobs))
        new = [job for job in wanted if job not in self.failed and self.cached(job) is None]
        new.sort(key=lambda job: job.recipe.is_network)  # they take longest
        if self.cached_only:
            self.failed |= {job: self._why_not_cached(job) for job in new}
            new = []
        process = JobProcess(self.limit)
        if current_engine() is None:
            for job in new:
                report(_named(job))
                self._keep(job, process.run(self._order(job)))
        elif new:
            report(_named(new[0]))
            work = RemoteTask(process, "run", pack=self._order, cpus=self.threads or 1)
            for job, outcome in zip(new, run_blocks(work, new, description="training", unit="models"), strict=True):
                self._keep(job, outcome)
                report(_named(job))
        return {job: result for job in wanted if (result := self.cached(job)) is not None}

    def _why_not_cached(self, job: Job) -> str:
        found = sorted(self.directory.glob(f"{job.key}-*.json"))
        if not found:
            return "has not been run"
        threads = found[0].stem.rpartition("-")[2]
        return f"has been run with {'all threads' if threads == 'all' else f'--threads {threads}'} only"

    def _order(self, job: Job) -> dict[str, Any]:
        return {
            "name": job.data.name, "train": job.data.train, "test": job.data.test, "recipe": job.recipe.recipe,
            "settings": dict(job.recipe.settings), "seed": job.seed, "threads": self.threads, "task": job.task,
        }  # fmt: skip

    def _keep(self, job: Job, outcome: JobOutcome) -> None:
        if outcome.failure:
            self.failed[job] = outcome.failure
            return
        self.directory.mkdir(parents=True, exist_ok=True)
        for end, content in ((".npy", outcome.ranking), (".json", outcome.figures)):
            with replacing_file(self._place(job).with_suffix(end)) as file:
                file.write(content)


def _named(job: Job) -> str:
    return f"{job.recipe.name} on {job.data.name}"

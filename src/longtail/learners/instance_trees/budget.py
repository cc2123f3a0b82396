"""What growing a forest takes, told beforehand by a short trial."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp

from longtail.engine.memory import affordable_threads, resident_memory
from longtail.learners.estimate import Estimate
from longtail.learners.instance_trees.training import TreeTrainer

_TRIAL_ROWS = 4000


def estimate_trees(
    make: Callable[[sp.csr_array, sp.csr_array], TreeTrainer],
    X: sp.csr_array,
    Y: sp.csr_array,
    trees: int,
    threads: int,
    memory_limit: int | str | None,
) -> Estimate:
    """Grow one tree over some of the rows, and tell from it what all trees over all rows would take.

    Every level of a tree costs about the same, so time goes with rows times levels, and size with rows.
    """
    before, whole = resident_memory(), make(X, Y)
    n = X.shape[0]
    some = np.sort(np.random.default_rng(0).choice(n, min(n, _TRIAL_ROWS), replace=False))
    trial = make(X[some], Y[some])
    stop = np.zeros(1, np.uint8)
    make(X[some[:64]], Y[some[:64]]).grow_one(0, stop)  # kernels are compiled, or read from disk
    start = time.thread_time()
    grown = trial.grow_one(0, stop)
    seconds = time.thread_time() - start
    levels = [max(1.0, math.log2(max(rows, 2) / whole.growth.leaf_size)) for rows in (len(some), n)]
    stored = max(X.nnz, 1) / max(trial.X.nnz, 1)
    model = sum(array.nbytes for array in grown) * (n / len(some)) * trees
    each = seconds * stored * levels[1] / levels[0]
    at_work = min(affordable_threads(threads, whole.thread_bytes, memory_limit, "a tree"), trees)
    return Estimate(
        seconds=each * trees / at_work,
        peak_memory_mb=max(before + at_work * whole.thread_bytes, before + 2 * model) / 1e6,
        model_mb=model / 1e6,
        block_mb=whole.thread_bytes / 1e6,
        threads=at_work,
        blocks=trees,
        least_seconds=each,
    )

"""Training of a forest, one task per tree, and an estimate of its cost."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp

from longtail.kernels.augmentation import Augmentation, copy_rows, labelled_rows
from longtail.kernels.rows import inverse_lengths
from longtail.kernels.types import Array, Float32, Int32
from longtail.learners.cost import TrainingCost
from longtail.learners.instance_trees.l1_logistic import L1Limits, L1Memory
from longtail.learners.instance_trees.ndcg_split import Relevance, ideal_gains
from longtail.learners.instance_trees.tree_growing import GrownTree, Growth, grow_tree
from longtail.learners.rows import digest_of, renumbered_by_frequency
from longtail.runtime.memory import affordable_threads, resident_memory
from longtail.runtime.mmap import is_mapped, spilled
from longtail.runtime.pool import StopFlag, run_blocks
from longtail.runtime.task import RemoteTask

Criterion = Literal["ndcg", "dcg"]

_TRIAL_ROWS = 4000


@dataclass
class TreeTrainer:
    """Grows trees over some rows, each with its own seed.

    `X` has scaled rows, `gains` the gain of each label. With the criterion "ndcg", the gain of a row is divided by that
    of its best ranking. With `augmentation`, a tree has one copy more of each row with labels: that with the number of
    the tree modulo the number of copies, scaled to unit length if `normalise`.
    """

    X: sp.csr_array
    Y: sp.csr_array
    gains: Float32
    criterion: Criterion
    growth: Growth
    limits: L1Limits
    seed: int
    augmentation: Augmentation | None = None
    normalise: bool = False

    def __post_init__(self) -> None:
        X, Y, gains, augmentation = self.X, self.Y, self.gains, self.augmentation
        self._by_frequency, self._indices = renumbered_by_frequency(X)
        self._copied = labelled_rows(Y) if augmentation else np.empty(0, np.int64)
        if augmentation:
            Y = sp.csr_array(sp.vstack([Y, Y[self._copied]], format="csr"))
        inverse = np.ones(Y.shape[0], np.float32)
        if self.criterion == "ndcg":
            ideal_gains(Y.indptr, Y.indices, gains, inverse)
        self._relevance = Relevance(Y.indptr, Y.indices, gains, inverse)
        self._of_thread = threading.local()

    def grow(self, numbers: range, threads: int, done: int = 0) -> Generator[GrownTree]:
        """Grow the trees with these numbers, in order; `done` trees were grown by an earlier run."""
        try:
            work = RemoteTask(self, "grow_one")
            yield from run_blocks(work, numbers, n_jobs=threads, description="growing trees", unit="trees", done=done)
        finally:
            self._of_thread = threading.local()  # frees the memory of the threads

    def __getstate__(self) -> dict[str, Any]:
        """State that a worker needs to grow trees."""
        return {name: value for name, value in vars(self).items() if name not in ("Y", "_of_thread")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._of_thread = threading.local()

    def grow_one(self, number: int, stop: StopFlag) -> GrownTree:
        """Grow one tree; its number is part of its seed."""
        mine = self._of_thread
        if not hasattr(mine, "memory"):
            n_rows, n_entries = self._size
            mine.memory = _memory_for(self.X, n_rows, n_entries)
            mine.rows = self._room()
        indptr, indices, values = mine.rows
        self._write_copies(number, indptr, indices, values)
        state = np.array([self.seed + (number << 32)], np.uint64)
        grown: GrownTree = grow_tree(
            indptr, indices, values, self._relevance, self.growth, self.limits, state, mine.memory, stop
        )  # fmt: skip
        return self._with_own_features(grown)

    @property
    def _size(self) -> tuple[int, int]:
        """Number of rows of a tree with copies, and the maximum number of their values."""
        copied = int(np.diff(self.X.indptr)[self._copied].sum())
        return int(self.X.shape[0]) + len(self._copied), int(self.X.nnz) + copied

    def _room(self) -> tuple[Array, Int32, Float32]:
        """CSR arrays of the rows, with room for copies at their end."""
        if not self.augmentation:
            return self.X.indptr, self._indices, self.X.data
        (n_rows, n_entries), stored = self._size, int(self.X.nnz)
        kind = self.X.indptr.dtype if n_entries < 2**31 else np.int64
        indptr = np.concatenate([self.X.indptr.astype(kind), np.empty(n_rows - self.X.shape[0], kind)])
        indices, values = np.empty(n_entries, np.int32), np.empty(n_entries, np.float32)
        indices[:stored], values[:stored] = self._indices, self.X.data
        return indptr, indices, values

    def _write_copies(self, number: int, indptr: Array, indices: Int32, values: Float32) -> None:
        """Write the copies for tree `number` after the rows."""
        augmentation = self.augmentation
        if augmentation is None:
            return
        copy, starts, names = number % augmentation.copies, indptr[self.X.shape[0] :], self._copied
        copy_rows(indptr, indices, values, names, names, copy, copy + 1, augmentation, starts, indices, values)
        if self.normalise:
            scales = np.empty(len(names))
            inverse_lengths(starts, values, scales)
            values[starts[0] : starts[-1]] *= np.repeat(scales, np.diff(starts)).astype(np.float32)

    @property
    def thread_bytes(self) -> int:
        """Memory of each thread in bytes."""
        n_features, n_labels, (n_rows, n_entries) = int(self.X.shape[1]), len(self.gains), self._size
        counts = n_entries + n_rows, n_features, n_labels, n_rows, len(self._relevance.indices)
        own = 8 * (n_entries + n_rows) if self.augmentation else 0
        sizes = (0 if is_mapped(self.X.data) else 8, 52, 64, 64, 4)
        return own + int(sum(size * count for size, count in zip(sizes, counts, strict=True)))

    def fingerprint(self, first: int) -> bytes:
        """Digest of everything that the trees from number `first` on depend on."""
        described = (self.growth, self.limits, self.seed, self.criterion, self.X.shape, self.augmentation, first)
        arrays = (self.X.indptr, self.X.indices, self.X.data, self.Y.indptr, self.Y.indices, self.gains)
        return digest_of(described, arrays)

    def _with_own_features(self, grown: GrownTree) -> GrownTree:
        """Restore the numbers of the features, ascending inside each node."""
        features = self._by_frequency[grown.features]
        node = np.repeat(np.arange(len(grown.weight_counts)), grown.weight_counts)
        order = np.lexsort((features, node))
        return grown._replace(features=features[order], weights=grown.weights[order])


def _memory_for(X: sp.csr_array, n_rows: int, n_entries: int) -> L1Memory:
    """Working memory of a thread; its columns, as large as the data, are on disk if the data are."""
    if not is_mapped(X.data):
        return L1Memory.for_matrix(n_rows, int(X.shape[1]), n_entries)
    entries = n_entries + n_rows
    small = L1Memory.for_matrix(0, int(X.shape[1]), 0)
    return small._replace(column_rows=spilled(entries, np.int32), column_values=spilled(entries, np.float32))


def estimate_trees(
    make: Callable[[sp.csr_array, sp.csr_array], TreeTrainer], X: sp.csr_array, Y: sp.csr_array, trees: int
) -> TrainingCost:
    """Grow one tree over some of the rows, and extrapolate to all trees and rows.

    Every level of a tree costs about the same, so time is proportional to rows times levels, and size to rows.
    """
    before, trainer = resident_memory(), make(X, Y)
    n = X.shape[0]
    some = np.sort(np.random.default_rng(0).choice(n, min(n, _TRIAL_ROWS), replace=False))
    trial = make(X[some], Y[some])
    stop = np.zeros(1, np.uint8)
    make(X[some[:64]], Y[some[:64]]).grow_one(0, stop)  # kernels are compiled, or read from disk
    start = time.thread_time()
    grown = trial.grow_one(0, stop)
    seconds = time.thread_time() - start
    levels = [max(1.0, math.log2(max(rows, 2) / trainer.growth.leaf_size)) for rows in (len(some), n)]
    stored = max(X.nnz, 1) / max(trial.X.nnz, 1)
    model = sum(array.nbytes for array in grown) * (n / len(some)) * trees
    each = seconds * stored * levels[1] / levels[0]
    at_work = min(affordable_threads(trainer.thread_bytes, "a tree"), trees)
    return TrainingCost(
        seconds=each * trees / at_work,
        peak_memory_mb=max(before + at_work * trainer.thread_bytes, before + 2 * model) / 1e6,
        model_mb=model / 1e6,
        block_mb=trainer.thread_bytes / 1e6,
        threads=at_work,
        blocks=trees,
        least_seconds=each,
    )

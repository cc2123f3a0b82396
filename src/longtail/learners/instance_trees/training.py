"""Growing the trees of a forest, a tree a task: what they are grown on, and what that takes."""

from __future__ import annotations

import threading
from collections.abc import Generator
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from longtail.engine.augmentation import Augmentation, copy_rows, labelled_rows
from longtail.engine.l1_logistic import L1Memory, Limits
from longtail.engine.mapped import is_mapped, spilled
from longtail.engine.ndcg_split import Relevance, ideal_gains
from longtail.engine.pool import StopFlag, run_blocks
from longtail.engine.portable import Portable
from longtail.engine.rows import inverse_lengths
from longtail.engine.tree_growing import GrownTree, Growth, grow_tree
from longtail.learners.linear.training import digest_of, renumbered_by_frequency


class TreeTrainer:
    """Grows trees over some rows, each from a seed of its own.

    Parameters
    ----------
    X : csr_array of float32
        Rows as the trees are to see them.
    Y : csr_array
        Their labels.
    gains : ndarray of float32, shape (labels,)
        What a label is worth.
    ideal : bool
        Whether the gain of a row is divided by what the best ranking would gain it.
    growth : Growth
    limits : Limits
    seed : int
    augmentation : Augmentation, optional
        Each tree is grown on one copy of the rows with labels besides, the one with its own number and then again from
        the first.
    normalise : bool
        Whether copies are scaled to length 1.
    """

    def __init__(
        self,
        X: sp.csr_array,
        Y: sp.csr_array,
        gains: npt.NDArray[np.float32],
        ideal: bool,
        growth: Growth,
        limits: Limits,
        seed: int,
        augmentation: Augmentation | None = None,
        normalise: bool = False,
    ) -> None:
        self.X, self.Y = X, Y
        self.gains, self.ideal = gains, ideal
        self.growth, self.limits, self.seed = growth, limits, seed
        self._by_frequency, self._indices = renumbered_by_frequency(X)
        self.augmentation, self.normalise = augmentation, normalise
        self._copied = labelled_rows(Y) if augmentation else np.empty(0, np.int64)
        if augmentation:
            Y = sp.csr_array(sp.vstack([Y, Y[self._copied]], format="csr"))
        inverse = np.ones(Y.shape[0], np.float32)
        if ideal:
            ideal_gains(Y.indptr, Y.indices, gains, inverse)
        self._relevance = Relevance(Y.indptr, Y.indices, gains, inverse)
        self._of_thread = threading.local()

    def grow(self, numbers: range, threads: int, done: int = 0) -> Generator[GrownTree]:
        """Grow the trees with these numbers, in their order; an earlier run has grown some before them."""
        try:
            work = Portable(self, "grow_one")
            yield from run_blocks(work, numbers, threads=threads, description="growing trees", unit="trees", done=done)
        finally:
            self._of_thread = threading.local()  # the threads are gone, their memory may go too

    def __getstate__(self) -> dict[str, Any]:
        """What it takes to grow trees elsewhere."""
        return {name: value for name, value in vars(self).items() if name not in ("Y", "_of_thread")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._of_thread = threading.local()

    def grow_one(self, number: int, stop: StopFlag) -> GrownTree:
        """Grow one tree; its number decides its random state."""
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
        return self._in_old_numbers(grown)

    @property
    def _size(self) -> tuple[int, int]:
        """Rows that a tree is grown on, and the most values that they store."""
        copied = int(np.diff(self.X.indptr)[self._copied].sum())
        return int(self.X.shape[0]) + len(self._copied), int(self.X.nnz) + copied

    def _room(self) -> tuple[npt.NDArray[Any], npt.NDArray[np.int32], npt.NDArray[np.float32]]:
        """Rows as a tree is grown on them; with room behind them where there will be copies."""
        if not self.augmentation:
            return self.X.indptr, self._indices, self.X.data
        (n_rows, n_entries), stored = self._size, int(self.X.nnz)
        kind = self.X.indptr.dtype if n_entries < 2**31 else np.int64
        indptr = np.concatenate([self.X.indptr.astype(kind), np.empty(n_rows - self.X.shape[0], kind)])
        indices, values = np.empty(n_entries, np.int32), np.empty(n_entries, np.float32)
        indices[:stored], values[:stored] = self._indices, self.X.data
        return indptr, indices, values

    def _write_copies(
        self, number: int, indptr: npt.NDArray[Any], indices: npt.NDArray[np.int32], values: npt.NDArray[np.float32]
    ) -> None:
        """Write the copies for tree `number` behind the rows, if there are to be any."""
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
        """Memory that each thread needs for itself."""
        n_features, n_labels, (n_rows, n_entries) = int(self.X.shape[1]), len(self.gains), self._size
        counts = n_entries + n_rows, n_features, n_labels, n_rows, len(self._relevance.indices)
        own = 8 * (n_entries + n_rows) if self.augmentation else 0
        sizes = (0 if is_mapped(self.X.data) else 8, 52, 64, 64, 4)
        return own + int(sum(size * count for size, count in zip(sizes, counts, strict=True)))

    def fingerprint(self, first: int) -> bytes:
        """Digest of everything that trees from number `first` on depend on."""
        described = (self.growth, self.limits, self.seed, self.ideal, self.X.shape, self.augmentation, first)
        arrays = (self.X.indptr, self.X.indices, self.X.data, self.Y.indptr, self.Y.indices, self.gains)
        return digest_of(described, arrays)

    def _in_old_numbers(self, grown: GrownTree) -> GrownTree:
        """Name features by their own numbers again, in order inside of each node."""
        features = self._by_frequency[grown.features]
        node = np.repeat(np.arange(len(grown.weight_counts)), grown.weight_counts)
        order = np.lexsort((features, node))
        return grown._replace(features=features[order], weights=grown.weights[order])


def _memory_for(X: sp.csr_array, n_rows: int, n_entries: int) -> L1Memory:
    """Working memory of a thread; the columns of a node, as many as the data, lie on disk where the data do."""
    if not is_mapped(X.data):
        return L1Memory.for_matrix(n_rows, int(X.shape[1]), n_entries)
    entries = n_entries + n_rows
    small = L1Memory.for_matrix(0, int(X.shape[1]), 0)
    return small._replace(column_rows=spilled(entries, np.int32), column_values=spilled(entries, np.float32))

"""Growing the trees of a forest, a tree a task: what they are grown on, and what that takes."""

from __future__ import annotations

import threading
from collections.abc import Generator

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from longtail.engine.l1_logistic import L1Memory, Limits
from longtail.engine.ndcg_split import Relevance, ideal_gains
from longtail.engine.pool import StopFlag, run_blocks
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
    ) -> None:
        self.X, self.Y = X, Y
        self.gains, self.ideal = gains, ideal
        self.growth, self.limits, self.seed = growth, limits, seed
        self._by_frequency, self._indices = renumbered_by_frequency(X)
        inverse = np.ones(X.shape[0], np.float32)
        if ideal:
            ideal_gains(Y.indptr, Y.indices, gains, inverse)
        self._relevance = Relevance(Y.indptr, Y.indices, gains, inverse)
        self._of_thread = threading.local()

    def grow(self, numbers: range, threads: int) -> Generator[GrownTree]:
        """Grow the trees with these numbers, in their order."""
        try:
            yield from run_blocks(self.grow_one, numbers, threads=threads, description="growing trees", unit="trees")
        finally:
            self._of_thread = threading.local()  # the threads are gone, their memory may go too

    def grow_one(self, number: int, stop: StopFlag) -> GrownTree:
        """Grow one tree; its number decides its random state."""
        if not hasattr(self._of_thread, "memory"):
            self._of_thread.memory = L1Memory.for_matrix(*self.X.shape, self.X.nnz)
        state = np.array([self.seed + (number << 32)], np.uint64)
        grown: GrownTree = grow_tree(
            self.X.indptr, self._indices, self.X.data, self._relevance, self.growth, self.limits, state,
            self._of_thread.memory, stop,
        )  # fmt: skip
        return self._in_old_numbers(grown)

    @property
    def thread_bytes(self) -> int:
        """Memory that each thread needs for itself."""
        (n_rows, n_features), n_labels = self.X.shape, len(self.gains)
        counts = self.X.nnz + n_rows, n_features, n_labels, n_rows, self.Y.nnz
        return int(sum(size * count for size, count in zip((8, 52, 64, 64, 4), counts, strict=True)))

    def fingerprint(self, first: int) -> bytes:
        """Digest of everything that trees from number `first` on depend on."""
        described = (self.growth, self.limits, self.seed, self.ideal, self.X.shape, first)
        arrays = (self.X.indptr, self.X.indices, self.X.data, self.Y.indptr, self.Y.indices, self.gains)
        return digest_of(described, arrays)

    def _in_old_numbers(self, grown: GrownTree) -> GrownTree:
        """Name features by their own numbers again, in order inside of each node."""
        features = self._by_frequency[grown.features]
        node = np.repeat(np.arange(len(grown.weight_counts)), grown.weight_counts)
        order = np.lexsort((features, node))
        return grown._replace(features=features[order], weights=grown.weights[order])

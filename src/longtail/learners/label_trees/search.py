"""Search of fitted trees for many rows: chunks of rows in threads, results in one ranking."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from longtail.engine.best_first import best_first_search
from longtail.engine.lanes import LANES
from longtail.engine.pool import in_chunks
from longtail.engine.topk import TopK
from longtail.engine.tree_search import Rows, Shape, beam_search, merge_found
from longtail.errors import InputError, ModelError
from longtail.learners.label_trees.chunk_weights import ChunkWeights
from longtail.learners.label_trees.forest import LabelForest

Flags = npt.NDArray[np.bool_]

_ROWS_AT_ONCE = 4096
_FOUND_AT_ONCE = 1 << 22
_NO_FLAGS, _NO_FACTORS = np.empty(0, np.bool_), np.empty(0, np.float32)
_NOTHING_COLLECTED = np.empty((0, 0), np.int32), np.empty((0, 0), np.float32), np.empty(0, np.int64)


@dataclass(frozen=True)
class TreeSearch:
    """Finds the best labels of rows, or the best nodes of a level.

    Parameters
    ----------
    forest : LabelForest
    weights : ChunkWeights
    loss : int
        Code of the loss.
    discount : float
        What a node's score counts for what is under it.
    bias : float
        Value of the bias feature.
    n_labels : int
    """

    forest: LabelForest
    weights: ChunkWeights
    loss: int
    discount: float
    bias: float
    n_labels: int

    @cached_property
    def shape(self) -> Shape:
        """Shape of the trees for the kernels."""
        return Shape(
            self.forest.n_trees_,
            self.forest.level_starts,
            self.weights.block_starts_,
            self.weights.n_features_,
            self.weights.most_pairs,
        )

    def labels(
        self,
        X: sp.csr_array,
        scales: npt.NDArray[np.float64],
        k: int,
        beam: int,
        allowed: Flags | None,
        threads: int | None,
        factors: npt.NDArray[np.float32] | None = None,
    ) -> TopK:
        """Rank the k best labels, by score or by factor times score, that a beam of so many nodes a level reaches."""
        n, n_trees, beam = X.shape[0], self.shape.n_trees, min(beam, self.forest.n_nodes)
        top = TopK(np.full((n, k), -1, np.int32), np.full((n, k), -np.inf, np.float32))
        most = self._most_found(beam) if self.forest.overlaps or factors is not None else 0
        multiplied = _NO_FACTORS if factors is None else factors
        at_once = max(1, min(_ROWS_AT_ONCE, _FOUND_AT_ONCE // (max(most, beam) * n_trees)))
        rows, depth = self._rows(X, scales), self.forest.n_levels
        permitted, open_nodes = self._restrictions(allowed)
        chunks = self.weights.chunks

        def search(first: int, last: int) -> None:
            lists, found = (last - first) * n_trees, _NOTHING_COLLECTED
            if most:
                found = (
                    np.empty((lists, most), np.int32),
                    np.empty((lists, most), np.float32),
                    np.zeros(lists, np.int64),
                )
            beam_search(
                rows, first, last, self.shape, chunks, self.loss, np.float32(self.discount), depth, open_nodes,
                permitted, np.empty((lists, beam), np.int32), np.empty((lists, beam), np.float32),
                top.labels[first:last], top.scores[first:last], *found,
            )  # fmt: skip
            if most:
                merge_found(n_trees, *found, self.n_labels, multiplied, top.labels[first:last], top.scores[first:last])

        in_chunks(search, n, at_once, threads, "searching the tree")
        return top

    def nodes(
        self, X: sp.csr_array, scales: npt.NDArray[np.float64], depth: int, beam: int, threads: int | None
    ) -> npt.NDArray[np.int32]:
        """Find the best nodes of level `depth` of each row and tree, -1 where there are fewer than `beam`."""
        n, n_trees, beam = X.shape[0], self.shape.n_trees, min(beam, self.forest.n_nodes)
        nodes = np.empty((n * n_trees, beam), np.int32)
        rows, chunks = self._rows(X, scales), self.weights.chunks

        def search(first: int, last: int) -> None:
            part, lists = slice(first * n_trees, last * n_trees), (last - first) * n_trees
            labels = np.full((last - first, 1), -1, np.int32)
            label_scores = np.full((last - first, 1), -np.inf, np.float32)
            beam_search(
                rows, first, last, self.shape, chunks, self.loss, np.float32(self.discount), depth, _NO_FLAGS,
                _NO_FLAGS, nodes[part], np.empty((lists, beam), np.float32), labels, label_scores,
                *_NOTHING_COLLECTED,
            )  # fmt: skip

        at_once = max(1, min(_ROWS_AT_ONCE, _FOUND_AT_ONCE // (beam * n_trees)))
        in_chunks(search, n, at_once, threads, "searching the tree")
        return nodes.reshape(n, n_trees * beam)

    def sent(
        self, X: sp.csr_array, scales: npt.NDArray[np.float64], depth: int, beam: int, threads: int | None
    ) -> sp.csr_array:
        """Which rows go to which nodes of a level, as a 0/1 matrix: to the best `beam` of a tree, all to the roots."""
        first, last = (int(start) for start in self.forest.level_starts[depth : depth + 2])
        if depth == 0:
            return sp.csr_array(np.ones((X.shape[0], self.forest.n_trees_), np.float32))
        nodes = self.nodes(X, scales, depth, beam, threads)
        used = nodes >= 0
        indptr = np.concatenate([[0], np.cumsum(used.sum(axis=1))])
        ones = np.ones(int(indptr[-1]), np.float32)
        matrix = sp.csr_array((ones, nodes[used] - np.int32(first), indptr), shape=(X.shape[0], last - first))
        matrix.sort_indices()
        return matrix

    def best_first(
        self,
        X: sp.csr_array,
        scales: npt.NDArray[np.float64],
        k: int,
        label_weights: npt.NDArray[np.float64] | None,
        allowed: Flags | None,
        threads: int | None,
    ) -> tuple[TopK, npt.NDArray[np.int64]]:
        """Rank the exactly best k labels, by score or by weight times score; also tells how many nodes that opened."""
        if self.shape.n_trees > 1:
            raise InputError("Only one tree can be searched exactly, and this learner has more: train with trees=1.")
        n = X.shape[0]
        top = TopK(np.full((n, k), -1, np.int32), np.full((n, k), -np.inf, np.float32))
        visits = np.zeros(n, np.int64)
        rows, chunks = self._rows(X, scales), self.weights.chunks
        permitted, _ = self._restrictions(allowed)
        with np.errstate(divide="ignore"):
            log_weights = np.zeros(self.n_labels) if label_weights is None else np.log(label_weights)
        usable = np.where(True if allowed is None else allowed, log_weights, -np.inf)
        most_weight = self._largest_under(usable).astype(np.float32)
        reach = np.float32(self.discount) ** self.forest.heights.astype(np.float32)
        of_labels = np.empty(0, np.float32) if label_weights is None else log_weights.astype(np.float32)

        def search(first: int, last: int) -> None:
            best_first_search(
                rows, first, last, self.shape, chunks, self.loss, np.float32(self.discount), reach, most_weight,
                of_labels, permitted, visits[first:last], top.labels[first:last], top.scores[first:last],
            )  # fmt: skip

        in_chunks(search, n, _ROWS_AT_ONCE, threads, "searching the tree")
        return top, visits

    def _rows(self, X: sp.csr_array, scales: npt.NDArray[np.float64]) -> Rows:
        if X.shape[1] > self.weights.n_features_:
            raise ModelError("The rows have features that the weights of the model don't know: train it again.")
        return Rows(X.indptr.astype(np.int64, copy=False), X.indices, X.data, scales, np.float32(self.bias))

    def _restrictions(self, allowed: Flags | None) -> tuple[Flags, Flags]:
        """Labels that may be ranked, and nodes that have any of them under them; empty if there is no restriction."""
        if allowed is None:
            return _NO_FLAGS, _NO_FLAGS
        return allowed, self._largest_under(np.where(allowed, 0.0, -np.inf)) == 0

    def _largest_under(self, of_labels: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Largest of some numbers of labels under each node, -inf where there are no labels."""
        forest = self.forest
        largest = np.full(forest.n_nodes, -np.inf)
        np.maximum.at(largest, forest.holders, of_labels[forest.labels_])
        parents = forest.parents
        for first, last in reversed(list(zip(forest.level_starts[1:], forest.level_starts[2:], strict=False))):
            np.maximum.at(largest, parents[first:last], largest[first:last])
        return largest

    def _most_found(self, beam: int) -> int:
        """Most labels that one row can meet in one tree."""
        forest, total = self.forest, 0
        blocks = np.diff(self.weights.block_starts_) * LANES
        for first, last in zip(forest.level_starts[:-1], forest.level_starts[1:], strict=True):
            largest = np.sort(blocks[first:last])[::-1]
            total += int(largest[: 1 if first == 0 else beam].sum())
        return total

"""Search of fitted trees for many rows, in threads."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from longtail.errors import InputError, ModelError
from longtail.kernels.lanes import LANES
from longtail.kernels.rows import QueryRows
from longtail.kernels.types import Flags, Float32, Float64, Int32, Int64
from longtail.learners.label_trees.beam_search import Collected, TreeShape, beam_search, merge_collected
from longtail.learners.label_trees.best_first_search import best_first_search
from longtail.learners.label_trees.chunk_weights import ChunkWeights
from longtail.learners.label_trees.forest import LabelForest
from longtail.runtime.pool import in_chunks
from longtail.topk import TopK

_ROWS_AT_ONCE = 4096
_FOUND_AT_ONCE = 1 << 22
_NO_FLAGS, _NO_FACTORS = np.empty(0, np.bool_), np.empty(0, np.float32)
_NOTHING_COLLECTED = Collected(np.empty((0, 0), np.int32), np.empty((0, 0), np.float32), np.empty(0, np.int64))


@dataclass(frozen=True)
class TreeSearch:
    """Search of fitted trees for many rows.

    `loss` is the code of the loss, `discount` the weight of the parent's score, `bias` the value of the bias feature.
    """

    forest: LabelForest
    weights: ChunkWeights
    loss: int
    discount: float
    bias: float
    n_labels: int

    @cached_property
    def shape(self) -> TreeShape:
        """Structure of the trees for the kernels."""
        forest, weights = self.forest, self.weights
        return TreeShape(
            forest.n_trees_, forest.level_starts, weights.block_starts_, weights.n_features_, weights.most_pairs
        )

    def labels(
        self, X: sp.csr_array, scales: Float64, k: int, beam: int, allowed: Flags | None, factors: Float32 | None = None
    ) -> TopK:
        """Rank the k best labels, by score or by factor times score, that a beam search reaches."""
        n, n_trees, beam = X.shape[0], self.shape.n_trees, min(beam, self.forest.n_nodes)
        top = TopK.empty(n, k)
        most = self._max_collected(beam) if self.forest.overlaps or factors is not None else 0
        multiplied = _NO_FACTORS if factors is None else factors
        chunk_size = max(1, min(_ROWS_AT_ONCE, _FOUND_AT_ONCE // (max(most, beam) * n_trees)))
        rows, depth = self._rows(X, scales), self.forest.n_levels
        restrictions = self._restrictions(allowed)
        chunks = self.weights.chunks

        def search(first: int, last: int) -> None:
            lists, found, part = (
                (last - first) * n_trees,
                _NOTHING_COLLECTED,
                (top.labels[first:last], top.scores[first:last]),
            )
            if most:
                found = Collected(
                    np.empty((lists, most), np.int32), np.empty((lists, most), np.float32), np.zeros(lists, np.int64)
                )
            beam_search(
                rows, first, last, self.shape, chunks, self.loss, np.float32(self.discount), depth, *restrictions,
                np.empty((lists, beam), np.int32), np.empty((lists, beam), np.float32), *part, found,
            )  # fmt: skip
            if most:
                merge_collected(n_trees, found, self.n_labels, multiplied, *part)

        in_chunks(search, n, chunk_size, "searching the tree")
        return top

    def nodes(self, X: sp.csr_array, scales: Float64, depth: int, beam: int) -> Int32:
        """Find the best nodes of level `depth` of each row and tree, -1 where there are fewer than `beam`."""
        n, n_trees, beam = X.shape[0], self.shape.n_trees, min(beam, self.forest.n_nodes)
        nodes = np.empty((n * n_trees, beam), np.int32)
        rows, chunks = self._rows(X, scales), self.weights.chunks

        def search(first: int, last: int) -> None:
            part, lists = slice(first * n_trees, last * n_trees), (last - first) * n_trees
            ranking = np.full((last - first, 1), -1, np.int32), np.full((last - first, 1), -np.inf, np.float32)
            beam_search(
                rows, first, last, self.shape, chunks, self.loss, np.float32(self.discount), depth, _NO_FLAGS,
                _NO_FLAGS, nodes[part], np.empty((lists, beam), np.float32), *ranking, _NOTHING_COLLECTED,
            )  # fmt: skip

        chunk_size = max(1, min(_ROWS_AT_ONCE, _FOUND_AT_ONCE // (beam * n_trees)))
        in_chunks(search, n, chunk_size, "searching the tree")
        return nodes.reshape(n, n_trees * beam)

    def sent(self, X: sp.csr_array, scales: Float64, depth: int, beam: int) -> sp.csr_array:
        """The best `beam` nodes of a level and tree for each row, as a 0/1 matrix; all rows reach the roots."""
        first, last = (int(start) for start in self.forest.level_starts[depth : depth + 2])
        if depth == 0:
            return sp.csr_array(np.ones((X.shape[0], self.forest.n_trees_), np.float32))
        nodes = self.nodes(X, scales, depth, beam)
        used = nodes >= 0
        indptr = np.concatenate([[0], np.cumsum(used.sum(axis=1))])
        ones = np.ones(int(indptr[-1]), np.float32)
        matrix = sp.csr_array((ones, nodes[used] - np.int32(first), indptr), shape=(X.shape[0], last - first))
        matrix.sort_indices()
        return matrix

    def best_first(
        self, X: sp.csr_array, scales: Float64, k: int, label_weights: Float64 | None, allowed: Flags | None
    ) -> tuple[TopK, Int64]:
        """Rank exactly the k best labels by score or weight times score; also the number of nodes opened per row."""
        if self.shape.n_trees > 1:
            raise InputError("Only one tree can be searched exactly, and this learner has more: train with n_trees=1.")
        n = X.shape[0]
        top = TopK.empty(n, k)
        visits = np.zeros(n, np.int64)
        rows, chunks = self._rows(X, scales), self.weights.chunks
        _, permitted = self._restrictions(allowed)
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

        in_chunks(search, n, _ROWS_AT_ONCE, "searching the tree")
        return top, visits

    def _rows(self, X: sp.csr_array, scales: Float64) -> QueryRows:
        if X.shape[1] > self.weights.n_features_:
            raise ModelError("The rows have features that the weights of the model don't know: train it again.")
        return QueryRows(X.indptr.astype(np.int64, copy=False), X.indices, X.data, scales, np.float32(self.bias))

    def _restrictions(self, allowed: Flags | None) -> tuple[Flags, Flags]:
        """Nodes that have allowed labels under them, and these labels; both empty without a restriction."""
        if allowed is None:
            return _NO_FLAGS, _NO_FLAGS
        return self._largest_under(np.where(allowed, 0.0, -np.inf)) == 0, allowed

    def _largest_under(self, of_labels: Float64) -> Float64:
        """Maximum over the labels under each node, -inf for nodes without labels."""
        forest = self.forest
        largest = np.full(forest.n_nodes, -np.inf)
        np.maximum.at(largest, forest.holders, of_labels[forest.labels_])
        parents = forest.parents
        for first, last in reversed(list(zip(forest.level_starts[1:], forest.level_starts[2:], strict=False))):
            np.maximum.at(largest, parents[first:last], largest[first:last])
        return largest

    def _max_collected(self, beam: int) -> int:
        """Maximum number of labels that one row can reach in one tree."""
        forest, total = self.forest, 0
        blocks = np.diff(self.weights.block_starts_) * LANES
        for first, last in zip(forest.level_starts[:-1], forest.level_starts[1:], strict=True):
            largest = np.sort(blocks[first:last])[::-1]
            total += int(largest[: 1 if first == 0 else beam].sum())
        return total

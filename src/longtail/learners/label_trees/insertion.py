"""Insertion of new labels into fitted trees: each goes to the leaf that its rows reach, and is trained there."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from longtail.data.sparse import column_counts
from longtail.kernels.lanes import LANES
from longtail.kernels.types import Float64, Int32, Int64
from longtail.learners.label_trees.block_lanes import without_weights
from longtail.learners.label_trees.chunk_weights import ChunkWeights
from longtail.learners.label_trees.estimate import level_threads
from longtail.learners.label_trees.forest import LabelForest, starts_of
from longtail.learners.label_trees.node_training import NodeBlock, NodeTrainer
from longtail.learners.label_trees.search import TreeSearch
from longtail.learners.linear.problem import SolverSettings
from longtail.runtime.block_file import BlockFile
from longtail.weighting import Costs, Weighting

_TOP_K = 20  # predicted labels of a row that vote for leaves


def insert_labels(
    search: TreeSearch,
    settings: SolverSettings,
    X: sp.csr_array,
    Y: sp.csr_array,
    scales: Float64,
    weighting: Weighting,
    *,
    beam: int,
    ids: Int32 | None = None,
    train: bool = True,
) -> tuple[LabelForest, ChunkWeights]:
    """Return trees and weights with the labels of Y inserted; the present weights do not change.

    `ids` are the ids of the columns of Y, ascending; by default they follow the known labels. Without `train`, the new
    labels are inserted without weights; then X needs to hold only rows that have any of them.
    """
    old, old_weights, n_old = search.forest, search.weights, search.n_labels
    votes = _leaf_votes(search, X, scales, beam)
    nodes, labels = _places(old, votes, Y)
    ids = np.arange(n_old, n_old + Y.shape[1], dtype=np.int32) if ids is None else ids
    forest = _with_labels(old, nodes, ids[labels], new_last=True)  # new blocks hold the last labels of their nodes
    trainer = None
    if train:
        n_labels = max(n_old, int(ids.max(initial=-1)) + 1)
        padded = sp.csr_array((Y.data, ids[Y.indices], Y.indptr), shape=(Y.shape[0], n_labels))
        new = weighting._costs(column_counts(Y), X.shape[0])
        costs = Costs(np.ones(n_labels, np.float32), np.ones(n_labels, np.float32))
        costs.positive[ids], costs.negative[ids] = new.positive, new.negative
        trainer = NodeTrainer(settings, X, padded, scales, forest, weighting, old_weights.precision, costs)
    blocks = _new_blocks(old, forest, np.unique(nodes), old_weights.n_blocks)
    with BlockFile() as block_file:
        for known in old_weights.blocks():
            block_file.append(known)
        for depth in range(forest.n_levels):
            first, last = forest.level_starts[depth : depth + 2]
            todo = [block for block in blocks if first <= block.node < last]
            if todo and trainer is not None:
                level = trainer.level(depth, sp.csr_array((votes[:, first:last] > 0).astype(np.float32)))
                block_file.append_all(trainer.train(depth, level, todo, level_threads(trainer, level)))
            else:
                for block in todo:
                    members = _labels_of(forest, block)
                    block_file.append(without_weights(members, old_weights.precision, int(X.shape[1])))
        node_of_block = np.concatenate([old_weights.nodes_of_blocks, [block.node for block in blocks]]).astype(np.int64)
        order, starts = np.argsort(node_of_block, kind="stable"), starts_of(node_of_block, forest.n_nodes)
        grown = _with_labels(old, nodes, ids[labels], new_last=False)
        return grown, ChunkWeights.assemble(block_file, order, starts, old_weights.precision, int(X.shape[1]))


def _new_blocks(old: LabelForest, forest: LabelForest, nodes: Int64, n_blocks: int) -> list[NodeBlock]:
    """Blocks of the new labels of these nodes, numbered from `n_blocks` on."""
    blocks: list[NodeBlock] = []
    for node in nodes.tolist():
        first, last = (len(trees.labels_under(node)) + len(trees.nodes_under(node)) for trees in (old, forest))
        for start in range(first, last, LANES):
            blocks.append(NodeBlock(n_blocks + len(blocks), node, start, min(start + LANES, last)))
    return blocks


def _labels_of(forest: LabelForest, block: NodeBlock) -> Int32:
    """Labels of a block; the members of a node are its child nodes, then its labels."""
    n_below = len(forest.nodes_under(block.node))
    return forest.labels_under(block.node)[block.first - n_below : block.last - n_below]


def _leaf_votes(search: TreeSearch, X: sp.csr_array, scales: Float64, beam: int) -> sp.csr_array:
    """Sum of the scores of the predicted labels of each row under each node, rows by nodes."""
    forest = search.forest
    top = search.labels(X, scales, _TOP_K, beam, None)
    used = top.labels >= 0
    indptr = np.concatenate([[0], np.cumsum(used.sum(axis=1))])
    predicted = sp.csr_array(
        (np.maximum(top.scores[used], 1e-12), top.labels[used], indptr), shape=(X.shape[0], search.n_labels)
    )
    holders = sp.csr_array(
        (np.ones(len(forest.labels_), np.float32), (forest.labels_, forest.holders)),
        shape=(search.n_labels, forest.n_nodes),
    )
    return sp.csr_array(predicted @ holders)


def _places(forest: LabelForest, near: sp.csr_array, Y: sp.csr_array) -> tuple[Int64, Int32]:
    """Node of each new label in each tree: the one with the most votes of the label's rows."""
    votes = sp.csr_array(Y.T @ near)
    trees = forest.trees
    nodes, labels = [], []
    for label in np.flatnonzero(column_counts(Y)).tolist():
        row = slice(votes.indptr[label], votes.indptr[label + 1])
        for tree in range(forest.n_trees_):
            inside = trees[votes.indices[row]] == tree
            if inside.any():
                found, count = votes.indices[row][inside], votes.data[row][inside]
                nodes.append(int(found[np.lexsort((found, -count))[0]]))
            else:
                holders = forest.holders[trees[forest.holders] == tree]
                nodes.append(int(holders[0]) if len(holders) else tree)
            labels.append(label)
    return np.array(nodes, np.int64), np.array(labels, np.int32)


def _with_labels(forest: LabelForest, nodes: Int64, labels: Int32, *, new_last: bool) -> LabelForest:
    """Trees with more labels, those of a node in ascending order, or the new ones after the others."""
    grown = LabelForest()
    grown.n_trees_, grown.child_starts_ = forest.n_trees_, forest.child_starts_
    holders = np.concatenate([forest.holders, nodes])
    everything = np.concatenate([forest.labels_, labels])
    is_new = np.arange(len(everything)) >= len(forest.labels_)
    order = np.lexsort((everything, is_new & new_last, holders))
    grown.labels_ = everything[order]
    grown.label_starts_ = starts_of(holders, forest.n_nodes)
    return grown

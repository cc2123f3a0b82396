"""New labels for a fitted tree: each goes to the leaf where its rows' labels stand, and is trained there."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from longtail.engine.lanes import LANES
from longtail.engine.spool import BlockSpool
from longtail.learners.label_trees.block_lanes import without_weights
from longtail.learners.label_trees.budget import affordable_threads
from longtail.learners.label_trees.chunk_weights import ChunkWeights
from longtail.learners.label_trees.forest import LabelForest
from longtail.learners.label_trees.node_training import NodeBlock, NodeTrainer
from longtail.learners.label_trees.search import TreeSearch
from longtail.learners.linear.problem import Settings
from longtail.weighting import Costs, Weighting

Int64 = npt.NDArray[np.int64]

_BEST = 20  # predicted labels of a row that say to which leaves it belongs


def insert_labels(
    search: TreeSearch,
    settings: Settings,
    X: sp.csr_array,
    Y: sp.csr_array,
    scales: npt.NDArray[np.float64],
    weighting: Weighting,
    *,
    beam: int,
    threads: int,
    memory_limit: int | str | None = None,
    ids: npt.NDArray[np.int32] | None = None,
    train: bool = True,
) -> tuple[LabelForest, ChunkWeights]:
    """Give the trees and the weights with the labels of Y added; what was there is copied as it is.

    `ids` are the labels that the columns of Y stand for, rising; those after the ones that are known when left out.
    Without `train` the new labels get their places, and have no weights yet; rows that have any of them are enough.
    """
    old, old_weights, n_old = search.forest, search.weights, search.n_labels
    near = _leaf_votes(search, X, scales, beam, threads)
    nodes, labels = _places(old, near, Y)
    ids = np.arange(n_old, n_old + Y.shape[1], dtype=np.int32) if ids is None else ids
    n_labels = max(n_old, int(ids.max(initial=-1)) + 1)
    forest = _with_labels(old, nodes, ids[labels], new_last=True)  # blocks are cut from the end of each node
    trainer = None
    if train:
        padded = sp.csr_array((Y.data, ids[Y.indices], Y.indptr), shape=(Y.shape[0], n_labels))
        new = weighting.costs(np.bincount(Y.indices, minlength=Y.shape[1]), X.shape[0])
        costs = Costs(np.ones(n_labels, np.float32), np.ones(n_labels, np.float32))
        costs.positive[ids], costs.negative[ids] = new.positive, new.negative
        trainer = NodeTrainer(settings, X, padded, scales, forest, weighting, old_weights.precision, threads, costs)
    n_blocks = old_weights.n_blocks
    members = np.diff(old.child_starts_) + np.diff(old.label_starts_)
    new_blocks: list[NodeBlock] = []
    with BlockSpool() as spool:
        for block in old_weights.blocks():
            spool.append(block)
        for depth in range(forest.n_levels):
            first, last = forest.level_starts[depth : depth + 2]
            grown = [node for node in np.unique(nodes).tolist() if first <= node < last]
            if not grown:
                continue
            todo: list[NodeBlock] = []
            for node in grown:
                size = len(forest.labels_under(node)) + len(forest.nodes_under(node))
                for start in range(int(members[node]), size, LANES):
                    number = n_blocks + len(new_blocks) + len(todo)
                    todo.append(NodeBlock(number, node, start, min(start + LANES, size)))
            if trainer is not None:
                level = trainer.level(depth, sp.csr_array((near[:, first:last] > 0).astype(np.float32)))
                made = trainer.train(depth, level, todo, affordable_threads(trainer, level, memory_limit))
            else:
                made = (
                    without_weights(_labels_of(forest, block), old_weights.precision, int(X.shape[1])) for block in todo
                )
            for solved in made:
                spool.append(solved)
            new_blocks += todo
        node_of_block = np.concatenate([old_weights.nodes_of_blocks, [block.node for block in new_blocks]]).astype(
            np.int64
        )
        order = np.argsort(node_of_block, kind="stable")
        counts = np.bincount(node_of_block, minlength=forest.n_nodes)
        starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        grown_forest = _with_labels(old, nodes, ids[labels], new_last=False)
        return grown_forest, ChunkWeights.assemble(spool, order, starts, old_weights.precision, int(X.shape[1]))


def _labels_of(forest: LabelForest, block: NodeBlock) -> npt.NDArray[np.int32]:
    """Labels of a block: members of a node are the nodes under it, then its labels."""
    n_below = len(forest.nodes_under(block.node))
    return forest.labels_under(block.node)[block.first - n_below : block.last - n_below]


def _leaf_votes(
    search: TreeSearch, X: sp.csr_array, scales: npt.NDArray[np.float64], beam: int, threads: int
) -> sp.csr_array:
    """How much of what each row is predicted to have stands under each node: rows by nodes."""
    forest = search.forest
    top = search.labels(X, scales, _BEST, beam, None, threads)
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


def _places(forest: LabelForest, near: sp.csr_array, Y: sp.csr_array) -> tuple[Int64, npt.NDArray[np.int32]]:
    """Where the new labels go: in each tree the node with the most votes of the label's rows."""
    votes = sp.csr_array(Y.T @ near)
    trees = forest.trees
    nodes, labels = [], []
    for label in np.flatnonzero(np.bincount(Y.indices, minlength=Y.shape[1])).tolist():
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


def _with_labels(forest: LabelForest, nodes: Int64, labels: npt.NDArray[np.int32], *, new_last: bool) -> LabelForest:
    """Trees with more labels, in each node in rising order, or the new ones after the others."""
    grown = LabelForest()
    grown.n_trees_, grown.child_starts_ = forest.n_trees_, forest.child_starts_
    holders = np.concatenate([forest.holders, nodes])
    everything = np.concatenate([forest.labels_, labels])
    is_new = np.arange(len(everything)) >= len(forest.labels_)
    order = np.lexsort((everything, is_new & new_last, holders))
    grown.labels_ = everything[order]
    counts = np.bincount(holders, minlength=forest.n_nodes)
    grown.label_starts_ = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return grown

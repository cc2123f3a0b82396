"""Lanes of a tree's blocks: weights taken apart, lanes put in the place of others or left out."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from longtail.engine.chunks import DENSE_FROM
from longtail.engine.lanes import LANES
from longtail.engine.spool import BlockSpool
from longtail.learners.label_trees.chunk_weights import ChunkWeights, EncodedBlock, NodePrecision
from longtail.learners.label_trees.forest import LabelForest
from longtail.learners.norms import widened

SMALLEST = 1e-30
"""Weights below are left out of a block that is put together again: those that training kept are all larger."""


def decoded(block: EncodedBlock) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Features of a block, and their weights for its 64 members."""
    is_dense = block.kept > DENSE_FROM
    weights = np.zeros((len(block.keys), LANES), np.float32)
    weights[is_dense] = widened(block.dense).reshape(-1, LANES)
    rows = np.repeat(np.flatnonzero(~is_dense), block.kept[~is_dense])
    weights[rows, block.lanes] = widened(block.values)
    return block.keys.astype(np.int64), weights * block.scales


def label_rows(weights: ChunkWeights) -> sp.csr_array:
    """Weights of the labels where they stand in a tree, a row each."""
    parts = []
    for block in weights.blocks():
        features, dense = decoded(block)
        lanes = np.flatnonzero(block.members >= 0)
        inside = sp.coo_array(dense[:, lanes].T)
        size = len(lanes), weights.n_features_
        parts.append(sp.csr_array((inside.data, (inside.row, features[inside.col])), shape=size))
    empty = sp.csr_array((0, weights.n_features_), dtype=np.float32)
    return sp.csr_array(sp.vstack([empty, *parts], format="csr"))


def with_lanes(
    block: EncodedBlock, other: EncodedBlock, lanes: npt.NDArray[np.int64], precision: NodePrecision, n_features: int
) -> EncodedBlock:
    """The block with those of its members that stand in `lanes` of another one as they are there."""
    place = {int(member): lane for lane, member in enumerate(block.members)}
    own = np.array([place[int(member)] for member in other.members[lanes]], np.int64)
    old_features, old = decoded(block)
    new_features, new = decoded(other)
    features = np.union1d(old_features, new_features)
    weights = np.zeros((len(features), LANES), np.float32)
    weights[np.searchsorted(features, old_features)] = old
    weights[:, own] = 0
    weights[np.searchsorted(features, new_features)[:, None], own] = new[:, lanes]
    bias = block.bias.copy()
    bias[own] = other.bias[lanes]
    members = block.members[block.members != -1]
    return EncodedBlock.encoded(weights, bias, features.astype(np.int32), members, SMALLEST, precision, n_features)


def without_weights(members: npt.NDArray[np.int32], precision: NodePrecision, n_features: int) -> EncodedBlock:
    """A block of members that are still to be trained."""
    nothing = np.zeros((0, LANES), np.float32)
    bias, features = np.zeros(LANES, np.float32), np.empty(0, np.int32)
    return EncodedBlock.encoded(nothing, bias, features, members, SMALLEST, precision, n_features)


def without_labels(
    forest: LabelForest, weights: ChunkWeights, gone: npt.NDArray[np.int32]
) -> tuple[LabelForest, ChunkWeights]:
    """Trees and weights without some labels, and without ways to nodes that have none left.

    Blocks that hold none of them stay as they are. The nodes keep their numbers.
    """
    left = LabelForest()
    left.n_trees_, left.child_starts_ = forest.n_trees_, forest.child_starts_
    kept = ~np.isin(forest.labels_, gone)
    left.labels_ = forest.labels_[kept]
    counts = np.bincount(forest.holders[kept], minlength=forest.n_nodes)
    left.label_starts_ = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    nodes, empty = [], np.flatnonzero(left.heights == 0)
    leaving = np.concatenate([gone, -2 - empty]).astype(np.int32)
    with BlockSpool() as spool:
        for node, block in zip(weights.nodes_of_blocks, weights.blocks(), strict=True):
            smaller = _without(block, leaving, weights)
            if smaller is not None:
                spool.append(smaller)
                nodes.append(int(node))
        sizes = np.bincount(np.array(nodes, np.int64), minlength=forest.n_nodes)
        starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        numbers = np.arange(len(nodes))
        return left, ChunkWeights.assemble(spool, numbers, starts, weights.precision, weights.n_features_)


def _without(block: EncodedBlock, gone: npt.NDArray[np.int32], weights: ChunkWeights) -> EncodedBlock | None:
    """A block without some members, None if nothing else is in it."""
    is_kept = (block.members != -1) & ~np.isin(block.members, gone)
    lanes = np.flatnonzero(is_kept)
    if len(lanes) == np.count_nonzero(block.members != -1):
        return block
    if not len(lanes):
        return None
    features, old = decoded(block)
    moved, bias = np.zeros_like(old), np.zeros(LANES, np.float32)
    moved[:, : len(lanes)], bias[: len(lanes)] = old[:, lanes], block.bias[lanes]
    return EncodedBlock.encoded(
        moved, bias, features.astype(np.int32), block.members[lanes], SMALLEST, weights.precision, weights.n_features_
    )

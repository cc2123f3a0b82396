"""Editing of encoded blocks: decode weights, replace lanes, remove lanes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail.kernels.lanes import LANES, widened
from longtail.kernels.types import Float32, Int32, Int64
from longtail.learners.label_trees.chunk_weights import ChunkWeights, EncodedBlock, NodePrecision
from longtail.learners.label_trees.chunks import DENSE_FROM
from longtail.learners.label_trees.forest import LabelForest, starts_of
from longtail.runtime.block_file import BlockFile

SMALLEST = 1e-30
"""Pruning threshold when a block is encoded again; weights that survived training are all larger."""


def decoded(block: EncodedBlock) -> tuple[Int64, Float32]:
    """Features of a block, and their dense weights for its 64 lanes."""
    is_dense = block.kept > DENSE_FROM
    weights = np.zeros((len(block.keys), LANES), np.float32)
    weights[is_dense] = widened(block.dense).reshape(-1, LANES)
    rows = np.repeat(np.flatnonzero(~is_dense), block.kept[~is_dense])
    weights[rows, block.lanes] = widened(block.values)
    return block.keys.astype(np.int64), weights * block.scales


def label_rows(blocks: Iterable[EncodedBlock], n_features: int) -> sp.csr_array:
    """Weights of the labels in blocks of leaves, one row per label and leaf."""
    parts: list[Any] = [sp.csr_array((0, n_features), dtype=np.float32)]
    for block in blocks:
        features, dense = decoded(block)
        lanes = np.flatnonzero(block.members >= 0)
        inside = sp.coo_array(dense[:, lanes].T)
        size = len(lanes), n_features
        parts.append(sp.csr_array((inside.data, (inside.row, features[inside.col])), shape=size))
    return sp.csr_array(sp.vstack(parts, format="csr"))


def with_lanes(
    block: EncodedBlock, other: EncodedBlock, lanes: Int64, precision: NodePrecision, n_features: int
) -> EncodedBlock:
    """Replace the members of a block that are in `lanes` of another one by those."""
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


def without_weights(members: Int32, precision: NodePrecision, n_features: int) -> EncodedBlock:
    """A block of members that are not trained yet."""
    nothing = np.zeros((0, LANES), np.float32)
    bias, features = np.zeros(LANES, np.float32), np.empty(0, np.int32)
    return EncodedBlock.encoded(nothing, bias, features, members, SMALLEST, precision, n_features)


def without_labels(forest: LabelForest, weights: ChunkWeights, gone: Int32) -> tuple[LabelForest, ChunkWeights]:
    """Remove labels, and links to nodes that have no labels left; nodes keep their numbers."""
    left = LabelForest()
    left.n_trees_, left.child_starts_ = forest.n_trees_, forest.child_starts_
    kept = ~np.isin(forest.labels_, gone)
    left.labels_ = forest.labels_[kept]
    left.label_starts_ = starts_of(forest.holders[kept], forest.n_nodes)
    nodes, empty = [], np.flatnonzero(left.heights == 0)
    leaving = np.concatenate([gone, -2 - empty]).astype(np.int32)
    with BlockFile() as block_file:
        for node, block in zip(weights.nodes_of_blocks, weights.blocks(), strict=True):
            smaller = _without(block, leaving, weights)
            if smaller is not None:
                block_file.append(smaller)
                nodes.append(int(node))
        starts = starts_of(np.array(nodes, np.int64), forest.n_nodes)
        return left, ChunkWeights.assemble(
            block_file, np.arange(len(nodes)), starts, weights.precision, weights.n_features_
        )


def _without(block: EncodedBlock, gone: Int32, weights: ChunkWeights) -> EncodedBlock | None:
    """Remove members from a block; None if no other is left."""
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

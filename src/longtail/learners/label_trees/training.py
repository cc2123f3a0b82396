"""Training of label trees level by level: each node on the rows of its labels and on hard negatives."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from longtail.kernels.types import Int64
from longtail.learners.label_trees.chunk_weights import ChunkWeights
from longtail.learners.label_trees.estimate import check_level_room, level_threads
from longtail.learners.label_trees.node_training import NodeTrainer, level_bytes, node_blocks
from longtail.learners.label_trees.search import TreeSearch
from longtail.runtime.block_file import BlockFile


def train_trees(trainer: NodeTrainer, block_file: BlockFile, n_hard_negatives: int, discount: float) -> ChunkWeights:
    """Train the blocks of all nodes that the block file does not hold yet, and assemble the weights.

    Each row is also a training row of its best `n_hard_negatives` nodes of each tree and level, as ranked by a search
    with this `discount` through the levels above.
    """
    forest, rows = trainer.forest, level_bytes(trainer, n_hard_negatives)
    blocks, block_starts = node_blocks(forest)
    for depth in range(forest.n_levels):
        first, last = (int(block_starts[node]) for node in forest.level_starts[depth : depth + 2])
        todo = blocks[max(first, len(block_file)) : last]
        if not todo:
            continue
        check_level_room(trainer, rows)
        candidates = None
        if n_hard_negatives:
            candidates = hard_negatives(trainer, block_file, block_starts, depth, n_hard_negatives, discount)
        level = trainer.level(depth, candidates)
        block_file.append_all(trainer.train(depth, level, todo, level_threads(trainer, level, rows)))
    return ChunkWeights.assemble(
        block_file, np.arange(len(blocks)), block_starts, trainer.precision, int(trainer.X.shape[1])
    )


def hard_negatives(
    trainer: NodeTrainer, block_file: BlockFile, block_starts: Int64, depth: int, beam: int, discount: float
) -> sp.csr_array:
    """Rows that a beam search through the trained levels sends to the nodes of level `depth`, as a 0/1 matrix."""
    starts = np.minimum(block_starts, block_starts[trainer.forest.level_starts[depth]])
    numbers, n_features, n_labels = np.arange(int(starts[-1])), int(trainer.X.shape[1]), int(trainer.Y.shape[1])
    weights = ChunkWeights.assemble(block_file, numbers, starts, trainer.precision, n_features)
    search = TreeSearch(trainer.forest, weights, trainer.settings.loss, discount, trainer.settings.bias, n_labels)
    return search.sent(trainer.X, trainer.scales, depth, beam)

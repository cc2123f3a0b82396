"""Growing trees: the levels one after the other, each on the rows that have its labels or are sent to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from longtail.engine.spool import BlockSpool
from longtail.learners.label_trees.chunk_weights import ChunkWeights
from longtail.learners.label_trees.node_training import Level, NodeBlock, NodeTrainer, level_bytes, node_blocks
from longtail.learners.label_trees.search import TreeSearch


@dataclass(frozen=True)
class Negatives:
    """Which rows a node is trained on besides those that have labels under it.

    Parameters
    ----------
    nodes : int
        A row goes to the best so many nodes of each tree and level, as the levels above rank them.
    discount : float
        For the ranking, see `TreeSearch`.
    """

    nodes: int
    discount: float


def grow(
    trainer: NodeTrainer,
    spool: BlockSpool,
    negatives: Negatives | None,
    threads: Callable[[Level], int],
    make_room: Callable[[int], None],
    memory_limit: int | str | None = None,
) -> ChunkWeights:
    """Train the nodes that the spool doesn't hold yet, and gather all.

    Parameters
    ----------
    trainer : NodeTrainer
    spool : BlockSpool
        Finished blocks, in the order of their numbers.
    negatives : Negatives, optional
    threads : callable
        Tells how many threads a level may use.
    make_room : callable
        Called with the bytes that a level takes before it is made ready; raises where there is no room.
    memory_limit : int or str, optional
        Weights lie in temporary files where they would pass it.
    """
    forest = trainer.forest
    blocks, block_starts = node_blocks(forest)
    for depth in range(forest.n_levels):
        first, last = forest.level_starts[depth : depth + 2]
        todo = [block for block in _of_nodes(blocks, block_starts, first, last) if block.number >= len(spool)]
        if not todo:
            continue
        candidates = None
        make_room(level_bytes(trainer, 0 if negatives is None else negatives.nodes))
        if negatives is not None:
            candidates = _sent(trainer, spool, block_starts, depth, negatives, memory_limit)
        level = trainer.level(depth, candidates)
        spool.append_all(trainer.train(depth, level, todo, threads(level)))
    return ChunkWeights.assemble(
        spool, np.arange(len(blocks)), block_starts, trainer.precision, int(trainer.X.shape[1]), memory_limit
    )


def _of_nodes(
    blocks: list[NodeBlock], block_starts: npt.NDArray[np.int64], first: np.int64, last: np.int64
) -> list[NodeBlock]:
    return blocks[int(block_starts[first]) : int(block_starts[last])]


def _sent(
    trainer: NodeTrainer,
    spool: BlockSpool,
    block_starts: npt.NDArray[np.int64],
    depth: int,
    negatives: Negatives,
    memory_limit: int | str | None = None,
) -> sp.csr_array:
    """Which rows the levels above send to the nodes of level `depth`, as a 0/1 matrix; all to the roots."""
    forest = trainer.forest
    done = int(block_starts[forest.level_starts[depth]])
    weights = ChunkWeights.assemble(
        spool,
        np.arange(done),
        np.minimum(block_starts, done),
        trainer.precision,
        int(trainer.X.shape[1]),
        memory_limit,
    )
    search = TreeSearch(
        forest, weights, trainer.settings.loss, negatives.discount, trainer.settings.bias, int(trainer.Y.shape[1])
    )
    return search.sent(trainer.X, trainer.scales, depth, negatives.nodes, trainer.threads)

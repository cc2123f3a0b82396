"""Members of a fitted tree that are trained anew, where all rows are there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from longtail.engine.lanes import LANES
from longtail.engine.spool import BlockSpool
from longtail.learners.label_trees.block_lanes import with_lanes
from longtail.learners.label_trees.budget import affordable_threads
from longtail.learners.label_trees.chunk_weights import ChunkWeights, EncodedBlock
from longtail.learners.label_trees.node_training import NodeMembers, NodeTrainer
from longtail.learners.label_trees.search import TreeSearch

Int64 = npt.NDArray[np.int64]


@dataclass
class NodeRetraining:
    """Trains some members of nodes as if for the first time, each among the rows that its node has now.

    Parameters
    ----------
    search : TreeSearch
        The trees before the update.
    trainer : NodeTrainer
        Of all rows.
    negatives : int
        See `LabelTree`.
    memory_limit : int or str, optional
    """

    search: TreeSearch
    trainer: NodeTrainer
    negatives: int
    memory_limit: int | str | None = None

    def retrain(self, depth: int, some: list[NodeMembers], blocks: list[EncodedBlock]) -> None:
        """Put members of nodes of one level, trained anew, into `blocks`, which are all blocks as they are.

        Those of one node are trained together: a block of 64 takes little longer than one of a few.
        """
        if not some:
            return
        trainer, n_features = self.trainer, int(self.trainer.X.shape[1])
        candidates = None
        if self.negatives:
            search = self._above(depth, blocks)
            candidates = search.sent(trainer.X, trainer.scales, depth, self.negatives, trainer.threads)
        level = trainer.level(depth, candidates)
        threads = affordable_threads(trainer, level, self.memory_limit)
        has_rows = np.diff(level.row_starts) > 0
        together = list(trained_together([part for part in some if has_rows[part.node - level.first]]))
        solved = trainer.train_members(depth, level, [whole for whole, _ in together], threads)
        for (_, origins), anew in zip(together, solved, strict=True):
            for number, lanes in origins:
                blocks[number] = with_lanes(blocks[number], anew, lanes, trainer.precision, n_features)

    def _above(self, depth: int, blocks: list[EncodedBlock]) -> TreeSearch:
        """The levels above `depth` as they are now."""
        old = self.search
        starts = old.weights.block_starts_
        done = int(starts[old.forest.level_starts[depth]])
        with BlockSpool() as spool:
            for block in blocks[:done]:
                spool.append(block)
            weights = ChunkWeights.assemble(
                spool, np.arange(done), np.minimum(starts, done), old.weights.precision, old.weights.n_features_,
                self.memory_limit,
            )  # fmt: skip
        return TreeSearch(old.forest, weights, old.loss, old.discount, old.bias, old.n_labels)


def trained_together(some: list[NodeMembers]) -> Iterator[tuple[NodeMembers, list[tuple[int, Int64]]]]:
    """Members of the same node in blocks of up to 64, and which lanes of each are of which block as it is."""
    of_node: dict[int, list[NodeMembers]] = {}
    for part in some:
        of_node.setdefault(part.node, []).append(part)
    for node, parts in sorted(of_node.items()):
        members = np.concatenate([part.members for part in parts])
        columns = np.concatenate([part.columns for part in parts])
        numbers = np.repeat([part.number for part in parts], [len(part.members) for part in parts])
        for at in range(0, len(members), LANES):
            cut = slice(at, at + LANES)
            origins = [(number, np.flatnonzero(numbers[cut] == number)) for number in np.unique(numbers[cut]).tolist()]
            yield NodeMembers(parts[0].number, node, members[cut], columns[cut]), origins

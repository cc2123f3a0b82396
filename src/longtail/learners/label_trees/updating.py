"""Incremental updates of label trees: nodes and labels move toward new rows or are retrained, and new labels join."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import scipy.sparse as sp

from longtail.kernels.lanes import LANES
from longtail.kernels.types import Float32, Float64, Int32, Int64
from longtail.learners.label_trees.block_lanes import SMALLEST, decoded, label_rows, with_lanes, without_labels
from longtail.learners.label_trees.chunk_weights import ChunkWeights, EncodedBlock
from longtail.learners.label_trees.estimate import level_threads
from longtail.learners.label_trees.forest import LabelForest
from longtail.learners.label_trees.insertion import insert_labels
from longtail.learners.label_trees.node_training import LevelProblem, NodeMembers, NodeTrainer, Scratch, joined_costs
from longtail.learners.label_trees.search import TreeSearch
from longtail.learners.linear.problem import SolverSettings, bias_start, solve
from longtail.learners.updates import (
    REFIT_SHARE,
    UpdateBatch,
    bias_scale,
    prototypes_of,
    shares_of,
    steps_of,
    with_prototypes,
)
from longtail.runtime.pool import StopFlag, run_blocks
from longtail.weighting import Costs, get_weighting

if TYPE_CHECKING:
    from longtail.learners.label_trees.label_tree import LabelTree

_RETRAINED_NODES = 0.05  # lower than REFIT_SHARE for labels: what a node rejects is lost to all labels under it


def updated_trees(learner: LabelTree, batch: UpdateBatch) -> tuple[LabelForest, ChunkWeights]:
    """Trees of a learner, and their weights, after an update with more rows.

    Labels without rows are removed. New ones are inserted into the leaves where their rows belong. If all rows are
    given, new labels, and nodes and labels with many changes, are retrained on them; the others move toward the new
    rows.
    """
    claimed, search = learner._predict_checked(batch.X), learner._search
    gone = search.forest.labels_[batch.label_counts[search.forest.labels_] == 0]
    if len(gone):
        forest, weights = without_labels(search.forest, search.weights, gone)
        search = replace(search, forest=forest, weights=weights)
    joining = np.setdiff1d(np.flatnonzero(batch.label_counts), search.forest.labels_).astype(np.int32)
    if len(joining):
        forest, weights = _with_new_labels(learner, search, batch, joining)
        search = replace(search, forest=forest, weights=weights)
    search = replace(search, n_labels=batch.n_labels)
    updating = NodeUpdating(learner, search, batch, joining, claimed)
    return search.forest, updating.updated()


def _with_new_labels(
    learner: LabelTree, search: TreeSearch, batch: UpdateBatch, joining: Int32
) -> tuple[LabelForest, ChunkWeights]:
    """Insert labels; without the earlier rows they are trained at once, among prototypes of the old labels."""
    has_all = batch.earlier is not None
    if has_all:
        X, Y = batch.of_labels(joining, own=True).all_rows  # earlier rows too: a removed label may come back
    else:
        X, Y = with_prototypes(
            batch.of_labels(joining, own=False),
            prototypes_of(label_rows(search.weights.blocks(), search.weights.n_features_)),
        )
    return insert_labels(
        search, learner._settings(), X, Y, learner._scales(X), get_weighting(learner.weighting), beam=learner.beam,
        ids=joining, train=not has_all,
    )  # fmt: skip


class _Job(NamedTuple):
    """One block to update: its number and node, and the step size of each lane."""

    number: int
    node: int
    steps: Float32


@dataclass
class NodeUpdating:
    """Updates the classifiers of all nodes, level by level.

    `search` has the trees before the update, with the new labels in place. These, `joined`, are retrained where all
    rows are given, and unchanged otherwise. `claimed` are the decisions of the trees on the new rows.
    """

    learner: LabelTree
    search: TreeSearch
    batch: UpdateBatch
    joined: Int32
    claimed: sp.csr_array

    def __post_init__(self) -> None:
        learner, batch = self.learner, self.batch
        self.weighting = get_weighting(learner.weighting)
        self.n_hard_negatives = int(learner.n_hard_negatives)
        self.share = bias_scale(batch)
        settings = learner._settings()
        self.costs = self.weighting._costs(batch.label_counts, batch.n_rows)
        self.trainer = self._trainer(replace(settings, bias=settings.bias * self.share), batch.X, batch.Y, self.costs)
        self.retrainer = None if batch.earlier is None else self._trainer(settings, *batch.all_rows, None)

    def _trainer(self, settings: SolverSettings, X: sp.csr_array, Y: sp.csr_array, costs: Costs | None) -> NodeTrainer:
        forest, precision = self.search.forest, self.search.weights.precision
        scales = self.learner._scales(X)
        return NodeTrainer(settings, X, Y, scales, forest, self.weighting, precision, costs)

    def updated(self) -> ChunkWeights:
        """Weights after the update; blocks that the new rows do not affect stay unchanged."""
        search, batch, retrainer = self.search, self.batch, self.retrainer
        forest, weights = search.forest, search.weights
        node_of_block, blocks = weights.nodes_of_blocks, list(weights.blocks())
        changed = shares_of(batch.changed(self.claimed), batch.label_counts)
        changed[self.joined] = 0 if retrainer is None else 1
        for depth in range(forest.n_levels):
            first, last = forest.level_starts[depth : depth + 2]
            # Members with few changes are moved, those with many are retrained if all rows are given.
            of_nodes, node_costs = self._nodes_below(depth)
            shares = np.concatenate([of_nodes, changed])
            thresholds = np.concatenate([np.full(len(of_nodes), _RETRAINED_NODES), np.full(len(changed), REFIT_SHARE)])
            is_retrained = (shares >= thresholds) & (retrainer is not None)
            jobs, retrained = [], []
            for number in np.flatnonzero((node_of_block >= first) & (node_of_block < last)).tolist():
                node, columns = int(node_of_block[number]), self._columns(depth, blocks[number])
                steps = np.zeros(LANES, np.float32)
                if batch.X.shape[0]:
                    steps[: len(columns)] = np.where(is_retrained[columns], 0, steps_of(shares[columns]))
                if steps.any():
                    jobs.append(_Job(number, node, steps))
                lanes = np.flatnonzero(is_retrained[columns])
                if len(lanes):
                    retrained.append(NodeMembers(number, node, blocks[number].members[lanes], columns[lanes]))
            self._move(depth, jobs, joined_costs(node_costs, self.costs), blocks)
            if retrainer is not None:
                self._retrain(retrainer, depth, retrained, blocks)
        return ChunkWeights.of_blocks(blocks, weights.block_starts_, weights.precision, weights.n_features_)

    def _nodes_below(self, depth: int) -> tuple[Float64, Costs]:
        """Share of new rows of each node under level `depth`, and the costs of these nodes.

        The number of earlier rows of a node is estimated as the sum over its labels, at most all rows.
        """
        forest, batch = self.search.forest, self.batch
        starts = forest.level_starts
        if depth + 2 >= len(starts):
            return np.empty(0), Costs(np.empty(0, np.float32), np.empty(0, np.float32))
        members = forest.members(batch.n_labels, int(starts[depth + 1]), int(starts[depth + 2]))
        total = np.minimum(members.T @ batch.label_counts, batch.n_rows).astype(np.int64)
        claimed = sp.csr_array((self.claimed.data, self.claimed.indices, self.claimed.indptr), shape=batch.Y.shape)
        affected = sp.csr_array((batch.Y + claimed) @ members)
        changed = np.bincount(affected.indices, minlength=len(total))
        return shares_of(changed, total), self.weighting._costs(total, batch.n_rows)

    def _columns(self, depth: int, block: EncodedBlock) -> Int64:
        """Columns of a block's members in their level: nodes of the level below first, then all labels."""
        starts = self.search.forest.level_starts
        n_below = int(starts[depth + 2] - starts[depth + 1]) if depth + 2 < len(starts) else 0
        members = block.members[block.members != -1].astype(np.int64)
        columns: Int64 = np.where(members >= 0, n_below + members, -2 - members - starts[depth + 1])
        return columns

    def _move(self, depth: int, jobs: list[_Job], costs: Costs, blocks: list[EncodedBlock]) -> None:
        """Move blocks of one level toward the new rows."""
        if not jobs:
            return
        trainer, candidates = self.trainer, None
        if self.n_hard_negatives:
            candidates = self.search.sent(trainer.X, trainer.scales, depth, self.n_hard_negatives)
        level = trainer.level(depth, candidates)._replace(costs=costs)

        def move(job: _Job, stop: StopFlag) -> EncodedBlock:
            with trainer.scratch() as scratch:
                return self._moved(level, job, depth, blocks[job.number], scratch, stop)

        moved = run_blocks(move, jobs, description="updating nodes")
        for job, block in zip(jobs, moved, strict=True):
            blocks[job.number] = block
        trainer.spare.clear()

    def _moved(
        self, level: LevelProblem, job: _Job, depth: int, block: EncodedBlock, scratch: Scratch, stop: StopFlag
    ) -> EncodedBlock:
        """Solve a block for the new rows of its node, regularised toward its weights, and move part of the way."""
        trainer, share = self.trainer, np.float32(self.share)
        columns = self._columns(depth, block)
        settings, n_lanes, n_features = trainer.settings, len(columns), int(self.batch.X.shape[1])
        chosen, rows, features, positives = trainer.rows_of(level, job.node, columns, scratch)
        if not len(chosen):
            return block  # only earlier rows have changed
        counts = level.member_starts[columns + 1] - level.member_starts[columns]
        # Start the solver from the present weights of the features that occur in the rows.
        place = np.full(n_features, -1, np.int64)
        place[features] = np.arange(len(features))
        old_features, old = decoded(block)
        inside = place[old_features]
        memory = scratch.memory(len(chosen), len(features))
        memory.weights[:] = 0
        memory.weights[inside[inside >= 0]] = old[inside >= 0]
        memory.bias_weights[:] = bias_start(settings, counts, len(chosen))
        memory.bias_weights[:n_lanes] = before = block.bias[:n_lanes] / share
        solve(settings, job.number, rows, positives, level.costs.take(columns), memory, stop)
        # Interpolate between the present weights and the solution; weights of other features stay.
        moved = np.concatenate([memory.weights * job.steps, old[inside < 0]])
        moved[inside[inside >= 0]] += (1 - job.steps) * old[inside >= 0]
        moved[np.abs(moved) < settings.prune_below * job.steps] = 0  # pruned in proportion to the step
        bias = np.zeros(LANES, np.float32)
        bias[:n_lanes] = before + job.steps[:n_lanes] * (memory.bias_weights[:n_lanes] - before)
        return EncodedBlock.encoded(
            moved, bias * share, np.concatenate([features, old_features[inside < 0]]).astype(np.int32),
            block.members[:n_lanes], SMALLEST, self.search.weights.precision, n_features,
        )  # fmt: skip

    def _retrain(self, trainer: NodeTrainer, depth: int, some: list[NodeMembers], blocks: list[EncodedBlock]) -> None:
        """Retrain members of nodes of one level on all rows that their nodes have now, and replace them in `blocks`.

        Members of one node are trained together: a block of 64 takes little longer than one of a few.
        """
        if not some:
            return
        candidates = None
        if self.n_hard_negatives:
            # The levels above, updated already, say which rows reach which node.
            old = self.search.weights
            done = int(old.block_starts_[self.search.forest.level_starts[depth]])
            starts = np.minimum(old.block_starts_, done)
            above = ChunkWeights.of_blocks(blocks[:done], starts, old.precision, old.n_features_)
            search = replace(self.search, weights=above)
            candidates = search.sent(trainer.X, trainer.scales, depth, self.n_hard_negatives)
        level = trainer.level(depth, candidates)
        threads = level_threads(trainer, level)
        has_rows = np.diff(level.row_starts) > 0
        together = list(trained_together([part for part in some if has_rows[part.node - level.first]]))
        solved = trainer.train_members(depth, level, [whole for whole, _ in together], threads)
        for (_, origins), block in zip(together, solved, strict=True):
            for number, lanes in origins:
                blocks[number] = with_lanes(blocks[number], block, lanes, trainer.precision, int(trainer.X.shape[1]))


def trained_together(some: list[NodeMembers]) -> Iterator[tuple[NodeMembers, list[tuple[int, Int64]]]]:
    """Join members of the same node in blocks of up to 64; also the original block of each lane."""
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

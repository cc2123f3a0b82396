"""Label trees after their training: nodes and labels follow rows that come later, and new labels join."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from longtail.engine.block_solver import solve_block
from longtail.engine.lanes import LANES
from longtail.engine.pool import StopFlag, run_blocks, thread_count
from longtail.engine.spool import BlockSpool
from longtail.learners.label_trees.block_lanes import SMALLEST, decoded, label_rows, without_labels
from longtail.learners.label_trees.chunk_weights import ChunkWeights, EncodedBlock
from longtail.learners.label_trees.forest import LabelForest
from longtail.learners.label_trees.insertion import insert_labels
from longtail.learners.label_trees.node_training import Level, NodeMembers, NodeTrainer
from longtail.learners.label_trees.retraining import NodeRetraining
from longtail.learners.label_trees.search import TreeSearch
from longtail.learners.linear.problem import Settings, bias_start, lane_costs, make_problem, random_state
from longtail.learners.updates import ANEW, MoreRows, patterns_of, reluctance_of, shares_of, steps_of, with_stand_ins
from longtail.weighting import Costs, Weighting, get_weighting

if TYPE_CHECKING:
    from longtail.learners.label_trees.label_tree import LabelTree

Float32 = npt.NDArray[np.float32]

_ANEW_NODES = 0.05  # sooner than a label: what a node turns away, none of its labels can find again


class _Job(NamedTuple):
    """One block on its way: its number, depth and node, and how far each lane goes."""

    number: int
    depth: int
    node: int
    steps: Float32


def updated_trees(learner: LabelTree, more: MoreRows) -> tuple[LabelForest, ChunkWeights]:
    """Trees of a learner, and their weights, after it has seen more rows.

    Labels whose last row was taken away leave. New ones join the leaves where their rows belong. Where all rows are
    there, they are trained on these, and so are nodes and labels of which much is new; the others follow the new rows.
    """
    claimed, search = learner.predict(more.X), learner._search
    settings, weighting, threads = learner._settings(), get_weighting(learner.weighting), thread_count(learner.threads)
    gone = search.forest.labels_[more.label_counts[search.forest.labels_] == 0]
    if len(gone):
        forest, weights = without_labels(search.forest, search.weights, gone)
        search = replace(search, forest=forest, weights=weights)
    joining = np.setdiff1d(np.flatnonzero(more.label_counts), search.forest.labels_).astype(np.int32)
    if len(joining):
        has_all = more.earlier is not None
        if has_all:
            X, Y = more.of_labels(joining, own=True).all_rows  # a label that was forgotten may be in earlier rows alone
        else:
            X, Y = with_stand_ins(more.of_labels(joining, own=False), patterns_of(label_rows(search.weights)))
        forest, weights = insert_labels(
            search, settings, X, Y, learner._scales(X), weighting, beam=learner.beam, threads=threads,
            memory_limit=learner.memory_limit, ids=joining, train=not has_all,
        )  # fmt: skip
        search = replace(search, forest=forest, weights=weights)
    search = replace(search, n_labels=more.n_labels)
    retraining = None
    if more.earlier is not None:
        X, Y = more.all_rows
        precision = search.weights.precision
        trainer = NodeTrainer(settings, X, Y, learner._scales(X), search.forest, weighting, precision, threads)
        retraining = NodeRetraining(search, trainer, int(learner.negatives), learner.memory_limit)
    updating = NodeUpdating(
        search, settings, more, joining, learner._scales(more.X), weighting, claimed, int(learner.negatives), threads,
        retraining,
    )  # fmt: skip
    return search.forest, updating.updated()


@dataclass
class NodeUpdating:
    """Classifiers of the nodes of fitted trees, on their way to more rows.

    Parameters
    ----------
    search : TreeSearch
        The trees as they are.
    settings : Settings
    more : MoreRows
    joined : ndarray of int32
        Labels that have just joined: they are trained where there is `retraining`, and else stay as they are.
    scales : ndarray of float64
        Factors of the new rows.
    weighting : Weighting
    claimed : csr_array
        What the trees decide on the new rows.
    negatives : int
        See `LabelTree`.
    threads : int
    retraining : NodeRetraining, optional
        Trains members anew of which much is new, where all rows are there.
    """

    search: TreeSearch
    settings: Settings
    more: MoreRows
    joined: npt.NDArray[np.int32]
    scales: npt.NDArray[np.float64]
    weighting: Weighting
    claimed: sp.csr_array
    negatives: int
    threads: int
    retraining: NodeRetraining | None = None

    def updated(self) -> ChunkWeights:
        """Weights after the update; blocks that are told nothing new stay as they are."""
        search, more = self.search, self.more
        forest, weights, share = search.forest, search.weights, reluctance_of(more)
        costs = self.weighting.costs(more.label_counts, more.n_rows)
        settings = replace(self.settings, bias=self.settings.bias * share)
        trainer = NodeTrainer(
            settings, more.X, more.Y, self.scales, forest, self.weighting, weights.precision, self.threads, costs
        )
        node_of_block = weights.nodes_of_blocks
        blocks = list(weights.blocks())
        changed = shares_of(more.changed(self.claimed), more.label_counts)
        changed[self.joined] = 0 if self.retraining is None else 1
        for depth in range(forest.n_levels):
            first, last = forest.level_starts[depth : depth + 2]
            of_nodes, node_costs = self._below(depth)
            shares = np.concatenate([of_nodes, changed])
            sooner = np.concatenate([np.full(len(of_nodes), _ANEW_NODES), np.full(len(changed), ANEW)])
            is_anew = (shares >= sooner) & (self.retraining is not None)
            jobs, anew = [], []
            for number in np.flatnonzero((node_of_block >= first) & (node_of_block < last)).tolist():
                node, columns = int(node_of_block[number]), self._columns(depth, blocks[number])
                steps = np.zeros(LANES, np.float32)
                if more.X.shape[0]:
                    steps[: len(columns)] = np.where(is_anew[columns], 0, steps_of(shares[columns]))
                if steps.any():
                    jobs.append(_Job(number, depth, node, steps))
                lanes = np.flatnonzero(is_anew[columns])
                if len(lanes):
                    anew.append(NodeMembers(number, node, blocks[number].members[lanes], columns[lanes]))
            if jobs:
                level = trainer.level(depth, self._sent(depth))
                level = level._replace(
                    costs=Costs(
                        np.concatenate([node_costs.positive, costs.positive]),
                        np.concatenate([node_costs.negative, costs.negative]),
                    )
                )
                for job, solved in zip(jobs, self._solved(trainer, level, jobs, blocks, share), strict=True):
                    blocks[job.number] = solved
                trainer.release()
            if self.retraining is not None:
                self.retraining.retrain(depth, anew, blocks)
        with BlockSpool() as spool:
            for block in blocks:
                spool.append(block)
            numbers = np.arange(len(blocks))
            return ChunkWeights.assemble(spool, numbers, weights.block_starts_, weights.precision, weights.n_features_)

    def _below(self, depth: int) -> tuple[npt.NDArray[np.float64], Costs]:
        """Of the nodes under level `depth`: which share of their rows is new, and their costs.

        The earlier rows of a node are not known; there are no more than its labels have together, nor than all.
        """
        forest, more = self.search.forest, self.more
        starts = forest.level_starts
        if depth + 2 >= len(starts):
            return np.empty(0), Costs(np.empty(0, np.float32), np.empty(0, np.float32))
        members = forest.members(more.n_labels, int(starts[depth + 1]), int(starts[depth + 2]))
        total = np.minimum(members.T @ more.label_counts, more.n_rows).astype(np.int64)
        claimed = sp.csr_array((self.claimed.data, self.claimed.indices, self.claimed.indptr), shape=more.Y.shape)
        told = sp.csr_array((more.Y + claimed) @ members)
        changed = np.bincount(told.indices, minlength=len(total))
        return shares_of(changed, total), self.weighting.costs(total, more.n_rows)

    def _sent(self, depth: int) -> sp.csr_array | None:
        """Which new rows the trees send to the nodes of a level; all to the roots."""
        if not self.negatives:
            return None
        return self.search.sent(self.more.X, self.scales, depth, self.negatives, self.threads)

    def _columns(self, depth: int, block: EncodedBlock) -> npt.NDArray[np.int64]:
        """Columns of a block's members in their level: nodes of the level below first, then all labels."""
        starts = self.search.forest.level_starts
        n_below = int(starts[depth + 2] - starts[depth + 1]) if depth + 2 < len(starts) else 0
        members = block.members[block.members != -1].astype(np.int64)
        columns: npt.NDArray[np.int64] = np.where(members >= 0, n_below + members, -2 - members - starts[depth + 1])
        return columns

    def _solved(
        self, trainer: NodeTrainer, level: Level, jobs: list[_Job], blocks: list[EncodedBlock], share: float
    ) -> Iterator[EncodedBlock]:
        return run_blocks(
            lambda job, stop: self._solve(trainer, level, job, blocks[job.number], share, stop),
            jobs,
            threads=self.threads,
            description="updating nodes",
        )

    def _solve(
        self, trainer: NodeTrainer, level: Level, job: _Job, block: EncodedBlock, share: float, stop: StopFlag
    ) -> EncodedBlock:
        """Solve a block for the new rows of its node, from where it stands, and go part of the way."""
        settings, columns = trainer.settings, self._columns(job.depth, block)
        n_lanes, n_features = len(columns), int(self.more.X.shape[1])
        scratch = trainer.scratch()
        chosen, rows, features, positives = trainer.rows_of(level, job.node, columns, scratch)
        if not len(chosen):
            trainer.give_back(scratch)
            return block  # what is new is a label that earlier rows have lost
        counts = level.member_starts[columns + 1] - level.member_starts[columns]
        place = np.full(n_features, -1, np.int64)
        place[features] = np.arange(len(features))
        old_features, old = decoded(block)
        inside = place[old_features]
        memory = scratch.memory(len(chosen), len(features))
        memory.weights[:] = 0
        memory.weights[inside[inside >= 0]] = old[inside >= 0]
        memory.bias_weights[:] = bias_start(settings, counts, len(chosen))
        memory.bias_weights[:n_lanes] = before = block.bias[:n_lanes] / np.float32(share)
        problem = make_problem(settings, rows, positives, lane_costs(settings, level.costs.take(columns)))
        solve_block(rows, problem, memory, random_state(settings, job.number), stop)
        moved = np.concatenate([memory.weights * job.steps, old[inside < 0]])
        moved[inside[inside >= 0]] += (1 - job.steps) * old[inside >= 0]
        moved[np.abs(moved) < settings.prune_below * job.steps] = 0  # what a short step brings is small
        bias = np.zeros(LANES, np.float32)
        bias[:n_lanes] = before + job.steps[:n_lanes] * (memory.bias_weights[:n_lanes] - before)
        trainer.give_back(scratch)
        return EncodedBlock.encoded(
            moved, bias * np.float32(share), np.concatenate([features, old_features[inside < 0]]).astype(np.int32),
            block.members[:n_lanes], SMALLEST, self.search.weights.precision, n_features,
        )  # fmt: skip

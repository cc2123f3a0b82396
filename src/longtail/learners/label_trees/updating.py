"""Label trees after their training: nodes and labels follow rows that come later, and new labels join."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from longtail.engine.block_solver import solve_block
from longtail.engine.chunks import DENSE_FROM
from longtail.engine.lanes import LANES
from longtail.engine.pool import StopFlag, run_blocks
from longtail.engine.spool import BlockSpool
from longtail.learners.label_trees.chunk_weights import ChunkWeights, EncodedBlock
from longtail.learners.label_trees.node_training import Level, NodeTrainer
from longtail.learners.label_trees.search import TreeSearch
from longtail.learners.linear.problem import Settings, bias_start, lane_costs, make_problem, random_state
from longtail.learners.norms import widened
from longtail.learners.updates import MoreRows, reluctance_of, shares_of, steps_of
from longtail.weighting import Costs, Weighting

Float32 = npt.NDArray[np.float32]
_SMALLEST = 1e-30


class _Job(NamedTuple):
    """One block on its way: its number, depth and node, and how far each lane goes."""

    number: int
    depth: int
    node: int
    steps: Float32


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
        Labels that have just joined, and stay as they are.
    scales : ndarray of float64
        Factors of the new rows.
    weighting : Weighting
    claimed : csr_array
        What the trees decide on the new rows.
    negatives : int
        See `LabelTree`.
    threads : int
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

    def updated(self) -> ChunkWeights:
        """Weights after the update; blocks that are told nothing new stay as they are."""
        search, more = self.search, self.more
        forest, weights, share = search.forest, search.weights, reluctance_of(more)
        costs = self.weighting.costs(more.label_counts, more.n_rows)
        settings = replace(self.settings, bias=self.settings.bias * share)
        trainer = NodeTrainer(
            settings, more.X, more.Y, self.scales, forest, self.weighting, weights.precision, self.threads, costs
        )
        node_of_block = np.repeat(np.arange(forest.n_nodes), np.diff(weights.block_starts_))
        blocks = list(weights.blocks())
        changed = shares_of(more.changed(self.claimed), more.label_counts)
        changed[self.joined] = 0
        for depth in range(forest.n_levels):
            first, last = forest.level_starts[depth : depth + 2]
            of_nodes, node_costs = self._below(depth)
            level = trainer.level(depth, self._sent(depth))
            level = level._replace(
                costs=Costs(
                    np.concatenate([node_costs.positive, costs.positive]),
                    np.concatenate([node_costs.negative, costs.negative]),
                )
            )
            shares = np.concatenate([of_nodes, changed])
            jobs = []
            for number in np.flatnonzero((node_of_block >= first) & (node_of_block < last)).tolist():
                columns = self._columns(depth, blocks[number])
                steps = np.zeros(LANES, np.float32)
                steps[: len(columns)] = steps_of(shares[columns])
                if steps.any():
                    jobs.append(_Job(number, depth, int(node_of_block[number]), steps))
            for job, solved in zip(jobs, self._solved(trainer, level, jobs, blocks, share), strict=True):
                blocks[job.number] = solved
            trainer.release()
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
        forest, n = self.search.forest, int(self.more.X.shape[0])
        first, last = (int(start) for start in forest.level_starts[depth : depth + 2])
        if not self.negatives:
            return None
        if depth == 0:
            return sp.csr_array(np.ones((n, forest.n_trees_), np.float32))
        nodes = self.search.nodes(self.more.X, self.scales, depth, self.negatives, self.threads)
        row, place = np.nonzero(nodes >= 0)
        ones = np.ones(len(row), np.float32)
        return sp.csr_array((ones, (row, nodes[row, place] - first)), shape=(n, last - first))

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
        counts = level.member_starts[columns + 1] - level.member_starts[columns]
        place = np.full(n_features, -1, np.int64)
        place[features] = np.arange(len(features))
        old_features, old = decoded(block)
        inside = place[old_features]
        memory = scratch.memory(len(chosen), len(features))
        memory.weights[:] = 0
        memory.weights[inside[inside >= 0]] = old[inside >= 0]
        memory.bias_weights[:] = bias_start(settings, counts, max(len(chosen), 1))
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
            block.members[:n_lanes], _SMALLEST, self.search.weights.precision, n_features,
        )  # fmt: skip


def decoded(block: EncodedBlock) -> tuple[npt.NDArray[np.int64], Float32]:
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

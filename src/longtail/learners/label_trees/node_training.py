"""Training of the classifiers of tree nodes, each on the rows that reach its node."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from longtail.kernels.augmentation import Augmentation, CopyBuffers, Positives, copied_positives
from longtail.kernels.lanes import LANES
from longtail.kernels.rows import CSRRows
from longtail.kernels.types import Float32, Float64, Int32, Int64
from longtail.learners.label_trees.chunk_weights import EncodedBlock, NodePrecision
from longtail.learners.label_trees.forest import LabelForest
from longtail.learners.label_trees.node_rows import gather_positives, gather_rows, size_of_rows
from longtail.learners.linear.block_solver import SolverMemory
from longtail.learners.linear.problem import SolverSettings, bias_start, solve
from longtail.learners.rows import digest_of, renumbered_by_frequency, row_squares
from longtail.runtime.mmap import Allocate, allocator_like
from longtail.runtime.pool import SpareMemory, StopFlag, run_blocks
from longtail.runtime.task import RemoteTask
from longtail.weighting import Costs, Weighting


class NodeBlock(NamedTuple):
    """A block of at most 64 members of a node: members `first` to `last` - 1."""

    number: int
    node: int
    first: int
    last: int


class NodeMembers(NamedTuple):
    """Members of a node that are trained as one block, and their columns in the `LevelProblem`."""

    number: int
    node: int
    members: Int32
    columns: Int64


def node_blocks(forest: LabelForest) -> tuple[list[NodeBlock], Int64]:
    """Split the members of each node (child nodes, then labels) into blocks; also the first block of each node."""
    sizes = np.diff(forest.child_starts_) + np.diff(forest.label_starts_)
    counts = -(-sizes // LANES)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    blocks: list[NodeBlock] = []
    for node, (size, count) in enumerate(zip(sizes.tolist(), counts.tolist(), strict=True)):
        cuts = np.linspace(0, size, count + 1).astype(int).tolist()
        blocks += [NodeBlock(len(blocks) + at, node, cuts[at], cuts[at + 1]) for at in range(count)]
    return blocks, starts


def level_bytes(trainer: NodeTrainer, n_hard_negatives: int) -> int:
    """Memory for the rows of a level while it is prepared: two sparse matrices, and once as row numbers."""
    visits = int(trainer.Y.nnz) + int(trainer.X.shape[0]) * max(n_hard_negatives, 1) * trainer.forest.n_trees_
    return 28 * visits


def joined_costs(first: Costs, second: Costs) -> Costs:
    """Costs of two groups of labels or nodes, concatenated."""
    pairs = (first.positive, second.positive), (first.negative, second.negative)
    return Costs(*(np.concatenate(pair) for pair in pairs))


class LevelProblem(NamedTuple):
    """Training data of one level.

    Node v of the level, counted from its `first`, is trained on rows ``rows[row_starts[v]:row_starts[v + 1]]``. Column
    c of the members has rows ``member_rows[member_starts[c]:member_starts[c + 1]]``: first the nodes of the level
    below, then all labels.
    """

    row_starts: Int64
    rows: Int32
    member_starts: Int64
    member_rows: Int32
    costs: Costs
    first: int


@dataclass
class NodeTrainer:
    """Trains blocks of members of nodes.

    `scales` has the factor of each row. `weighting` gives the costs of labels by their counts in Y, unless there are
    `label_costs`, and those of nodes by their rows with labels under them. With `augmentation`, nodes that have labels
    are also trained on copies of the rows that have one of these, scaled to unit length if `normalise`.
    """

    settings: SolverSettings
    X: sp.csr_array
    Y: sp.csr_array
    scales: Float64
    forest: LabelForest
    weighting: Weighting
    precision: NodePrecision
    label_costs: Costs | None = None
    augmentation: Augmentation | None = None
    normalise: bool = True
    spare: SpareMemory[Scratch] = field(init=False, default_factory=SpareMemory)

    def __post_init__(self) -> None:
        X = self.X
        self._shape, self._values = X.shape, X.data
        self._by_frequency, self._indices = renumbered_by_frequency(X)
        self._indptr = X.indptr.astype(np.int64, copy=False)
        self._squares = (row_squares(X) * self.scales * self.scales + self.settings.bias**2).astype(np.float32)
        self._labels_by_column = self.Y.tocsc()
        self._level_starts = self.forest.level_starts

    def level(self, depth: int, candidates: sp.csr_array | None) -> LevelProblem:
        """Prepare level `depth`: each node is trained on the rows with labels under it and on its `candidates`.

        `candidates` is a 0/1 matrix, rows by nodes of the level.
        """
        # The rows of each node.
        forest = self.forest
        first, last = self._level_starts[depth : depth + 2]
        reach = self._rows_under(int(first), int(last))
        if candidates is not None:
            reach = reach + candidates
        by_node = reach.tocsc()
        by_node.sort_indices()
        # The positive rows of each member: those of a label, or those with a label under a node of the level below.
        Y = self._labels_by_column
        costs = self.label_costs or self.weighting._costs(np.diff(Y.indptr), self.X.shape[0])
        starts, rows = Y.indptr.astype(np.int64), Y.indices
        if last < forest.n_nodes:
            below = self._rows_under(int(last), int(self._level_starts[depth + 2])).tocsc()
            starts = np.concatenate([below.indptr[:-1].astype(np.int64), starts + below.nnz])
            rows = np.concatenate([below.indices, rows])
            node_costs = self.weighting._costs(np.diff(below.indptr), self.X.shape[0])
            costs = joined_costs(node_costs, costs)
        return LevelProblem(by_node.indptr.astype(np.int64), by_node.indices, starts, rows, costs, int(first))

    def _rows_under(self, first: int, last: int) -> sp.csr_array:
        reach = sp.csr_array(self.Y @ self.forest.members(self.Y.shape[1], first, last))
        reach.data[:] = 1
        return reach

    def train(self, depth: int, level: LevelProblem, blocks: list[NodeBlock], threads: int) -> Generator[EncodedBlock]:
        """Train blocks of one level and yield them in order."""
        return self.train_members(depth, level, [self.members_of(depth, block) for block in blocks], threads)

    def train_members(
        self, depth: int, level: LevelProblem, some: list[NodeMembers], threads: int
    ) -> Generator[EncodedBlock]:
        """Train some members of nodes of one level and yield their blocks in order."""
        try:
            yield from run_blocks(
                RemoteTask(self, "solve_members", (level,)),
                some,
                n_jobs=threads,
                description=f"training level {depth + 1} of {len(self._level_starts) - 1}",
                unit="labels and nodes",
                size=lambda block: len(block.members),
            )
        finally:
            self.spare.clear()

    def __getstate__(self) -> dict[str, Any]:
        """State that a worker needs to solve blocks; the labels are part of the level."""
        return {name: value for name, value in vars(self).items() if name not in ("X", "Y", "_labels_by_column")}

    def solve(self, depth: int, level: LevelProblem, block: NodeBlock, stop: StopFlag) -> EncodedBlock:
        """Train one block on the rows of its node."""
        return self.solve_members(level, self.members_of(depth, block), stop)

    def solve_members(self, level: LevelProblem, block: NodeMembers, stop: StopFlag) -> EncodedBlock:
        """Train up to 64 members of a node on its rows."""
        with self.scratch() as scratch:
            return self._solved(level, block, scratch, stop)

    def _solved(self, level: LevelProblem, block: NodeMembers, scratch: Scratch, stop: StopFlag) -> EncodedBlock:
        settings, members, columns = self.settings, block.members, block.columns
        chosen, rows, features, positives = self.rows_of(level, block.node, columns, scratch)
        if self.augmentation is not None and (members >= 0).any():
            copied = self._labelled(level, block.node, chosen, scratch)
            rows = scratch.room.append(
                rows, copied, chosen[copied].astype(np.int64), self.augmentation, normalise=self.normalise, same=False
            )
            positives = copied_positives(positives, copied, len(chosen), self.augmentation.copies)
        counts = level.member_starts[columns + 1] - level.member_starts[columns]
        memory = scratch.memory(len(rows.indptr) - 1, len(features))
        memory.weights[:] = 0
        memory.bias_weights[:] = bias_start(settings, counts, len(chosen))
        solve(settings, block.number, rows, positives, level.costs.take(columns), memory, stop)
        return EncodedBlock.encoded(
            memory.weights, memory.bias_weights, features, members, settings.prune_below, self.precision,
            self._shape[1],
        )  # fmt: skip

    def members_of(self, depth: int, block: NodeBlock) -> NodeMembers:
        """The members of a block."""
        members, columns = self._members(depth, block.node)
        cut = slice(block.first, block.last)
        return NodeMembers(block.number, block.node, members[cut], columns[cut])

    def scratch(self) -> AbstractContextManager[Scratch]:
        """Return working memory for a block."""
        return self.spare.borrowed(lambda: Scratch(*self._shape, allocator_like(self._values)))

    def rows_of(
        self, level: LevelProblem, node: int, columns: Int64, scratch: Scratch
    ) -> tuple[Int32, CSRRows, Int32, Positives]:
        """Rows of a node: their numbers, the rows for the solver, their features, and the members that they have."""
        at = node - level.first
        chosen = level.rows[level.row_starts[at] : level.row_starts[at + 1]]
        rows, features = scratch.gather(self._indptr, self._indices, self._values, self.scales, self._squares, chosen)
        rows = rows._replace(bias=np.float32(self.settings.bias))
        positives = scratch.positives(level.member_starts, level.member_rows, columns, chosen)
        return chosen, rows, self._by_frequency[features], positives

    def _members(self, depth: int, node: int) -> tuple[Int32, Int64]:
        """Members of a node (-2 - node, or a label), and their columns in the level."""
        forest, next_first = self.forest, self._level_starts[depth + 1]
        below = np.array(forest.nodes_under(node), np.int64)
        labels = forest.labels_under(node)
        n_below = 0 if next_first == forest.n_nodes else self._level_starts[depth + 2] - next_first
        members = np.concatenate([-2 - below, labels]).astype(np.int32)
        columns = np.concatenate([below - next_first, n_below + labels.astype(np.int64)])
        return members, columns

    def _labelled(self, level: LevelProblem, node: int, chosen: Int32, scratch: Scratch) -> Int64:
        """Positions of the rows of a node that have one of its labels."""
        depth = int(np.searchsorted(self._level_starts, node, side="right")) - 1
        members, columns = self._members(depth, node)
        return scratch.positives(level.member_starts, level.member_rows, columns[members >= 0], chosen)[0]

    def fingerprint(self, *more: object) -> bytes:
        """Digest of everything that the trained blocks depend on."""
        weighting = type(self.weighting).__name__, self.weighting.get_params()
        trees, size = self.forest.n_trees_, self.X.shape
        described = self.settings, self.precision, size, trees, weighting, self.augmentation, more
        costs = self.weighting._costs(np.diff(self._labels_by_column.indptr), self.X.shape[0])
        arrays = (self.X.indptr, self.X.indices, self.X.data, self.Y.indptr, self.Y.indices, self.scales)
        shape = (self.forest.child_starts_, self.forest.label_starts_, self.forest.labels_)
        return digest_of(described, (*arrays, costs.positive, costs.negative, *shape))


class Scratch:
    """Working memory of one thread, which grows with the largest node so far."""

    def __init__(self, n_rows: int, n_features: int, room: Allocate) -> None:
        self._allocate = room
        self._place = np.full(n_features, -1, np.int32)
        self._local = np.empty(n_rows, np.int32)
        self._features = np.empty(n_features, np.int32)
        self._indices, self._values = np.empty(0, np.int32), np.empty(0, np.float32)
        self._memory = SolverMemory.allocate(0, 0)
        self.room = CopyBuffers()

    def gather(
        self, indptr: Int64, indices: Int32, values: Float32, scales: Float64, squares: Float32, chosen: Int32
    ) -> tuple[CSRRows, Int32]:
        """Copy the rows of a node; also their features."""
        size = size_of_rows(indptr, chosen)
        if size > len(self._indices):
            self._indices, self._values = self._allocate(size, np.int32), self._allocate(size, np.float32)
        starts = np.empty(len(chosen) + 1, np.int64)
        found = gather_rows(
            indptr, indices, values, scales, chosen, self._place, self._features, starts, self._indices, self._values
        )
        ones = np.ones(len(chosen))
        rows = CSRRows(starts, self._indices[:size], self._values[:size], ones, squares[chosen], np.float32(0))
        return rows, self._features[:found]

    def positives(self, starts: Int64, rows: Int32, columns: Int64, chosen: Int32) -> Positives:
        """Rows of the node with any of the members, where the lanes of each begin, and the lanes."""
        size = int((starts[columns + 1] - starts[columns]).sum())
        rows_out, offsets = np.empty(len(chosen), np.int64), np.empty(len(chosen) + 1, np.int64)
        lanes = np.empty(size, np.int32)
        found = gather_positives(starts, rows, columns, chosen, self._local, rows_out, offsets, lanes)
        return rows_out[:found], offsets[: found + 1], lanes

    def memory(self, n_rows: int, n_features: int) -> SolverMemory:
        """Solver memory for that many rows and features."""
        held_rows, held_features = len(self._memory.slot_of_row), len(self._memory.weights)
        if n_rows > held_rows or n_features > held_features:
            self._memory = SolverMemory.allocate(max(n_rows, held_rows), max(n_features, held_features))
        whole = self._memory
        return whole._replace(weights=whole.weights[:n_features], slot_of_row=whole.slot_of_row[:n_rows])

"""Training of blocks of 64 labels, from rows, labels and costs to pruned weights, and an estimate of its cost."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from longtail.kernels.augmentation import Augmentation, CopyBuffers, Positives, copied_positives
from longtail.kernels.lanes import LANES
from longtail.kernels.rows import CSRRows
from longtail.kernels.types import Float32, Float64, Int32, Int64
from longtail.learners.cost import TrainingCost
from longtail.learners.linear.block_solver import SolverMemory
from longtail.learners.linear.problem import SolverSettings, bias_start, max_epochs, solve
from longtail.learners.linear.pruning import bounded_thresholds
from longtail.learners.linear.weights import PANEL_ROW_COST, Precision, SolvedBlock
from longtail.learners.rows import digest_of, renumbered_by_frequency, row_squares
from longtail.runtime.memory import MemoryWatch, resident_memory
from longtail.runtime.pool import SpareMemory, StopFlag, run_blocks
from longtail.runtime.task import RemoteTask
from longtail.weighting import Costs

_PILOTS = 7


class Centre(NamedTuple):
    """Weights that an update is regularised toward, and how far each label moves from them.

    `rows` (sparse) and `bias` hold the weights of each classifier; `place` is the row of each label. A label moves the
    fraction ``steps[label]`` of the way from there to the solution for the new rows.
    """

    rows: sp.csr_array
    bias: Float32
    place: Int64
    steps: Float32


@dataclass
class BlockTrainer:
    """Trains blocks of labels on one set of rows.

    `scales` has the factor of each row, and `costs` are those of all labels. With `augmentation`, each block is also
    trained on copies of the rows that have one of its labels, scaled to unit length if `normalise`. With a `centre`,
    weights are regularised toward it in place of zero. Features are renumbered so that frequent ones lie close together
    in memory.
    """

    settings: SolverSettings
    X: sp.csr_array
    Y: sp.csc_array
    scales: Float64
    costs: Costs
    precision: Precision
    augmentation: Augmentation | None = None
    normalise: bool = True
    centre: Centre | None = None
    rows: CSRRows = field(init=False)

    def __post_init__(self) -> None:
        X = self.X
        self._shape = X.shape
        self._by_frequency, indices = renumbered_by_frequency(X)
        self.rows = CSRRows(
            indptr=X.indptr.astype(np.int64, copy=False),
            indices=indices,
            values=X.data,
            scales=self.scales,
            squares=(row_squares(X) * self.scales * self.scales + self.settings.bias**2).astype(np.float32),
            bias=np.float32(self.settings.bias),
        )
        self._number = np.empty(X.shape[1], np.int32)
        self._number[self._by_frequency] = np.arange(X.shape[1], dtype=np.int32)
        self.spare: SpareMemory[_Scratch] = SpareMemory()

    @staticmethod
    def blocks_by_frequency(label_counts: Int64) -> list[Int32]:
        """Split the labels that occur into blocks of similar frequency, the most frequent first."""
        present = np.flatnonzero(label_counts)
        ordered = present[np.argsort(-label_counts[present], kind="stable")].astype(np.int32)
        return [ordered[start : start + LANES] for start in range(0, len(ordered), LANES)]

    def train(self, blocks: Sequence[Int32], *, first: int = 0, threads: int | None = None) -> Generator[SolvedBlock]:
        """Train the blocks from number `first` on, and yield them in order."""
        try:
            yield from run_blocks(
                RemoteTask(self, "solve_numbered", pack=lambda block: (block, blocks[block])),
                range(first, len(blocks)),
                n_jobs=threads,
                description="training labels",
                unit="labels",
                size=lambda block: len(blocks[block]),
                done=sum(map(len, blocks[:first])),
            )
        finally:
            self.spare.clear()

    def __getstate__(self) -> dict[str, Any]:
        """State that a worker needs to solve blocks: X is left out, because `rows` holds it."""
        return {name: value for name, value in vars(self).items() if name != "X"}

    def solve_numbered(self, block: tuple[int, Int32], stop: StopFlag) -> SolvedBlock:
        """Train a block given as (number, labels)."""
        number, labels = block
        return self.solve(labels, number, stop)

    def release_rows(self) -> None:
        """Free the renumbered indices; nothing can be trained afterwards."""
        self.rows = self.rows._replace(indices=np.empty(0, np.int32))

    def solve(self, labels: Int32, number: int, stop: StopFlag) -> SolvedBlock:
        """Train one block; its `number` seeds the order in which rows are visited."""
        with self.spare.borrowed(lambda: _Scratch(SolverMemory.allocate(*self._shape), CopyBuffers())) as scratch:
            kept = self._solved(labels, number, scratch, stop)
        return kept._replace(features=self._by_frequency[kept.features])

    def _solved(self, labels: Int32, number: int, scratch: _Scratch, stop: StopFlag) -> SolvedBlock:
        settings, costs, rows, positives = self.settings, self.costs.take(labels), self.rows, _positives(self.Y, labels)
        if self.augmentation is not None:
            copied = positives[0]
            rows = scratch.room.append(rows, copied, copied, self.augmentation, normalise=self.normalise, same=True)
            positives = copied_positives(positives, copied, int(self._shape[0]), self.augmentation.copies)
            scratch.grow(len(rows.indptr) - 1)
        memory = scratch.memory
        memory.weights[:] = 0
        memory.bias_weights[:] = start = bias_start(settings, np.diff(self.Y.indptr)[labels], self._shape[0])
        if self.centre is not None:
            self._start_from(self.centre, labels, memory)
        problem = solve(settings, number, rows, positives, costs, memory, stop)
        if self.centre is not None:
            self._interpolate(self.centre, labels, memory)
        thresholds = np.full(LANES, settings.prune_below, np.float32)
        if settings.prune_rise is not None:
            thresholds = bounded_thresholds(settings, self.precision, rows, problem, memory, costs, start, stop)
        return SolvedBlock.pruned(memory.weights, memory.bias_weights, len(labels), thresholds, self.precision)

    def _start_from(self, centre: Centre, labels: Int32, memory: SolverMemory) -> None:
        rows = centre.rows[centre.place[labels]]
        memory.weights[self._number[rows.indices], _lanes(rows)] = rows.data
        memory.bias_weights[: len(labels)] = centre.bias[centre.place[labels]]

    def _interpolate(self, centre: Centre, labels: Int32, memory: SolverMemory) -> None:
        """Move each label the fraction `steps` of the way from the centre to the solution."""
        rows, steps = centre.rows[centre.place[labels]], np.ones(LANES, np.float32)
        steps[: len(labels)] = centre.steps[labels]
        lanes = _lanes(rows)
        np.multiply(memory.weights, steps, out=memory.weights)
        memory.weights[self._number[rows.indices], lanes] += (1 - steps[lanes]) * rows.data
        bias = memory.bias_weights[: len(labels)]
        bias += (1 - steps[: len(labels)]) * (centre.bias[centre.place[labels]] - bias)

    def copy_bytes(self, blocks: Sequence[Int32]) -> int:
        """Additional memory of a thread for augmentation: all rows, and the copies for one block."""
        if self.augmentation is None or not blocks:
            return 0
        counts, n = np.diff(self.Y.indptr), int(self.X.shape[0])
        copied = self.augmentation.copies * min(n, max(int(counts[labels].sum()) for labels in blocks))
        return block_bytes(copied, 0) + 8 * int(self.X.nnz * (1 + 1.5 * copied / max(n, 1)))

    def fingerprint(self, blocks: Sequence[Int32]) -> bytes:
        """Digest of everything that the solved blocks depend on."""
        settings = replace(self.settings, max_iter=max_epochs(self.settings, self.X.shape[0]))
        arrays = (self.X.indptr, self.X.indices, self.X.data, self.Y.indptr, self.Y.indices, self.scales)
        costs = (self.costs.positive, self.costs.negative)
        described = (settings, self.precision, self.X.shape, self.augmentation)
        return digest_of(described, (*arrays, *costs, *blocks))


@dataclass
class _Scratch:
    """Working memory of one thread."""

    memory: SolverMemory
    room: CopyBuffers

    def grow(self, n_rows: int) -> None:
        """Make room for at least `n_rows` rows."""
        if n_rows > len(self.memory.slot_of_row):
            self.memory = SolverMemory.allocate(n_rows, len(self.memory.weights))


def block_bytes(n_rows: int, n_features: int, *, bounded: bool = False) -> int:
    """Memory of a thread in bytes: for training, for finished blocks that wait, and for `bounded` pruning."""
    weights, waiting, trials = 4 * LANES * n_features, LANES * n_features, 15 * LANES * n_features * bounded
    return weights + waiting + trials + (5 * LANES + 10) * n_rows


def _lanes(rows: sp.csr_array) -> Int64:
    return np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))


def _positives(Y: sp.csc_array, labels: Int32) -> Positives:
    """Rows with any of these labels, where the lanes of each begin, and the lanes."""
    columns = [Y.indices[Y.indptr[label] : Y.indptr[label + 1]] for label in labels]
    rows = np.concatenate(columns).astype(np.int64)
    lanes = np.repeat(np.arange(len(labels), dtype=np.int32), [len(column) for column in columns])
    order = np.argsort(rows, kind="stable")
    distinct, first = np.unique(rows[order], return_index=True)
    return distinct, np.append(first, len(rows)).astype(np.int64), lanes[order]


def estimate_blocks(trainer: BlockTrainer, blocks: list[Int32], threads: int) -> TrainingCost:
    """Solve a few blocks, mostly of frequent labels, and estimate the cost of all."""
    n_rows, n_features = trainer.X.shape
    before = resident_memory()
    each = block_bytes(n_rows, n_features, bounded=trainer.settings.prune_rise is not None)
    if not blocks:
        return TrainingCost(0.0, before / 1e6, 12 * n_features / 1e6, each / 1e6, threads)
    chosen = _pilots(len(blocks))

    def solve(block: int, stop: StopFlag) -> tuple[float, float]:
        start = time.thread_time()  # not the clock: the machine may be busy
        solved = trainer.solve(blocks[block], block, stop)
        width = solved.values.itemsize
        kept = solved.kept.astype(np.int64)
        size = np.where(kept > PANEL_ROW_COST, width * LANES, (2 + width) * kept).sum()
        return time.thread_time() - start, float(size)

    with MemoryWatch() as watch:
        tried = np.array(list(run_blocks(solve, chosen, n_jobs=threads, description="trying blocks")))
    trainer.spare.clear()
    # Time and size follow roughly a power law in the rank of the block: interpolate linearly between logarithms.
    places, known = np.log1p(np.arange(len(blocks))), np.log1p(chosen)
    seconds, sizes = (np.exp(np.interp(places, known, column)) for column in np.log(np.maximum(tried, 1e-9)).T)
    model = float(sizes.sum()) + 12 * n_features + 8 * LANES * len(blocks)
    at_work = min(threads, len(blocks))
    peak = max(float(watch.peak), before + at_work * each, before + model)
    return TrainingCost(
        seconds=max(float(seconds.sum()) / at_work, float(seconds.max())),
        peak_memory_mb=peak / 1e6,
        model_mb=model / 1e6,
        block_mb=each / 1e6,
        threads=at_work,
        blocks=len(blocks),
        least_seconds=float(seconds.max()),
    )


def _pilots(n_blocks: int) -> list[int]:
    """Numbers of the blocks to solve: the first, the last, and some between, denser where labels are frequent."""
    shares = (np.arange(_PILOTS) / (_PILOTS - 1)) ** 2
    return sorted({round(float(share) * (n_blocks - 1)) for share in shares})

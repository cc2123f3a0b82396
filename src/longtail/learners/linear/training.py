"""Training of blocks of 64 labels: from rows, labels and costs to pruned weights."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from longtail import __version__
from longtail.engine.augmentation import Augmentation, CopyRoom, copied_positives
from longtail.engine.block_loss import block_losses
from longtail.engine.block_solver import Memory, Problem, Rows, solve_block
from longtail.engine.lanes import LANES, from_bfloat16, to_bfloat16
from longtail.engine.mapped import room_like
from longtail.engine.pool import StopFlag, run_blocks
from longtail.engine.portable import Portable
from longtail.engine.rows import count_features, inverse_lengths, squared_lengths
from longtail.learners.linear.problem import (
    Settings,
    bias_start,
    lane_costs,
    make_problem,
    passes_over,
    random_state,
)
from longtail.learners.linear.weights import Precision, SolvedBlock
from longtail.weighting import Costs

Labels = npt.NDArray[np.int32]

_PRUNE_STEPS, _PRUNE_FACTOR = 16, 1.5
_AT_ONCE = 1 << 22  # values


class Centre(NamedTuple):
    """Where classifiers stand that are to follow other rows, and how far they go.

    Parameters
    ----------
    rows : csr_array of float32
        Weights, a row a classifier.
    bias : ndarray of float32
        Bias weight of each.
    place : ndarray of int64, shape (labels,)
        Row of each label.
    steps : ndarray of float32, shape (labels,)
        Which part of the way each label goes, from 0 to 1.
    """

    rows: sp.csr_array
    bias: npt.NDArray[np.float32]
    place: npt.NDArray[np.int64]
    steps: npt.NDArray[np.float32]


@dataclass
class BlockTrainer:
    """Trains blocks of labels on one set of rows.

    Features are renumbered so that frequent ones lie close together in memory.

    Parameters
    ----------
    settings : Settings
    X, Y : csr_array and csc_array
    scales : ndarray of float64, shape (n,)
        Factor of each row.
    costs : Costs
        Of every label of Y.
    precision : Precision
        How weights are kept.
    augmentation : Augmentation, optional
        Each block is also trained on copies of the rows that have one of its labels.
    normalise : bool
        Whether copies are scaled to length 1.
    centre : Centre, optional
        Where the regulariser draws the weights, rather than to zero.
    """

    settings: Settings
    X: sp.csr_array
    Y: sp.csc_array
    scales: npt.NDArray[np.float64]
    costs: Costs
    precision: Precision
    augmentation: Augmentation | None = None
    normalise: bool = True
    centre: Centre | None = None
    rows: Rows = field(init=False)

    def __post_init__(self) -> None:
        X = self.X
        self._shape = X.shape
        self._by_frequency, indices = renumbered_by_frequency(X)
        self.rows = Rows(
            indptr=X.indptr.astype(np.int64, copy=False),
            indices=indices,
            values=X.data,
            scales=self.scales,
            squares=(row_squares(X) * self.scales * self.scales + self.settings.bias**2).astype(np.float32),
            bias=np.float32(self.settings.bias),
        )
        self._number = np.empty(X.shape[1], np.int32)
        self._number[self._by_frequency] = np.arange(X.shape[1], dtype=np.int32)
        self._spare: SimpleQueue[_Scratch] = SimpleQueue()

    @staticmethod
    def blocks_by_frequency(label_counts: npt.NDArray[np.int64]) -> list[Labels]:
        """Cut the labels that any row has into blocks of like frequency, the most frequent first."""
        present = np.flatnonzero(label_counts)
        ordered = present[np.argsort(-label_counts[present], kind="stable")].astype(np.int32)
        return [ordered[start : start + LANES] for start in range(0, len(ordered), LANES)]

    def train(self, blocks: Sequence[Labels], *, first: int = 0, threads: int | None = None) -> Generator[SolvedBlock]:
        """Train the blocks from the one with number `first` on, and give them in their order."""
        try:
            yield from run_blocks(
                Portable(self, "solve_numbered", pack=lambda block: (block, blocks[block])),
                range(first, len(blocks)),
                threads=threads,
                description="training labels",
                unit="labels",
                size=lambda block: len(blocks[block]),
                done=sum(map(len, blocks[:first])),
            )
        finally:
            self.release()

    def release(self) -> None:
        """Give the working memory of the blocks back."""
        self._spare = SimpleQueue()

    def __getstate__(self) -> dict[str, Any]:
        """What it takes to solve blocks elsewhere: X is there once, as `rows`."""
        return {name: value for name, value in vars(self).items() if name not in ("X", "_spare")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.release()

    def solve_numbered(self, block: tuple[int, Labels], stop: StopFlag) -> SolvedBlock:
        """Train a block that is given as its number and its labels."""
        number, labels = block
        return self.solve(labels, number, stop)

    def release_rows(self) -> None:
        """Give the renumbered features of the rows back: nothing can be trained after it."""
        self.rows = self.rows._replace(indices=np.empty(0, np.int32))

    def solve(self, labels: Labels, number: int, stop: StopFlag) -> SolvedBlock:
        """Train one block; its `number` decides the order in which rows are visited."""
        try:
            scratch = self._spare.get_nowait()
        except Empty:
            scratch = _Scratch(Memory.allocate(*self._shape), CopyRoom())
        settings, rows, positives = self.settings, self.rows, _positives(self.Y, labels)
        if self.augmentation is not None:
            copied = positives[0]
            rows = scratch.room.append(rows, copied, copied, self.augmentation, normalise=self.normalise, same=True)
            positives = copied_positives(positives, copied, int(self._shape[0]), self.augmentation.copies)
            scratch = scratch.with_rows(len(rows.indptr) - 1)
        memory = scratch.memory
        cost = lane_costs(settings, self.costs.take(labels))
        memory.weights[:] = 0
        memory.bias_weights[:] = start = bias_start(settings, np.diff(self.Y.indptr)[labels], self._shape[0])
        if self.centre is not None:
            self._start_from(self.centre, labels, memory)
        problem = make_problem(settings, rows, positives, cost)
        solve_block(rows, problem, memory, random_state(settings, number), stop)
        if self.centre is not None:
            self._stop_short(self.centre, labels, memory)
        thresholds = np.full(LANES, settings.prune_below, np.float32)
        if settings.prune_rise is not None:
            thresholds = self._bounded_thresholds(rows, problem, memory, cost, start, stop)
        kept = SolvedBlock.pruned(memory.weights, memory.bias_weights, len(labels), thresholds, self.precision)
        self._spare.put(scratch)
        return kept._replace(features=self._by_frequency[kept.features])

    def _start_from(self, centre: Centre, labels: Labels, memory: Memory) -> None:
        rows = centre.rows[centre.place[labels]]
        memory.weights[self._number[rows.indices], _lanes(rows)] = rows.data
        memory.bias_weights[: len(labels)] = centre.bias[centre.place[labels]]

    def _stop_short(self, centre: Centre, labels: Labels, memory: Memory) -> None:
        """Go only as far from the centre as the steps say."""
        rows, steps = centre.rows[centre.place[labels]], np.ones(LANES, np.float32)
        steps[: len(labels)] = centre.steps[labels]
        lanes = _lanes(rows)
        np.multiply(memory.weights, steps, out=memory.weights)
        memory.weights[self._number[rows.indices], lanes] += (1 - steps[lanes]) * rows.data
        bias = memory.bias_weights[: len(labels)]
        bias += (1 - steps[: len(labels)]) * (centre.bias[centre.place[labels]] - bias)

    def copy_bytes(self, blocks: Sequence[Labels]) -> int:
        """Memory that a thread needs besides for copies: all rows, and the copies of those of one block."""
        if self.augmentation is None or not blocks:
            return 0
        counts, n = np.diff(self.Y.indptr), int(self.X.shape[0])
        copied = self.augmentation.copies * min(n, max(int(counts[labels].sum()) for labels in blocks))
        return block_bytes(copied, 0) + 8 * int(self.X.nnz * (1 + 1.5 * copied / max(n, 1)))

    def fingerprint(self, blocks: Sequence[Labels]) -> bytes:
        """Digest of everything that the trained blocks depend on."""
        settings = replace(self.settings, max_passes=passes_over(self.settings, self.X.shape[0]))
        arrays = (self.X.indptr, self.X.indices, self.X.data, self.Y.indptr, self.Y.indices, self.scales)
        costs = (self.costs.positive, self.costs.negative)
        described = (settings, self.precision, self.X.shape, self.augmentation)
        return digest_of(described, (*arrays, *costs, *blocks))

    def _bounded_thresholds(
        self,
        rows: Rows,
        problem: Problem,
        memory: Memory,
        cost: npt.NDArray[np.float32],
        bias_start: npt.NDArray[np.float32],
        stop: StopFlag,
    ) -> npt.NDArray[np.float32]:
        """Find for each lane how far it can be pruned before its loss rises by more than `prune_rise` allows.

        Tries `prune_below`, 1.5 times as much, 2.25 times, ... by bisection, and measures the loss each time. What is
        allowed is a share of the objective before pruning. 0, which prunes nothing, where even the first is too much.
        Trials are rounded as the weights will be.
        """
        settings, rise = self.settings, self.settings.prune_rise or 0.0
        costs, loss = cost.astype(np.float64), np.zeros(LANES)
        block_losses(rows, problem, memory.weights, memory.bias_weights, costs, loss, stop)
        moved = memory.bias_weights.astype(np.float64) - bias_start
        squares = np.einsum("fl,fl->l", memory.weights, memory.weights, dtype=np.float64)
        objective = loss + 0.5 * (squares + moved**2)
        allowed = loss + rise * objective
        steps = max(settings.prune_below, 1e-3) * _PRUNE_FACTOR ** np.arange(_PRUNE_STEPS)
        low, high = np.full(LANES, -1), np.full(LANES, _PRUNE_STEPS)  # the last that is allowed, the first that isn't
        pruned, after = np.empty_like(memory.weights), np.zeros(LANES)
        while (high - low).max() > 1 and not stop[0]:
            middle = (low + high) // 2
            trial = np.where(middle >= 0, steps[middle], 0).astype(np.float32)
            np.multiply(memory.weights, np.abs(memory.weights) >= trial, out=pruned)
            if self.precision == "bfloat16":
                pruned[:] = from_bfloat16(to_bfloat16(pruned))
            block_losses(rows, problem, pruned, memory.bias_weights, costs, after, stop)
            fine = after <= allowed
            low, high = np.where(fine, middle, low), np.where(fine, high, middle)
        return np.where(low >= 0, steps[low], 0).astype(np.float32)


class _Scratch(NamedTuple):
    """Working memory of one thread."""

    memory: Memory
    room: CopyRoom

    def with_rows(self, n_rows: int) -> _Scratch:
        """Give memory for at least so many rows."""
        if n_rows <= len(self.memory.slot_of_row):
            return self
        return self._replace(memory=Memory.allocate(n_rows, len(self.memory.weights)))


def block_bytes(n_rows: int, n_features: int, *, bounded: bool = False) -> int:
    """Memory that a thread needs, in bytes: to train a block, for results that wait, and for `bounded` pruning."""
    weights, waiting, trials = 4 * LANES * n_features, LANES * n_features, 15 * LANES * n_features * bounded
    return weights + waiting + trials + (5 * LANES + 10) * n_rows


def renumbered_by_frequency(X: sp.csr_array) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Features from the most frequent to the rarest, and the indices of X in these new numbers, on disk if X is."""
    occurrences = np.zeros(X.shape[1], np.int64)
    count_features(X.indices, occurrences)
    by_frequency = np.argsort(-occurrences, kind="stable").astype(np.int32)
    number = np.empty(X.shape[1], np.int32)
    number[by_frequency] = np.arange(X.shape[1], dtype=np.int32)
    indices = room_like(X.indices)(len(X.indices), np.int32)
    for first in range(0, len(indices), _AT_ONCE):
        np.take(number, X.indices[first : first + _AT_ONCE], out=indices[first : first + _AT_ONCE])
    return by_frequency, indices


def digest_of(described: object, arrays: Iterable[npt.NDArray[Any]]) -> bytes:
    """Digest of what can be described in words and of some arrays; the version of longtail is part of it."""
    digest = hashlib.blake2b(repr((__version__, described)).encode(), digest_size=32)
    for array in arrays:
        digest.update(f"{array.dtype} {len(array)} ".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.digest()


def row_scales(X: sp.csr_array, normalise: bool) -> npt.NDArray[np.float64]:
    """Factor of each row: one over its length, or 1 where rows are not normalised or empty."""
    if not normalise:
        return np.ones(X.shape[0])
    scales = np.empty(X.shape[0])
    inverse_lengths(X.indptr, X.data, scales)
    return scales


def row_squares(X: sp.csr_array) -> npt.NDArray[np.float64]:
    """Squared length of each row."""
    lengths = np.empty(X.shape[0])
    squared_lengths(X.indptr.astype(np.int64, copy=False), X.data, lengths)
    return lengths


def _lanes(rows: sp.csr_array) -> npt.NDArray[np.int64]:
    return np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))


def _positives(Y: sp.csc_array, labels: Labels) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Labels]:
    """Rows with any of these labels, and for each the lanes it has."""
    columns = [Y.indices[Y.indptr[label] : Y.indptr[label + 1]] for label in labels]
    rows = np.concatenate(columns).astype(np.int64)
    lanes = np.repeat(np.arange(len(labels), dtype=np.int32), [len(column) for column in columns])
    order = np.argsort(rows, kind="stable")
    distinct, first = np.unique(rows[order], return_index=True)
    return distinct, np.append(first, len(rows)).astype(np.int64), lanes[order]

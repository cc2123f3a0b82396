"""Storage of the weights of many linear classifiers, and ranking with them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator

from longtail.config import memory_limit, thread_count
from longtail.errors import ModelError
from longtail.kernels.lanes import LANES, to_bfloat16, widened
from longtail.kernels.rows import QueryRows
from longtail.kernels.types import Array, Flags, Float32, Float64, Int32, Int64, UInt8
from longtail.learners.linear.panels import LaneFactors, PanelWeights, collect_kept, count_kept, place_block, rank_rows
from longtail.learners.norms import lane_squares
from longtail.runtime.block_file import BlockFile
from longtail.runtime.memory import memory_in_use
from longtail.runtime.mmap import allocator
from longtail.runtime.pool import StopFlag, run_blocks
from longtail.topk import TopK

Precision = Literal["bfloat16", "float32"]

PANEL_ROW_COST = 12.0
"""Cost of a row of a panel in entries: a compromise between time (about 3) and memory (32)."""
_SCORES_AT_ONCE = 1 << 22
_ROWS_AT_ONCE = 1024
NO_FACTORS = LaneFactors(np.float32(1), np.empty(0, np.float32), np.empty(0, np.float32))


class SolvedBlock(NamedTuple):
    """Weights of one block of labels: features with any, their numbers of weights, then lanes and values."""

    features: Int32
    kept: UInt8
    lanes: UInt8
    values: Array
    bias: Float32

    @classmethod
    def pruned(cls, weights: Float32, bias: Float32, lanes: int, prune_below: Float32, precision: Precision) -> Self:
        """Keep the weights that reach the `prune_below` of their lane; the bias is never pruned."""
        kept = np.empty(len(weights), np.uint8)
        total = count_kept(weights, lanes, prune_below, kept)
        kept_lanes, values = np.empty(total, np.uint8), np.empty(total, np.float32)
        collect_kept(weights, lanes, prune_below, kept, kept_lanes, values)
        features = np.flatnonzero(kept).astype(np.int32)
        stored = to_bfloat16(values) if precision == "bfloat16" else values
        return cls(features, kept[features], kept_lanes, stored, bias[:lanes].copy())

    def matrix(self, n_labels: int, n_features: int) -> sp.csr_array:
        """Weights as a sparse matrix, one row per label of the block."""
        starts = np.concatenate([[0], np.cumsum(self.kept, dtype=np.int64)])
        size = n_labels, len(self.features)
        rows = sp.csr_array(sp.csc_array((widened(self.values), self.lanes.astype(np.int32), starts), shape=size))
        return sp.csr_array((rows.data, self.features[rows.indices], rows.indptr), shape=(n_labels, n_features))


class BlockWeights(BaseEstimator):
    """Weights of all labels, in panels and entries (see `longtail.learners.linear.panels`).

    Attributes
    ----------
    lane_labels_, lane_bias_ : ndarray, shape (blocks * 64,)
        Label of each lane (-1 where a lane is empty) and its bias weight.
    panel_slots_ : ndarray of int32, shape (features,)
        Row of each feature in the panels, -1 if it has none.
    panel_heights_ : ndarray of int32, shape (blocks,)
        Rows of each panel, never increasing: a feature is stored in the panels that are higher than its slot.
    panels_ : ndarray of uint16 (bfloat16) or float32, shape (sum of heights, 64)
        The panels, concatenated.
    entry_offsets_, entry_lanes_, entry_values_ : ndarray
        Weights outside of the panels, feature by feature.
    """

    _stored: ClassVar[tuple[str, ...]] = (
        "lane_labels_", "lane_bias_", "panel_slots_", "panel_heights_", "panels_", "entry_offsets_", "entry_lanes_",
        "entry_values_",
    )  # fmt: skip

    _last_factors: tuple[Float32, LaneFactors] | None = None

    lane_labels_: Int32
    lane_bias_: Float32
    panel_slots_: Int32
    panel_heights_: Int32
    panels_: Array
    entry_offsets_: Int64
    entry_lanes_: Array
    entry_values_: Array

    @classmethod
    def assemble(cls, block_file: BlockFile, block_labels: list[Int32], n_features: int, precision: Precision) -> Self:
        """Assemble solved blocks from the block file; beyond the memory limit, in memory-mapped temporary files."""
        made = cls()
        n_blocks = len(block_labels)
        made.lane_labels_ = np.full(n_blocks * LANES, -1, np.int32)
        made.lane_bias_ = np.zeros(n_blocks * LANES, np.float32)
        dtype = np.dtype(np.uint16 if precision == "bfloat16" else np.float32)
        made._allocate(*_choose_depths(block_file, n_blocks, n_features), n_blocks, dtype)
        packed, next_entry = made._packed(), made.entry_offsets_[:-1].copy()
        for index, labels in enumerate(block_labels):
            block = SolvedBlock(*block_file.read(index))
            made.lane_labels_[index * LANES : index * LANES + len(labels)] = labels
            made.lane_bias_[index * LANES : index * LANES + len(labels)] = block.bias
            place_block(index, *block[:4], packed, next_entry)
        return made

    def blocks(self) -> Iterator[tuple[SolvedBlock, Int32]]:
        """Split the weights into blocks with their labels, the inverse of `assemble`."""
        weights = self._arrays
        entry_features = np.repeat(np.arange(self.n_features, dtype=np.int32), np.diff(weights.offsets))
        by_block = np.argsort(weights.lanes // LANES, kind="stable")
        ends = np.cumsum(np.bincount(weights.lanes // LANES, minlength=len(weights.starts) - 1))
        feature_of_slot = self._feature_of_slot()
        for block, end in enumerate(ends):
            lanes = slice(block * LANES, (block + 1) * LANES)
            labels = weights.lane_labels[lanes][weights.lane_labels[lanes] >= 0]
            slot, lane = np.nonzero(weights.panels[weights.starts[block] : weights.starts[block + 1]])
            own = by_block[ends[block - 1] if block else 0 : end]
            features = np.concatenate([feature_of_slot[slot], entry_features[own]])
            places = np.concatenate([lane, weights.lanes[own] % LANES])
            values = np.concatenate([weights.panels[weights.starts[block] + slot, lane], weights.values[own]])
            order = np.lexsort((places, features))
            distinct, kept = np.unique(features, return_counts=True)
            yield (
                SolvedBlock(
                    distinct.astype(np.int32),
                    kept.astype(np.uint8),
                    places[order].astype(np.uint8),
                    values[order],
                    weights.lane_bias[lanes][: len(labels)],
                ),
                labels,
            )

    def _allocate(self, depths: Int32, entries: Int64, n_blocks: int, dtype: np.dtype[Any]) -> None:
        deepest_first = np.argsort(-depths, kind="stable")[: np.count_nonzero(depths)]
        self.panel_slots_ = np.full(len(depths), -1, np.int32)
        self.panel_slots_[deepest_first] = np.arange(len(deepest_first), dtype=np.int32)
        shallower = np.cumsum(np.bincount(depths, minlength=n_blocks + 1))
        self.panel_heights_ = (len(depths) - shallower[:n_blocks]).astype(np.int32)
        height, n_entries = int(self.panel_heights_.sum(dtype=np.int64)), int(entries.sum())
        size = height * LANES * dtype.itemsize + n_entries * (4 + dtype.itemsize)
        allocate = allocator(size)
        self.panels_ = allocate((height, LANES), dtype)
        self.entry_offsets_ = np.concatenate([[0], np.cumsum(entries)]).astype(np.int64)
        lane_dtype = np.uint16 if n_blocks * LANES <= 1 << 16 else np.uint32
        self.entry_lanes_, self.entry_values_ = allocate(n_entries, lane_dtype), allocate(n_entries, dtype)

    @cached_property
    def _arrays(self) -> PanelWeights:
        """Arrays for the kernels, validated once: kernels do not check indices."""
        if not all(hasattr(self, name) for name in self._stored if name != "panel_heights_") or not self._is_valid():
            raise _unsound()
        return self._packed()

    def check(self, n_labels: int) -> None:
        """Refuse weights with labels beyond `n_labels`."""
        if self._most_label >= n_labels:
            raise _unsound()

    @cached_property
    def _most_label(self) -> int:
        return int(self._arrays.lane_labels.max(initial=-1))

    def _layout(self) -> tuple[Int32, Array]:
        """Heights of the panels, and the concatenated panels; in format version 1 all have the same height."""
        if self.panels_.ndim == 3:
            return np.full(len(self.panels_), self.panels_.shape[1], np.int32), self.panels_.reshape(-1, LANES)
        return self.panel_heights_, self.panels_

    def _is_valid(self) -> bool:
        kinds = (
            (self.lane_labels_, (np.int32,)),
            (self.lane_bias_, (np.float32,)),
            (self.panel_slots_, (np.int32,)),
            (self.panels_, (np.uint16, np.float32)),
            (self.entry_offsets_, (np.int64,)),
            (self.entry_lanes_, (np.uint16, np.uint32)),
            (self.entry_values_, (self.panels_.dtype.type,)),
        )
        if any(array.dtype.type not in types or not array.flags.c_contiguous for array, types in kinds):
            return False
        if self.panels_.shape[-1:] != (LANES,) or (self.panels_.ndim == 2 and not hasattr(self, "panel_heights_")):
            return False
        heights, panels = self._layout()
        offsets, slots, lanes = self.entry_offsets_, self.panel_slots_, len(self.lane_labels_)
        entries = len(self.entry_lanes_)
        used = np.sort(slots[slots >= 0])
        return bool(
            heights.dtype == np.int32
            and heights.ndim == 1
            and panels.shape == (int(heights.sum(dtype=np.int64)), LANES)
            and heights.min(initial=0) >= 0
            and (heights[1:] <= heights[:-1]).all()
            and lanes == len(self.lane_bias_) == len(heights) * LANES
            and self.lane_labels_.min(initial=-1) >= -1
            and len(offsets) == len(slots) + 1
            and offsets[0] == 0
            and offsets[-1] == entries == len(self.entry_values_)
            and (offsets[1:] >= offsets[:-1]).all()
            and slots.min(initial=-1) >= -1
            and np.array_equal(used, np.arange(heights.max(initial=0)))
            and (entries == 0 or int(self.entry_lanes_.max()) < lanes)
        )

    def _packed(self) -> PanelWeights:
        (heights, panels), slots = self._layout(), self.panel_slots_
        higher = len(heights) - np.searchsorted(heights[::-1], slots, side="right")
        return PanelWeights(
            np.where(slots >= 0, higher, 0).astype(np.int32),
            slots,
            np.concatenate([[0], np.cumsum(heights, dtype=np.int64)]),
            panels,
            self.entry_offsets_,
            self.entry_lanes_,
            self.entry_values_,
            self.lane_bias_,
            self.lane_labels_,
        )

    @property
    def n_features(self) -> int:
        """Number of features."""
        return len(self.panel_slots_)

    @property
    def precision(self) -> Precision:
        """Storage type of the weights."""
        return "bfloat16" if self.panels_.dtype == np.uint16 else "float32"

    def rank(
        self,
        X: sp.csr_array,
        scales: Float64,
        bias: float,
        k: int,
        allowed: Flags | None,
        lane_factors: LaneFactors = NO_FACTORS,
    ) -> TopK:
        """Rank the k best labels of each row, a few rows at a time, fewer where the memory limit requires it."""
        n = X.shape[0]
        top = TopK.empty(n, k)
        rows = QueryRows(X.indptr.astype(np.int64, copy=False), X.indices, X.data, scales, np.float32(bias))
        lanes = len(self.lane_labels_)
        if lanes == 0:
            return top
        most = max(1, min(_SCORES_AT_ONCE // lanes, _ROWS_AT_ONCE))
        limit = memory_limit()
        if limit is not None:
            room = limit - memory_in_use()
            most = max(1, min(most, room // (2 * 4 * lanes * thread_count())))
        chunk_size = -(-n // -(-n // most)) if n > most else max(1, min(n, max(64, -(-n // thread_count()))))
        permitted = np.empty(0, np.bool_) if allowed is None else allowed
        weights = self._arrays

        def rank_task(first: int, stop: StopFlag) -> None:
            last = min(first + chunk_size, n)
            memory = np.empty((last - first, lanes), np.float32)
            rank_rows(rows, first, last, weights, permitted, lane_factors, memory, top.labels, top.scores)

        tasks = range(0, n, chunk_size)
        if len(tasks) == 1:
            rank_task(0, np.zeros(1, np.uint8))
        else:
            for _ in run_blocks(rank_task, tasks, description="ranking labels", unit="chunks"):
                pass
        return top

    def lane_factors(self, factors: Float32, slope: float) -> LaneFactors:
        """Factors in the order of the lanes; the result of the last call is cached."""
        last = self._last_factors
        if last is None or last[0] is not factors or last[1].slope != np.float32(slope):
            used = self.lane_labels_ >= 0
            by_lane = np.where(used, factors[np.where(used, self.lane_labels_, 0)], np.float32(1))
            last = self._last_factors = factors, LaneFactors(np.float32(slope), by_lane, np.log(by_lane))
        return last[1]

    def matrix(self, n_labels: int) -> sp.csr_array:
        """Weights as a sparse matrix of shape (n_labels, features), without the bias."""
        weights = self._arrays
        heights = np.diff(weights.starts)
        row, lane = np.nonzero(weights.panels)
        block = np.repeat(np.arange(len(heights)), heights)[row]
        features = np.concatenate(
            [
                self._feature_of_slot()[row - weights.starts[block]],
                np.repeat(np.arange(self.n_features, dtype=np.int32), np.diff(weights.offsets)),
            ]
        )
        lanes = np.concatenate([block * LANES + lane, weights.lanes.astype(np.int64)])
        values = np.concatenate([weights.panels[row, lane], weights.values])
        return sp.csr_array((widened(values), (self.lane_labels_[lanes], features)), shape=(n_labels, self.n_features))

    def of_features(self, features: Int32, lanes: Int64) -> Float32:
        """Weights of some features for some lanes, of shape (features, lanes)."""
        weights = self._arrays
        lanes, back = np.unique(lanes, return_inverse=True)
        found = np.zeros((len(features), len(lanes)), np.float32)
        blocks, places = lanes // LANES, lanes % LANES
        columns = {int(lane): column for column, lane in enumerate(lanes)}
        for at, feature in enumerate(features):
            deep = blocks < weights.depths[feature]
            rows = weights.starts[blocks[deep]] + weights.slots[feature]
            found[at, deep] = widened(weights.panels[rows, places[deep]])
            entries = slice(weights.offsets[feature], weights.offsets[feature + 1])
            here = np.flatnonzero(np.isin(weights.lanes[entries], lanes))
            for entry in here:
                column = columns[int(weights.lanes[entries][entry])]
                found[at, column] = widened(weights.values[entries][entry : entry + 1])[0]
        return found[:, back]

    def norms(self, n_labels: int) -> Float64:
        """Norm of each label's weights without the bias, NaN for labels without a classifier.

        The matrix of a large model can need more memory than the model, and takes ten times as long to build.
        """
        arrays, squares = self._arrays, np.zeros(len(self.lane_labels_))
        if len(arrays.lanes):
            squares += np.bincount(arrays.lanes, np.square(widened(arrays.values), dtype=np.float64), len(squares))
        for block, (start, stop) in enumerate(zip(arrays.starts[:-1], arrays.starts[1:], strict=True)):
            squares[block * LANES : (block + 1) * LANES] += lane_squares(arrays.panels[start:stop])
        norms, used = np.full(n_labels, np.nan), self.lane_labels_ >= 0
        norms[self.lane_labels_[used]] = np.sqrt(squares[used])
        return norms

    def _feature_of_slot(self) -> Int32:
        features = np.flatnonzero(self._arrays.depths).astype(np.int32)
        feature_of_slot = np.empty(len(features), np.int32)
        feature_of_slot[self._arrays.slots[features]] = features
        return feature_of_slot


def _choose_depths(block_file: BlockFile, n_blocks: int, n_features: int) -> tuple[Int32, Int64]:
    """Choose for each feature the number of panels with the lowest cost, and count its entries beyond them.

    Iterates backwards over the blocks. Only 0 and depths that end right after a block with weights of the feature can
    be optimal.
    """
    depths, left = np.zeros(n_features, np.int32), np.zeros(n_features, np.int64)
    behind, cheapest = np.zeros(n_features, np.int64), np.full(n_features, np.inf)
    for block in range(n_blocks - 1, -1, -1):
        features, kept = block_file.read(block, 2)
        cost = PANEL_ROW_COST * (block + 1) + behind[features]
        better = features[cost < cheapest[features]]
        cheapest[better] = PANEL_ROW_COST * (block + 1) + behind[better]
        depths[better] = block + 1
        left[better] = behind[better]
        behind[features] += kept
    none = behind <= cheapest
    depths[none] = 0
    left[none] = behind[none]
    return depths, left


def _unsound() -> ModelError:
    return ModelError("The weights of the model don't fit together: its files were changed; train it again.")

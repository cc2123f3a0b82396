"""The weights of a linear model with many labels: built block by block, kept compact, made for ranking."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import BaseEstimator

from longtail.engine.lanes import LANES, from_bfloat16, to_bfloat16
from longtail.engine.mapped import allocator
from longtail.engine.memory import memory_in_use, parse_memory
from longtail.engine.panels import LaneFactors, PanelWeights, collect_kept, count_kept, place_block, rank_rows
from longtail.engine.pool import StopFlag, run_blocks, thread_count
from longtail.engine.spool import BlockSpool
from longtail.engine.topk import TopK
from longtail.errors import ModelError

Precision = Literal["bfloat16", "float32"]

PANEL_ROW_COST = 12.0
"""A row of a panel costs as much as so many entries: about 3 in time, 32 in memory."""
_SCORES_AT_ONCE = 1 << 22
_ROWS_AT_ONCE = 1024
_NO_FACTORS = LaneFactors(np.float32(1), np.empty(0, np.float32), np.empty(0, np.float32))


class SolvedBlock(NamedTuple):
    """Kept weights of one block of labels: features with any, how many each, then their lanes and values."""

    features: npt.NDArray[np.int32]
    kept: npt.NDArray[np.uint8]
    lanes: npt.NDArray[np.uint8]
    values: npt.NDArray[Any]
    bias: npt.NDArray[np.float32]

    @classmethod
    def pruned(
        cls,
        weights: npt.NDArray[np.float32],
        bias: npt.NDArray[np.float32],
        lanes: int,
        prune_below: npt.NDArray[np.float32],
        precision: Precision,
    ) -> Self:
        """Take what reaches its lane's `prune_below` out of a block's dense weights; the bias is never pruned."""
        kept = np.empty(len(weights), np.uint8)
        total = count_kept(weights, lanes, prune_below, kept)
        kept_lanes, values = np.empty(total, np.uint8), np.empty(total, np.float32)
        collect_kept(weights, lanes, prune_below, kept, kept_lanes, values)
        features = np.flatnonzero(kept).astype(np.int32)
        stored = to_bfloat16(values) if precision == "bfloat16" else values
        return cls(features, kept[features], kept_lanes, stored, bias[:lanes].copy())

    def matrix(self, n_labels: int, n_features: int) -> sp.csr_array:
        """Weights as a sparse matrix, a row a label of the block."""
        starts = np.concatenate([[0], np.cumsum(self.kept, dtype=np.int64)])
        size = n_labels, len(self.features)
        rows = sp.csr_array(sp.csc_array((_wide(self.values), self.lanes.astype(np.int32), starts), shape=size))
        return sp.csr_array((rows.data, self.features[rows.indices], rows.indptr), shape=(n_labels, n_features))


class BlockWeights(BaseEstimator):
    """Weights of all labels, in panels and entries (see `longtail.engine.panels`).

    Attributes
    ----------
    lane_labels_, lane_bias_ : ndarray, shape (blocks * 64,)
        Label of each lane (-1 where a lane is empty) and its bias weight.
    panel_slots_ : ndarray of int32, shape (features,)
        Row of each feature in the panels, -1 if it has none.
    panel_heights_ : ndarray of int32, shape (blocks,)
        Rows of each panel: a feature stands in the panels that are higher than its slot. They never rise.
    panels_ : ndarray of uint16 (bfloat16) or float32, shape (sum of heights, 64)
        The panels, one after the other.
    entry_offsets_, entry_lanes_, entry_values_ : ndarray
        Weights that no panel holds, feature by feature.
    """

    _stored: ClassVar[tuple[str, ...]] = (
        "lane_labels_",
        "lane_bias_",
        "panel_slots_",
        "panel_heights_",
        "panels_",
        "entry_offsets_",
        "entry_lanes_",
        "entry_values_",
    )

    _last_factors: tuple[npt.NDArray[np.float32], LaneFactors] | None = None

    lane_labels_: npt.NDArray[np.int32]
    lane_bias_: npt.NDArray[np.float32]
    panel_slots_: npt.NDArray[np.int32]
    panel_heights_: npt.NDArray[np.int32]
    panels_: npt.NDArray[Any]
    entry_offsets_: npt.NDArray[np.int64]
    entry_lanes_: npt.NDArray[Any]
    entry_values_: npt.NDArray[Any]

    @classmethod
    def assemble(
        cls,
        spool: BlockSpool,
        block_labels: list[npt.NDArray[np.int32]],
        n_features: int,
        precision: Precision,
        memory_limit: int | str | None = None,
    ) -> Self:
        """Gather solved blocks, which wait in the spool, so that memory holds the result alone.

        Where `memory_limit` leaves no room for it, the result lies in temporary files, mapped into memory.
        """
        made = cls()
        n_blocks = len(block_labels)
        made.lane_labels_ = np.full(n_blocks * LANES, -1, np.int32)
        made.lane_bias_ = np.zeros(n_blocks * LANES, np.float32)
        dtype = np.dtype(np.uint16 if precision == "bfloat16" else np.float32)
        made._allocate(*_choose_depths(spool, n_blocks, n_features), n_blocks, dtype, memory_limit)
        packed, next_entry = made._packed(), made.entry_offsets_[:-1].copy()
        for index, labels in enumerate(block_labels):
            block = SolvedBlock(*spool.read(index))
            made.lane_labels_[index * LANES : index * LANES + len(labels)] = labels
            made.lane_bias_[index * LANES : index * LANES + len(labels)] = block.bias
            place_block(index, *block[:4], packed, next_entry)
        return made

    def blocks(self) -> Iterator[tuple[SolvedBlock, npt.NDArray[np.int32]]]:
        """Take the weights apart again, into the blocks and their labels."""
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

    def _allocate(
        self,
        depths: npt.NDArray[np.int32],
        entries: npt.NDArray[np.int64],
        n_blocks: int,
        dtype: np.dtype[Any],
        memory_limit: int | str | None,
    ) -> None:
        deepest_first = np.argsort(-depths, kind="stable")[: np.count_nonzero(depths)]
        self.panel_slots_ = np.full(len(depths), -1, np.int32)
        self.panel_slots_[deepest_first] = np.arange(len(deepest_first), dtype=np.int32)
        shallower = np.cumsum(np.bincount(depths, minlength=n_blocks + 1))
        self.panel_heights_ = (len(depths) - shallower[:n_blocks]).astype(np.int32)
        height, n_entries = int(self.panel_heights_.sum(dtype=np.int64)), int(entries.sum())
        size = height * LANES * dtype.itemsize + n_entries * (4 + dtype.itemsize)
        allocate = allocator(memory_limit, size)
        self.panels_ = allocate((height, LANES), dtype)
        self.entry_offsets_ = np.concatenate([[0], np.cumsum(entries)]).astype(np.int64)
        lane_dtype = np.uint16 if n_blocks * LANES <= 1 << 16 else np.uint32
        self.entry_lanes_, self.entry_values_ = allocate(n_entries, lane_dtype), allocate(n_entries, dtype)

    @cached_property
    def _arrays(self) -> PanelWeights:
        """Arrays for the kernels, checked once: a kernel trusts every index in them."""
        if not all(hasattr(self, name) for name in self._stored if name != "panel_heights_") or not self._is_sound():
            raise _unsound()
        return self._packed()

    def check(self, n_labels: int) -> None:
        """Refuse weights of labels that a model with `n_labels` can't have; looks once."""
        if self._most_label >= n_labels:
            raise _unsound()

    @cached_property
    def _most_label(self) -> int:
        return int(self._arrays.lane_labels.max(initial=-1))

    def _layout(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[Any]]:
        """Heights of the panels, and the panels one after the other; in format version 1 they have one height."""
        if self.panels_.ndim == 3:
            return np.full(len(self.panels_), self.panels_.shape[1], np.int32), self.panels_.reshape(-1, LANES)
        return self.panel_heights_, self.panels_

    def _is_sound(self) -> bool:
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
        """Features that a row may have."""
        return len(self.panel_slots_)

    def rank(
        self,
        X: sp.csr_array,
        scales: npt.NDArray[np.float64],
        bias: float,
        k: int,
        allowed: npt.NDArray[np.bool_] | None,
        threads: int | None,
        lane_factors: LaneFactors = _NO_FACTORS,
        memory_limit: int | str | None = None,
    ) -> TopK:
        """Rank the k best labels of each row; memory beyond the result holds the scores of a few rows at a time.

        They are fewer where `memory_limit` leaves little room; the result is the same.
        """
        n = X.shape[0]
        top = TopK(np.full((n, k), -1, np.int32), np.full((n, k), -np.inf, np.float32))
        indptr = X.indptr.astype(np.int64, copy=False)
        lanes = len(self.lane_labels_)
        if lanes == 0:
            return top
        most = max(1, min(_SCORES_AT_ONCE // lanes, _ROWS_AT_ONCE))
        if memory_limit is not None:
            room = parse_memory(memory_limit) - memory_in_use()
            most = max(1, min(most, room // (2 * 4 * lanes * thread_count(threads))))
        at_once = -(-n // -(-n // most)) if n > most else max(1, min(n, max(64, -(-n // thread_count(threads)))))
        permitted = np.empty(0, np.bool_) if allowed is None else allowed
        weights = self._arrays

        def rank_task(first: int, stop: StopFlag) -> None:
            last = min(first + at_once, n)
            memory = np.empty((last - first, lanes), np.float32)
            rank_rows(
                indptr, X.indices, X.data, scales, np.float32(bias), first, last, weights, permitted,
                lane_factors, memory, top.labels, top.scores,
            )  # fmt: skip

        tasks = range(0, n, at_once)
        if len(tasks) == 1:
            rank_task(0, np.zeros(1, np.uint8))
        else:
            for _ in run_blocks(rank_task, tasks, threads=threads, description="ranking labels", unit="chunks"):
                pass
        return top

    def lane_factors(self, factors: npt.NDArray[np.float32], slope: float) -> LaneFactors:
        """Lay the factors of labels out as the lanes are; the last ones asked for are kept."""
        last = self._last_factors
        if last is None or last[0] is not factors or last[1].slope != np.float32(slope):
            used = self.lane_labels_ >= 0
            by_lane = np.where(used, factors[np.where(used, self.lane_labels_, 0)], np.float32(1))
            last = self._last_factors = factors, LaneFactors(np.float32(slope), by_lane, np.log(by_lane))
        return last[1]

    def matrix(self, n_labels: int) -> sp.csr_array:
        """Weights as a sparse matrix of shape (n_labels, features), bias left out."""
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
        return sp.csr_array((_wide(values), (self.lane_labels_[lanes], features)), shape=(n_labels, self.n_features))

    def of_features(self, features: npt.NDArray[np.int32], lanes: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """Weights of some features for some lanes, of shape (features, lanes)."""
        weights = self._arrays
        lanes, back = np.unique(lanes, return_inverse=True)
        found = np.zeros((len(features), len(lanes)), np.float32)
        blocks, places = lanes // LANES, lanes % LANES
        columns = {int(lane): column for column, lane in enumerate(lanes)}
        for at, feature in enumerate(features):
            deep = blocks < weights.depths[feature]
            rows = weights.starts[blocks[deep]] + weights.slots[feature]
            found[at, deep] = _wide(weights.panels[rows, places[deep]])
            entries = slice(weights.offsets[feature], weights.offsets[feature + 1])
            here = np.flatnonzero(np.isin(weights.lanes[entries], lanes))
            for entry in here:
                column = columns[int(weights.lanes[entries][entry])]
                found[at, column] = _wide(weights.values[entries][entry : entry + 1])[0]
        return found[:, back]

    def _feature_of_slot(self) -> npt.NDArray[np.int32]:
        features = np.flatnonzero(self._arrays.depths).astype(np.int32)
        feature_of_slot = np.empty(len(features), np.int32)
        feature_of_slot[self._arrays.slots[features]] = features
        return feature_of_slot


def _choose_depths(
    spool: BlockSpool, n_blocks: int, n_features: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Find for each feature how many panels it should stand in, and how many entries are left to it then.

    Goes backwards over the blocks: a depth that ends just behind a block with weights of the feature is the only kind
    that can be the cheapest, besides 0.
    """
    depths, left = np.zeros(n_features, np.int32), np.zeros(n_features, np.int64)
    behind, cheapest = np.zeros(n_features, np.int64), np.full(n_features, np.inf)
    for block in range(n_blocks - 1, -1, -1):
        features, kept = spool.read(block, 2)
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


def _wide(values: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    return from_bfloat16(values) if values.dtype == np.uint16 else values

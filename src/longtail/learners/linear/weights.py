"""The weights of a linear model with many labels: built block by block, kept compact, made for ranking."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from functools import cached_property
from typing import IO, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import BaseEstimator

from longtail.engine.lanes import LANES, from_bfloat16, to_bfloat16
from longtail.engine.panels import PanelWeights, collect_kept, count_kept, place_block, rank_rows
from longtail.engine.pool import StopFlag, run_blocks, thread_count
from longtail.engine.topk import TopK
from longtail.errors import ModelError

Precision = Literal["bfloat16", "float32"]

_DENSE_SHARE = 0.3  # a feature with more of its weights kept goes into the panels: smaller there, and faster to read
_SCORES_AT_ONCE = 1 << 21
_ROWS_A_TASK = 512


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
        prune_below: float,
        precision: Precision,
    ) -> Self:
        """Take what is worth keeping out of a block's dense weights; the bias is never pruned."""
        kept = np.empty(len(weights), np.uint8)
        total = count_kept(weights, lanes, np.float32(prune_below), kept)
        kept_lanes, values = np.empty(total, np.uint8), np.empty(total, np.float32)
        collect_kept(weights, lanes, np.float32(prune_below), kept, kept_lanes, values)
        features = np.flatnonzero(kept).astype(np.int32)
        stored = to_bfloat16(values) if precision == "bfloat16" else values
        return cls(features, kept[features], kept_lanes, stored, bias[:lanes].copy())


class BlockWeights(BaseEstimator):
    """Weights of all labels, in panels and entries (see `longtail.engine.panels`).

    Attributes
    ----------
    lane_labels_, lane_bias_ : ndarray, shape (blocks * 64,)
        Label of each lane (-1 where a lane is empty) and its bias weight.
    panel_slots_ : ndarray of int32, shape (features,)
        Row of each feature in the panels, -1 if it has none.
    panels_ : ndarray of uint16 (bfloat16) or float32, shape (blocks, panel rows, 64)
    entry_offsets_, entry_lanes_, entry_values_ : ndarray
        Weights of the other features, feature by feature.
    """

    _stored: ClassVar[tuple[str, ...]] = (
        "lane_labels_",
        "lane_bias_",
        "panel_slots_",
        "panels_",
        "entry_offsets_",
        "entry_lanes_",
        "entry_values_",
    )

    lane_labels_: npt.NDArray[np.int32]
    lane_bias_: npt.NDArray[np.float32]
    panel_slots_: npt.NDArray[np.int32]
    panels_: npt.NDArray[Any]
    entry_offsets_: npt.NDArray[np.int64]
    entry_lanes_: npt.NDArray[Any]
    entry_values_: npt.NDArray[Any]

    @classmethod
    def assemble(
        cls,
        blocks: Iterable[SolvedBlock],
        block_labels: list[npt.NDArray[np.int32]],
        n_features: int,
        precision: Precision,
    ) -> Self:
        """Gather solved blocks as they come; they wait in a temporary file, so that memory holds the result alone."""
        made = cls()
        lanes = len(block_labels) * LANES
        made.lane_labels_ = np.full(lanes, -1, np.int32)
        made.lane_bias_ = np.zeros(lanes, np.float32)
        dtype = np.dtype(np.uint16 if precision == "bfloat16" else np.float32)
        total = np.zeros(n_features, np.int64)
        sizes = []
        with tempfile.TemporaryFile() as spool:
            for index, (block, labels) in enumerate(zip(blocks, block_labels, strict=True)):
                made.lane_labels_[index * LANES : index * LANES + len(labels)] = labels
                made.lane_bias_[index * LANES : index * LANES + len(labels)] = block.bias
                total[block.features] += block.kept
                sizes.append((len(block.features), len(block.lanes)))
                for part in block[:4]:
                    spool.write(part.tobytes())
            n_labels = sum(len(labels) for labels in block_labels)
            made._allocate(total, total > _DENSE_SHARE * n_labels, len(block_labels), dtype)
            spool.seek(0)
            next_entry = made.entry_offsets_[:-1].copy()
            for index, (n_kept_features, n_kept) in enumerate(sizes):
                place_block(
                    index,
                    _read(spool, np.dtype(np.int32), n_kept_features),
                    _read(spool, np.dtype(np.uint8), n_kept_features),
                    _read(spool, np.dtype(np.uint8), n_kept),
                    _read(spool, dtype, n_kept),
                    made._packed(),
                    next_entry,
                )
        return made

    def _allocate(
        self, total: npt.NDArray[np.int64], dense: npt.NDArray[np.bool_], n_blocks: int, dtype: np.dtype[Any]
    ) -> None:
        fullest_first = np.flatnonzero(dense)[np.argsort(-total[dense], kind="stable")]
        self.panel_slots_ = np.full(len(total), -1, np.int32)
        self.panel_slots_[fullest_first] = np.arange(len(fullest_first), dtype=np.int32)
        self.panels_ = np.zeros((n_blocks, int(dense.sum()), LANES), dtype)
        self.entry_offsets_ = np.concatenate([[0], np.cumsum(np.where(dense, 0, total))]).astype(np.int64)
        lane_dtype = np.uint16 if n_blocks * LANES <= 1 << 16 else np.uint32
        self.entry_lanes_ = np.empty(self.entry_offsets_[-1], lane_dtype)
        self.entry_values_ = np.empty(self.entry_offsets_[-1], dtype)

    @cached_property
    def _arrays(self) -> PanelWeights:
        """Arrays for the kernels, checked once: a kernel trusts every index in them."""
        blocks, panel_rows, width = self.panels_.shape
        lanes, entries = len(self.lane_labels_), len(self.entry_lanes_)
        offsets = self.entry_offsets_
        sound = (
            width == LANES
            and lanes == len(self.lane_bias_) == blocks * LANES
            and len(offsets) == len(self.panel_slots_) + 1
            and offsets[0] == 0
            and offsets[-1] == entries == len(self.entry_values_)
            and bool((offsets[1:] >= offsets[:-1]).all())
            and self.panel_slots_.min(initial=-1) >= -1
            and self.panel_slots_.max(initial=-1) < panel_rows
            and (entries == 0 or int(self.entry_lanes_.max()) < lanes)
            and self.panels_.dtype == self.entry_values_.dtype
        )
        if not sound:
            raise ModelError("The weights of the model don't fit together: its files were changed; train it again.")
        return self._packed()

    def _packed(self) -> PanelWeights:
        return PanelWeights(
            self.panel_slots_,
            self.panels_,
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
    ) -> TopK:
        """Rank the k best labels of each row; memory beyond the result holds the scores of a few rows at a time."""
        n = X.shape[0]
        top = TopK(np.full((n, k), -1, np.int32), np.full((n, k), -np.inf, np.float32))
        indptr = X.indptr.astype(np.int64, copy=False)
        lanes = len(self.lane_labels_)
        if lanes == 0:
            return top
        task = min(_ROWS_A_TASK, max(64, -(-n // thread_count(threads))))
        rows_at_once = min(max(1, _SCORES_AT_ONCE // lanes), task, max(n, 1))
        permitted = np.empty(0, np.bool_) if allowed is None else allowed

        def rank_task(start: int, stop: StopFlag) -> None:
            end = min(start + task, n)
            memory = np.empty((rows_at_once, lanes), np.float32)
            for first in range(start, end, rows_at_once):
                last = min(first + rows_at_once, end)
                rank_rows(
                    indptr, X.indices, X.data, scales, np.float32(bias), first, last, self._arrays, permitted, memory,
                    top.labels, top.scores,
                )  # fmt: skip
                if stop[0]:
                    return

        tasks = range(0, n, task)
        if len(tasks) == 1:
            rank_task(0, np.zeros(1, np.uint8))
        else:
            for _ in run_blocks(rank_task, tasks, threads=threads, description="ranking labels", unit="chunks"):
                pass
        return top

    def matrix(self, n_labels: int) -> sp.csr_array:
        """Weights as a sparse matrix of shape (n_labels, features), bias left out."""
        dense = np.flatnonzero(self.panel_slots_ >= 0)
        feature_of_slot = np.empty(len(dense), np.int64)
        feature_of_slot[self.panel_slots_[dense]] = dense
        block, slot, lane = np.nonzero(self.panels_)
        features = np.concatenate(
            [feature_of_slot[slot], np.repeat(np.arange(self.n_features), np.diff(self.entry_offsets_))]
        ).astype(np.int32)
        lanes = np.concatenate([block * LANES + lane, self.entry_lanes_.astype(np.int64)])
        values = np.concatenate([self.panels_[block, slot, lane], self.entry_values_])
        if values.dtype == np.uint16:
            values = from_bfloat16(values)
        return sp.csr_array((values, (self.lane_labels_[lanes], features)), shape=(n_labels, self.n_features))


def _read(spool: IO[bytes], dtype: np.dtype[Any], count: int) -> npt.NDArray[Any]:
    return np.frombuffer(spool.read(count * dtype.itemsize), dtype)

"""The weights of all nodes as they are kept and searched."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, Self, get_args

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator

from longtail.engine.chunks import DENSE_FROM, Chunks, bucket_bits, encode_block, lane_sizes, sort_into_buckets
from longtail.engine.lanes import LANES, to_bfloat16
from longtail.engine.mapped import allocator
from longtail.engine.panels import count_kept
from longtail.engine.spool import BlockSpool
from longtail.errors import ModelError
from longtail.learners.label_trees.forest import LabelForest
from longtail.learners.label_trees.soundness import STORED_AS, is_sound

NodePrecision = Literal["float32", "bfloat16", "float16", "int8"]
PRECISIONS = get_args(NodePrecision)


class EncodedBlock(NamedTuple):
    """One block of members of a node, in the form of `longtail.engine.chunks.Chunks`, each array flat."""

    buckets: npt.NDArray[np.int32]
    keys: npt.NDArray[Any]
    kept: npt.NDArray[np.uint8]
    lanes: npt.NDArray[np.uint8]
    values: npt.NDArray[Any]
    dense: npt.NDArray[Any]
    scales: npt.NDArray[np.float32]
    bias: npt.NDArray[np.float32]
    members: npt.NDArray[np.int32]

    @classmethod
    def encoded(
        cls,
        weights: npt.NDArray[np.float32],
        bias: npt.NDArray[np.float32],
        features: npt.NDArray[np.int32],
        members: npt.NDArray[np.int32],
        prune_below: float,
        precision: NodePrecision,
        n_features: int,
    ) -> Self:
        """Take what reaches `prune_below` out of a block's dense weights; row i belongs to feature ``features[i]``."""
        lanes = len(members)
        kept = np.empty(len(weights), np.uint8)
        thresholds = np.full(LANES, prune_below, np.float32)
        count_kept(weights, lanes, thresholds, kept)
        rows = np.flatnonzero(kept).astype(np.int32)
        kept, pairs = kept[rows], features[rows]
        is_dense = kept > DENSE_FROM
        bits = bucket_bits(len(rows))
        buckets, order = np.empty(((1 << bits) + 1, 3), np.int32), np.empty(len(rows), np.int64)
        sort_into_buckets(pairs, bits, order, buckets)
        scales: npt.NDArray[np.float32] = np.ones(LANES, np.float32)
        if precision == "int8" and len(rows):
            scales = lane_sizes(weights) / np.float32(127)
        keys = np.empty(len(rows), key_dtype(n_features))
        counts = np.empty(len(rows), np.uint8)
        entries = int(kept[~is_dense].sum(dtype=np.int64))
        out_lanes, values = np.empty(entries, np.uint8), np.empty(entries, np.float32)
        dense = np.zeros((int(is_dense.sum()), LANES), np.float32)
        encode_block(
            rows, pairs, kept, weights, lanes, np.float32(prune_below), np.float32(1) / scales, order, buckets, keys,
            counts, out_lanes, values, dense,
        )  # fmt: skip
        full = np.full(LANES, -1, np.int32)
        full[:lanes] = members
        quiet = np.zeros(LANES, np.float32)
        quiet[:lanes] = bias[:lanes]
        return cls(
            buckets.ravel(), keys, counts, out_lanes, narrowed(values, precision), narrowed(dense, precision).ravel(),
            scales, quiet, full,
        )  # fmt: skip


class ChunkWeights(BaseEstimator):
    """Weights of the members of all nodes (see `longtail.engine.chunks`).

    Attributes
    ----------
    n_features_ : int
        Features that a row may have.
    block_starts_ : ndarray of int64, shape (nodes + 1,)
        Blocks ``block_starts_[v]`` to ``block_starts_[v + 1] - 1`` belong to node v.
    pair_starts_, entry_starts_, dense_starts_, bucket_starts_ : ndarray of int64, shape (blocks + 1,)
        Where each block begins in the arrays below.
    buckets_, keys_, kept_, lanes_, values_, dense_ : ndarray
        Features of each block and their weights.
    scales_, bias_, members_ : ndarray, shape (blocks * 64,)
        Unit of the weights, bias weight and member (a label, -2 - node, or -1) of each lane.
    """

    _stored: ClassVar[tuple[str, ...]] = (
        "n_features_",
        "block_starts_",
        "bucket_starts_",
        "pair_starts_",
        "entry_starts_",
        "dense_starts_",
        "buckets_",
        "keys_",
        "kept_",
        "lanes_",
        "values_",
        "dense_",
        "scales_",
        "bias_",
        "members_",
    )

    _trusted: bool = False
    n_features_: int
    block_starts_: npt.NDArray[np.int64]
    bucket_starts_: npt.NDArray[np.int64]
    pair_starts_: npt.NDArray[np.int64]
    entry_starts_: npt.NDArray[np.int64]
    dense_starts_: npt.NDArray[np.int64]
    buckets_: npt.NDArray[np.int32]
    keys_: npt.NDArray[Any]
    kept_: npt.NDArray[np.uint8]
    lanes_: npt.NDArray[np.uint8]
    values_: npt.NDArray[Any]
    dense_: npt.NDArray[Any]
    scales_: npt.NDArray[np.float32]
    bias_: npt.NDArray[np.float32]
    members_: npt.NDArray[np.int32]

    @classmethod
    def assemble(
        cls,
        spool: BlockSpool,
        numbers: npt.NDArray[np.int64],
        block_starts: npt.NDArray[np.int64],
        precision: NodePrecision,
        n_features: int,
        memory_limit: int | str | None = None,
    ) -> Self:
        """Gather blocks ``numbers`` of the spool; memory holds the result alone, or files where a limit has no room."""
        lengths = np.array([spool.lengths(int(number)) for number in numbers], np.int64).reshape(-1, 9)
        starts = np.zeros((len(numbers) + 1, 9), np.int64)
        np.cumsum(lengths, axis=0, out=starts[1:])
        stored = STORED_AS[precision]
        kinds = (np.int32, key_dtype(n_features), np.uint8, np.uint8, stored, stored, np.float32, np.float32, np.int32)
        total = sum(int(size) * np.dtype(kind).itemsize for size, kind in zip(starts[-1], kinds, strict=True))
        allocate = allocator(memory_limit, total)
        arrays = [allocate(int(size), kind) for size, kind in zip(starts[-1], kinds, strict=True)]
        for at, number in enumerate(numbers):
            for whole, part, start in zip(arrays, spool.read(int(number)), starts[at], strict=True):
                whole[start : start + len(part)] = part
        made = cls()
        made._trusted = True  # whole, since it was made here
        made.n_features_ = n_features
        made.block_starts_ = block_starts
        made.bucket_starts_, made.pair_starts_ = starts[:, 0] // 3, starts[:, 1].copy()
        made.entry_starts_, made.dense_starts_ = starts[:, 3].copy(), starts[:, 5] // LANES
        made.buckets_, made.keys_, made.kept_, made.lanes_, made.values_ = arrays[0].reshape(-1, 3), *arrays[1:5]
        made.dense_ = arrays[5].reshape(-1, LANES)
        made.scales_, made.bias_, made.members_ = arrays[6:]
        return made

    @property
    def n_blocks(self) -> int:
        """Blocks of all nodes."""
        return len(self.pair_starts_) - 1

    @property
    def nodes_of_blocks(self) -> npt.NDArray[np.int64]:
        """Node of each block."""
        return np.repeat(np.arange(len(self.block_starts_) - 1), np.diff(self.block_starts_))

    @cached_property
    def most_pairs(self) -> int:
        """Most features that any block has weights for."""
        return int(np.diff(self.pair_starts_).max(initial=0))

    @property
    def precision(self) -> NodePrecision:
        """How weights are kept."""
        return next(name for name in PRECISIONS if STORED_AS[name] == self.values_.dtype.type)

    def blocks(self) -> Iterator[EncodedBlock]:
        """Take the weights apart again."""
        for block in range(self.n_blocks):
            buckets, pairs, entries, dense = (
                slice(starts[block], starts[block + 1])
                for starts in (self.bucket_starts_, self.pair_starts_, self.entry_starts_, self.dense_starts_)
            )
            lanes = slice(block * LANES, (block + 1) * LANES)
            yield EncodedBlock(
                self.buckets_[buckets].ravel(), self.keys_[pairs], self.kept_[pairs], self.lanes_[entries],
                self.values_[entries], self.dense_[dense].ravel(), self.scales_[lanes], self.bias_[lanes],
                self.members_[lanes],
            )  # fmt: skip

    @cached_property
    def chunks(self) -> Chunks:
        """Arrays for the kernels, checked once: a kernel trusts every index in them."""
        if not self._trusted and not (all(hasattr(self, name) for name in self._stored) and is_sound(self)):
            raise ModelError("The weights of the model don't fit together: its files were changed; train it again.")
        bits = (np.frexp(np.diff(self.bucket_starts_) - 1)[1] - 1).astype(np.uint8)
        return Chunks(
            bits, self.bucket_starts_, self.pair_starts_, self.entry_starts_, self.dense_starts_, self.buckets_,
            self.keys_, self.kept_, self.lanes_, self.values_, self.dense_, self.scales_, self.bias_, self.members_,
        )  # fmt: skip

    def check(self, forest: LabelForest, n_labels: int) -> None:
        """Refuse weights of other trees, or of labels that a model with `n_labels` can't have; looks once."""
        checked = self.__dict__.get("_checked")
        if checked is not None and checked[0] is forest and checked[1] == n_labels:
            return
        if not forest.is_sound(n_labels) or not self._fits(forest, n_labels):
            raise ModelError("The trees of the model and its weights don't fit together: train it again.")
        self._checked = (forest, n_labels)

    def _fits(self, forest: LabelForest, n_labels: int) -> bool:
        members = self.chunks.members
        if len(self.block_starts_) != forest.n_nodes + 1:
            return False
        node = np.repeat(np.repeat(np.arange(forest.n_nodes), np.diff(self.block_starts_)), LANES)
        below, child = members < -1, -2 - members.astype(np.int64)
        return bool(
            members.max(initial=-1) < n_labels
            and len(np.unique(child[below])) == np.count_nonzero(below)
            and (child[below] >= forest.child_starts_[node[below]]).all()
            and (child[below] < forest.child_starts_[node[below] + 1]).all()
        )


def key_dtype(n_features: int) -> Any:
    """Smallest type that numbers so many features."""
    return np.uint16 if n_features <= 1 << 16 else np.uint32


def narrowed(values: npt.NDArray[np.float32], precision: NodePrecision) -> npt.NDArray[Any]:
    """Weights as they are kept; whole numbers for int8, whose scale is taken out before."""
    if precision == "bfloat16":
        return to_bfloat16(values)
    if precision == "float16":
        return np.clip(values, -65504, 65504).astype(np.float16).view(np.int16)
    if precision == "int8":
        return np.rint(values).astype(np.int8)
    return values

"""Storage of the weights of all tree nodes, and the check that they are consistent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, Self, get_args

import numpy as np
from sklearn.base import BaseEstimator

from longtail.errors import ModelError
from longtail.kernels.arrays import is_array
from longtail.kernels.lanes import LANES, to_bfloat16, widened
from longtail.kernels.types import Array, Float32, Float64, Int32, Int64, UInt8
from longtail.learners.label_trees.chunks import (
    DENSE_FROM,
    Chunks,
    bucket_bits,
    encode_block,
    lane_sizes,
    sort_into_buckets,
)
from longtail.learners.label_trees.forest import LabelForest
from longtail.learners.linear.panels import count_kept
from longtail.learners.norms import lane_squares
from longtail.runtime.block_file import BlockFile
from longtail.runtime.mmap import allocator

NodePrecision = Literal["float32", "bfloat16", "float16", "int8"]
PRECISIONS = get_args(NodePrecision)
STORED_AS: dict[str, Any] = {"float32": np.float32, "bfloat16": np.uint16, "float16": np.int16, "int8": np.int8}
"""Types of the arrays of weights for each precision."""


class EncodedBlock(NamedTuple):
    """One block of members of a node: the arrays of `longtail.learners.label_trees.chunks.Chunks`, all flat."""

    buckets: Int32
    keys: Array
    kept: UInt8
    lanes: UInt8
    values: Array
    dense: Array
    scales: Float32
    bias: Float32
    members: Int32

    @classmethod
    def encoded(
        cls,
        weights: Float32,
        bias: Float32,
        features: Int32,
        members: Int32,
        prune_below: float,
        precision: NodePrecision,
        n_features: int,
    ) -> Self:
        """Encode the weights that reach `prune_below`; row i of `weights` belongs to feature ``features[i]``."""
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
        scales: Float32 = np.ones(LANES, np.float32)
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
    """Weights of the members of all nodes (see `longtail.learners.label_trees.chunks`).

    Attributes
    ----------
    n_features_ : int
    block_starts_ : ndarray of int64, shape (nodes + 1,)
        Blocks ``block_starts_[v]`` to ``block_starts_[v + 1] - 1`` belong to node v.
    pair_starts_, entry_starts_, dense_starts_, bucket_starts_ : ndarray of int64, shape (blocks + 1,)
        Where each block begins in the arrays below.
    buckets_, keys_, kept_, lanes_, values_, dense_ : ndarray
        Features of each block and their weights.
    scales_, bias_, members_ : ndarray, shape (blocks * 64,)
        Scale of the weights, bias weight and member (a label, -2 - node, or -1) of each lane.
    """

    _stored: ClassVar[tuple[str, ...]] = (
        "n_features_", "block_starts_", *(f"{name}_" for name in Chunks._fields if name != "bits"),
    )  # fmt: skip

    _trusted: bool = False
    n_features_: int
    block_starts_: Int64
    bucket_starts_: Int64
    pair_starts_: Int64
    entry_starts_: Int64
    dense_starts_: Int64
    buckets_: Int32
    keys_: Array
    kept_: UInt8
    lanes_: UInt8
    values_: Array
    dense_: Array
    scales_: Float32
    bias_: Float32
    members_: Int32

    @classmethod
    def assemble(
        cls, block_file: BlockFile, numbers: Int64, block_starts: Int64, precision: NodePrecision, n_features: int
    ) -> Self:
        """Assemble blocks ``numbers`` of the block_file, in memory or, beyond the memory limit, in files."""
        lengths = np.array([block_file.lengths(int(number)) for number in numbers], np.int64).reshape(-1, 9)
        starts = np.zeros((len(numbers) + 1, 9), np.int64)
        np.cumsum(lengths, axis=0, out=starts[1:])
        stored = STORED_AS[precision]
        kinds = (np.int32, key_dtype(n_features), np.uint8, np.uint8, stored, stored, np.float32, np.float32, np.int32)
        total = sum(int(size) * np.dtype(kind).itemsize for size, kind in zip(starts[-1], kinds, strict=True))
        allocate = allocator(total)
        arrays = [allocate(int(size), kind) for size, kind in zip(starts[-1], kinds, strict=True)]
        for at, number in enumerate(numbers):
            for whole, part, start in zip(arrays, block_file.read(int(number)), starts[at], strict=True):
                whole[start : start + len(part)] = part
        made = cls()
        made._trusted = True
        made.n_features_ = n_features
        made.block_starts_ = block_starts
        made.bucket_starts_, made.pair_starts_ = starts[:, 0] // 3, starts[:, 1].copy()
        made.entry_starts_, made.dense_starts_ = starts[:, 3].copy(), starts[:, 5] // LANES
        made.buckets_, made.keys_, made.kept_, made.lanes_, made.values_ = arrays[0].reshape(-1, 3), *arrays[1:5]
        made.dense_ = arrays[5].reshape(-1, LANES)
        made.scales_, made.bias_, made.members_ = arrays[6:]
        return made

    @classmethod
    def of_blocks(
        cls, blocks: Iterable[EncodedBlock], block_starts: Int64, precision: NodePrecision, n_features: int
    ) -> Self:
        """Assemble blocks that are given in the order of their nodes."""
        with BlockFile() as block_file:
            for block in blocks:
                block_file.append(block)
            return cls.assemble(block_file, np.arange(len(block_file)), block_starts, precision, n_features)

    @property
    def n_blocks(self) -> int:
        """Number of blocks of all nodes."""
        return len(self.pair_starts_) - 1

    @property
    def nodes_of_blocks(self) -> Int64:
        """Node of each block."""
        return np.repeat(np.arange(len(self.block_starts_) - 1), np.diff(self.block_starts_))

    @cached_property
    def most_pairs(self) -> int:
        """Largest number of features that a block has weights for."""
        return int(np.diff(self.pair_starts_).max(initial=0))

    @property
    def precision(self) -> NodePrecision:
        """Storage type of the weights."""
        return next(name for name in PRECISIONS if STORED_AS[name] == self.values_.dtype.type)

    def blocks(self) -> Iterator[EncodedBlock]:
        """Split the weights into blocks, the inverse of `of_blocks`."""
        return map(self.block, range(self.n_blocks))

    def block(self, number: int) -> EncodedBlock:
        """Return one block."""
        buckets, pairs, entries, dense = (
            slice(starts[number], starts[number + 1])
            for starts in (self.bucket_starts_, self.pair_starts_, self.entry_starts_, self.dense_starts_)
        )
        lanes = slice(number * LANES, (number + 1) * LANES)
        return EncodedBlock(
            self.buckets_[buckets].ravel(), self.keys_[pairs], self.kept_[pairs], self.lanes_[entries],
            self.values_[entries], self.dense_[dense].ravel(), self.scales_[lanes], self.bias_[lanes],
            self.members_[lanes],
        )  # fmt: skip

    @cached_property
    def chunks(self) -> Chunks:
        """Arrays for the kernels, validated once: kernels do not check indices."""
        if not self._trusted and not (all(hasattr(self, name) for name in self._stored) and _is_valid(self)):
            raise ModelError("The weights of the model don't fit together: its files were changed; train it again.")
        bits = (np.frexp(np.diff(self.bucket_starts_) - 1)[1] - 1).astype(np.uint8)
        return Chunks(bits, *(getattr(self, name) for name in self._stored[2:]))

    def lane_norms(self) -> Float64:
        """Norm of the weights of every member of every node, in the order of `members_`."""
        chunks, squares = self.chunks, np.zeros(len(self.members_))
        for block in range(self.n_blocks):
            entries = slice(chunks.entry_starts[block], chunks.entry_starts[block + 1])
            values = np.square(widened(chunks.values[entries]), dtype=np.float64)
            lanes = squares[block * LANES : (block + 1) * LANES]
            lanes += np.bincount(chunks.lanes[entries], values, LANES)
            lanes += lane_squares(chunks.dense[chunks.dense_starts[block] : chunks.dense_starts[block + 1]])
        return np.sqrt(squares) * chunks.scales

    def norms(self, n_labels: int) -> Float64:
        """Norm of each label's weights in its leaf, without the bias: the mean over the leaves that have the label."""
        is_label = self.members_ >= 0
        labels = self.members_[is_label]
        counts = np.bincount(labels, minlength=n_labels)
        sums = np.bincount(labels, self.lane_norms()[is_label], n_labels)
        return np.asarray(np.divide(sums, counts, out=np.full(n_labels, np.nan), where=counts > 0))

    def check(self, forest: LabelForest, n_labels: int) -> None:
        """Refuse weights that do not belong to these trees or have labels beyond `n_labels`; the result is cached."""
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
    """Smallest integer type for that many features."""
    return np.uint16 if n_features <= 1 << 16 else np.uint32


def narrowed(values: Float32, precision: NodePrecision) -> Array:
    """Weights in their storage type; for int8 they are given in units of the scale of their lane."""
    if precision == "bfloat16":
        return to_bfloat16(values)
    if precision == "float16":
        return np.clip(values, -65504, 65504).astype(np.float16).view(np.int16)
    if precision == "int8":
        return np.rint(values).astype(np.int8)
    return values


def _is_valid(weights: ChunkWeights) -> bool:
    """Return whether types, shapes, offsets, buckets and members are consistent."""
    return _has_right_types(weights) and _has_right_starts(weights) and _has_right_buckets(weights)


def _has_right_types(weights: ChunkWeights) -> bool:
    starts = ("block_starts_", "bucket_starts_", "pair_starts_", "entry_starts_", "dense_starts_")
    flat: dict[str, tuple[Any, ...]] = {
        **dict.fromkeys(starts, (np.int64,)),
        **dict.fromkeys(("kept_", "lanes_"), (np.uint8,)),
        **dict.fromkeys(("scales_", "bias_"), (np.float32,)),
        "keys_": (np.uint16, np.uint32),
        "values_": tuple(STORED_AS.values()),
        "members_": (np.int32,),
    }
    if not isinstance(weights.n_features_, int) or not 0 <= weights.n_features_ < 2**31:
        return False
    if not all(is_array(getattr(weights, name), 1, *kinds) for name, kinds in flat.items()):
        return False
    return (
        is_array(weights.buckets_, 2, np.int32)
        and is_array(weights.dense_, 2, weights.values_.dtype)
        and weights.buckets_.shape[1] == 3
        and weights.dense_.shape[1] == LANES
    )


def _has_right_starts(weights: ChunkWeights) -> bool:
    blocks = len(weights.pair_starts_) - 1
    for starts, count, size in (
        (weights.block_starts_, len(weights.block_starts_) - 1, blocks),
        (weights.bucket_starts_, blocks, len(weights.buckets_)),
        (weights.pair_starts_, blocks, len(weights.keys_)),
        (weights.entry_starts_, blocks, len(weights.lanes_)),
        (weights.dense_starts_, blocks, len(weights.dense_)),
    ):
        if count < 0 or len(starts) != count + 1 or starts[0] != 0 or starts[-1] != size or (np.diff(starts) < 0).any():
            return False
    lines = np.diff(weights.bucket_starts_) - 1
    return bool(
        (lines >= 1).all()
        and not (lines & (lines - 1)).any()
        and len(weights.kept_) == len(weights.keys_)
        and len(weights.values_) == len(weights.lanes_)
        and len(weights.scales_) == len(weights.bias_) == len(weights.members_) == blocks * LANES
        and weights.lanes_.max(initial=0) < LANES
        and weights.kept_.max(initial=0) <= LANES
        and int(weights.keys_.max(initial=0)) < max(weights.n_features_, 1)
        and weights.members_.min(initial=-1) >= -len(weights.block_starts_)
    )


def _has_right_buckets(weights: ChunkWeights) -> bool:
    """Return whether each line of `buckets_` counts the pairs, entries and dense rows of its block before it."""
    buckets, pair_starts, bucket_starts = weights.buckets_, weights.pair_starts_, weights.bucket_starts_
    first, last = bucket_starts[:-1], bucket_starts[1:] - 1
    steps = np.diff(buckets[:, 0])
    steps[last[:-1]] = 0
    if buckets[first, 0].any() or (steps < 0).any() or (buckets[last, 0] != np.diff(pair_starts)).any():
        return False
    block = np.repeat(np.arange(len(first)), np.diff(bucket_starts))
    is_dense = weights.kept_ > DENSE_FROM
    for column, sizes, starts in (
        (1, np.where(is_dense, 0, weights.kept_), weights.entry_starts_),
        (2, is_dense, weights.dense_starts_),
    ):
        before: Int64 = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        if (before[pair_starts] != starts).any():
            return False
        if (buckets[:, column] != before[pair_starts[block] + buckets[:, 0]] - starts[block]).any():
            return False
    return True

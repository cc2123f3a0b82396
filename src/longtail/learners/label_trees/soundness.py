"""Whether the arrays of `ChunkWeights` fit together, so that a kernel may trust every index in them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from longtail.engine.arrays import is_array
from longtail.engine.chunks import DENSE_FROM
from longtail.engine.lanes import LANES

STORED_AS: dict[str, Any] = {"float32": np.float32, "bfloat16": np.uint16, "float16": np.int16, "int8": np.int8}
"""Types of the arrays for each precision."""


def is_sound(weights: Any) -> bool:
    """Look at types, shapes, starts, buckets and members of a `ChunkWeights`."""
    return _has_right_types(weights) and _has_right_starts(weights) and _has_right_buckets(weights)


def _has_right_types(weights: Any) -> bool:
    flat: dict[str, tuple[Any, ...]] = {
        **dict.fromkeys(
            ("block_starts_", "bucket_starts_", "pair_starts_", "entry_starts_", "dense_starts_"), (np.int64,)
        ),
        "keys_": (np.uint16, np.uint32),
        "kept_": (np.uint8,),
        "lanes_": (np.uint8,),
        "values_": tuple(STORED_AS.values()),
        "scales_": (np.float32,),
        "bias_": (np.float32,),
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


def _has_right_starts(weights: Any) -> bool:
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


def _has_right_buckets(weights: Any) -> bool:
    """Whether each line says how many pairs, entries and dense rows of its block come before it."""
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
        before: npt.NDArray[np.int64] = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        if (before[pair_starts] != starts).any():
            return False
        if (buckets[:, column] != before[pair_starts[block] + buckets[:, 0]] - starts[block]).any():
            return False
    return True

"""Weights of tree nodes: small feature-major chunks, found by hashing, one for each block of 64 members of a node.

A *pair* is a feature that has any weight in a block. Pairs are grouped into buckets by a hash of the feature, some four
to a bucket, so that looking a feature up reads one line of `buckets` and one of `keys`. A pair with more than
`DENSE_FROM` weights stands in a dense row of 64 lanes, which `lane_dot` reads at full width; the others are entries
(lane, weight). Weights are float32, bfloat16 (uint16), float16 (int16) or whole numbers (int8) in units of the lane's
own scale.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from longtail.engine.jit import kernel
from longtail.engine.lanes import LANES, fetch, lane_dot, widen

Float32 = npt.NDArray[np.float32]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

DENSE_FROM = 20
"""Pairs with more weights than this stand in dense rows: at 32 both take the same space, at 8 the same time."""
PAIRS_A_BUCKET = 4
_AHEAD = 4  # how many features ahead of its use a bucket is fetched from memory


class Chunks(NamedTuple):
    """Weights of all blocks, one after the other.

    Block b has buckets from ``bucket_starts[b]`` (2**bits[b] of them and one more that ends the last), pairs from
    ``pair_starts[b]``, entries from ``entry_starts[b]`` and dense rows from ``dense_starts[b]``. A line of `buckets`
    holds where the bucket's pairs, entries and dense rows begin, counted from the block's own. `keys` are the features
    of the pairs and `kept` their numbers of weights. `scales`, `bias` and `members` have 64 lanes a block: the member
    of a lane is a label, or -2 - v for node v, or -1 for none.
    """

    bits: npt.NDArray[np.uint8]
    bucket_starts: Int64
    pair_starts: Int64
    entry_starts: Int64
    dense_starts: Int64
    buckets: Int32
    keys: npt.NDArray[Any]
    kept: npt.NDArray[np.uint8]
    lanes: npt.NDArray[np.uint8]
    values: npt.NDArray[Any]
    dense: npt.NDArray[Any]
    scales: Float32
    bias: Float32
    members: Int32


@kernel
def bucket_of(feature: Any, bits: Any) -> Any:
    """Bucket of a feature among 2**bits: the upper bits of a multiplicative hash."""
    mixed = (np.uint64(feature) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)
    return np.int64(mixed >> np.uint64(np.uint64(32) - np.uint64(bits)))


def bucket_bits(pairs: int) -> int:
    """Bits for about `PAIRS_A_BUCKET` pairs in a bucket."""
    return max(0, (max(pairs, 1) // PAIRS_A_BUCKET).bit_length() - 1)


@kernel
def sort_into_buckets(features: Int32, bits: int, order: Int64, buckets: Int32) -> None:
    """Order pairs by bucket, as they come inside, and write where buckets begin (column 0 of `buckets`)."""
    n = features.shape[0]
    buckets[:, 0] = 0
    for pair in range(n):
        buckets[bucket_of(features[pair], bits) + 1, 0] += 1
    for bucket in range(1, buckets.shape[0]):
        buckets[bucket, 0] += buckets[bucket - 1, 0]
    place = buckets[:-1, 0].copy()
    for pair in range(n):
        bucket = bucket_of(features[pair], bits)
        order[place[bucket]] = pair
        place[bucket] += 1


@kernel
def encode_block(
    rows: Int32,
    features: Int32,
    kept: npt.NDArray[np.uint8],
    weights: Float32,
    lanes: int,
    prune_below: Any,
    inverse_scales: Float32,
    order: Int64,
    buckets: Int32,
    keys: npt.NDArray[Any],
    counts: npt.NDArray[np.uint8],
    out_lanes: npt.NDArray[np.uint8],
    out_values: Float32,
    dense: Float32,
) -> None:
    """Write the pairs of one block in the order of their buckets.

    Pair p is row ``rows[p]`` of the block's dense weights and has `kept[p]` weights that reach `prune_below`. Weights
    are multiplied by their lane's inverse scale.
    """
    entry = 0
    row_dense = 0
    place = 0
    for bucket in range(buckets.shape[0]):
        buckets[bucket, 1] = entry
        buckets[bucket, 2] = row_dense
        if bucket == buckets.shape[0] - 1:
            break
        for place in range(buckets[bucket, 0], buckets[bucket + 1, 0]):
            pair = order[place]
            row = rows[pair]
            keys[place] = features[pair]
            counts[place] = kept[pair]
            is_dense = kept[pair] > DENSE_FROM
            for lane in range(lanes):
                weight = weights[row, lane]
                size = abs(weight)
                if size >= prune_below and size > 0:
                    if is_dense:
                        dense[row_dense, lane] = weight * inverse_scales[lane]
                    else:
                        out_lanes[entry] = lane
                        out_values[entry] = weight * inverse_scales[lane]
                        entry += 1
            if is_dense:
                row_dense += 1


@kernel
def find_pair(chunks: Chunks, block: int, feature: Any) -> Any:
    """Look a feature up in a block.

    Returns
    -------
    (count, place)
        How many weights it has, and where they begin among the entries, or in the dense rows if they are more than
        `DENSE_FROM`; (0, 0) if it has none.
    """
    line = chunks.bucket_starts[block] + bucket_of(feature, chunks.bits[block])
    pair = chunks.pair_starts[block] + chunks.buckets[line, 0]
    end = chunks.pair_starts[block] + chunks.buckets[line + 1, 0]
    entry = chunks.entry_starts[block] + chunks.buckets[line, 1]
    row = chunks.dense_starts[block] + chunks.buckets[line, 2]
    while pair < end:
        count = np.int64(chunks.kept[pair])
        if np.int64(chunks.keys[pair]) == feature:
            return count, (row if count > DENSE_FROM else entry)
        if count > DENSE_FROM:
            row += 1
        else:
            entry += count
        pair += 1
    return np.int64(0), np.int64(0)


@kernel
def score_block(
    chunks: Chunks,
    block: int,
    indices: Int32,
    values: Float32,
    start: int,
    end: int,
    scale: Any,
    bias: Any,
    dense_places: Int32,
    dense_values: Float32,
    sums: Float32,
) -> None:
    """Set `sums`, of 64 lanes, to the scores of one row for the members of a block.

    The row is ``indices[start:end]`` and ``values[start:end]`` times `scale`; the bias feature has the value `bias`.
    `dense_places` and `dense_values` are working memory for as many features as the row has.
    """
    sums[:] = 0
    found = 0
    first = chunks.dense_starts[block]
    bucket_start = chunks.bucket_starts[block]
    bits = chunks.bits[block]
    for at in range(start, end):
        if at + _AHEAD < end:
            fetch(chunks.buckets, 3 * (bucket_start + bucket_of(indices[at + _AHEAD], bits)))
        count, place = find_pair(chunks, block, np.int64(indices[at]))
        if count == 0:
            continue
        if count > DENSE_FROM:
            dense_places[found] = place - first
            dense_values[found] = values[at]
            found += 1
        else:
            for entry in range(place, place + count):
                sums[chunks.lanes[entry]] += values[at] * widen(chunks.values[entry])
    lane_dot(dense_places, dense_values, 0, found, chunks.dense, first, sums, 0)
    for lane in range(LANES):
        at = block * LANES + lane
        sums[lane] = sums[lane] * (np.float32(scale) * chunks.scales[at]) + np.float32(bias) * chunks.bias[at]


@kernel
def find_weight(chunks: Chunks, block: int, lane: int, features: Int32, out: Float32) -> None:
    """Set `out` to the weights of some features in one lane of a block."""
    for at in range(features.shape[0]):
        out[at] = 0
        count, place = find_pair(chunks, block, np.int64(features[at]))
        if count > DENSE_FROM:
            out[at] = widen(chunks.dense[place, lane])
        else:
            for entry in range(place, place + count):
                if chunks.lanes[entry] == lane:
                    out[at] = widen(chunks.values[entry])
        out[at] *= chunks.scales[block * LANES + lane]

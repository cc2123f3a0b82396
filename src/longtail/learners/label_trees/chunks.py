"""Kernels for the weights of tree nodes: small feature-major hash tables, one per block of 64 members of a node.

A *pair* is a feature that has any weight in a block. Pairs are grouped into buckets by a hash of the feature, two to
four per bucket, so that looking up a feature reads one line of `buckets` and one of `keys`. A pair with more than
`DENSE_FROM` weights is stored as a dense row of 64 lanes, which `lane_dot` reads at full width; the others are stored
as entries (lane, weight). Weights are float32, bfloat16 (uint16), float16 (int16) or integers (int8) in units of the
scale of their lane.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from longtail.kernels.hashing import bucket_of
from longtail.kernels.jit import kernel, kernel_with
from longtail.kernels.lanes import LANES, fetch, lane_dot, widen
from longtail.kernels.rows import QueryRows
from longtail.kernels.types import Array, Float32, Int32, Int64, UInt8

DENSE_FROM = 10
"""Pairs with more weights are stored as dense rows: space is equal at 32 weights, time below 10."""
PAIRS_PER_BUCKET = 2


class Chunks(NamedTuple):
    """Weights of all blocks, concatenated.

    Block b has buckets from ``bucket_starts[b]`` (2**bits[b] of them, and a last line that ends the last one), pairs
    from ``pair_starts[b]``, entries from ``entry_starts[b]`` and dense rows from ``dense_starts[b]``. A line of
    `buckets` holds the offsets of the bucket's pairs, entries and dense rows in the block. `keys` are the features of
    the pairs and `kept` their numbers of weights. `scales`, `bias` and `members` have 64 lanes per block: the member of
    a lane is a label, or -2 - v for node v, or -1 for none.
    """

    bits: UInt8
    bucket_starts: Int64
    pair_starts: Int64
    entry_starts: Int64
    dense_starts: Int64
    buckets: Int32
    keys: Array
    kept: UInt8
    lanes: UInt8
    values: Array
    dense: Array
    scales: Float32
    bias: Float32
    members: Int32


def bucket_bits(pairs: int) -> int:
    """Number of bits for about `PAIRS_PER_BUCKET` pairs per bucket."""
    return max(0, (max(pairs, 1) // PAIRS_PER_BUCKET).bit_length() - 1)


@kernel_with(fastmath={"reassoc", "nsz"})
def lane_sizes(weights: Float32) -> Any:
    """Largest absolute weight of each lane, at least 1e-30."""
    sizes = np.full(LANES, 1e-30, np.float32)
    for row in range(weights.shape[0]):
        for lane in range(LANES):
            sizes[lane] = max(sizes[lane], abs(weights[row, lane]))
    return sizes


@kernel
def sort_into_buckets(features: Int32, bits: int, order: Int64, buckets: Int32) -> None:
    """Sort pairs by bucket, stably, and write the offsets of the buckets to column 0 of `buckets`."""
    n = features.shape[0]
    # A counting sort: count the pairs of each bucket, turn the counts into offsets, then place the pairs.
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
    kept: UInt8,
    weights: Float32,
    lanes: int,
    prune_below: Any,
    inverse_scales: Float32,
    order: Int64,
    buckets: Int32,
    keys: Array,
    counts: UInt8,
    out_lanes: UInt8,
    out_values: Float32,
    dense: Float32,
) -> None:
    """Write the pairs of one block in the order of their buckets.

    Pair p is row ``rows[p]`` of the dense `weights` and has `kept[p]` weights that reach `prune_below`. Weights are
    multiplied by the inverse scale of their lane.
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
    """Look up a feature in a block.

    Returns
    -------
    (count, place)
        Its number of weights, and their offset in the entries, or in the dense rows if they are more than `DENSE_FROM`;
        (0, 0) if it has none.
    """
    line = chunks.bucket_starts[block] + bucket_of(feature, chunks.bits[block])
    first = chunks.pair_starts[block]
    return _find_in_bucket(
        first + chunks.buckets[line, 0], first + chunks.buckets[line + 1, 0], feature, chunks.keys, chunks.kept,
        chunks.entry_starts[block] + chunks.buckets[line, 1], chunks.dense_starts[block] + chunks.buckets[line, 2],
    )  # fmt: skip


@kernel
def _find_in_bucket(first: Any, end: Any, feature: Any, keys: Array, kept: UInt8, entry: Any, row: Any) -> Any:
    """Look up a feature in pairs `first` to `end` - 1; the weights of the first are at `entry` or `row`."""
    for pair in range(first, end):
        if np.int64(keys[pair]) == feature:
            for before in range(first, pair):  # skip the weights of the pairs before it
                size = np.int64(kept[before])
                if size > DENSE_FROM:
                    row += 1
                else:
                    entry += size
            count = np.int64(kept[pair])
            return count, (row if count > DENSE_FROM else entry)
    return np.int64(0), np.int64(0)


class ScoreMemory(NamedTuple):
    """Working memory of `score_block` and `score_panel`, and their result `sums`; see `score_memory`."""

    steps: Int64
    places: Int32
    factors: Float32
    sums: Float32


@kernel
def score_memory(rows: QueryRows, first: int, last: int) -> Any:
    """Allocate memory for rows `first` to `last` - 1."""
    longest = 0
    for row in range(first, last):
        longest = max(longest, rows.indptr[row + 1] - rows.indptr[row])
    size = longest + 1
    return ScoreMemory(
        np.empty(size, np.int64), np.empty(size, np.int32), np.empty(size, np.float32), np.empty(LANES, np.float32)
    )


@kernel
def score_block(chunks: Chunks, block: int, rows: QueryRows, row: int, memory: ScoreMemory) -> None:
    """Set ``memory.sums`` to the scores of one row for the 64 members of a block.

    The look-up is done in stages for all features at once, each of which prefetches the memory of the next: cache
    misses overlap.
    """
    # Local names, because numba counts a reference each time that an array is taken out of a tuple.
    buckets, keys, kept, lanes, weights = chunks.buckets, chunks.keys, chunks.kept, chunks.lanes, chunks.values
    first_line, bits = chunks.bucket_starts[block], chunks.bits[block]
    first_pair, first_entry, first_row = (
        chunks.pair_starts[block],
        chunks.entry_starts[block],
        chunks.dense_starts[block],
    )
    dense = chunks.dense
    indices, values, start = rows.indices, rows.values, rows.indptr[row]
    steps, places, factors, sums = memory.steps, memory.places, memory.factors, memory.sums
    n = rows.indptr[row + 1] - start
    # Stage 1: the line of the bucket of each feature.
    for at in range(n):
        steps[at] = first_line + bucket_of(indices[start + at], bits)
        fetch(buckets, 3 * steps[at])
    # Stage 2: the keys in that bucket.
    for at in range(n):
        pair = first_pair + buckets[steps[at], 0]
        fetch(keys, pair)
        fetch(kept, pair)
    # Stage 3: the weights of each feature, separated into dense rows and entries (packed as place and count).
    found = 0
    sparse = 0
    for at in range(n):
        line = steps[at]
        count, place = _find_in_bucket(
            first_pair + buckets[line, 0], first_pair + buckets[line + 1, 0], np.int64(indices[start + at]), keys, kept,
            first_entry + buckets[line, 1], first_row + buckets[line, 2],
        )  # fmt: skip
        if count > DENSE_FROM:
            fetch(dense, place * LANES)
            places[found] = place - first_row
            factors[found] = values[start + at]
            found += 1
        elif count > 0:
            fetch(lanes, place)
            fetch(weights, place)
            steps[sparse] = (place << 8) | count
            sparse += 1
            factors[n - sparse] = values[start + at]  # from the end, which the dense rows never reach
    # Stage 4: add up.
    sums[:] = 0
    lane_dot(places, factors, 0, found, dense, first_row, sums, 0)
    for at in range(sparse):
        place, count = steps[at] >> 8, steps[at] & 255
        factor = factors[n - 1 - at]
        for entry in range(place, place + count):
            sums[lanes[entry]] += factor * widen(weights[entry])
    _finish(chunks.scales, chunks.bias, block, rows.scales[row], rows.bias, sums)


@kernel
def open_panel(chunks: Chunks, block: int, slots: Int32, panel: Array) -> None:
    """Write out a block as dense rows, one per pair, and the row of each feature to `slots`, which is -1 before.

    This pays where many rows are scored against a block: looking up a feature is then one read.
    """
    first = chunks.pair_starts[block]
    pairs = chunks.pair_starts[block + 1] - first
    entry, row = chunks.entry_starts[block], chunks.dense_starts[block]
    keys, kept, lanes, values, dense = chunks.keys, chunks.kept, chunks.lanes, chunks.values, chunks.dense
    panel[:pairs] = 0
    for pair in range(pairs):
        slots[keys[first + pair]] = pair
        count = np.int64(kept[first + pair])
        if count > DENSE_FROM:
            for lane in range(LANES):
                panel[pair, lane] = dense[row, lane]
            row += 1
        else:
            for at in range(entry, entry + count):
                panel[pair, lanes[at]] = values[at]
            entry += count


@kernel
def close_panel(chunks: Chunks, block: int, slots: Int32) -> None:
    """Reset `slots` to -1."""
    for pair in range(chunks.pair_starts[block], chunks.pair_starts[block + 1]):
        slots[chunks.keys[pair]] = -1


@kernel
def score_panel(
    chunks: Chunks, block: int, slots: Int32, panel: Array, rows: QueryRows, row: int, memory: ScoreMemory
) -> None:
    """Same as `score_block`, for a block with an open panel."""
    indices, values, places, factors, sums = rows.indices, rows.values, memory.places, memory.factors, memory.sums
    sums[:] = 0
    # Features with a row in the panel; others are overwritten by the next, without a branch.
    found: Any = 0
    for at in range(rows.indptr[row], rows.indptr[row + 1]):
        slot = slots[indices[at]]
        places[found] = slot
        factors[found] = values[at]
        found += np.int64(slot >= 0)
    lane_dot(places, factors, 0, found, panel, 0, sums, 0)
    _finish(chunks.scales, chunks.bias, block, rows.scales[row], rows.bias, sums)


@kernel
def _finish(scales: Float32, bias_weights: Float32, block: int, scale: Any, bias: Any, sums: Float32) -> None:
    for lane in range(LANES):
        at = block * LANES + lane
        sums[lane] = sums[lane] * (np.float32(scale) * scales[at]) + np.float32(bias) * bias_weights[at]


@kernel
def find_weight(chunks: Chunks, block: int, lane: int, features: Int32, out: Float32) -> None:
    """Set `out` to the weights of the given features in one lane of a block."""
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

"""Weights of tree nodes: small feature-major chunks, found by hashing, one for each block of 64 members of a node.

A *pair* is a feature that has any weight in a block. Pairs are grouped into buckets by a hash of the feature, two to
four to a bucket, so that looking a feature up reads one line of `buckets` and one of `keys`. A pair with more than
`DENSE_FROM` weights stands in a dense row of 64 lanes, which `lane_dot` reads at full width; the others are entries
(lane, weight). Weights are float32, bfloat16 (uint16), float16 (int16) or whole numbers (int8) in units of the lane's
own scale.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from longtail.engine.jit import kernel, kernel_with
from longtail.engine.lanes import LANES, fetch, lane_dot, widen

Float32 = npt.NDArray[np.float32]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

DENSE_FROM = 10
"""Pairs with more weights than this stand in dense rows: at 32 both take the same space, below 10 the same time."""
PAIRS_A_BUCKET = 2


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


@kernel_with(fastmath={"reassoc", "nsz"})
def lane_sizes(weights: Float32) -> Any:
    """Size of the largest weight of each lane, at least 1e-30."""
    sizes = np.full(LANES, 1e-30, np.float32)
    for row in range(weights.shape[0]):
        for lane in range(LANES):
            sizes[lane] = max(sizes[lane], abs(weights[row, lane]))
    return sizes


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
    first = chunks.pair_starts[block]
    return _find_in_bucket(
        first + chunks.buckets[line, 0], first + chunks.buckets[line + 1, 0], feature, chunks.keys, chunks.kept,
        chunks.entry_starts[block] + chunks.buckets[line, 1], chunks.dense_starts[block] + chunks.buckets[line, 2],
    )  # fmt: skip


@kernel
def _find_in_bucket(
    first: Any,
    end: Any,
    feature: Any,
    keys: npt.NDArray[Any],
    kept: npt.NDArray[np.uint8],
    entry: Any,
    row: Any,
) -> Any:
    """Look a feature up among pairs `first` to `end`, the first of which has its weights at `entry` or `row`."""
    for pair in range(first, end):
        if np.int64(keys[pair]) == feature:
            for before in range(first, pair):
                size = np.int64(kept[before])
                if size > DENSE_FROM:
                    row += 1
                else:
                    entry += size
            count = np.int64(kept[pair])
            return count, (row if count > DENSE_FROM else entry)
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
    steps: Int64,
    places: Int32,
    factors: Float32,
    sums: Float32,
) -> None:
    """Set `sums`, of 64 lanes, to the scores of one row for the members of a block.

    The row is ``indices[start:end]`` and ``values[start:end]`` times `scale`; the bias feature has the value `bias`.
    `steps`, `places` and `factors` are working memory for as many features as the row has. All features take a step
    before any takes the next, and ask for the memory that the next one reads: they wait together, not in turn.
    """
    # Local names: numba counts a reference each time that an array is taken out of a tuple.
    buckets, keys, kept, lanes, weights = chunks.buckets, chunks.keys, chunks.kept, chunks.lanes, chunks.values
    first_line, bits = chunks.bucket_starts[block], chunks.bits[block]
    first_pair, first_entry, first_row = (
        chunks.pair_starts[block],
        chunks.entry_starts[block],
        chunks.dense_starts[block],
    )
    dense = chunks.dense
    n = end - start
    for at in range(n):
        steps[at] = first_line + bucket_of(indices[start + at], bits)
        fetch(buckets, 3 * steps[at])
    for at in range(n):
        pair = first_pair + buckets[steps[at], 0]
        fetch(keys, pair)
        fetch(kept, pair)
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
    sums[:] = 0
    lane_dot(places, factors, 0, found, dense, first_row, sums, 0)
    for at in range(sparse):
        place, count = steps[at] >> 8, steps[at] & 255
        factor = factors[n - 1 - at]
        for entry in range(place, place + count):
            sums[lanes[entry]] += factor * widen(weights[entry])
    _finish(chunks.scales, chunks.bias, block, scale, bias, sums)


@kernel
def open_panel(chunks: Chunks, block: int, slots: Int32, panel: npt.NDArray[Any]) -> None:
    """Write a block out as dense rows, one a pair, and the row of each feature into `slots`, which is -1 before.

    Worth it where many rows are scored against a block: looking a feature up is then one read.
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
    """Make `slots` -1 again."""
    for pair in range(chunks.pair_starts[block], chunks.pair_starts[block + 1]):
        slots[chunks.keys[pair]] = -1


@kernel
def score_panel(
    chunks: Chunks,
    block: int,
    slots: Int32,
    panel: npt.NDArray[Any],
    indices: Int32,
    values: Float32,
    start: int,
    end: int,
    scale: Any,
    bias: Any,
    places: Int32,
    factors: Float32,
    sums: Float32,
) -> None:
    """Do what `score_block` does, with the block's open panel."""
    sums[:] = 0
    found: Any = 0
    for at in range(start, end):
        slot = slots[indices[at]]
        places[found] = slot
        factors[found] = values[at]
        found += np.int64(slot >= 0)
    lane_dot(places, factors, 0, found, panel, 0, sums, 0)
    _finish(chunks.scales, chunks.bias, block, scale, bias, sums)


@kernel
def _finish(scales: Float32, bias_weights: Float32, block: int, scale: Any, bias: Any, sums: Float32) -> None:
    for lane in range(LANES):
        at = block * LANES + lane
        sums[lane] = sums[lane] * (np.float32(scale) * scales[at]) + np.float32(bias) * bias_weights[at]


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

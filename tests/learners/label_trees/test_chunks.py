"""Chunks of weights: what is written into them, found in them and scored with them, against dense numpy matrices."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.kernels.lanes import LANES
from longtail.kernels.rows import QueryRows
from longtail.learners.label_trees.chunk_weights import PRECISIONS, ChunkWeights, EncodedBlock
from longtail.learners.label_trees.chunks import (
    DENSE_FROM,
    PAIRS_PER_BUCKET,
    ScoreMemory,
    bucket_bits,
    bucket_of,
    close_panel,
    find_pair,
    find_weight,
    lane_sizes,
    open_panel,
    score_block,
    score_panel,
    sort_into_buckets,
)
from longtail.runtime.block_file import BlockFile

SEEDS = st.integers(0, 2**32 - 1)
# Largest relative error of one weight: half a unit in the last of 24, 8 or 11 bits.
ROUNDING = {"float32": 0.0, "bfloat16": 2.0**-8, "float16": 2.0**-11, "int8": 0.0}


def hashed(feature, bits):
    """Bucket of a feature by Python integers."""
    return ((feature * 0x9E3779B97F4A7C15) % 2**64 >> 32) >> (32 - bits)


def assembled(blocks, block_starts=None, precision="float32", n_features=50):
    """Put encoded blocks together, by default as those of one node."""
    with BlockFile() as block_file:
        for block in blocks:
            block_file.append(block)
        starts = np.array([0, len(blocks)] if block_starts is None else block_starts, np.int64)
        return ChunkWeights.assemble(block_file, np.arange(len(blocks)), starts, precision, n_features)


def random_block(rng, n_features, pairs, lanes, density=0.4):
    """Weights of some features, by rows of rising feature id; most features have few, some have many."""
    features = np.sort(rng.choice(n_features, pairs, replace=False)).astype(np.int32)
    of_feature = rng.choice([0.02, density, 0.98], (pairs, 1))
    weights = rng.normal(size=(pairs, LANES)) * (rng.random((pairs, LANES)) < of_feature)
    bias = rng.normal(size=LANES).astype(np.float32)
    members = rng.choice(1000, lanes, replace=False).astype(np.int32)
    return weights.astype(np.float32), bias, features, members


def kept_weights(weights, lanes, prune_below):
    """What pruning leaves, by numpy."""
    wanted = np.where((np.abs(weights) >= np.float32(prune_below)) & (weights != 0), weights, 0).astype(np.float64)
    wanted[:, lanes:] = 0
    return wanted


def decoded(block):
    """Features of an encoded block and their weights, one after the other as they stand."""
    dense, entry, row = block.dense.reshape(-1, LANES), 0, 0
    widths = {np.uint16: lambda array: (array.astype(np.uint32) << 16).view(np.float32)}
    widths[np.int16] = lambda array: array.view(np.float16)
    widen = widths.get(block.values.dtype.type, lambda array: array)
    found = {}
    for key, count in zip(block.keys.tolist(), block.kept.tolist(), strict=True):
        weights = np.zeros(LANES)
        if count > DENSE_FROM:
            weights[:] = widen(dense[row])
            row += 1
        else:
            weights[block.lanes[entry : entry + count]] = widen(block.values[entry : entry + count])
            entry += count
        assert key not in found
        found[key] = weights * block.scales.astype(np.float64)
    assert (entry, entry, row) == (len(block.lanes), len(block.values), len(dense))
    return found


@given(st.integers(0, 2**32 - 1), st.integers(0, 30))
def test_buckets_are_the_upper_bits_of_a_product(feature, bits):
    assert bucket_of(feature, bits) == hashed(feature, bits)
    if feature < 2**31:
        assert bucket_of(np.int32(feature), np.uint8(bits)) == hashed(feature, bits)


@given(st.integers(0, 10**6))
def test_buckets_are_a_power_of_two_and_hold_few_pairs(pairs):
    buckets = 2 ** bucket_bits(pairs)
    assert buckets == 1 or pairs / buckets >= PAIRS_PER_BUCKET
    assert pairs / buckets < 2 * PAIRS_PER_BUCKET


@given(SEEDS, st.integers(0, 40), st.integers(0, 6))
def test_pairs_are_sorted_by_bucket_and_keep_their_order_inside(seed, pairs, bits):
    features = np.random.default_rng(seed).choice(5000, pairs, replace=False).astype(np.int32)
    order, buckets = np.empty(pairs, np.int64), np.full(((1 << bits) + 1, 3), 99, np.int32)
    sort_into_buckets(features, bits, order, buckets)
    of_pair = np.array([hashed(int(feature), bits) for feature in features], int)
    np.testing.assert_array_equal(order, np.argsort(of_pair, kind="stable"))
    sizes = np.bincount(of_pair, minlength=1 << bits)
    np.testing.assert_array_equal(buckets[:, 0], np.concatenate([[0], np.cumsum(sizes)]))


def test_sizes_of_lanes():
    weights = np.random.default_rng(0).normal(size=(9, LANES)).astype(np.float32)
    weights[:, 5] = 0
    np.testing.assert_array_equal(lane_sizes(weights), np.maximum(np.abs(weights).max(axis=0), np.float32(1e-30)))
    np.testing.assert_array_equal(lane_sizes(weights[:0]), np.full(LANES, 1e-30, np.float32))


@settings(max_examples=60)
@given(
    SEEDS, st.sampled_from([0, 1, 2, 7, 40, 200]), st.sampled_from([1, 20, 21, 63, 64]),
    st.sampled_from([0.0, 0.3, 2.0, 50.0]), st.sampled_from(PRECISIONS),
)  # fmt: skip
def test_a_block_holds_what_reaches_the_threshold(seed, pairs, lanes, prune_below, precision):
    rng = np.random.default_rng(seed)
    weights, bias, features, members = random_block(rng, 300, pairs, lanes)
    block = EncodedBlock.encoded(weights, bias, features, members, prune_below, precision, 300)
    found, wanted = decoded(block), kept_weights(weights, lanes, prune_below)
    assert set(found) == set(features[wanted.any(axis=1)].tolist())
    units = np.abs(weights).max(axis=0, initial=1e-30) / 127 if precision == "int8" else np.zeros(LANES)
    for feature, row in zip(features.tolist(), wanted, strict=True):
        if feature in found:
            assert (np.abs(found[feature] - row) <= np.abs(row) * ROUNDING[precision] + units * 0.5001 + 1e-7).all()
            assert (found[feature][row == 0] == 0).all()
    np.testing.assert_array_equal(block.bias, np.where(np.arange(LANES) < lanes, bias, 0))
    np.testing.assert_array_equal(block.members[:lanes], members)
    assert (block.members[lanes:] == -1).all()
    # Each pair stands in the bucket of its feature, and the buckets count the entries and rows before them.
    bits = bucket_bits(len(found))
    buckets = block.buckets.reshape(-1, 3)
    assert len(buckets) == (1 << bits) + 1
    is_dense = block.kept > DENSE_FROM
    sizes = np.stack([np.ones(len(found), int), np.where(is_dense, 0, block.kept), is_dense], axis=1)
    before = np.concatenate([np.zeros((1, 3), int), np.cumsum(sizes, axis=0)])
    np.testing.assert_array_equal(buckets, before[buckets[:, 0]])
    for bucket in range(1 << bits):
        inside = block.keys[buckets[bucket, 0] : buckets[bucket + 1, 0]].tolist()
        assert [hashed(key, bits) for key in inside] == [bucket] * len(inside)


def test_weights_beyond_float16_are_cut_to_its_largest():
    weights = np.zeros((1, LANES), np.float32)
    weights[0, :4] = [1e6, -1e6, 65504, 1e-9]
    block = EncodedBlock.encoded(weights, weights[0], np.array([3], np.int32), np.arange(4, dtype=np.int32), 0.0,
                                 "float16", 5)  # fmt: skip
    assert decoded(block)[3][:4].tolist() == [65504, -65504, 65504, 0]


def test_integers_reach_127_on_both_sides():
    rng = np.random.default_rng(1)
    weights = (rng.normal(size=(40, LANES)) * 10.0 ** rng.integers(-20, 20, LANES)).astype(np.float32)
    members = np.arange(LANES, dtype=np.int32)
    block = EncodedBlock.encoded(weights, weights[0], np.arange(40, dtype=np.int32), members, 0.0, "int8", 40)
    whole = block.dense.reshape(-1, LANES)
    assert (np.abs(whole.astype(int)).max(axis=0) == 127).all()
    largest = np.abs(weights).argmax(axis=0)
    found = decoded(block)
    for lane in range(LANES):
        np.testing.assert_allclose(found[int(largest[lane])][lane], weights[largest[lane], lane], rtol=1e-6)


def collisions(bits, count):
    """Features that all stand in the last bucket."""
    last = (1 << bits) - 1
    return np.array([feature for feature in range(40_000) if hashed(feature, bits) == last][:count], np.int32)


@pytest.mark.parametrize(
    ("n_features", "features"),
    [
        (1, [0]),
        (1 << 16, [0, 1, 65534, 65535]),
        ((1 << 16) + 1, [0, 65535, 65536]),
        (2**31 - 1, [0, 7, 65536, 2**31 - 3, 2**31 - 2]),
        (40_000, collisions(bucket_bits(40), 40)),
        (40_000, []),
    ],
    ids=["one feature", "16 bits", "just over 16 bits", "largest of all", "all in one bucket", "none"],
)
def test_features_are_found_and_others_are_not(n_features, features):
    rng = np.random.default_rng(0)
    features = np.array(features, np.int32)
    weights = random_block(rng, max(len(features), 1), len(features), LANES)[0]
    weights[:, 0] = 1  # none is empty
    noise = random_block(rng, min(n_features, 1000), min(n_features, 30), 3)
    members = np.arange(LANES, dtype=np.int32)
    block = EncodedBlock.encoded(weights, np.zeros(LANES, np.float32), features, members, 0.0, "float32", n_features)
    other = EncodedBlock.encoded(*noise, 0.0, "float32", n_features)
    chunks = assembled([other, block, other], n_features=n_features).chunks
    assert chunks.keys.dtype == (np.uint16 if n_features <= 1 << 16 else np.uint32)
    absent = np.setdiff1d(rng.integers(0, n_features, 500), features)
    absent = np.union1d(absent, np.setdiff1d([0, n_features - 1], features)).astype(np.int32)
    for feature in absent.tolist():
        assert find_pair(chunks, 1, feature) == (0, 0)
    for feature, row in zip(features.tolist(), weights, strict=True):
        assert find_pair(chunks, 1, feature)[0] == np.count_nonzero(row)
    asked = np.concatenate([absent[:20], features, absent[20:40]])
    wanted = np.concatenate([np.zeros((len(absent[:20]), LANES)), weights, np.zeros((len(absent[20:40]), LANES))])
    for lane in (0, 1, 31, 63):
        out = np.full(len(asked), np.nan, np.float32)
        find_weight(chunks, 1, lane, asked, out)
        np.testing.assert_array_equal(out, wanted[:, lane])


@pytest.mark.parametrize("precision", PRECISIONS)
def test_one_weight_is_found_in_every_precision(precision):
    rng = np.random.default_rng(3)
    block = EncodedBlock.encoded(*random_block(rng, 80, 60, 50), 0.1, precision, 80)
    chunks = assembled([block], precision=precision, n_features=80).chunks
    wanted = np.zeros((80, LANES))
    for feature, row in decoded(block).items():
        wanted[feature] = row
    out, everything = np.empty(80, np.float32), np.arange(80, dtype=np.int32)
    for lane in range(LANES):
        find_weight(chunks, 0, lane, everything, out)
        np.testing.assert_allclose(out, wanted[:, lane], rtol=1e-6)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_both_ways_to_score_agree_with_numpy(precision):
    rng = np.random.default_rng(PRECISIONS.index(precision))
    n_features = 120
    blocks = [
        EncodedBlock.encoded(*random_block(rng, n_features, pairs, lanes), prune_below, precision, n_features)
        for pairs, lanes, prune_below in [(0, 5, 0.0), (1, 1, 0.0), (120, 64, 0.0), (90, 40, 0.4), (120, 64, 1.5)]
    ]
    weights = assembled(blocks, precision=precision, n_features=n_features)
    chunks = weights.chunks
    assert (np.diff(chunks.dense_starts)[2:4] > 0).all()
    assert (np.diff(chunks.entry_starts)[2:] > 0).all()
    slots, panel = np.full(n_features, -1, np.int32), np.empty((weights.most_pairs, LANES), chunks.dense.dtype)
    for number, block in enumerate(blocks):
        wanted = np.zeros((n_features, LANES))
        for feature, row in decoded(block).items():
            wanted[feature] = row
        open_panel(chunks, number, slots, panel)
        for count in (0, 1, 2, 30, n_features):
            # The row stands in the middle of others, and needs just as much working memory as it has features.
            indices = np.concatenate([[3, 5], rng.choice(n_features, count, replace=False), [0]]).astype(np.int32)
            values = rng.normal(size=count + 3).astype(np.float32)
            steps, places = np.empty(count + 1, np.int64), np.empty(count + 1, np.int32)
            factors, sums = np.empty(count + 1, np.float32), np.full((2, LANES), np.nan, np.float32)
            row = values[2:-1].astype(float) @ wanted[indices[2:-1]]
            size = np.abs(values[2:-1]).astype(float) @ np.abs(wanted[indices[2:-1]])
            score = 0.3 * row + 2 * block.bias.astype(float)
            rows = QueryRows(
                np.array([0, 2, count + 2, count + 3]), indices, values, np.array([1, 0.3, 1]), np.float32(2)
            )
            score_block(chunks, number, rows, 1, ScoreMemory(steps, places, factors, sums[0]))
            score_panel(chunks, number, slots, panel, rows, 1, ScoreMemory(steps, places, factors, sums[1]))
            for result in sums:
                assert (np.abs(result - score) <= 3e-6 * (size + np.abs(block.bias)) + 1e-7).all()
        close_panel(chunks, number, slots)
        assert (slots == -1).all()


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_an_open_panel_has_a_row_for_each_feature(precision):
    rng = np.random.default_rng(8)
    blocks = [EncodedBlock.encoded(*random_block(rng, 70, pairs, 64), 0.2, precision, 70) for pairs in (60, 25)]
    weights = assembled(blocks, precision=precision, n_features=70)
    slots = np.full(70, -1, np.int32)
    panel = np.full((weights.most_pairs + 1, LANES), 77, weights.dense_.dtype)
    open_panel(weights.chunks, 1, slots, panel)
    found = decoded(blocks[1])
    assert sorted(slots[slots >= 0].tolist()) == list(range(len(found)))
    for feature in range(70):
        if feature in found:
            scaled = panel[slots[feature]] * blocks[1].scales.astype(np.float64)
            np.testing.assert_allclose(scaled, found[feature], rtol=1e-6)
        else:
            assert slots[feature] == -1
    assert (panel[len(found) :] == 77).all()

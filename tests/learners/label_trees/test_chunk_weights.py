"""Weights of all nodes: put together and taken apart, and refused when any array of them was damaged."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.errors import ModelError
from longtail.kernels.lanes import to_bfloat16
from longtail.learners.label_trees.chunk_weights import PRECISIONS, ChunkWeights, EncodedBlock, key_dtype, narrowed
from longtail.learners.label_trees.chunks import DENSE_FROM
from longtail.learners.label_trees.forest import LabelForest
from longtail.runtime.block_file import BlockFile
from tests.learners.label_trees.test_beam_search import random_rows, random_world
from tests.learners.label_trees.test_chunks import assembled, random_block

WORLD = random_world(0, n_nodes=6, n_labels=150)
N_NODES = WORLD.forest.n_nodes


def damaged(weights, **changes):
    """A copy with other arrays; None leaves one out."""
    copy = ChunkWeights()
    for name in weights._stored:
        value = changes.get(name, getattr(weights, name))
        if value is not None:
            setattr(copy, name, value)
    return copy


def with_number(name, at, number):
    array = getattr(WORLD.weights, name).copy()
    array[at] = number
    return damaged(WORLD.weights, **{name: array})


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1), st.lists(st.sampled_from([0, 1, 5, 60]), max_size=5), st.sampled_from(PRECISIONS))
def test_blocks_come_out_as_they_went_in(seed, pairs, precision):
    rng = np.random.default_rng(seed)
    blocks = [
        EncodedBlock.encoded(*random_block(rng, 90, count, int(rng.integers(1, 65))), 0.1, precision, 90)
        for count in pairs
    ]
    weights = assembled(blocks, precision=precision, n_features=90)
    assert weights.chunks.bits.tolist() == [int(np.log2(len(block.buckets) // 3 - 1)) for block in blocks]
    assert (weights.n_blocks, weights.precision, weights.n_features_) == (len(blocks), precision, 90)
    assert weights.most_pairs == max((len(block.keys) for block in blocks), default=0)
    for block, again in zip(blocks, weights.blocks(), strict=True):
        for name in EncodedBlock._fields:
            one, other = getattr(block, name), getattr(again, name)
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other, err_msg=name)


def test_blocks_are_gathered_in_the_order_asked_for():
    rng = np.random.default_rng(0)
    blocks = [EncodedBlock.encoded(*random_block(rng, 90, count, 9), 0.0, "int8", 90) for count in (4, 0, 60)]
    with BlockFile() as block_file:
        for block in blocks:
            block_file.append(block)
        weights = ChunkWeights.assemble(block_file, np.array([2, 0, 1]), np.array([0, 1, 1, 3]), "int8", 90)
    for wanted, found in zip([blocks[2], blocks[0], blocks[1]], weights.blocks(), strict=True):
        for one, other in zip(wanted, found, strict=True):
            np.testing.assert_array_equal(one, other)
    weights.chunks  # noqa: B018 - is sound


def test_keys_are_as_small_as_the_features_allow():
    assert [key_dtype(n) for n in (1, 1 << 16, (1 << 16) + 1, 2**31)] == [np.uint16, np.uint16, np.uint32, np.uint32]


def test_weights_are_narrowed_to_the_nearest():
    values = np.array([0, 1, -1, 0.1, -3.3, 1e-6, 100.25, -127], np.float32)
    half = values.astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(narrowed(values, "float32"), values)
    np.testing.assert_array_equal(narrowed(values, "bfloat16"), to_bfloat16(values))
    np.testing.assert_array_equal(narrowed(values, "float16").view(np.float16).astype(np.float32), half)
    np.testing.assert_array_equal(narrowed(values, "int8"), [0, 1, -1, 0, -3, 0, 100, -127])
    assert [narrowed(values, precision).dtype for precision in PRECISIONS] == [np.float32, np.uint16, np.int16, np.int8]


ARRAYS = ChunkWeights._stored[1:]
STARTS = [name for name in ARRAYS if name.endswith("starts_")]


def test_what_was_trained_is_sound():
    damaged(WORLD.weights).chunks  # noqa: B018
    damaged(WORLD.weights).check(WORLD.forest, 150)
    empty = assembled([], [0, 0])
    assert empty.chunks.bits.shape == (0,)


@pytest.mark.parametrize("name", ChunkWeights._stored)
def test_a_missing_part_is_seen(name):
    with pytest.raises(ModelError, match="don't fit together"):
        damaged(WORLD.weights, **{name: None}).chunks  # noqa: B018


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("damage", ["type", "shorter", "longer"])
def test_arrays_of_another_type_or_length_are_seen(name, damage):
    array = getattr(WORLD.weights, name)
    changed = {"type": array.astype(np.float64), "shorter": array[:-1], "longer": np.concatenate([array, array[-1:]])}[
        damage
    ]
    if (name, damage) == ("block_starts_", "longer"):  # one more node without weights: no kernel meets it
        with pytest.raises(ModelError, match="don't fit together"):
            damaged(WORLD.weights, block_starts_=changed).check(WORLD.forest, 150)
        return
    with pytest.raises(ModelError, match="don't fit together"):
        damaged(WORLD.weights, **{name: changed}).chunks  # noqa: B018


@pytest.mark.parametrize("name", STARTS)
@pytest.mark.parametrize("number", [-(10**9), -1, 10**9])
def test_starts_that_fall_or_leave_the_arrays_are_seen(name, number):
    for at in range(len(getattr(WORLD.weights, name))):
        with pytest.raises(ModelError):
            with_number(name, at, number).chunks  # noqa: B018


@pytest.mark.parametrize("name", ["bucket_starts_", "pair_starts_", "entry_starts_", "dense_starts_"])
def test_starts_that_are_off_by_one_are_seen(name):
    starts = getattr(WORLD.weights, name)
    for at, start in enumerate(starts.tolist()):
        for number in (start - 1, start + 1):
            with pytest.raises(ModelError):
                with_number(name, at, number).chunks  # noqa: B018


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("lanes_", 64), ("lanes_", 255), ("keys_", 30), ("keys_", 65535), ("kept_", 0), ("kept_", 255),
        ("members_", -(2**31)), ("members_", -3 - N_NODES), ("buckets_", -1), ("buckets_", 10**6),
    ],
)  # fmt: skip
def test_numbers_that_point_elsewhere_are_seen(name, number):
    sparse = int(np.flatnonzero(WORLD.weights.kept_ < DENSE_FROM)[0])
    with pytest.raises(ModelError):
        with_number(name, sparse if name == "kept_" else 0, number).chunks  # noqa: B018


def test_fewer_features_than_the_keys_name_are_seen():
    with pytest.raises(ModelError):
        damaged(WORLD.weights, n_features_=int(WORLD.weights.keys_.max())).chunks  # noqa: B018


def test_weights_that_are_no_multiple_of_a_line_are_seen():
    weights = WORLD.weights
    for changed in ({"dense_": weights.dense_[:, :63]}, {"dense_": weights.dense_.ravel()},
                    {"buckets_": weights.buckets_.ravel()}, {"dense_": np.asfortranarray(weights.dense_)},
                    {"dense_": to_bfloat16(weights.dense_)}):  # fmt: skip
        with pytest.raises(ModelError):
            damaged(weights, **changed).chunks  # noqa: B018


@pytest.mark.parametrize("number", [150, 10**6, -2, -2 - N_NODES, -1 - N_NODES])
def test_members_that_the_trees_do_not_have_are_seen(number):
    """A label too many; the root; a node too many; a node that stands under another one."""
    with pytest.raises(ModelError):
        with_number("members_", 0, number).check(WORLD.forest, 150)


def test_trees_with_another_number_of_nodes_are_seen():
    other = random_world(0, n_nodes=7, n_labels=150).forest
    with pytest.raises(ModelError, match="don't fit together"):
        damaged(WORLD.weights).check(other, 150)


def test_what_fits_one_forest_is_looked_at_again_for_another():
    weights = damaged(WORLD.weights)
    weights.check(WORLD.forest, 150)
    with pytest.raises(ModelError):
        weights.check(WORLD.forest, 3)
    with pytest.raises(ModelError):
        weights.check(random_world(0, n_nodes=7, n_labels=150).forest, 150)


def forest_with(**changes):
    forest = LabelForest()
    for name in LabelForest._stored:
        setattr(forest, name, changes.get(name, getattr(WORLD.forest, name)))
    return forest


def test_damaged_trees_are_seen():
    children, starts, labels = (getattr(WORLD.forest, name) for name in LabelForest._stored[1:])
    assert forest_with().is_sound(150)
    assert not forest_with().is_sound(int(labels.max()))
    wrong = [{"n_trees_": 0}, {"n_trees_": 2}, {"n_trees_": N_NODES + 1}]
    for name, array in (("child_starts_", children), ("label_starts_", starts), ("labels_", labels)):
        wrong += [{name: array[:-1]}, {name: array.astype(np.float64)}, {name: array[:0]}]
        for at in range(len(array)):
            numbers = (-1, 150) if name == "labels_" else (-1, 10**6)
            wrong += [{name: np.where(np.arange(len(array)) == at, number, array).astype(array.dtype)}
                      for number in numbers]  # fmt: skip
    # A node under itself would make the search for the levels endless.
    for node in range(1, N_NODES):
        wrong.append({"child_starts_": np.minimum(children, np.where(np.arange(N_NODES + 1) == node, node, N_NODES))})
    for changes in wrong:
        assert not forest_with(**changes).is_sound(150), changes


def a_later_bucket_line():
    """A line of buckets inside the last block: its number, and that of the line that ends the block."""
    first, end = WORLD.weights.bucket_starts_[-2:].tolist()
    assert end - first > 2
    return end - 2, end - 1


@pytest.mark.parametrize("column", [0, 1, 2])
def test_buckets_that_count_wrongly_in_the_middle_are_seen(column):
    """The last bucket then reads entries or rows behind the last ones."""
    line, end = a_later_bucket_line()
    buckets = WORLD.weights.buckets_.copy()
    buckets[line, column] = buckets[end, column] if column else 0
    assert (buckets != WORLD.weights.buckets_).any()
    with pytest.raises(ModelError):
        damaged(WORLD.weights, buckets_=buckets).chunks  # noqa: B018


def test_numbers_of_weights_that_changed_places_are_seen():
    weights = WORLD.weights
    line, _ = a_later_bucket_line()
    first, last = (int(weights.pair_starts_[-2]), int(weights.pair_starts_[-1]))
    middle = first + int(weights.buckets_[line, 0])
    kept = weights.kept_.copy()
    sparse = [
        np.flatnonzero(kept[part] <= DENSE_FROM) + part.start for part in (slice(first, middle), slice(middle, last))
    ]
    kept[sparse[0][0]] -= 1
    kept[sparse[1][0]] += 1
    with pytest.raises(ModelError):
        damaged(weights, kept_=kept).chunks  # noqa: B018


def test_a_node_that_is_a_member_twice_is_seen():
    lane = int(np.flatnonzero(WORLD.weights.members_ < -1)[0])
    spare = int(np.flatnonzero(WORLD.weights.members_[:64] != WORLD.weights.members_[lane])[0])
    assert lane < 64
    with pytest.raises(ModelError):
        with_number("members_", spare, WORLD.weights.members_[lane]).check(WORLD.forest, 150)


@pytest.mark.parametrize("name", ["block_starts_", "values_", "keys_", "kept_", "lanes_", "scales_", "members_"])
def test_arrays_with_another_number_of_axes_are_seen(name):
    try:
        damaged(WORLD.weights, **{name: getattr(WORLD.weights, name)[:, None]}).chunks  # noqa: B018
    except ModelError:
        return
    raise AssertionError(name)


def test_starts_without_any_number_are_seen():
    with pytest.raises(ModelError):
        damaged(WORLD.weights, block_starts_=np.empty(0, np.int64)).chunks  # noqa: B018


def test_rows_with_more_features_than_the_weights_are_seen():
    X, scales = random_rows(0, 4)
    few = damaged(WORLD.weights, n_features_=int(WORLD.weights.keys_.max()) + 1)
    wide = X.copy()
    wide.resize(4, 10**6)
    wide.indices[-1] = 10**6 - 1
    search = WORLD.search()
    with pytest.raises(ModelError):
        type(search)(WORLD.forest, few, 0, 0.5, 1.0, 150).labels(wide, scales, 3, 2, None)

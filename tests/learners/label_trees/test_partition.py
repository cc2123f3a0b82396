from math import ceil

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.config import config_context
from longtail.errors import InputError, ParameterError
from longtail.learners.label_trees import overlap, partition
from longtail.learners.label_trees.forest import Branches, LabelForest
from longtail.learners.label_trees.overlap import with_overlap
from longtail.learners.label_trees.partition import partition_labels


def random_points(n, dimensions=16, random_state=0):
    points = np.random.default_rng(random_state).normal(size=(n, dimensions)).astype(np.float32)
    return points / np.linalg.norm(points, axis=1, keepdims=True)


def blobs(groups, each, seed=0, spread=0.05):
    """Points of label i lie near direction i % groups."""
    rng = np.random.default_rng(seed)
    points = np.eye(groups, dtype=np.float32)[np.arange(groups * each) % groups]
    points = points + rng.normal(size=points.shape).astype(np.float32) * spread
    return points / np.linalg.norm(points, axis=1, keepdims=True)


def depths(tree):
    found = [0]
    for parent in tree.parents[1:]:
        found.append(found[parent] + 1)
    return np.array(found)


def leaf_sets(tree):
    return {frozenset(tree.labels[tree.nodes == node].tolist()) for node in np.unique(tree.nodes)}


def check(tree, labels):
    """Every label stands once, and the tree is one."""
    assert sorted(tree.labels.tolist()) == sorted(labels)
    assert all(part.dtype == np.int32 for part in tree)
    assert tree.parents[0] == -1
    assert all(0 <= parent < node for node, parent in enumerate(tree.parents.tolist()) if node)
    LabelForest.from_branches([tree])
    inner = set(tree.parents[1:].tolist())
    assert len(tree.parents) == 1 or not inner & set(tree.nodes.tolist())


@given(st.integers(1, 120), st.integers(2, 9), st.integers(1, 20), st.integers(0, 3), st.booleans())
@settings(max_examples=150)
def test_balanced_trees(n, arity, leaf_size, seed, sparse):
    points = random_points(n + 3, random_state=seed)
    labels = np.random.default_rng(seed).permutation(n + 3)[:n]
    given = sp.csr_array(points) if sparse else points
    tree = partition_labels(given, labels, arity=arity, leaf_size=leaf_size, random_state=seed)
    check(tree, labels.tolist())
    sizes = np.bincount(tree.nodes)
    sizes = sizes[sizes > 0]
    assert sizes.max() <= leaf_size
    assert sizes.max() - sizes.min() <= 1
    assert np.bincount(tree.parents[1:], minlength=1).max() <= arity
    levels = depths(tree)
    if arity == 2:
        assert set(levels[tree.nodes].tolist()) == {max(ceil(np.log2(ceil(n / leaf_size))), 0)}
    else:
        assert len(sizes) == ceil(n / leaf_size)
        assert arity ** levels.max() >= len(sizes)
        assert levels.max() == 0 or arity ** (levels.max() - 1) < len(sizes)


@pytest.mark.parametrize(
    ("n", "arity", "leaf_size", "parents", "sizes"),
    [
        (5, 4, 5, [-1], [5]),
        (10, 4, 3, [-1, 0, 0, 0, 0], [2, 3, 2, 3]),
        (100, 1000, 10, [-1] + [0] * 10, [10] * 10),
        (5, 4, 1, [-1, 0, 1, 1, 0, 4, 4, 0], [1] * 5),  # five leaves in two levels: three parts with 2, 2 and 1
        (10, 2, 3, [-1, 0, 1, 1, 0, 4, 4], [2, 3, 2, 3]),
        (11, 2, 2, [-1, 0, 1, 2, 2, 1, 5, 5, 0, 8, 9, 9, 8, 12, 12], [1, 1, 1, 2, 1, 2, 1, 2]),
    ],
)
def test_shapes_by_hand(n, arity, leaf_size, parents, sizes):
    tree = partition_labels(random_points(n), range(n), arity=arity, leaf_size=leaf_size)
    assert tree.parents.tolist() == parents
    counts = np.bincount(tree.nodes)
    assert counts[counts > 0].tolist() == sizes


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_nested_blobs_are_the_leaves_of_balanced_trees(form):
    # Blob i lies at (+-4, +-2, +-1) by the bits of i.
    signs = np.array([[(-1) ** (blob >> bit & 1) for bit in range(3)] for blob in np.arange(160) % 8])
    points = signs * [4, 2, 1] + np.random.default_rng(0).normal(size=(160, 3)) * 0.1
    points = (points / np.linalg.norm(points, axis=1, keepdims=True)).astype(np.float32)
    wanted = {frozenset(range(group, 160, 8)) for group in range(8)}
    for seed in range(10):
        tree = partition_labels(form(points), range(160), arity=8, leaf_size=20, random_state=seed)
        check(tree, range(160))
        assert leaf_sets(tree) == wanted


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_blobs_are_not_mixed_by_means(form):
    points = blobs(8, 20)
    pure = []
    for seed in range(10):
        tree = partition_labels(form(points), range(160), arity=8, leaf_size=20, balanced=False, random_state=seed)
        check(tree, range(160))
        pure += [len({label % 8 for label in leaf}) == 1 for leaf in leaf_sets(tree)]
    assert np.mean(pure) > 0.9


@given(st.integers(2, 150), st.integers(2, 9), st.integers(1, 20), st.integers(0, 3), st.sampled_from([None, 1, 2]))
@settings(max_examples=100)
def test_trees_by_means(n, arity, leaf_size, seed, max_depth):
    points = random_points(n, random_state=seed)
    tree = partition_labels(
        points, range(n), arity=arity, leaf_size=leaf_size, balanced=False, max_depth=max_depth, random_state=seed
    )
    check(tree, range(n))
    assert np.bincount(tree.parents[1:], minlength=1).max() <= arity
    levels = depths(tree)
    sizes = np.bincount(tree.nodes, minlength=len(tree.parents))
    assert levels.max() <= (max_depth if max_depth is not None else n)
    assert (sizes[levels < levels.max()] <= leaf_size).all() or max_depth is None
    if max_depth is None:
        assert sizes.max() <= leaf_size


def test_k_means_by_hand():
    # Whatever the first two labels are, 0 and 1 lie in one direction, 2, 3 and 4 in the other.
    points = np.array([[1, 0], [1, 0], [0, 1], [0, 1], [0, 1]], np.float32)
    results = set()
    for seed in range(20):
        tree = partition_labels(points, range(5), arity=2, leaf_size=3, balanced=False, random_state=seed)
        results.add(frozenset(leaf_sets(tree)))
    assert frozenset({frozenset({0, 1}), frozenset({2, 3, 4})}) in results
    # Two first labels in one direction part nothing, and the labels are cut evenly.
    assert results <= {
        frozenset({frozenset({0, 1}), frozenset({2, 3, 4})}),
        frozenset({frozenset({0, 1, 2}), frozenset({3, 4})}),
    }


def test_a_group_of_one_joins_the_nearest():
    # Label 6 is alone in its direction, a little nearer to the labels 3 to 5 than to 0 to 2.
    points = np.zeros((7, 3), np.float32)
    points[:3, 0] = points[3:6, 1] = 1
    points[6] = 0.1, 0.3, np.sqrt(0.9)
    seen = set()
    for seed in range(30):
        tree = partition_labels(points, range(7), arity=3, leaf_size=4, balanced=False, random_state=seed)
        assert np.bincount(tree.nodes, minlength=3)[np.unique(tree.nodes)].min() > 1
        seen.add(frozenset(leaf_sets(tree)))
    assert frozenset({frozenset({0, 1, 2}), frozenset({3, 4, 5, 6})}) in seen


@pytest.mark.parametrize("balanced", [True, False])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("value", [0, 1])
def test_equal_points_end(balanced, form, value):
    points = np.full((50, 4), value, np.float32) / 2
    tree = partition_labels(form(points), range(50), arity=3, leaf_size=4, balanced=balanced)
    check(tree, range(50))
    assert np.bincount(tree.nodes).max() <= 4


@pytest.mark.parametrize("balanced", [True, False])
@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("arity", [2, 5, 1000])
def test_threads_and_the_order_of_work_change_nothing(monkeypatch, balanced, sparse, arity):
    points = random_points(700, random_state=4)
    points[np.abs(points) < 0.2] = 0
    given = sp.csr_array(points) if sparse else points
    make = {"arity": arity, "leaf_size": 6, "balanced": balanced, "random_state": 3}
    trees = [partition_labels(given, range(700), **make)]
    with config_context(n_jobs=3):
        trees.append(partition_labels(given, np.arange(700)[::-1], **make))
    monkeypatch.setattr(partition, "_SMALL", 50)
    monkeypatch.setattr(partition, "_LARGE", 100)
    trees.append(partition_labels(given, range(700), **make))
    for tree in trees[1:]:
        for one, two in zip(trees[0], tree, strict=True):
            np.testing.assert_array_equal(one, two)
    other = partition_labels(given, range(700), **{**make, "random_state": 4})
    assert leaf_sets(other) != leaf_sets(trees[0])


@given(st.integers(0, 2**32 - 1), st.integers(2, 80), st.booleans())
@settings(max_examples=60)
def test_sparse_points_give_the_tree_of_dense_ones(seed, n, balanced):
    points = random_points(n, dimensions=30, random_state=seed)
    points[np.abs(points) < 0.15] = 0
    trees = [
        partition_labels(form(points), range(n), arity=4, leaf_size=5, balanced=balanced, random_state=seed)
        for form in (np.asarray, sp.csr_array)
    ]
    for one, two in zip(*trees, strict=True):
        np.testing.assert_array_equal(one, two)


def test_a_limit_of_depth_makes_larger_leaves():
    tree = partition_labels(random_points(100), range(100), arity=3, leaf_size=2, max_depth=2)
    check(tree, range(100))
    assert depths(tree).max() == 2
    assert set(np.bincount(tree.nodes)[tree.nodes].tolist()) == {11, 12}
    assert partition_labels(random_points(9), range(9), arity=2, leaf_size=2, max_depth=0).parents.tolist() == [-1]


@pytest.mark.parametrize("balanced", [True, False])
def test_no_labels_and_one(balanced):
    points = random_points(3)
    assert partition_labels(points, [], arity=2, leaf_size=1, balanced=balanced).parents.tolist() == [-1]
    tree = partition_labels(points, [2], arity=2, leaf_size=1, balanced=balanced)
    assert [part.tolist() for part in tree] == [[-1], [0], [2]]


@pytest.mark.parametrize(
    ("name", "value"),
    [("arity", 1), ("arity", 2.5), ("leaf_size", 0), ("leaf_size", True), ("random_state", -1), ("max_depth", -1)],
)
def test_parameters_that_make_no_sense(name, value):
    given = {"arity": 2, "leaf_size": 2, name: value}
    with pytest.raises(ParameterError, match=f"{name} must be an integer"):
        partition_labels(random_points(5), range(5), **given)


@pytest.mark.parametrize("labels", [[0, 5], [-1, 2], [1, 1]])
def test_labels_that_have_no_point_or_come_twice(labels):
    with pytest.raises(InputError, match="different ids from 0 to 4"):
        partition_labels(random_points(5), labels, arity=2, leaf_size=2)


def two_leaves():
    # Directions at 0, 10, 40 degrees in leaf 1 and 60, 80, 90 degrees in leaf 2.
    angles = np.deg2rad([0, 10, 40, 60, 80, 90])
    points = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    return Branches(*(np.array(part, np.int32) for part in ([-1, 0, 0], [1, 1, 1, 2, 2, 2], range(6)))), points


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_overlap_by_hand(form):
    # The centres lie near 17 and 77 degrees, so that label 2 is 23 degrees from its own and 37 from the other: the
    # nearest to another leaf. Label 3, 17 from its own and 43 from the other, is next.
    tree, points = two_leaves()
    one = with_overlap(tree, form(points), share=1 / 6)
    assert (one.labels.tolist(), one.nodes.tolist()) == ([0, 1, 2, 3, 4, 5, 2], [1, 1, 1, 2, 2, 2, 2])
    two = with_overlap(tree, form(points), share=1 / 3)
    assert (two.labels.tolist()[6:], two.nodes.tolist()[6:]) == ([2, 3], [2, 1])
    assert with_overlap(tree, form(points), share=0) is tree


@given(st.integers(20, 200), st.integers(3, 20), st.floats(0, 1), st.integers(0, 5))
@settings(max_examples=60)
def test_overlap_grows_leaves_within_bounds(n, leaf_size, share, seed):
    points = random_points(n, random_state=seed)
    tree = partition_labels(points, range(n), arity=1000, leaf_size=leaf_size)
    wider = with_overlap(tree, points, share=share)
    assert wider.labels[:n].tolist() == tree.labels.tolist()
    more = len(wider.labels) - n
    assert more <= round(share * n)
    assert len(set(zip(wider.labels.tolist(), wider.nodes.tolist(), strict=True))) == len(wider.labels)
    before = np.bincount(tree.nodes)
    after = np.bincount(wider.nodes, minlength=len(before))
    assert (after <= np.ceil(before * (1 + 2 * share) + 1e-9)).all()
    assert len(np.unique(tree.nodes)) == 1 or share > 0.5 or more == round(share * n)


def test_overlap_among_near_leaves_is_that_among_all_where_these_are_all(monkeypatch):
    points = random_points(900, random_state=2)
    tree = partition_labels(points, range(900), arity=1000, leaf_size=16)
    whole = with_overlap(tree, points, share=0.2)
    monkeypatch.setattr(overlap, "_ALL", 1)
    for threads in (1, 3):
        with config_context(n_jobs=threads):
            some = with_overlap(tree, points, share=0.2)
        for one, two in zip(whole, some, strict=True):
            np.testing.assert_array_equal(one, two)


def test_overlap_among_near_leaves_finds_almost_all(monkeypatch):
    points = blobs(100, 12, spread=0.2)
    tree = partition_labels(points, range(1200), arity=1000, leaf_size=4)
    whole = with_overlap(tree, points, share=0.2)
    monkeypatch.setattr(overlap, "_ALL", 100)
    some = with_overlap(tree, points, share=0.2)
    pairs = [set(zip(t.labels[1200:].tolist(), t.nodes[1200:].tolist(), strict=True)) for t in (whole, some)]
    assert len(pairs[0] & pairs[1]) > 0.8 * len(pairs[0])


def test_overlap_leaves_labels_with_several_places():
    tree, points = two_leaves()
    twice = Branches(
        tree.parents, np.append(tree.nodes, 2).astype(np.int32), np.append(tree.labels, 2).astype(np.int32)
    )
    wider = with_overlap(twice, points, share=1 / 6)
    assert wider.labels.tolist()[7:] == [3]


@pytest.mark.parametrize("share", [-0.1, 1.5, True, "half", float("nan")])
def test_shares_that_make_no_sense(share):
    tree, points = two_leaves()
    with pytest.raises(ParameterError, match="share must be a number from 0 to 1"):
        with_overlap(tree, points, share=share)

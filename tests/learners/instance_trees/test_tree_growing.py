"""A grown tree against plain numpy: its shape, and its leaves by the training rows that go there."""

import numpy as np
import pytest
import scipy.sparse as sp

from longtail.learners.instance_trees.l1_logistic import L1Limits, L1Memory
from longtail.learners.instance_trees.ndcg_split import Relevance, ideal_gains
from longtail.learners.instance_trees.tree_growing import GrownTree, Growth, grow_tree

LIMITS = L1Limits(max_iter=10, max_inner_iter=10, tol=0.01)
GROWTH = Growth(leaf_size=4, leaf_labels=100, C=5.0, bias=1.0)


def data(n_rows=120, n_features=50, n_labels=25, seed=0):
    """Rows whose labels come with features of their own; some have no features, some no labels."""
    rng = np.random.default_rng(seed)
    Y = sp.random_array((n_rows, n_labels), density=min(0.15, 4 / n_labels), rng=rng, format="csr", dtype=np.float32)
    of_label = sp.random_array((n_labels, n_features), density=4 / n_features, rng=rng, format="csr", dtype=np.float32)
    X = Y.sign() @ of_label.sign() + sp.random_array(
        (n_rows, n_features), density=0.05, rng=rng, format="csr", dtype=np.float32
    )
    X, Y = sp.lil_array(X), sp.lil_array(Y)
    X[[3, n_rows - 1], :] = 0
    Y[[5], :] = 0
    return tuple(with_small_numbers(matrix) for matrix in (X, Y))


def with_small_numbers(matrix):
    made = sp.csr_array(matrix)
    made.indptr, made.indices = made.indptr.astype(np.int32), made.indices.astype(np.int32)
    return made


def grow(X, Y, growth=GROWTH, gains=None, ideal=True, seed=0, memory=None, stop=0):
    gains = np.ones(Y.shape[1], np.float32) if gains is None else np.asarray(gains, np.float32)
    inverse = np.ones(Y.shape[0], np.float32)
    if ideal:
        ideal_gains(Y.indptr, Y.indices, gains, inverse)
    memory = memory or L1Memory.for_matrix(*X.shape, X.nnz)
    return grow_tree(
        X.indptr, X.indices, X.data, Relevance(Y.indptr, Y.indices, gains, inverse), growth, LIMITS,
        np.array([seed], np.uint64), memory, np.array([stop], np.uint8),
    )  # fmt: skip


def weights_of(tree, node):
    first = tree.weight_counts[:node].sum()
    part = slice(first, first + tree.weight_counts[node])
    return tree.features[part], tree.weights[part]


def labels_of(tree, node):
    first = tree.label_counts[:node].sum()
    part = slice(first, first + tree.label_counts[node])
    return tree.labels[part], tree.values[part]


def route(tree, X):
    """Rows at each node, by plain numpy."""
    dense = X.toarray().astype(float)
    at = {0: np.arange(X.shape[0])}
    for node in range(len(tree.rights)):
        if tree.rights[node] == 0:
            continue
        features, weights = weights_of(tree, node)
        rows = at[node]
        margins = dense[rows][:, features] @ weights.astype(float) + float(tree.bias[node])
        at[node + 1], at[int(tree.rights[node])] = rows[margins < 0], rows[margins >= 0]
    return at


def assert_whole(tree, X, Y, growth, gains=None):
    """Everything that a tree promises."""
    n_nodes = len(tree.rights)
    assert isinstance(tree, GrownTree)
    floats = {"bias", "weights", "values"}
    for name, array in tree._asdict().items():
        assert array.dtype == (np.float32 if name in floats else np.int32), name
    assert len(tree.sizes) == len(tree.bias) == len(tree.weight_counts) == len(tree.label_counts) == n_nodes
    assert len(tree.features) == len(tree.weights) == tree.weight_counts.sum()
    assert len(tree.labels) == len(tree.values) == tree.label_counts.sum()
    leaves, inner = np.flatnonzero(tree.rights == 0), np.flatnonzero(tree.rights)

    def end_of(node):  # numbered as they are met: all under the left child, then all under the right one
        if tree.rights[node] == 0:
            return node + 1
        assert end_of(node + 1) == tree.rights[node]
        return end_of(tree.rights[node])

    assert end_of(0) == n_nodes
    assert tree.sizes[0] == X.shape[0]
    assert (tree.sizes > 0).all()
    np.testing.assert_array_equal(tree.sizes[inner], tree.sizes[inner + 1] + tree.sizes[tree.rights[inner]])
    assert (tree.sizes[inner] > growth.leaf_size).all()
    assert not tree.label_counts[inner].any()
    assert not tree.weight_counts[leaves].any()
    assert not tree.bias[leaves].any()
    for node in inner:
        features, weights = weights_of(tree, node)
        assert (np.diff(features) > 0).all()
        assert weights.all()
        assert np.isfinite(weights).all()
    rows_at = route(tree, X)
    np.testing.assert_array_equal([len(rows_at[node]) for node in range(n_nodes)], tree.sizes)
    worth = Y.toarray().astype(bool) * (np.ones(Y.shape[1]) if gains is None else np.asarray(gains, float))
    for leaf in leaves:
        labels, values = labels_of(tree, leaf)
        means = worth[rows_at[leaf]].mean(axis=0)
        np.testing.assert_allclose(values, means[labels], rtol=1e-5)
        assert len(set(labels)) == len(labels) == min(np.count_nonzero(means), growth.leaf_labels)
        assert (np.diff(values) <= 0).all()
        assert (np.diff(labels)[np.diff(values) == 0] > 0).all()
        left_out = np.delete(means, labels)
        assert not len(values) or left_out.max(initial=0) <= values[-1] * (1 + 1e-5)


@pytest.mark.parametrize(
    "growth",
    [
        GROWTH,
        GROWTH._replace(leaf_size=1),
        GROWTH._replace(leaf_size=30),
        GROWTH._replace(leaf_labels=2),
        GROWTH._replace(C=0.5),
        GROWTH._replace(bias=0.0),
        GROWTH._replace(bias=0.3, C=50.0),
    ],
)
@pytest.mark.parametrize("seed", [0, 1])
def test_shape_and_leaves_are_those_of_the_training_rows(growth, seed):
    X, Y = data(seed=seed)
    tree = grow(X, Y, growth, seed=seed)
    assert (tree.rights > 0).any(), "nothing was parted"
    assert_whole(tree, X, Y, growth)


@pytest.mark.parametrize("ideal", [True, False])
def test_leaves_hold_the_mean_of_the_gains(ideal):
    X, Y = data(seed=2)
    gains = np.random.default_rng(0).uniform(0.5, 20, Y.shape[1]).astype(np.float32)
    tree = grow(X, Y, GROWTH._replace(leaf_labels=3), gains, ideal)
    assert_whole(tree, X, Y, GROWTH._replace(leaf_labels=3), gains)
    assert tree.values.max() > 1


def test_a_large_tree_is_whole_too():
    """More nodes, weights and labels than there is room for at first."""
    growth = GROWTH._replace(leaf_size=1, C=20.0)
    X, Y = data(n_rows=1500, n_features=300, n_labels=150, seed=3)
    tree = grow(X, Y, growth)
    assert len(tree.rights) > 1024
    assert len(tree.weights) > 4096
    assert_whole(tree, X, Y, growth)


def test_a_leaf_of_many_labels():
    """More labels in one leaf than there is room for at first."""
    X, Y = data(n_rows=60, n_labels=900, seed=4)
    Y = with_small_numbers(sp.csr_array(np.random.default_rng(0).random(Y.shape) < 0.9, dtype=np.float32))
    growth = GROWTH._replace(leaf_size=60, leaf_labels=5000)
    tree = grow(X, Y, growth)
    assert len(tree.rights) == 1
    assert tree.label_counts[0] == 900
    assert_whole(tree, X, Y, growth)


def test_few_rows_are_one_leaf_by_hand():
    X, _ = data()
    Y = with_small_numbers(sp.csr_array(np.array([[1, 1, 0], [0, 1, 0], [0, 1, 0], [1, 0, 0]], np.float32)))
    tree = grow(with_small_numbers(X[:4]), Y, gains=[3.0, 1.0, 9.0])
    np.testing.assert_array_equal(tree.rights, [0])
    np.testing.assert_array_equal(tree.sizes, [4])
    np.testing.assert_array_equal(tree.labels, [0, 1])
    np.testing.assert_allclose(tree.values, [1.5, 0.75])
    cut = grow(with_small_numbers(X[:4]), Y, GROWTH._replace(leaf_labels=1), gains=[3.0, 1.0, 9.0])
    np.testing.assert_array_equal(cut.labels, [0])


def test_equal_means_go_by_the_lower_label():
    X, _ = data()
    Y = with_small_numbers(sp.csr_array(np.array([[0, 0, 1, 1], [1, 1, 0, 0]], np.float32)))
    tree = grow(with_small_numbers(X[:2]), Y, GROWTH._replace(leaf_labels=3))
    np.testing.assert_array_equal(tree.labels, [0, 1, 2])
    np.testing.assert_allclose(tree.values, [0.5, 0.5, 0.5])


def test_two_kinds_of_rows_are_split_at_the_root():
    X = with_small_numbers(sp.csr_array(np.repeat(np.eye(2, dtype=np.float32), 20, axis=0)))
    Y = with_small_numbers(sp.csr_array(np.repeat(np.eye(2, dtype=np.float32), 20, axis=0)))
    tree = grow(X, Y, GROWTH._replace(leaf_size=25))
    np.testing.assert_array_equal(tree.rights, [2, 0, 0])
    np.testing.assert_array_equal(tree.sizes, [40, 20, 20])
    assert set(tree.labels) == {0, 1}
    np.testing.assert_array_equal(tree.values, [1, 1])


def test_rows_that_no_hyperplane_separates_are_one_leaf():
    """The same features everywhere, or no labels, or costs too weak for any weight."""
    X, Y = data()
    alike = with_small_numbers(sp.csr_array(np.ones((120, 1), np.float32)))
    for rows, labels, growth in (
        (alike, Y, GROWTH),
        (with_small_numbers(sp.csr_array((120, 3), dtype=np.float32)), Y, GROWTH),
        (X, Y, GROWTH._replace(C=1e-6)),
    ):
        tree = grow(rows, labels, growth)
        assert len(tree.rights) == 1
        assert_whole(tree, rows, labels, growth)


def test_rows_without_labels_grow_a_tree_without_labels():
    X, Y = data()
    empty = with_small_numbers(sp.csr_array(Y.shape, dtype=np.float32))
    tree = grow(X, empty)
    assert len(tree.labels) == 0
    assert_whole(tree, X, empty, GROWTH)


def test_the_state_alone_decides_and_the_memory_stays_clean():
    X, Y = data()
    memory = L1Memory.for_matrix(*X.shape, X.nnz)
    first = grow(X, Y, seed=7, memory=memory)
    assert not memory.weights.any()
    assert not memory.counts.any()
    assert (memory.columns == -1).all()
    grow(X, Y, seed=8, memory=memory)
    for one, other in zip(first, grow(X, Y, seed=7, memory=memory), strict=True):
        np.testing.assert_array_equal(one, other)
    other = grow(X, Y, seed=8)
    assert len(other.weights) != len(first.weights) or (other.weights != first.weights).any()


def test_a_stop_leaves_the_memory_clean():
    X, Y = data()
    memory = L1Memory.for_matrix(*X.shape, X.nnz)
    assert len(grow(X, Y, memory=memory, stop=1).rights) == 0
    for one, other in zip(grow(X, Y, memory=memory), grow(X, Y), strict=True):
        np.testing.assert_array_equal(one, other)

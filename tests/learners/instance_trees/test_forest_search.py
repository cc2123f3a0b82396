"""Going down trees and ranking what their leaves hold, against plain numpy."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.learners.instance_trees.forest_search import Trees, find_leaves, rank_leaves

ALL, ALIKE = np.empty(0, np.bool_), np.empty(0, np.float32)


def make_trees(nodes):
    """Trees of nodes such as ("node", {feature: weight}, bias, left, right) and ("leaf", [(label, value), ...])."""
    roots, rights, bias, weight_starts, label_starts = [], [], [], [0], [0]
    features, weights, labels, values = [], [], [], []

    def add(node):
        number = len(rights)
        rights.append(0)
        if node[0] == "leaf":
            labels.extend(label for label, _ in node[1])
            values.extend(value for _, value in node[1])
            bias.append(0)
        else:
            features.extend(node[1])
            weights.extend(node[1].values())
            bias.append(node[2])
        weight_starts.append(len(weights))
        label_starts.append(len(labels))
        if node[0] == "node":
            add(node[3])
            rights[number] = len(rights)
            add(node[4])

    for tree in nodes:
        roots.append(len(rights))
        add(tree)
    return Trees(
        np.array(roots, np.int64), np.array(rights, np.int32), np.array(bias, np.float32),
        np.array(weight_starts, np.int64), np.array(features, np.int32), np.array(weights, np.float32),
        np.array(label_starts, np.int64), np.array(labels, np.int32), np.array(values, np.float32),
    )  # fmt: skip


def random_node(rng, depth, n_features, n_labels, most_labels):
    if depth == 0 or rng.random() < 0.15:
        count = rng.integers(0, most_labels + 1)
        # Parts of 8 add up without rounding, so that ties are ties.
        return "leaf", [
            (int(label), rng.integers(1, 9) / 8) for label in rng.choice(n_labels, min(count, n_labels), replace=False)
        ]
    chosen = np.sort(rng.choice(n_features, rng.integers(0, 5), replace=False)).tolist()
    weights = {feature: float(rng.integers(-4, 5)) for feature in chosen}
    below = [random_node(rng, depth - 1, n_features, n_labels, most_labels) for _ in range(2)]
    return "node", weights, float(rng.integers(-2, 3)), *below


def random_trees(seed, n_trees=4, depth=5, n_features=20, n_labels=30, most_labels=8):
    rng = np.random.default_rng(seed)
    return make_trees([random_node(rng, depth, n_features, n_labels, most_labels) for _ in range(n_trees)])


def random_rows(seed, n=60, n_features=20):
    rng = np.random.default_rng(seed)
    X = sp.random_array((n, n_features), density=0.3, rng=rng, format="csr", dtype=np.float32)
    X.data[:] = rng.integers(-2, 4, X.nnz)  # zeros among them
    return X.indptr.astype(np.int32), X.indices.astype(np.int32), X.data, X.toarray()


def leaves_in_numpy(trees, dense):
    leaves = np.empty((len(dense), len(trees.roots)), int)
    for row, values in enumerate(dense):
        for tree, node in enumerate(trees.roots):
            while trees.rights[node]:
                part = slice(trees.weight_starts[node], trees.weight_starts[node + 1])
                z = trees.weights[part] @ values[trees.features[part]] + trees.bias[node]
                node = trees.rights[node] if z >= 0 else node + 1
            leaves[row, tree] = node
    return leaves


def ranking_in_numpy(trees, leaves, k, allowed=None, factors=None):
    labels, scores = np.full((len(leaves), k), -1), np.full((len(leaves), k), -np.inf, np.float32)
    for row, reached in enumerate(leaves):
        sums = {}
        for leaf in reached:
            for at in range(trees.label_starts[leaf], trees.label_starts[leaf + 1]):
                label = int(trees.labels[at])
                sums[label] = sums.get(label, np.float32(0)) + trees.values[at]
        means = [
            (-(total / np.float32(len(reached)) * (np.float32(1) if factors is None else factors[label])), label)
            for label, total in sums.items()
        ]
        best = sorted(mean for mean in means if allowed is None or allowed[mean[1]])[:k]
        for place, (mean, label) in enumerate(best):
            labels[row, place], scores[row, place] = label, -mean
    return labels, scores


def found_leaves(trees, rows, first=0, last=None, n_features=20):
    last = len(rows[0]) - 1 if last is None else last
    leaves = np.full((last - first, len(trees.roots)), -1, np.int32)
    find_leaves(*rows[:3], first, last, n_features, trees, leaves)
    return leaves


def ranked(trees, leaves, k, allowed=ALL, factors=ALIKE):
    labels, scores = np.full((len(leaves), k), -1, np.int32), np.full((len(leaves), k), -np.inf, np.float32)
    rank_leaves(np.asarray(leaves, np.int32), trees, allowed, factors, labels, scores)
    return labels, scores


@pytest.mark.parametrize("seed", range(4))
def test_rows_come_to_the_leaves_that_numpy_finds(seed):
    trees, rows = random_trees(seed), random_rows(seed)
    expected = leaves_in_numpy(trees, rows[3])
    np.testing.assert_array_equal(found_leaves(trees, rows), expected)
    np.testing.assert_array_equal(found_leaves(trees, rows, 13, 40), expected[13:40])
    assert found_leaves(trees, rows, 5, 5).shape == (0, 4)
    assert len(np.unique(expected)) > 20


def test_rows_go_alone_where_they_go_together():
    trees, rows = random_trees(9, depth=8), random_rows(9)
    expected = leaves_in_numpy(trees, rows[3])
    for row in range(60):
        np.testing.assert_array_equal(found_leaves(trees, rows, row, row + 1), expected[row : row + 1])
    pairs = np.concatenate([found_leaves(trees, rows, row, row + 2) for row in range(0, 60, 2)])
    np.testing.assert_array_equal(pairs, expected)


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), n_features=st.integers(1, 400), filled=st.integers(0, 12))
def test_a_lone_row_among_many_weights(seed, n_features, filled):
    """Its features are looked up where a node has many more: first, last and missing ones among them."""
    rng = np.random.default_rng(seed)
    chosen = np.sort(rng.choice(n_features, rng.integers(0, n_features + 1), replace=False)).tolist()
    weights = {feature: float(rng.integers(-4, 5)) for feature in chosen}
    trees = make_trees([("node", weights, float(rng.integers(-2, 3)), ("leaf", []), ("leaf", []))])
    dense = np.zeros((1, n_features), np.float32)
    dense[0, rng.choice(n_features, min(filled, n_features), replace=False)] = rng.integers(-2, 4)
    X = sp.csr_array(dense)
    leaves = found_leaves(trees, (X.indptr, X.indices.astype(np.int32), X.data), n_features=n_features)
    np.testing.assert_array_equal(leaves, leaves_in_numpy(trees, dense))


def test_deep_trees():
    """Row i leaves the path of 200 nodes at the i-th."""
    node = ("leaf", [])
    for feature in range(199, -1, -1):
        node = ("node", {feature: 1.0}, -0.5, node, ("leaf", [(feature, 1.0)]))
    trees = make_trees([node])
    rows = np.arange(201, dtype=np.int32), np.arange(200, dtype=np.int32), np.ones(200, np.float32)
    leaves = found_leaves(trees, rows, n_features=200)
    np.testing.assert_array_equal(trees.labels[trees.label_starts[leaves.ravel()]], np.arange(200))


def test_a_margin_of_zero_goes_right():
    trees = make_trees([("node", {0: 1.0}, -2.0, ("leaf", [(0, 1.0)]), ("leaf", [(1, 1.0)]))])
    values = np.array([2.0, np.nextafter(np.float32(2), np.float32(0)), 0.0], np.float32)
    rows = np.arange(4, dtype=np.int32), np.zeros(3, np.int32), values
    np.testing.assert_array_equal(found_leaves(trees, rows, n_features=1).ravel(), [2, 1, 1])


@pytest.mark.parametrize("k", [1, 3, 31, 32, 33, 40, 100])
@pytest.mark.parametrize("seed", range(2))
def test_rankings_are_those_of_numpy(seed, k):
    trees = random_trees(seed, n_trees=5, n_labels=60, most_labels=20)
    leaves = leaves_in_numpy(trees, random_rows(seed)[3])
    for allowed in (None, np.random.default_rng(seed).random(60) < 0.5, np.zeros(60, bool)):
        labels, scores = ranked(trees, leaves, k, ALL if allowed is None else allowed)
        expected_labels, expected_scores = ranking_in_numpy(trees, leaves, k, allowed)
        np.testing.assert_array_equal(labels, expected_labels)
        np.testing.assert_array_equal(scores, expected_scores)


@pytest.mark.parametrize("k", [1, 7, 32, 33, 100])
def test_rankings_with_factors_are_those_of_numpy(k):
    """Powers of two, so that products are exact and ties are ties."""
    trees = random_trees(5, n_trees=5, n_labels=60, most_labels=20)
    leaves = leaves_in_numpy(trees, random_rows(5)[3])
    rng = np.random.default_rng(5)
    factors = 2.0 ** rng.integers(0, 6, 60).astype(np.float32)
    for allowed in (None, rng.random(60) < 0.5):
        labels, scores = ranked(trees, leaves, k, ALL if allowed is None else allowed, factors)
        expected_labels, expected_scores = ranking_in_numpy(trees, leaves, k, allowed, factors)
        np.testing.assert_array_equal(labels, expected_labels)
        np.testing.assert_array_equal(scores, expected_scores)
    assert (ranked(trees, leaves, 1, ALL, factors)[0] != ranked(trees, leaves, 1)[0]).any()


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), n_trees=st.integers(1, 7), n_labels=st.integers(1, 50), k=st.integers(1, 31))
def test_a_larger_k_starts_with_the_ranking_of_a_smaller_one(seed, n_trees, n_labels, k):
    """A small k is filled by insertion, a large one by sorting."""
    trees = random_trees(seed, n_trees, 3, n_labels=n_labels, most_labels=40)
    leaves = leaves_in_numpy(trees, random_rows(seed, n=5)[3])
    few, many = ranked(trees, leaves, k), ranked(trees, leaves, 50)
    np.testing.assert_array_equal(few[0], many[0][:, :k])
    np.testing.assert_array_equal(few[1], many[1][:, :k])


@pytest.mark.parametrize("k", [2, 40])
def test_values_of_a_label_add_up_over_trees_and_inside_of_a_leaf(k):
    """Labels 7 and 263 would share a place in a table of 256."""
    trees = make_trees([("leaf", [(7, 0.5), (263, 0.25), (7, 0.125)]), ("leaf", [(263, 0.75)]), ("leaf", [])])
    labels, scores = ranked(trees, [[0, 1, 2]], k)
    np.testing.assert_array_equal(labels[0, :2], [263, 7])
    np.testing.assert_allclose(scores[0, :2], [1 / 3, 0.625 / 3], rtol=1e-6)
    assert (labels[0, 2:] == -1).all()
    assert (scores[0, 2:] == -np.inf).all()


@pytest.mark.parametrize("k", [3, 50])
def test_ties_go_by_the_lower_label(k):
    trees = make_trees([("leaf", [(label, 0.5) for label in (9, 4, 1, 30, 2)] + [(12, 1.0)])])
    labels, _ = ranked(trees, [[0]], k)
    np.testing.assert_array_equal(labels[0, : min(k, 6)], [12, 1, 2, 4, 9, 30][:k])


@pytest.mark.parametrize("k", [5, 200])
def test_leaves_of_many_labels(k):
    """Rows with many labels after and before rows with few: the table grows, and what a row left in it is gone."""
    rng = np.random.default_rng(0)
    sizes = [3, 700, 0, 5, 2000, 1]
    trees = make_trees(
        [
            ("leaf", [(int(label), rng.integers(1, 9) / 8) for label in rng.choice(50_000, size, replace=False)])
            for size in sizes
        ]
    )
    leaves = np.array([[0, 1, 2], [2, 2, 2], [4, 1, 4], [5, 3, 0], [4, 4, 3]])
    labels, scores = ranked(trees, leaves, k)
    expected_labels, expected_scores = ranking_in_numpy(trees, leaves, k)
    np.testing.assert_array_equal(labels, expected_labels)
    np.testing.assert_array_equal(scores, expected_scores)

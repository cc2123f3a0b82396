"""Instance trees: the contract of learners, leaves against plain numpy, and explanations."""

from typing import ClassVar

import numpy as np
import pytest
import scipy.sparse as sp

from longtail import InstanceForest, Model, load
from longtail.errors import InputError, ParameterError
from longtail.learners import InstanceTrees
from longtail.learners.instance_trees import training
from longtail.propensity import JainPropensity
from longtail.weighting import WEIGHTINGS, InversePropensity, get_weighting
from tests.learners.contract import NO_FEATURES, UNSEEN, MatrixContract, assert_same, small_data

SMALL = {"n_trees": 4, "leaf_size": 3, "C": 5.0}
ARRAYS = [name for name in InstanceTrees._stored if not name.startswith("n_")]


class TestInstanceForest(MatrixContract):
    other_params: ClassVar = {"n_trees": 2, "leaf_size": 7, "leaf_labels": 3, "criterion": "dcg", "bias": 0.5}

    def make(self, **params):
        return InstanceForest(**SMALL | params)


class TestPfastXML(MatrixContract):
    other_params: ClassVar = {"weighting": "pw", "criterion": "ndcg"}

    def make(self, **params):
        return InstanceForest(**SMALL | {"weighting": "inverse-propensity", "criterion": "dcg"} | params)


class TestNormalised(MatrixContract):
    other_params: ClassVar = {"normalise": False, "C": 2.0}

    def make(self, **params):
        return InstanceForest(**SMALL | {"normalise": True, "C": 30.0, "bias": 0.0} | params)


def more_data():
    return small_data(n_rows=150, n_features=60, n_labels=40, seed=1)


@pytest.fixture(scope="module")
def forest():
    return InstanceForest(**SMALL).fit(*more_data())


def assert_same_trees(one, other):
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


def scores_of(learner, X):
    top = learner.predict_topk(X, learner.n_labels_)
    return [dict(zip(*row, strict=True)) for row in zip(top.labels.tolist(), top.scores.tolist(), strict=True)]


VARIANTS = {
    "plain": {},
    "few labels a leaf": {"leaf_labels": 2},
    "large leaves": {"leaf_size": 30},
    "normalised": {"normalise": True, "C": 50.0},
    "no bias": {"bias": 0.0},
    **{name: {"weighting": name, "criterion": "dcg"} for name in WEIGHTINGS},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_leaves_hold_the_mean_gains_of_the_rows_that_come_to_them(variant):
    """In plain numpy, from the rows that `leaves` finds at each leaf; a score is the mean over the trees."""
    X, Y = more_data()
    learner = InstanceForest(**SMALL | VARIANTS[variant]).fit(X, Y)
    trees, reached, kept = learner.trees_, learner.leaves(X), learner.leaf_labels
    gains = get_weighting(learner.weighting).costs(learner.label_counts_, X.shape[0]).positive.astype(float)
    worth = Y.toarray() * gains
    expected = np.zeros(Y.shape)
    for tree in range(SMALL["n_trees"]):
        for leaf in np.unique(reached[:, tree]):
            rows = np.flatnonzero(reached[:, tree] == leaf)
            assert trees.sizes_[leaf] == len(rows)
            assert trees.rights_[leaf] == 0
            means = worth[rows].mean(axis=0)
            part = slice(trees.label_starts_[leaf], trees.label_starts_[leaf + 1])
            labels, values = trees.labels_[part], trees.values_[part]
            assert len(labels) == min(kept, np.count_nonzero(means))
            np.testing.assert_allclose(values, means[labels], rtol=1e-5)
            np.testing.assert_allclose(values, np.sort(means)[::-1][: len(values)], rtol=1e-5)
            expected[np.ix_(rows, labels)] += values / SMALL["n_trees"]
    for row, scores in enumerate(scores_of(learner, X)):
        scores.pop(-1, None)
        assert set(scores) == set(np.flatnonzero(expected[row]))
        np.testing.assert_allclose(list(scores.values()), expected[row, list(scores)], rtol=1e-5)


def test_inner_nodes_have_more_rows_than_a_leaf_may():
    X, Y = more_data()
    for leaf_size in (1, 10, 60):
        trees = InstanceForest(n_trees=3, leaf_size=leaf_size, C=5.0).fit(X, Y).trees_
        inner = np.flatnonzero(trees.rights_)
        assert (trees.sizes_[inner] > leaf_size).all()
        np.testing.assert_array_equal(trees.sizes_[inner], trees.sizes_[inner + 1] + trees.sizes_[trees.rights_[inner]])
        assert len(inner)


def test_the_gains_of_pfastxml_by_hand():
    """Four rows in one leaf, labels of 3, 1 and 0 rows: n/4 * 1/p, 1/p = 1 + C (n + B)^-A, C = (ln 4 - 1)(B + 1)^A."""
    X, Y = np.eye(4), np.array([[1, 0, 0], [1, 0, 0], [1, 1, 0], [0, 0, 0]])
    learner = InstanceForest(n_trees=2, leaf_size=4, weighting="inverse-propensity", criterion="dcg").fit(X, Y)
    c = (np.log(4) - 1) * 2.5**0.55
    expected = [3 / 4 * (1 + c * 4.5**-0.55), 1 / 4 * (1 + c * 2.5**-0.55)]
    top = learner.predict_topk(X, 3)
    np.testing.assert_array_equal(top.labels, [[0, 1, -1]] * 4)
    np.testing.assert_allclose(top.scores[:, :2], [expected] * 4, rtol=1e-5)
    other = InstanceForest(
        n_trees=2, leaf_size=4, weighting=InversePropensity(propensity=JainPropensity(a=0.6, b=2.6))
    ).fit(X, Y)
    c = (np.log(4) - 1) * 3.6**0.6
    expected = [3 / 4 * (1 + c * 5.6**-0.6), 1 / 4 * (1 + c * 3.6**-0.6)]
    np.testing.assert_allclose(other.predict_topk(X, 2).scores, [expected] * 4, rtol=1e-5)


def test_the_ideal_matters_where_rows_have_several_labels():
    X, Y = more_data()
    one_label = sp.csr_array(np.eye(40, dtype=np.float32)[np.asarray(Y.argmax(axis=1)).ravel()])
    for labels, same in ((one_label, True), (Y, False)):
        normalised, plain = (InstanceForest(**SMALL, criterion=name).fit(X, labels).trees_ for name in ("ndcg", "dcg"))
        weights = normalised.weights_, plain.weights_
        assert (len(weights[0]) == len(weights[1]) and (weights[0] == weights[1]).all()) == same


def test_normalised_rows_may_have_any_length():
    X, Y = more_data()
    lengths = np.random.default_rng(0).choice([0.25, 1.0, 8.0], X.shape[0])
    scaled = sp.csr_array(sp.diags_array(lengths.astype(np.float32)) @ X)
    learner = InstanceForest(**SMALL | {"normalise": True}).fit(X, Y)
    np.testing.assert_array_equal(learner.leaves(scaled), learner.leaves(X))
    unit = sp.csr_array(sp.diags_array(1 / np.maximum(np.sqrt(X.multiply(X).sum(axis=1)), 1e-9)) @ X)
    plain = InstanceForest(**SMALL).fit(unit.astype(np.float32), Y)
    np.testing.assert_allclose(
        plain.predict_topk(unit, 1).scores.mean(), learner.predict_topk(X, 1).scores.mean(), atol=0.05
    )
    assert (InstanceForest(**SMALL).fit(X, Y).leaves(scaled) != learner.leaves(X)).any()


def test_more_trees_are_those_of_a_larger_forest(forest, tmp_path):
    X, Y = more_data()
    larger = InstanceForest(**SMALL | {"n_trees": 9}).fit(X, Y)
    grown = InstanceForest(**SMALL | {"n_trees": 2}).fit(X, Y).add_trees(X, Y, 2)
    assert_same_trees(grown.trees_, forest.trees_)
    assert grown.n_trees == 4
    Model(grown).save(tmp_path / "model")
    grown = load(tmp_path / "model").learner.add_trees(X, Y, 5)
    assert grown.n_trees == 9
    assert_same_trees(grown.trees_, larger.trees_)
    assert_same(grown.predict_topk(X, 40), larger.predict_topk(X, 40))
    for row in (0, 17):
        assert repr(grown.explain(X[[row]])) == repr(larger.explain(X[[row]]))


def test_more_trees_from_other_rows_leave_the_first_as_they_are(forest):
    X, Y = more_data()
    grown = InstanceForest(**SMALL).fit(X, Y).add_trees(X[:100], Y[:100], 3)
    reached = grown.leaves(X)
    assert reached.shape == (150, 7)
    np.testing.assert_array_equal(reached[:, :4], forest.leaves(X))
    np.testing.assert_array_equal(grown.trees_.sizes_[grown.trees_.roots_], [150] * 4 + [100] * 3)


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        (lambda X, Y: (X, Y, 0), ParameterError, "n_trees"),
        (lambda X, Y: (X, Y, 1.5), ParameterError, "n_trees"),
        (lambda X, Y: (X, Y, True), ParameterError, "n_trees"),
        (lambda X, Y: (X, Y[:, :3], 1), InputError, "labels"),
        (lambda X, Y: (X[:, :3], Y, 1), InputError, "features"),
        (lambda X, Y: (X[:9], Y, 1), InputError, "the same rows"),
        (lambda X, Y: (X[:0], Y[:0], 1), InputError, "no rows"),
    ],
)
def test_more_trees_that_make_no_sense_are_refused(forest, change, error, match):
    before = dict(vars(forest))
    with pytest.raises(error, match=match):
        forest.add_trees(*change(*more_data()))
    assert vars(forest) == before


def test_a_growth_that_fails_leaves_the_forest_as_it_was(monkeypatch):
    X, Y = more_data()
    learner = InstanceForest(**SMALL).fit(X, Y)
    before = dict(vars(learner))

    def broken(self, number, stop):
        raise ValueError("broken")

    monkeypatch.setattr(training.TreeTrainer, "grow_one", broken)
    with pytest.raises(ValueError, match="broken"):
        learner.add_trees(X, Y, 2)
    assert vars(learner) == before


def test_threads_and_chunks_change_no_bit(forest):
    X, Y = more_data()
    for threads in (1, 3):
        assert_same_trees(InstanceForest(**SMALL, n_jobs=threads).fit(X, Y).trees_, forest.trees_)
    many = sp.csr_array(sp.vstack([X] * 9))
    top, leaves = forest.predict_topk(X, 5), forest.leaves(X)
    for learner in (forest, InstanceForest(**SMALL, n_jobs=1).fit(X, Y)):
        np.testing.assert_array_equal(learner.predict_topk(many, 5).scores, np.tile(top.scores, (9, 1)))
        np.testing.assert_array_equal(learner.leaves(many), np.tile(leaves, (9, 1)))


def test_another_seed_gives_other_trees(forest):
    X, Y = more_data()
    other = InstanceForest(**SMALL, random_state=1).fit(X, Y)
    assert (other.leaves(X) != forest.leaves(X)).any()
    roots = [forest.trees_.sizes_[root + 1] for root in forest.trees_.roots_]
    assert len(set(roots)) > 1  # and so does each number of a tree


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_trees", 0),
        ("n_trees", 1.5),
        ("n_trees", True),
        ("leaf_size", 0),
        ("leaf_size", "many"),
        ("leaf_labels", 0),
        ("leaf_labels", 2**31),
        ("weighting", "heavy"),
        ("weighting", 3),
        ("criterion", True),
        ("criterion", "ndgc"),
        ("C", 0),
        ("C", -1),
        ("C", np.inf),
        ("C", "strong"),
        ("normalise", "yes"),
        ("bias", -1),
        ("bias", np.nan),
        ("max_iter", 0),
        ("max_inner_iter", 0),
        ("max_inner_iter", 2.0),
        ("tol", 0),
        ("tol", np.nan),
        ("random_state", -1),
        ("random_state", 0.5),
        ("n_jobs", 0),
    ],
)
def test_wrong_parameters_are_refused(name, value):
    X, Y = small_data()
    learner = InstanceForest(**{name: value})
    with pytest.raises(ParameterError, match=f"^{name} "):
        learner.fit(X, Y)
    assert not hasattr(learner, "trees_")


def test_parts_and_sources_add_up_to_the_score(forest):
    X, _ = more_data()
    top = forest.predict_topk(X, 6)
    for row in range(0, 150, 7):
        for why, score in zip(forest.explain(X[[row]], k=6), top.scores[row], strict=False):
            assert why.score == pytest.approx(float(score), rel=1e-5)
            assert why.bias + sum(effect for _, effect in why.parts) == pytest.approx(why.score, rel=1e-9)
            assert sum(share for _, share in why.sources) == pytest.approx(why.score, rel=1e-9)
            assert {int(feature) for feature, _ in why.parts} <= set(X[[row]].indices)
            sizes = [abs(share) for _, share in why.sources]
            assert sizes == sorted(sizes, reverse=True)


def test_sources_are_the_leaves_that_hold_the_label(forest):
    X, _ = more_data()
    trees, reached = forest.trees_, forest.leaves(X)[20]
    why = forest.explain(X[[20]], k=1)[0]
    expected = {}
    for tree, leaf in enumerate(reached):
        part = slice(trees.label_starts_[leaf], trees.label_starts_[leaf + 1])
        for label, value in zip(trees.labels_[part], trees.values_[part], strict=True):
            if label == why.label:
                expected[f"tree {tree}, leaf {leaf} of {trees.sizes_[leaf]} rows"] = value / 4
    assert dict(why.sources) == pytest.approx(expected, rel=1e-6)


def test_an_explanation_by_hand():
    """One split: the root gives what all rows would score, the step to the leaf goes to the features that made it."""
    X = np.repeat(np.eye(2), 10, axis=0)
    Y = np.repeat(np.eye(2), [10, 10], axis=0)
    learner = InstanceForest(n_trees=1, leaf_size=12, C=10.0, bias=0.0).fit(X, Y)
    np.testing.assert_array_equal(learner.trees_.rights_, [2, 0, 0])
    right, wrong = learner.explain(X[:1], [0, 1])
    assert (right.score, right.bias, right.parts) == (1, 0.5, [("0", 0.5)])
    assert (wrong.score, wrong.bias, wrong.parts, wrong.sources) == (0, 0.5, [("0", -0.5)], [])
    assert [share for _, share in right.sources] == [1]


def test_the_path_is_that_of_the_tree_that_contributed_most(forest):
    X, _ = more_data()
    for row in (0, 33, 99):
        for why in forest.explain(X[[row]], k=6):
            name, share = why.sources[0]
            assert why.path_share == pytest.approx(share / why.score, rel=1e-6)
            assert why.path_share == max(amount for _, amount in why.sources) / why.score
            tree = int(why.path_name.split(",")[0].removeprefix("tree "))
            assert dict(why.sources)[why.path_name] == share
            ways = ["right" if margin >= 0 else "left" for _, margin, _ in forest.path(X[[row]], tree)[:-1]]
            assert [way for way, _ in why.path] == ways
            assert why.remark == ""
            assert name.startswith("tree ")


def test_a_label_that_no_leaf_holds_is_reported():
    X, Y = more_data()
    learner = InstanceForest(**SMALL | {"leaf_labels": 1}).fit(X, Y)
    held, ranked = set(learner.trees_.labels_.tolist()), set(scores_of(learner, X[[0]])[0])
    seen = set(np.flatnonzero(learner.label_counts_).tolist())
    for labels, remark in (
        (seen - held, "No leaf of any tree holds this label"),
        (held - ranked, "None of the leaves that the row reached holds this label"),
        (ranked - {-1}, ""),
    ):
        assert labels
        for why in learner.explain(X[[0]], sorted(labels)):
            assert why.remark.startswith(remark)
            assert bool(why.remark) == bool(remark)
            assert type(why.bias) is type(why.score) is type(why.path_share) is float


def test_a_label_that_was_cut_off_has_no_score():
    X, Y = more_data()
    learner = InstanceForest(**SMALL | {"leaf_labels": 1}).fit(X, Y)
    scores = scores_of(learner, X[[0]])[0]
    seen = np.flatnonzero(learner.label_counts_)
    assert len(scores) < len(seen)
    for why in learner.explain(X[[0]], seen):
        assert why.score == pytest.approx(scores.get(why.label, 0), rel=1e-5, abs=1e-12)
        assert why.bias + sum(effect for _, effect in why.parts) == pytest.approx(why.score, abs=1e-9)
    with pytest.raises(InputError, match="no training row"):
        learner.explain(X[[0]], [UNSEEN])


def test_paths_end_where_leaves_says(forest):
    X, _ = more_data()
    dense, trees, reached = X.toarray(), forest.trees_, forest.leaves(X)
    for row in (0, NO_FEATURES, 33, 99, 149):
        for tree in range(4):
            *steps, (leaf, margin, parts) = forest.path(X[[row]], tree)
            assert leaf == reached[row, tree]
            assert (margin, parts) == (0, [])
            nodes = [node for node, _, _ in steps] + [leaf]
            assert nodes[0] == trees.roots_[tree]
            for (node, margin, parts), following in zip(steps, nodes[1:], strict=True):
                assert following == (trees.rights_[node] if margin >= 0 else node + 1)
                assert margin == pytest.approx(float(trees.bias_[node]) + sum(effect for _, effect in parts), abs=1e-9)
                own = slice(trees.weight_starts_[node], trees.weight_starts_[node + 1])
                weights = dict(zip(trees.features_[own], trees.weights_[own], strict=True))
                assert {feature for feature, _ in parts} == {f for f in weights if dense[row, f] != 0}
                for feature, effect in parts:
                    assert effect == pytest.approx(weights[feature] * dense[row, feature], rel=1e-6)
                sizes = [abs(effect) for _, effect in parts]
                assert sizes == sorted(sizes, reverse=True)


def test_paths_of_normalised_rows_end_where_leaves_says():
    X, Y = more_data()
    learner = InstanceForest(**SMALL | {"normalise": True, "C": 50.0}).fit(X, Y)
    reached = learner.leaves(X)
    for row in range(0, 150, 9):
        assert [learner.path(X[[row]], tree)[-1][0] for tree in range(4)] == reached[row].tolist()


def test_a_path_in_a_close_case_ends_where_leaves_says(forest):
    """Effects of a million on both sides cancel out but for what rounding leaves."""
    trees, rng = forest.trees_, np.random.default_rng(0)
    own = slice(trees.weight_starts_[0], trees.weight_starts_[1])
    features, weights = trees.features_[own], trees.weights_[own]
    for _ in range(30):
        one, other = rng.choice(len(features), 2, replace=False)
        size = np.float32(rng.uniform(1e5, 1e7))
        row = np.zeros((1, 60), np.float32)
        row[0, features[[one, other]]] = size * weights[other], -size * weights[one]
        assert forest.path(row, 0)[-1][0] == forest.leaves(row)[0, 0]


@pytest.mark.parametrize("tree", [4, -1, 1.0, True, "first"])
def test_a_path_in_a_tree_that_is_not_there(forest, tree):
    with pytest.raises(ParameterError, match="tree "):
        forest.path(more_data()[0][[0]], tree)
    with pytest.raises(InputError, match="one row"):
        forest.path(more_data()[0][:2], 0)


def test_leaves_of_no_rows(forest):
    X, _ = more_data()
    assert forest.leaves(X[:0]).shape == (0, 4)
    assert forest.leaves(X).dtype == np.int32

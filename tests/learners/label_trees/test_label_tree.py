"""The label tree: the contract of learners, and its own parts against plain numpy."""

from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import scipy.sparse as sp

from longtail import LabelTree, Model, load, resumable
from longtail.config import config_context
from longtail.errors import InputError, ParameterError
from longtail.learners.label_trees.chunks import DENSE_FROM
from longtail.runtime.block_file import BlockFile
from tests.learners.contract import MatrixContract, assert_same, small_data


class TestLabelTree(MatrixContract):
    other_params: ClassVar = {"leaf_size": 3, "discount": 0.5, "loss": "logistic", "precision": "float16"}

    def make(self, **params):
        return LabelTree(**{"leaf_size": 4, "arity": 3, "precision": "float32", "prune_below": 0.0} | params)


class TestEnsemble(MatrixContract):
    other_params: ClassVar = {"n_trees": 3}

    def make(self, **params):
        defaults = {
            "n_trees": 2,
            "leaf_size": 4,
            "arity": 2,
            "n_hard_negatives": 0,
            "discount": 1.0,
            "precision": "float32",
        }
        return LabelTree(**defaults | params)


class TestUnbalanced(MatrixContract):
    other_params: ClassVar = {"max_depth": 1}

    def make(self, **params):
        defaults = {"leaf_size": 3, "arity": 3, "balanced": False, "max_depth": 3, "precision": "float32"}
        return LabelTree(**defaults | {"overlap": 0.3} | params)


class TestBestFirst(MatrixContract):
    other_params: ClassVar = {"loss": "squared-hinge"}

    def make(self, **params):
        defaults = {"leaf_size": 2, "arity": 2, "search": "best-first", "loss": "logistic", "precision": "float32"}
        return LabelTree(**defaults | params)


def path_scores(learner, X):
    """Scores of all labels by plain numpy, every path walked; the best path of a tree counts, then the mean."""
    forest, chunks = learner.forest_, learner.weights_.chunks
    dense = np.zeros((learner.weights_.n_blocks * 64, learner.n_features_in_))
    for block, encoded in enumerate(learner.weights_.blocks()):
        entry = row = 0
        for key, kept in zip(encoded.keys, encoded.kept, strict=True):
            if kept > DENSE_FROM:
                dense[block * 64 : (block + 1) * 64, key] = encoded.dense.reshape(-1, 64)[row]
                row += 1
            else:
                lanes = encoded.lanes[entry : entry + kept].astype(int)
                dense[block * 64 + lanes, key] = encoded.values[entry : entry + kept]
                entry += kept
    lengths = np.sqrt(np.asarray(X.multiply(X).sum(axis=1))).ravel()
    rows = X.toarray() / np.where(lengths > 0, lengths, 1)[:, None]
    z = rows @ dense.T + learner.bias * chunks.bias
    values = -np.logaddexp(0, -z) if learner.loss == "logistic" else -(np.maximum(0, 1 - z) ** 2)
    scores = np.zeros((X.shape[0], learner.n_labels_, forest.n_trees_))
    starts = learner.weights_.block_starts_

    def walk(node, above, tree):
        for lane in range(starts[node] * 64, starts[node + 1] * 64):
            member = chunks.members[lane]
            here = values[:, lane] + learner.discount * above
            if member >= 0:
                scores[:, member, tree] = np.maximum(scores[:, member, tree], np.exp(here))
            elif member < -1:
                walk(-2 - member, here, tree)

    for tree in range(forest.n_trees_):
        walk(tree, np.zeros(X.shape[0]), tree)
    return scores.mean(axis=2)


VARIANTS = {
    "one level": {"leaf_size": 4, "arity": 8},
    "binary": {"leaf_size": 2, "arity": 2, "discount": 1.0},
    "logistic": {"leaf_size": 3, "arity": 2, "loss": "logistic", "discount": 0.98},
    "unbalanced, overlapping": {"leaf_size": 2, "arity": 3, "balanced": False, "overlap": 0.5},
    "three trees": {"leaf_size": 4, "arity": 2, "n_trees": 3, "n_hard_negatives": 0},
    "one leaf": {"leaf_size": 100},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_wide_beam_and_the_exact_search_agree_with_numpy(variant):
    X, Y = small_data(n_rows=120, n_features=50, n_labels=90, seed=3)
    learner = LabelTree(**{"precision": "float32", "beam": 100} | VARIANTS[variant]).fit(X, Y)
    wanted = path_scores(learner, X)
    top = learner.predict_topk(X, 90)
    rows, places = np.nonzero(top.labels >= 0)
    np.testing.assert_allclose(top.scores[rows, places], wanted[rows, top.labels[rows, places]], rtol=2e-4, atol=1e-6)
    assert (np.count_nonzero(top.labels >= 0, axis=1) == np.count_nonzero(learner.label_counts_)).all()
    if learner.n_trees == 1:
        exact = learner.set_params(search="best-first").predict_topk(X, 7)
        np.testing.assert_allclose(exact.scores, top.scores[:, :7], rtol=1e-5)
        weights = np.random.default_rng(0).uniform(0, 30, 90)
        weighted = learner.predict_weighted_topk(X, weights, k=5)
        best = np.sort(wanted * weights, axis=1)[:, ::-1][:, :5]
        np.testing.assert_allclose(weighted.scores, best, rtol=5e-4, atol=1e-6)


def test_exact_search_opens_few_nodes():
    X, Y = small_data(n_rows=200, n_features=80, n_labels=120, seed=1)
    learner = LabelTree(leaf_size=2, arity=2, discount=1.0, search="best-first").fit(X, Y)
    _, visits = learner._search.best_first(X, learner._scales(X), 1, None, None)
    assert visits.mean() < learner.forest_.n_nodes / 2


def test_shallow_leaves_are_not_lost():
    """In a tree with leaves of different depths, a label right under the root is found by the narrowest beam."""
    X = sp.csr_array(np.eye(6, dtype=np.float32))
    pairs = [(0, "top"), ("deep", "top"), (1, "deep"), (2, "deep"), ("deeper", "deep"), (3, "deeper"), (4, "deeper")]
    learner = LabelTree(tree=[*pairs, (5, "deeper")], beam=1, n_hard_negatives=0, precision="float32").fit(X, X)
    assert learner.forest_.n_levels > 2
    np.testing.assert_array_equal(learner.predict_topk(X, 1).labels[:, 0], np.arange(6))


def test_rows_without_a_nodes_labels_take_no_part_in_it():
    X, Y = small_data(n_rows=100, n_features=40, n_labels=30)
    trainer = LabelTree(n_hard_negatives=0, leaf_size=4, arity=3)._trainer(X, Y)
    for depth in range(trainer.forest.n_levels):
        first, last = trainer.forest.level_starts[depth : depth + 2]
        level = trainer.level(depth, None)
        under = Y @ trainer.forest.members(30, first, last)
        for node in range(last - first):
            rows = level.rows[level.row_starts[node] : level.row_starts[node + 1]]
            np.testing.assert_array_equal(rows, np.flatnonzero(under[:, [node]].toarray()))


def test_leaf_weights_without_negatives_are_those_of_one_vs_rest_on_the_rows_of_the_leaf():
    from longtail import OneVsRest

    X, Y = small_data(n_rows=150, n_features=40, n_labels=40, seed=2)
    common = {"prune_below": 0.0, "precision": "float32", "tol": 1e-4, "max_iter": 300}
    learner = LabelTree(n_hard_negatives=0, leaf_size=8, arity=8, **common).fit(X, Y)
    forest = learner.forest_
    leaf = forest.n_nodes - 1
    labels = forest.labels_under(leaf)
    rows = np.flatnonzero(Y[:, labels].sum(axis=1))
    alone = OneVsRest(**common).fit(X[rows], Y[rows][:, labels])
    search = learner._search
    from longtail.learners.label_trees.explaining import _linear

    for at, label in enumerate(labels):
        for row in (0, 50):
            bias, effects = _linear(search, X[[row]], learner._scales(X[[row]])[0], leaf, int(label))
            z = alone.predict_topk(X[[row]], len(labels))
            score = z.scores[0][z.labels[0] == at][0]
            assert bias + effects.sum() == pytest.approx(score, abs=5e-3)


def test_costs_of_nodes_come_from_their_counts():
    from longtail.weighting import PW

    X, Y = small_data(n_rows=100, n_features=40, n_labels=30)
    trainer = LabelTree(weighting=PW(), leaf_size=4, arity=8)._trainer(X, Y)
    level = trainer.level(0, None)
    n_below = trainer.forest.n_nodes - 1
    under = Y @ trainer.forest.members(30, 1, trainer.forest.n_nodes)
    counts = np.diff(under.tocsc().indptr)
    np.testing.assert_allclose(level.costs.positive[:n_below], PW().costs(counts, 100).positive)
    label_counts = np.bincount(Y.indices, minlength=30)
    np.testing.assert_allclose(level.costs.positive[n_below:], PW().costs(label_counts, 100).positive)


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16", "int8"])
def test_precisions_survive_saving(precision, tmp_path):
    X, Y = small_data()
    learner = LabelTree(leaf_size=4, arity=4, precision=precision).fit(X, Y)
    exact = LabelTree(leaf_size=4, arity=4, precision="float32").fit(X, Y)
    Model(learner).save(tmp_path / "model")
    loaded = load(tmp_path / "model").learner
    assert_same(loaded.predict_topk(X, 5), learner.predict_topk(X, 5))
    assert learner.weights_.precision == precision
    np.testing.assert_allclose(loaded.predict_topk(X, 1).scores, exact.predict_topk(X, 1).scores, atol=0.05)


def test_training_resumes_from_finished_nodes(tmp_path, monkeypatch):
    X, Y = small_data(n_rows=150, n_features=60, n_labels=200, seed=1)
    expected = LabelTree(leaf_size=8, arity=5).fit(X, Y).predict_topk(X, 5)
    append, left = BlockFile.append, [7]

    def stops(self, arrays):
        if left[0] == 0:
            raise KeyboardInterrupt
        left[0] -= 1
        append(self, arrays)

    monkeypatch.setattr(BlockFile, "append", stops)
    with pytest.raises(KeyboardInterrupt), resumable(tmp_path / "unfinished"):
        LabelTree(leaf_size=8, arity=5).fit(X, Y)
    counted = []
    monkeypatch.setattr(BlockFile, "append", lambda self, arrays: (counted.append(1), append(self, arrays)))
    with resumable(tmp_path / "unfinished"):
        learner = LabelTree(leaf_size=8, arity=5).fit(X, Y)
    assert len(counted) == learner.weights_.n_blocks - 7
    assert_same(learner.predict_topk(X, 5), expected)
    assert not (tmp_path / "unfinished").exists()


def test_new_labels_join_a_leaf_and_leave_the_others_as_they_are():
    X, Y = small_data(n_rows=200, n_features=80, n_labels=60, seed=4)
    old, new = Y[:, :50], Y[:, 50:]
    learner = LabelTree(leaf_size=8, arity=4, precision="float32").fit(X, old)
    before = learner.predict_topk(X, 50)
    learner.add_labels(X, new)
    assert learner.n_labels_ == 60
    after = learner.predict_topk(X, 50, only=range(50))
    assert_same(after, before)
    found = learner.predict_topk(X, 8).indicator(60)
    seen = np.flatnonzero(new.sum(axis=0)) + 50
    hits = found[:, seen].multiply(Y[:, seen]).sum() / Y[:, seen].sum()
    assert hits > 0.5
    assert set(seen) <= set(learner.forest_.labels_)
    learner.add_labels(X, new[:, :2])
    assert learner.n_labels_ == 62


def test_a_tree_of_ones_own():
    X, Y = small_data()
    learner = LabelTree(tree=[(0, "a"), (1, "a"), (2, "b"), (3, "b"), ("a", "all"), ("b", "all")]).fit(X, Y)
    groups = [set(learner.forest_.labels_under(node).tolist()) for node in range(learner.forest_.n_nodes)]
    assert {0, 1} in groups
    assert {2, 3} in groups
    assert set(learner.forest_.labels_) == set(np.flatnonzero(learner.label_counts_))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_trees", 0),
        ("n_trees", 1.5),
        ("leaf_size", 0),
        ("arity", 1),
        ("beam", 0),
        ("beam", True),
        ("n_hard_negatives", -1),
        ("discount", 0),
        ("discount", 1.5),
        ("discount", "x"),
        ("overlap", -0.1),
        ("overlap", 2),
        ("precision", "int4"),
        ("search", "greedy"),
        ("loss", "hinge"),
        ("C", 0),
        ("bias", -1),
        ("prune_below", -1),
        ("tol", 0),
        ("max_iter", 0),
        ("max_depth", 0),
        ("n_components", 0),
        ("random_state", -1),
        ("normalise", 1),
        ("balanced", "yes"),
        ("weighting", "heavy"),
        ("n_jobs", 0),
        ("bias_centre", "low"),
        ("representation", "words"),
        ("representation", np.ones((3, 2))),
    ],
)
def test_wrong_parameters_are_refused(name, value):
    X, Y = small_data()
    with pytest.raises(ParameterError, match=name):
        LabelTree(**{name: value}).fit(X, Y)


@pytest.mark.parametrize("loss", ["foo", "zero-one", 3])
def test_the_error_for_a_wrong_loss_lists_the_losses_of_trees(loss):
    X, Y = small_data()
    with pytest.raises(ParameterError) as refusal:
        LabelTree(loss=loss).fit(X, Y)
    assert str(refusal.value) == f"loss must be squared-hinge or logistic, got {loss!r}."
    assert LabelTree(loss="squared_hinge").fit(X, Y).n_labels_ == Y.shape[1]


@pytest.mark.parametrize(
    "tree",
    ["facets.tsv", Path("facets.tsv"), {"Rome": "Italy"}, {f"town {number}": "Italy" for number in range(999)}, 7],
    ids=["name", "path", "mapping", "long mapping", "number"],
)
def test_the_error_for_other_input_says_how_to_give_pairs(tree):
    X, Y = small_data()
    with pytest.raises(ParameterError, match=r"tree must be pairs .* read_hierarchy\(path\) returns it, or None"):
        LabelTree(tree=tree).fit(X, Y)


def test_exact_search_is_for_one_tree():
    X, Y = small_data()
    with pytest.raises(ParameterError, match="more than one tree"):
        LabelTree(n_trees=2, search="best-first").fit(X, Y)
    learner = LabelTree(n_trees=2).fit(X, Y)
    with pytest.raises(InputError, match="n_trees=1"):
        learner.predict_weighted_topk(X, np.ones(Y.shape[1]))


def test_wrong_label_weights_are_refused_in_a_few_words():
    X, Y = small_data()
    learner, n = LabelTree().fit(X, Y), Y.shape[1]
    one_wrong = np.ones(n)
    one_wrong[4] = -2.5
    for wrong, message in (
        (np.ones(3), f"len(label_weights) must equal the number of labels ({n}), got 3."),
        (np.ones((2, n)), "label_weights must be a flat array with one number per label"),
        (one_wrong, "label_weights of label 4 must be a number of at least 0 and below 1e+30, got -2.5."),
        (np.full(n, np.nan), "label_weights of label 0 must be a number of at least 0 and below 1e+30, got nan."),
        (np.full(n, 1e30), "label_weights of label 0 must be a number of at least 0 and below 1e+30, got 1e+30."),
        (["a"] * n, "label_weights must be a flat array with one number per label"),
    ):
        with pytest.raises(ParameterError) as refusal:
            learner.predict_weighted_topk(X, wrong)
        assert str(refusal.value).startswith(message)


def test_what_a_search_reads_is_checked_when_it_is_set_later():
    X, Y = small_data()
    learner = LabelTree(n_trees=2).fit(X, Y)
    for name, value in (("beam", 0), ("beam", 2.5), ("discount", 2), ("discount", 0), ("search", "bestfirst")):
        before = getattr(learner, name)
        with pytest.raises(ParameterError, match=name):
            learner.set_params(**{name: value}).predict_topk(X, 1)
        learner.set_params(**{name: before})
    with pytest.raises(InputError, match="n_trees=1"):
        learner.set_params(search="best-first").predict_topk(X, 1)


def test_given_propensities_are_refused_for_nodes():
    from longtail.propensity import GivenPropensity
    from longtail.weighting import PW

    X, Y = small_data()
    with pytest.raises(ParameterError, match="weighting"):
        LabelTree(weighting=PW(propensity=GivenPropensity(values=np.full(Y.shape[1], 0.5)))).fit(X, Y)


def test_new_labels_cost_what_they_would_cost_in_one_vs_rest():
    """A rescaled weighting looks at the new labels alone."""
    from longtail.learners.label_trees import insertion
    from longtail.weighting import PowerFrequency

    X, Y = small_data(n_rows=200, n_features=80, n_labels=60, seed=4)
    learner = LabelTree(leaf_size=8, arity=4, weighting=PowerFrequency(rescale=True)).fit(X, Y[:, :59])
    seen = []
    whole = insertion.NodeTrainer.level

    def level(self, *arguments):
        seen.append(whole(self, *arguments).costs.positive[-1])
        return whole(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(insertion.NodeTrainer, "level", level)
        learner.add_labels(X, Y[:, 59:])
    assert seen
    assert all(cost == 1 for cost in seen)
    with pytest.raises(ParameterError, match="memory_limit"), config_context(memory_limit="1MB"):
        learner.add_labels(X, Y[:, 59:])


def test_another_weighting_does_not_resume_a_training():
    """Where labels cost the same by both weightings, nodes don't."""
    from longtail.weighting import PowerFrequency

    X = sp.csr_array(np.eye(12, dtype=np.float32))
    prints = [
        LabelTree(weighting=PowerFrequency(beta=beta), leaf_size=2)._trainer(X, X).fingerprint() for beta in (0.5, 1.0)
    ]
    assert prints[0] != prints[1]


def test_one_tree_of_ones_own_is_enough():
    X, Y = small_data()
    everything = [(label, "all") for label in range(Y.shape[1])]
    with pytest.raises(ParameterError, match="n_trees"):
        LabelTree(n_trees=2, tree=everything).fit(X, Y)

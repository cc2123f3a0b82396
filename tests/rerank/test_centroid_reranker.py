"""Re-ranking by centroids: the contract of learners, and scores against plain numpy."""

from typing import ClassVar

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from longtail import CentroidReranker, InstanceForest, LabelTree, Model, OneVsRest, Popularity, TextLearner, load
from longtail.errors import InputError, ParameterError
from longtail.rerank import centroids as centroids_module
from longtail.rerank.centroids import LabelCentroids
from tests.learners.contract import NO_FEATURES, MatrixContract, assert_same, small_data
from tests.learners.rankings import assert_ranked
from tests.rerank.centroids import BASES, FOREST, distances, more_data, strengths

every_base = pytest.mark.parametrize("base", BASES)


class TestAroundInstanceForest(MatrixContract):
    other_params: ClassVar = {"gamma": 3.0, "alpha": 0.5, "top_k": 20, "drop": 0.0, "learner": Popularity()}

    def make(self, **params):
        return CentroidReranker(**{"learner": InstanceForest(**FOREST)} | params)


class TestAroundOneVsRest(MatrixContract):
    other_params: ClassVar = {"alpha": 1.0}

    def make(self, **params):
        return CentroidReranker(**{"learner": OneVsRest(), "gamma": 5.0, "drop": 0.0} | params)


class TestAroundLabelTree(MatrixContract):
    other_params: ClassVar = {"gamma": 0.0}

    def make(self, **params):
        tree = LabelTree(leaf_size=4, arity=3, precision="float32")
        return CentroidReranker(**{"learner": tree, "alpha": 0.4} | params)


@every_base
@pytest.mark.parametrize(("gamma", "alpha"), [(30.0, 0.8), (2.0, 0.3)])
def test_scores_are_those_of_the_formula(base, gamma, alpha):
    X, Y = more_data()
    learner = CentroidReranker(learner=BASES[base], gamma=gamma, alpha=alpha, drop=0.0).fit(X, Y)
    rows = X[:30]
    before = learner.learner_.predict_topk(rows, 40)
    tail = 1 / (1 + np.exp(gamma * distances(X, Y, rows)))
    top = learner.predict_topk(rows, 40)
    assert_ranked(top, 30, 40)
    for row in range(30):
        found = before.labels[row] >= 0
        labels = before.labels[row][found]
        strength = strengths(learner.learner_, before.scores[row][found].astype(float))
        expected = dict(zip(labels, strength**alpha * tail[row, labels] ** (1 - alpha), strict=True))
        ranked = top.labels[row][top.labels[row] >= 0]
        assert set(ranked) == set(labels)
        np.testing.assert_allclose(top.scores[row][: len(ranked)], [expected[label] for label in ranked], rtol=5e-4)


def test_a_score_by_hand():
    """With the bias feature, rows become (1, 0, 1) / sqrt(2) and (0, 1, 1) / sqrt(2): the squared distance is 1."""
    X, Y = np.array([[1, 0], [1, 0], [0, 1]]), np.array([[1, 0], [1, 0], [0, 1]])
    learner = CentroidReranker(learner=Popularity(), gamma=2.0, alpha=0.25, drop=0.0).fit(X, Y)
    top = learner.predict_topk([[0, 1]], k=2)
    far = 1 / (1 + np.exp(2))
    np.testing.assert_array_equal(top.labels, [[1, 0]])
    np.testing.assert_allclose(top.scores, [[(1 / 3) ** 0.25 * 0.5**0.75, (2 / 3) ** 0.25 * far**0.75]], rtol=1e-5)


def assert_ordered_by(top, alone):
    """The same labels in the same order, but for scores that differ in the last bit."""
    for row in range(len(top)):
        scores = dict(zip(alone.labels[row].tolist(), alone.scores[row].tolist(), strict=True))
        ranked = top.labels[row][top.labels[row] >= 0].tolist()
        assert len(ranked) == min(top.labels.shape[1], (alone.labels[row] >= 0).sum())
        np.testing.assert_allclose([scores[label] for label in ranked], alone.scores[row][: len(ranked)], rtol=1e-6)


@every_base
def test_with_alpha_1_the_learner_ranks_alone(base):
    X, Y = more_data()
    learner = CentroidReranker(learner=BASES[base], alpha=1.0).fit(X, Y)
    alone, top = clone(BASES[base]).fit(X, Y).predict_topk(X, 40), learner.predict_topk(X, 7)
    assert_ordered_by(top, alone)
    filled = top.labels >= 0
    expected = strengths(learner.learner_, alone.scores[:, :7].astype(float))
    np.testing.assert_allclose(top.scores[filled], expected[filled], rtol=1e-5)


def test_with_alpha_0_the_centroids_rank_alone():
    X, Y = more_data()
    seen = np.flatnonzero(Y.sum(axis=0))
    nearest = seen[np.argsort(distances(X, Y, X)[:, seen], axis=1, kind="stable")]
    for base in ("popularity", "one-vs-rest"):  # these rank every label
        top = CentroidReranker(learner=BASES[base], alpha=0.0, drop=0.0, gamma=10.0).fit(X, Y).predict_topk(X, 5)
        gaps = np.diff(np.sort(distances(X, Y, X)[:, seen], axis=1)[:, :6], axis=1)
        clear = (gaps > 1e-5).all(axis=1)  # labels with the same rows are equally far
        assert clear.sum() > 50
        np.testing.assert_array_equal(top.labels[clear], nearest[clear, :5])


def test_with_gamma_0_the_learner_decides_the_order():
    X, Y = more_data()
    learner = CentroidReranker(learner=BASES["forest"], gamma=0.0).fit(X, Y)
    alone, top = learner.learner_.predict_topk(X, 40), learner.predict_topk(X, 6)
    assert_ordered_by(top, alone)
    filled = top.labels >= 0
    np.testing.assert_allclose(top.scores[filled], alone.scores[:, :6][filled] ** 0.8 * 0.5**0.2, rtol=1e-5)


@every_base
def test_only_candidates_of_the_learner_are_ranked(base):
    X, Y = more_data()
    learner = CentroidReranker(learner=BASES[base], top_k=4, alpha=0.2).fit(X, Y)
    candidates = learner.learner_.predict_topk(X, 4)
    top = learner.predict_topk(X, 4)
    np.testing.assert_array_equal(np.sort(top.labels, axis=1), np.sort(candidates.labels, axis=1))
    assert (top.labels != candidates.labels).any()
    everything = learner.set_params(top_k=1000).predict_topk(X, 4)
    assert (np.sort(everything.labels, axis=1) != np.sort(candidates.labels, axis=1)).any()


def test_with_few_candidates_a_smaller_k_gives_the_top_of_the_same_ranking():
    X, Y = more_data()
    learner = CentroidReranker(learner=Popularity(), top_k=3, alpha=0.2).fit(X, Y)
    many, few = learner.predict_topk(X, 9), learner.predict_topk(X, 2)
    np.testing.assert_array_equal(many.labels[:, :2], few.labels)


def test_restrictions_reach_the_learner():
    """With two candidates, the best two of the allowed labels are looked at."""
    X, Y = more_data()
    learner = CentroidReranker(learner=BASES["one-vs-rest"], top_k=2).fit(X, Y)
    best = learner.learner_.predict_topk(X, 2, only=range(20, 40))
    top = learner.predict_topk(X, 2, only=range(20, 40))
    np.testing.assert_array_equal(np.sort(top.labels, axis=1), np.sort(best.labels, axis=1))


@pytest.mark.parametrize("drop", [0.02, 0.1, 0.4])
def test_dropped_values_change_scores_within_the_bound(drop):
    X, Y = more_data()
    gamma, alpha = 20.0, 0.7
    whole, thinned = (
        CentroidReranker(learner=BASES["one-vs-rest"], gamma=gamma, alpha=alpha, drop=length).fit(X, Y)
        for length in (0.0, drop)
    )
    assert len(thinned.centroids_.values_) < len(whole.centroids_.values_)
    tops = [learner.predict_topk(X, 40) for learner in (whole, thinned)]
    changes = []
    for row in range(150):
        filled = tops[0].labels[row] >= 0
        one, other = (dict(zip(top.labels[row][filled], top.scores[row][filled], strict=True)) for top in tops)
        assert one.keys() == other.keys()
        changes += [abs(np.log(float(one[label]) / float(other[label]))) for label in one]
    assert max(changes) <= 2 * gamma * (1 - alpha) * drop + 1e-3
    assert max(changes) > 0


def test_centroids_are_means_of_whole_rows():
    X, Y = more_data()
    kept = CentroidReranker(learner=Popularity(), drop=0.0).fit(X, Y).centroids_
    wide = np.column_stack([X.toarray().astype(float), np.ones(150)])
    vectors = wide / np.linalg.norm(wide, axis=1, keepdims=True)
    for label in (0, 7, 39):
        mean = vectors[Y[:, [label]].toarray().ravel() != 0].mean(axis=0)
        part = slice(kept.starts_[label], kept.starts_[label + 1])
        dense = np.zeros(60)
        dense[kept.features_[part]] = kept.values_[part]
        np.testing.assert_allclose(dense, mean[:-1], rtol=1e-5)
        assert kept.bias_[label] == pytest.approx(mean[-1], rel=1e-5)
        assert kept.squares_[label] == pytest.approx(mean @ mean, rel=1e-5)


def test_rows_whose_values_cancel_out():
    """Three rows of one label with 1, -1 and 1 in a feature: the mean is a third of the last."""
    X, Y = np.array([[1, 0], [-1, 0], [1, 0], [0, 1]]), np.array([[1, 0], [1, 0], [1, 0], [0, 1]])
    kept = CentroidReranker(learner=Popularity(), drop=0.0).fit(X, Y).centroids_
    np.testing.assert_array_equal(kept.features_, [0, 1])
    np.testing.assert_allclose(kept.values_, [np.sqrt(0.5) / 3, np.sqrt(0.5)], rtol=1e-6)
    np.testing.assert_allclose(kept.squares_, [0.5 / 9 + 0.5, 1], rtol=1e-6)


def test_how_labels_are_cut_into_blocks_changes_nothing(monkeypatch):
    X, Y = more_data()
    Y = sp.csr_array(sp.hstack([Y, sp.csr_array((150, 3)), Y[:, :5]]))
    whole = CentroidReranker(learner=Popularity(), n_jobs=2).fit(X, Y).centroids_
    for values in (1, 7, 300, 5000):
        monkeypatch.setattr(centroids_module, "_VALUES_PER_BLOCK", values)
        parts = CentroidReranker(learner=Popularity(), n_jobs=2).fit(X, Y).centroids_
        for name in LabelCentroids._stored:
            np.testing.assert_array_equal(getattr(parts, name), getattr(whole, name), err_msg=name)


def test_many_rows_are_ranked_as_few():
    X, Y = more_data()
    learner = CentroidReranker(learner=BASES["forest"], n_jobs=2).fit(X, Y)
    top, many = learner.predict_topk(X, 5), learner.predict_topk(sp.csr_array(sp.vstack([X] * 15)), 5)
    np.testing.assert_array_equal(many.labels, np.tile(top.labels, (15, 1)))
    np.testing.assert_array_equal(many.scores, np.tile(top.scores, (15, 1)))


def test_rows_may_have_any_length():
    """Without a bias feature a longer row would be the same row; with it, it lies elsewhere."""
    X, Y = more_data()
    learner = CentroidReranker(learner=Popularity(), alpha=0.0, gamma=5.0, drop=0.0).fit(X, Y)
    longer = sp.csr_array(X * np.float32(50))
    top = learner.predict_topk(longer, 40)
    tail = 1 / (1 + np.exp(5 * distances(X, Y, longer)))
    for row in (0, NO_FEATURES, 60):
        ranked = top.labels[row][top.labels[row] >= 0]
        np.testing.assert_allclose(top.scores[row][: len(ranked)], tail[row, ranked], rtol=1e-3)
    huge = learner.predict_topk(sp.csr_array(X * np.float32(1e30)), 5)
    assert np.isfinite(huge.scores).all()


def test_the_given_learner_stays_as_it_is():
    X, Y = small_data()
    base = InstanceForest(**FOREST)
    learner = CentroidReranker(learner=base).fit(X, Y)
    assert learner.learner is base
    assert learner.learner_ is not base
    assert not hasattr(base, "trees_")
    assert_same(learner.learner_.predict_topk(X, 3), base.fit(X, Y).predict_topk(X, 3))


def test_the_learner_that_is_left_out_is_pfastxml():
    X, Y = small_data()
    inner = CentroidReranker().fit(X, Y).learner_
    assert isinstance(inner, InstanceForest)
    assert (inner.weighting, inner.criterion) == ("inverse-propensity", "dcg")


def test_parameters_of_the_learner_can_be_set():
    learner = CentroidReranker(learner=InstanceForest()).set_params(learner__n_trees=3, gamma=2.0)
    assert (learner.learner.n_trees, learner.gamma) == (3, 2.0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gamma", -1), ("gamma", np.inf), ("gamma", np.nan), ("gamma", "far"), ("gamma", None), ("alpha", -0.1),
        ("alpha", 1.1), ("alpha", np.nan), ("alpha", "half"), ("alpha", True), ("top_k", 0), ("top_k", 2.0),
        ("top_k", True), ("drop", -0.1), ("drop", np.inf), ("drop", "none"), ("n_jobs", 0), ("n_jobs", 1.5),
        ("learner", "forest"), ("learner", InstanceForest),
    ],
)  # fmt: skip
def test_wrong_parameters_are_refused(name, value):
    learner = CentroidReranker(**{"learner": Popularity()} | {name: value})
    with pytest.raises(ParameterError, match=f"^{name} "):
        learner.fit(*small_data())
    assert not hasattr(learner, "learner_")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gamma", -1), ("gamma", np.nan), ("gamma", "far"), ("alpha", 1.1), ("alpha", "half"), ("alpha", True),
        ("top_k", 0), ("top_k", 2.0), ("drop", -0.1), ("drop", "none"), ("n_jobs", 0), ("n_jobs", 1.5),
    ],
)  # fmt: skip
def test_wrong_parameters_are_refused_when_set_on_a_fitted_learner(name, value):
    X, Y = small_data()
    learner = CentroidReranker(learner=Popularity()).fit(X, Y)
    learner.set_params(**{name: value})
    for call in (learner.predict_topk, learner.predict, learner.explain):
        with pytest.raises(ParameterError, match=f"^{name} "):
            call(X[:1])


def test_more_trees_are_those_of_a_larger_forest():
    X, Y = more_data()
    larger = CentroidReranker(learner=InstanceForest(**FOREST | {"n_trees": 7})).fit(X, Y)
    given = InstanceForest(**FOREST)
    learner = CentroidReranker(learner=given).fit(X, Y)
    centroids = learner.centroids_
    assert learner.add_trees(X, Y, 3) is learner
    assert_same(learner.predict_topk(X, 10), larger.predict_topk(X, 10))
    assert (learner.learner.n_trees, given.n_trees) == (7, 4)
    assert learner.centroids_ is centroids
    assert_same(clone(learner).fit(X, Y).predict_topk(X, 10), larger.predict_topk(X, 10))
    nested = CentroidReranker(learner=CentroidReranker(learner=given)).fit(X, Y).add_trees(X, Y, 1)
    assert nested.learner_.learner_.trees_.n_trees == 5


def test_more_trees_from_other_rows_count_their_labels():
    X, Y = more_data()
    learner = CentroidReranker(learner=InstanceForest(**FOREST)).fit(X[:50], Y[:50])
    fewer = learner._tail_factors(1.0)
    learner.add_trees(X, Y, 1)
    assert learner.n_rows_ == 150
    np.testing.assert_array_equal(learner.label_counts_, np.diff(Y.tocsc().indptr))
    assert (learner._tail_factors(1.0) != fewer).any()


def test_more_trees_are_for_forests():
    X, Y = small_data()
    learner = CentroidReranker(learner=Popularity()).fit(X, Y)
    with pytest.raises(InputError, match="Popularity has no instance trees"):
        learner.add_trees(X, Y, 1)
    forest = CentroidReranker(learner=InstanceForest(**FOREST)).fit(X, Y)
    before = dict(vars(forest))
    for wrong in ((X, Y, 0), (X, Y[:, :3], 1)):
        with pytest.raises((InputError, ParameterError)):
            forest.add_trees(*wrong)
    assert vars(forest) == before
    assert forest.learner_.trees_.n_trees == 4


def test_alpha_is_set_on_a_model(tmp_path):
    """By the path that the docs name, for features and for texts."""
    X, Y = more_data()
    base = InstanceForest(**FOREST)
    Model(CentroidReranker(learner=base).fit(X, Y)).save(tmp_path / "rows")
    model = load(tmp_path / "rows")
    model.learner.set_params(alpha=0.97)
    assert_same(model.predict_topk(X, 5), CentroidReranker(learner=base, alpha=0.97).fit(X, Y).predict_topk(X, 5))
    texts, tags = ["red car", "blue car", "green tree", "old tree"] * 5, np.eye(4)[[0, 0, 1, 2] * 5]
    Model(TextLearner(learner=CentroidReranker(learner=base)).fit(texts, tags)).save(tmp_path / "texts")
    model = load(tmp_path / "texts")
    model.learner.learner_.set_params(alpha=0.97)
    model.save(tmp_path / "texts")
    expected = TextLearner(learner=CentroidReranker(learner=base, alpha=0.97)).fit(texts, tags)
    assert_same(load(tmp_path / "texts").predict_topk(texts, 3), expected.predict_topk(texts, 3))


def test_wrong_parameters_of_the_learner_are_refused_first(monkeypatch):
    monkeypatch.setattr(InstanceForest, "fit", lambda self, X, y: pytest.fail("training had begun"))
    with pytest.raises(ParameterError, match=r"^learner__n_trees "):
        CentroidReranker(learner=InstanceForest(n_trees=0)).fit(*small_data())


def test_estimates_count_the_centroids_in():
    X, Y = more_data()
    base = BASES["forest"].estimate(X, Y)
    with_centroids = CentroidReranker(learner=BASES["forest"]).estimate(X, Y)
    kept = CentroidReranker(learner=BASES["forest"]).fit(X, Y).centroids_
    size = sum(getattr(kept, name).nbytes for name in LabelCentroids._stored[1:]) / 1e6
    assert with_centroids.model_mb == pytest.approx(base.model_mb + size, rel=1e-6)
    assert all(np.isfinite(value) for value in vars(with_centroids).values())

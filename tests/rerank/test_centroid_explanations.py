"""Centroids over other learners: their explanations, logarithms of scores, and corrupted files."""

import numpy as np
import pytest

from longtail import CentroidReranker, InstanceForest, LabelTree, Model, OneVsRest, Popularity, TextLearner, Tfidf, load
from longtail.errors import InputError, ModelError
from longtail.learners import Explanation
from longtail.rerank.centroids import LabelCentroids
from tests.learners.contract import NO_FEATURES, assert_same
from tests.learners.rankings import assert_ranked
from tests.rerank.centroids import BASES, FOREST, distances, more_data, strengths

every_base = pytest.mark.parametrize("base", BASES)


@every_base
def test_explanations_add_up_and_name_both_parts(base):
    X, Y = more_data()
    learner = CentroidReranker(learner=BASES[base], gamma=10.0, alpha=0.6).fit(X, Y)
    top, ranked = learner.predict_topk(X, 4), learner.learner_.predict_topk(X, 40)
    before = (ranked.labels, ranked.scores.astype(float))
    for row in (0, NO_FEATURES, 33, 99, 149):
        found = learner.explain(X[[row]], k=4)
        assert [why.label for why in found] == [label for label in top.labels[row] if label >= 0]
        for why, score in zip(found, top.scores[row], strict=False):
            assert why.score == pytest.approx(float(score), rel=1e-3)
            assert why.bias + sum(effect for _, effect in why.parts) == pytest.approx(why.score, rel=1e-6)
            assert sum(share for _, share in why.sources) == pytest.approx(why.score, rel=1e-6)
            (plain, alone), (centroid, change) = why.sources
            assert plain == f"{type(learner.learner_).__name__} alone"
            by_itself = dict(zip(*(part[row].tolist() for part in before), strict=True))[why.label]
            assert alone == pytest.approx(strengths(learner.learner_, by_itself), rel=1e-3)
            assert centroid == f"centroid, which brings it to {why.score:.3g}"
            assert type(why.bias) is type(why.score) is type(alone) is type(change) is float
            assert {int(feature) for feature, _ in why.parts} <= set(X[[row]].indices)
            assert all(np.isfinite(effect) for _, effect in why.parts)


def test_an_explanation_by_hand():
    """The only feature brings the row nearer to its label's centroid; with Popularity nothing else matters."""
    X, Y = np.array([[1, 0], [0, 1]]), np.array([[1, 0], [0, 1]])
    learner = CentroidReranker(learner=Popularity(), gamma=2.0, alpha=0.5, drop=0.0).fit(X, Y)
    (why,) = learner.explain(X[:1], [0])
    low = np.sqrt(0.5 / (1 + np.exp(2 * 1.0)))  # without the likeness of feature 0, the squared distance is 2 - 2/2
    assert why.bias == pytest.approx(low, rel=1e-5)
    assert why.score == pytest.approx(np.sqrt(0.5 * 0.5), rel=1e-5)
    assert dict(why.parts) == pytest.approx({"0": 0.5 - low}, rel=1e-5)
    assert dict(why.sources) == pytest.approx(
        {"Popularity alone": 0.5, "centroid, which brings it to 0.5": 0}, rel=1e-5, abs=1e-5
    )


def test_an_explanation_of_both_parts_by_hand():
    """A feature each for the learner and for the centroid: both get the mean of what they add first and last."""
    X, Y = np.array([[1, 0, 0], [0, 1, 0]]), np.array([[1, 0], [0, 1]])
    learner = CentroidReranker(learner=InstanceForest(n_trees=1), gamma=2.0, alpha=0.5, drop=0.0).fit(X, Y)
    said = Explanation(0, "0", 0.64, 0.04, [("2", 0.6)], path=[("left", [])], path_name="tree 7", path_share=0.3)
    learner.learner_._explain = lambda X, labels: [said]
    (why,) = learner.explain([[1, 0, 1]], [0])
    own, low = np.sqrt([0.64, 0.04])
    distance = 2 - 2 * np.array([2, 1]) / np.sqrt(6)  # of (1, 0, 1, 1) / sqrt(3) from (1, 0, 0, 1) / sqrt(2)
    close, far = np.sqrt(1 / (1 + np.exp(2 * distance)))
    assert why.score == pytest.approx(own * close, rel=1e-5)
    assert why.bias == pytest.approx(low * far, rel=1e-5)
    parts = {"2": (own - low) * (close + far) / 2, "0": (close - far) * (own + low) / 2}
    assert dict(why.parts) == pytest.approx(parts, rel=1e-5)
    assert (why.path, why.path_name, why.path_share) == ([("left", [])], "tree 7", 0.3)


def test_features_count_where_the_label_would_score_below_0_without_them():
    """The bias of a forest takes what nodes without a feature of the row did, which may be less than nothing."""
    X, Y = np.array([[1, 0, 0], [0, 1, 0]]), np.array([[1, 0], [0, 1]])
    learner = CentroidReranker(learner=InstanceForest(n_trees=1), gamma=2.0, alpha=0.5, drop=0.0).fit(X, Y)
    learner.learner_._explain = lambda X, labels: [Explanation(0, "0", 0.64, -0.36, [("2", 1.0)])]
    (why,) = learner.explain([[0, 0, 1]], [0])
    assert why.bias == 0
    assert why.parts == [("2", pytest.approx(why.score))]
    assert why.score == pytest.approx(0.8 * np.sqrt(1 / (1 + np.exp(2 * (2 - 2 / 2)))), rel=1e-5)


@pytest.mark.parametrize("alpha", [0.1, 0.8])
def test_a_label_that_the_learner_does_not_rank_has_no_score(alpha):
    X, Y = more_data()
    learner = CentroidReranker(learner=InstanceForest(**FOREST, leaf_labels=1), alpha=alpha, gamma=1.0).fit(X, Y)
    seen = np.flatnonzero(learner.label_counts_)
    for row in range(0, 150, 10):
        ranked = set(learner.predict_topk(X[[row]], 40).labels[0])
        missing = [label for label in seen if label not in ranked]
        assert missing
        for why in learner.explain(X[[row]], missing):
            assert (why.score, why.bias, why.parts) == (0, 0, [])
            assert "leaves" in why.remark or "leaf" in why.remark


def test_a_label_beyond_the_candidates_is_reported():
    X, Y = more_data()
    learner = CentroidReranker(learner=Popularity(), top_k=2).fit(X, Y)
    rarest = int(learner.learner_.ranking_[-1])
    assert learner.explain(X[:1], [rarest])[0].remark.startswith("It is not among the 2 best labels of Popularity")
    assert learner.explain(X[:1], [int(learner.learner_.ranking_[0])])[0].remark == ""


def test_texts_with_a_reranker_inside(tmp_path):
    texts = ["red car", "blue car", "red bus", "green tree", "old green tree", "tall tree"] * 4
    Y = np.array([[1, 0, 0], [1, 0, 0], [1, 1, 0], [0, 0, 1], [0, 0, 1], [0, 0, 1]] * 4)
    learner = TextLearner(
        features=Tfidf(min_df=1), learner=CentroidReranker(learner=InstanceForest(n_trees=5, leaf_size=2, C=10.0))
    ).fit(texts, Y)
    top = learner.predict_topk(["a red bus", "tree"], 2)
    assert top.labels[1, 0] == 2
    assert set(top.labels[0]) == {0, 1}
    inner = learner.learner_.predict_topk(learner.features_.transform(["a red bus", "tree"]), 2)
    assert_same(top, inner)
    why = learner.explain(["tall green tree"], k=1)[0]
    assert {word for word, _ in why.parts} <= {"tall", "green", "tree"}
    assert why.bias + sum(effect for _, effect in why.parts) == pytest.approx(why.score, rel=1e-6)
    assert learner.estimate(texts, Y).model_mb > 0
    with pytest.raises(InputError, match="has no support for new labels"):
        learner.add_labels(texts, Y)
    Model(learner).save(tmp_path / "model")
    assert_same(load(tmp_path / "model").learner.predict_topk(["a red bus", "tree"], 2), top)


def test_a_reranker_may_stand_in_a_reranker():
    X, Y = more_data()
    inner = CentroidReranker(learner=Popularity(), alpha=0.5, gamma=4.0, drop=0.0)
    outer = CentroidReranker(learner=inner, alpha=0.5, gamma=6.0, drop=0.0).fit(X, Y)
    share = Y.toarray().mean(axis=0)
    d = distances(X, Y, X[:5])
    top = outer.predict_topk(X[:5], 10)
    for row in range(5):
        label = top.labels[row]
        expected = (
            share[label] ** 0.25
            * (1 / (1 + np.exp(4 * d[row, label]))) ** 0.25
            * (1 / (1 + np.exp(6 * d[row, label]))) ** 0.5
        )
        np.testing.assert_allclose(top.scores[row], expected, rtol=1e-3)


@pytest.mark.parametrize(
    ("learner", "scores", "expected"),
    [
        (OneVsRest(), [0.0, 1.0, -1.0, -np.inf], [0.5, 1 / (1 + np.exp(-3)), 1 / (1 + np.exp(3)), 0]),
        (OneVsRest(loss="logistic"), [0.0, 2.0, -np.inf], [0.5, 1 / (1 + np.exp(-2)), 0]),
        (LabelTree(), [1.0, 0.25, 0.0, -np.inf], [1, 0.25, 0, 0]),
        (InstanceForest(), [7.5, 0.5, -np.inf], [7.5, 0.5, 0]),
    ],
)
def test_logarithms_of_scores(learner, scores, expected):
    found = learner._log_scores(np.array(scores, np.float32))
    assert found.dtype == np.float32
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(found, np.log(expected), rtol=1e-5)


SPOILT = {
    "feature too large": ("features_", lambda array: np.append(array[:-1], np.int32(60))),
    "feature negative": ("features_", lambda array: np.append(array[:-1], np.int32(-1))),
    "starts late": ("starts_", lambda array: np.append(np.int64(1), array[1:])),
    "starts fall": ("starts_", lambda array: np.concatenate([array[:3], [10**6], array[4:]])),
    "ends late": ("starts_", lambda array: np.append(array[:-1], array[-1] + 1)),
    "too few values": ("values_", lambda array: array[:-1].copy()),
    "too few labels": ("bias_", lambda array: array[:-1].copy()),
    "too few squares": ("squares_", lambda array: array[:-1].copy()),
    "wide features": ("features_", lambda array: array.astype(np.int64)),
    "wide values": ("values_", lambda array: array.astype(np.float64)),
    "narrow starts": ("starts_", lambda array: array.astype(np.int32)),
    "two dimensions": ("squares_", lambda array: array[:, None].copy()),
    "every second": ("bias_", lambda array: np.repeat(array, 2)[::2]),
    "a list": ("values_", lambda array: array.tolist()),
    "other features": ("n_features_", lambda number: number + 1),
}


@pytest.mark.parametrize("fault", SPOILT)
def test_corrupted_centroids_are_refused(fault):
    X, Y = more_data()
    learner = CentroidReranker(learner=Popularity()).fit(X, Y)
    copied = LabelCentroids()
    for name in LabelCentroids._stored:
        setattr(copied, name, getattr(learner.centroids_, name))
    learner.centroids_ = copied
    expected = learner.predict_topk(X[:2], 3)  # as they are, they pass
    learner.centroids_ = copied = LabelCentroids()
    for name in LabelCentroids._stored:
        setattr(copied, name, getattr(CentroidReranker(learner=Popularity()).fit(X, Y).centroids_, name))
    name, spoil = SPOILT[fault]
    setattr(copied, name, spoil(getattr(copied, name)))
    for call in (lambda: learner.predict_topk(X[:2], 3), lambda: learner.explain(X[:1])):
        with pytest.raises(ModelError, match="train it again"):
            call()
    assert_ranked(expected, 2, 3)


def test_centroids_of_another_learner_are_refused():
    X, Y = more_data()
    learner = CentroidReranker(learner=Popularity()).fit(X, Y)
    learner.centroids_ = CentroidReranker(learner=Popularity()).fit(X, Y[:, :30]).centroids_
    with pytest.raises(ModelError, match="train it again"):
        learner.predict_topk(X, 3)

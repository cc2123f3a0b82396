"""Stacking: the contract of learners, features and regression against other implementations, probabilities."""

from typing import ClassVar

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from longtail import InstanceForest, OneVsRest, Popularity, Stacked, TailDial
from longtail.data import generate
from longtail.errors import ModelError, ParameterError
from longtail.learners.platt import fit_logistic
from longtail.rerank.stacking_kernels import LEAST, candidate_features, look_up, n_features
from tests.learners.contract import MatrixContract, small_data


class TestStacked(MatrixContract):
    other_params: ClassVar = {"top_k": 7, "folds": 3, "second": Popularity()}

    def make(self, n_jobs=None, **params):
        return Stacked(**{"learner": OneVsRest(n_jobs=n_jobs)} | params)


class TestTwoLearners(MatrixContract):
    other_params: ClassVar = {"learner": Popularity()}

    def make(self, n_jobs=None, **params):
        return Stacked(**{"second": OneVsRest(weighting="pw-cb", n_jobs=n_jobs)} | params)


class TestUnderTheDial(MatrixContract):
    other_params: ClassVar = {"first_tail": 0.2}
    exact = False  # another label may come first where labels are restricted

    def undialled(self, fitted):
        return fitted.learner_

    def make(self, n_jobs=None, **params):
        return TailDial(
            **{"learner": Stacked(learner=OneVsRest(n_jobs=n_jobs)), "tail": 1.0, "first_tail": 0.1} | params
        )


@pytest.fixture(scope="module")
def data():
    return generate(800, 60, 150, random_state=4, test_rows=400)


def test_features_by_hand():
    labels = np.array([[4, 2, 7, -1]], np.int32)
    log_odds = np.array([[[2.0, -1.0, 0.5, 0.0]]], np.float32)
    log_counts = np.array([[0.5, 1.0, 2.0, 0.0]], np.float32)
    out = np.zeros((1, 4, n_features(1)), np.float32)
    candidate_features(labels, log_odds, log_counts, out)
    likely = sum(1 / (1 + np.exp(-value)) for value in (2.0, -1.0, 0.5))
    rival = LEAST  # there are only three
    expected = [1.0, 1.0, np.log(2), -1.0, 1.0, 0.0, -1.0, -1.0, 2.0, -2.0, likely, -1.0 - rival, np.log(3)]
    np.testing.assert_allclose(out[0, 1], expected, rtol=1e-6)
    np.testing.assert_allclose(out[0, 2, [2, 6, 7, 12]], [np.log(3), 1.0, 2.0, np.log(2)], rtol=1e-6)
    assert (out[0, 3] == 0).all()


def test_the_fifth_largest_is_the_rival():
    values = np.array([5.0, 4.0, 3.0, 2.0, 1.0, 0.0], np.float32)[None]
    out = np.zeros((1, 6, n_features(1)), np.float32)
    candidate_features(np.arange(6, dtype=np.int32)[None], values[None], np.zeros((1, 6), np.float32), out)
    np.testing.assert_allclose(out[0, :, 11], values[0] - 1.0)


def test_looking_up():
    out = np.empty((1, 3), np.float32)
    look_up(np.array([[5, 2, -1]], np.int32), np.array([[2, 9]], np.int32), np.array([[0.25, 0.5]], np.float32), out)
    np.testing.assert_array_equal(out, [[LEAST, 0.25, LEAST]])


def test_regression_is_that_of_scikit_learn():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 5))
    y = rng.random(2000) < 1 / (1 + np.exp(-(X @ [1.0, -2.0, 0.0, 0.5, 3.0] - 1)))
    theirs = LogisticRegression(C=1 / 0.1, tol=1e-10, max_iter=1000).fit(X, y)
    weights = fit_logistic(X, y, 0.1)
    np.testing.assert_allclose(weights[:-1], theirs.coef_[0], rtol=1e-4)
    assert weights[-1] == pytest.approx(theirs.intercept_[0], rel=1e-4)


def test_regression_of_separable_data():
    """Without a ridge the weights would be endless."""
    weights = fit_logistic(np.array([[-1.0], [1.0]] * 20), np.array([0, 1] * 20), 0.1)
    assert np.isfinite(weights).all()
    assert weights[0] > 2


def test_scores_are_probabilities(data):
    """Of the predictions with a score of about p, a share of about p is true."""
    train, test = data
    top = Stacked(second=OneVsRest(weighting="pw-cb")).fit(train.X, train.Y).predict_topk(test.X, 10)
    truth = test.Y.toarray()[np.arange(400)[:, None], np.maximum(top.labels, 0)] * (top.labels >= 0)
    chances = np.where(top.labels >= 0, top.scores, 0)
    assert chances.sum() == pytest.approx(truth.sum(), rel=0.15)
    sure = chances > 0.5
    assert chances[sure].mean() == pytest.approx(truth[sure].mean(), abs=0.1)


def test_only_labels_beyond_the_candidates(data):
    train, test = data
    learner = Stacked(top_k=5).fit(train.X, train.Y)
    asked = [label for label in range(60) if train.Y[:, [label]].sum() > 3][-8:]
    top = learner.predict_topk(test.X, 3, only=asked)
    assert (top.labels >= 0).all()
    assert np.isin(top.labels, asked).all()


@pytest.mark.parametrize(
    ("params", "name"),
    [
        ({"folds": 1}, "folds"),
        ({"top_k": 0}, "top_k"),
        ({"second": "pw"}, "second"),
        ({"random_state": -1}, "random_state"),
    ],
)
def test_wrong_parameters(params, name):
    with pytest.raises(ParameterError, match=f"^{name}"):
        Stacked(**params).fit(*small_data())


def test_scores_above_one(data):
    """Means of gains may be: probabilities come out all the same."""
    train, test = data
    forest = InstanceForest(n_trees=3, weighting="inverse-propensity", criterion="dcg")
    scores = Stacked(learner=forest).fit(train.X, train.Y).predict_topk(test.X, 3).scores
    assert np.isfinite(scores[:, 0]).all()


def test_candidates_are_checked_after_training_too(data):
    train, test = data
    learner = Stacked().fit(train.X, train.Y).set_params(top_k=0)
    with pytest.raises(ParameterError, match="top_k"):
        learner.predict_topk(test.X)


def test_changed_weights_are_refused(data):
    train, test = data
    learner = Stacked().fit(train.X, train.Y)
    learner.weights_ = learner.weights_[:-1]
    with pytest.raises(ModelError, match="weights"):
        learner.predict_topk(test.X)


def test_explanations_add_up(data):
    train, test = data
    learner = Stacked().fit(train.X, train.Y)
    top = learner.predict_topk(test.X[:1], 5)
    for why, score in zip(learner.explain(test.X[:1]), top.scores[0], strict=True):
        assert why.score == pytest.approx(score, rel=1e-4)
        assert why.bias + sum(effect for _, effect in why.parts) == pytest.approx(why.score, abs=1e-6)


class TestFirstPlace:
    """The dial with another position for the first rank."""

    def test_first_by_one_dial_and_the_others_by_another(self, data):
        train, test = data
        both = TailDial(learner=OneVsRest(), tail=1.0, first_tail=0.1).fit(train.X, train.Y)
        low, high = both.predict_topk(test.X, 5, tail=0.1), both.predict_topk(test.X, 8, tail=1.0)
        top = both.predict_topk(test.X, 5)
        np.testing.assert_array_equal(top.labels[:, 0], low.labels[:, 0])
        assert (top.labels[:, 0] != high.labels[:, 0]).any()
        for row in range(400):
            rest = [label for label in high.labels[row] if label != low.labels[row, 0]][:4]
            np.testing.assert_array_equal(top.labels[row, 1:], rest)
        assert (np.diff(top.scores, axis=1) <= 0).all()

    def test_the_same_position_is_one_dial(self, data):
        train, test = data
        one = TailDial(learner=OneVsRest(), tail=0.4).fit(train.X, train.Y).predict_topk(test.X, 5)
        two = TailDial(learner=OneVsRest(), tail=0.4, first_tail=0.4).fit(train.X, train.Y).predict_topk(test.X, 5)
        np.testing.assert_array_equal(one.labels, two.labels)

    def test_auto(self, data):
        """With a separate dial for the first rank, the loss in P@1 doesn't limit the others."""
        train, _ = data
        both = TailDial(learner=OneVsRest(), tail="auto", first_tail="".join(["au", "to"]), max_loss=0.0)
        learner = both.fit(train.X, train.Y)
        curve = clone(both)._curve(train.X, train.Y)
        assert learner.tail_ == max(curve, key=lambda point: (point.psp_at_k, -point.tail)).tail
        best = max(point.p_at_1 for point in curve)
        fair = [point for point in curve if point.p_at_1 == best]
        assert learner.first_tail_ == max(fair, key=lambda point: (point.psp_at_1, -point.tail)).tail

    def test_one_row(self):
        assert Stacked().fit([[1.0]], [[1, 0]]).predict_topk([[1.0]], 1).labels.shape == (1, 1)

    def test_wrong(self):
        with pytest.raises(ParameterError, match=r"^first"):
            TailDial(first_tail=1.5).fit(*small_data())


def test_few_rows_are_ranked_as_by_the_learner():
    """A handful of candidates is too few to fit probabilities."""
    X, Y = small_data(n_rows=20)
    stacked = Stacked(learner=OneVsRest(), second=OneVsRest(weighting="pw")).fit(X, Y)
    plain = OneVsRest().fit(X, Y)
    np.testing.assert_array_equal(stacked.predict_topk(X, 3).labels, plain.predict_topk(X, 3).labels)

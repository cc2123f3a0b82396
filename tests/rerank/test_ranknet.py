"""RankNet over other learners: the contract of learners, initial values, and the purpose of out-of-fold scores."""

from typing import ClassVar

import numpy as np
import pytest

from longtail import InstanceForest, LabelTree, Model, OneVsRest, Popularity, RankNet, TailDial, load
from longtail.data import generate
from longtail.errors import ModelError, ParameterError
from longtail.metrics.ranking import are_true
from longtail.rerank.folds import find_candidates, out_of_fold, split_folds
from tests.learners.contract import MatrixContract, assert_same, small_data

TREE = {"leaf_size": 4, "arity": 3, "precision": "float32"}


class TestAroundOneVsRest(MatrixContract):
    other_params: ClassVar = {"width": 4, "tail": 0.3, "folds": 3, "learner": Popularity(), "activation": "linear"}

    def make(self, **params):
        return RankNet(**{"learner": OneVsRest(), "width": 3} | params)


class TestAroundLabelTree(MatrixContract):
    other_params: ClassVar = {"blocks": 2, "n_negatives": 3, "activation": "sigmoid"}

    def make(self, **params):
        return RankNet(**{"learner": LabelTree(**TREE), "width": 2, "tail": 0.5, "blocks": 2} | params)


class TestAroundInstanceForest(MatrixContract):
    other_params: ClassVar = {"epochs": 0}

    def make(self, **params):
        forest = InstanceForest(n_trees=4, leaf_size=3, C=5.0)
        return RankNet(**{"learner": forest, "width": 2, "learning_rate": 0.1} | params)


@pytest.fixture(scope="module")
def data():
    return generate(600, 80, 200, random_state=3, test_rows=200)


def test_untrained_it_is_the_dial(data):
    train, test = data
    net = RankNet(learner=OneVsRest(), tail=0.4, epochs=0, top_k=80).fit(train.X, train.Y)
    dial = TailDial(learner=OneVsRest(), tail=0.4).fit(train.X, train.Y)
    one, other = net.predict_topk(test.X, 5), dial.predict_topk(test.X, 5)
    np.testing.assert_allclose(one.scores, other.scores, rtol=1e-5)
    assert (one.labels == other.labels).mean() > 0.999  # scores may tie in another precision


def test_training_moves_it(data):
    train, test = data
    still = RankNet(learner=OneVsRest(), tail=0.4, epochs=0).fit(train.X, train.Y)
    moved = RankNet(learner=OneVsRest(), tail=0.4, epochs=3, learning_rate=0.05).fit(train.X, train.Y)
    assert (still.predict_topk(test.X, 5).labels != moved.predict_topk(test.X, 5).labels).any()
    assert np.abs(moved.out_).max() > 0
    assert not np.array_equal(moved.log_gains_, still.log_gains_)


def test_gains_can_be_held(data):
    train, _ = data
    still = RankNet(learner=OneVsRest(), tail=0.4, epochs=0).fit(train.X, train.Y)
    held = RankNet(learner=OneVsRest(), tail=0.4, gain_learning_rate=0.0).fit(train.X, train.Y)
    np.testing.assert_array_equal(held.log_gains_, still.log_gains_)


def test_auto_takes_a_position_of_the_dial(data):
    train, _ = data
    net = RankNet(learner=OneVsRest(), epochs=0).fit(train.X, train.Y)
    assert 0 <= net.tail_ <= 1
    generous = RankNet(learner=OneVsRest(), epochs=0, max_loss=100.0).fit(train.X, train.Y)
    assert generous.tail_ >= net.tail_


def test_out_of_fold_scores_come_from_learners_that_did_not_see_the_row(data):
    train, _ = data
    found = out_of_fold(OneVsRest(), train.X, train.Y, folds=3, top_k=10, random_state=5)
    folds = split_folds(train.n_rows, 3, 5)
    assert [len(held_out) for held_out, _ in folds] == [200, 200, 200]
    assert sorted(np.concatenate([held_out for held_out, _ in folds])) == list(range(600))
    for held_out, others in folds:
        assert sorted([*held_out, *others]) == list(range(600))
        learner = OneVsRest().fit(train.X[others], train.Y[others])
        expected = find_candidates(learner, train.X[held_out], 10)
        np.testing.assert_array_equal(found.top.labels[held_out], expected.labels)
        np.testing.assert_array_equal(found.top.scores[held_out], expected.scores)
    dense = train.Y.toarray()
    rows, places = np.nonzero(found.top.labels >= 0)
    np.testing.assert_array_equal(found.truth[rows, places], dense[rows, found.top.labels[rows, places]])


def test_in_sample_scores_are_too_good(data):
    """The trap: a learner is nearly always right about rows that it was trained on."""
    train, test = data
    inside, outside = (
        out_of_fold(OneVsRest(), train.X, train.Y, folds=folds, top_k=5, random_state=0).truth[:, 0].mean()
        for folds in (1, 2)
    )
    learner = OneVsRest().fit(train.X, train.Y)
    honest = are_true(learner.predict_topk(test.X, 1).labels, test.Y).mean()
    assert inside > honest + 0.05
    assert outside < honest + 0.03


@pytest.mark.parametrize(
    ("params", "name"),
    [
        ({"blocks": 0}, "blocks"),
        ({"width": 1.5}, "width"),
        ({"activation": "relu"}, "activation"),
        ({"tail": 2}, "tail"),
        ({"tail": "best"}, "tail"),
        ({"folds": 0}, "folds"),
        ({"learning_rate": -1}, "learning_rate"),
        ({"margin": float("nan")}, "margin"),
        ({"top_k": 0}, "top_k"),
        ({"learner": 3}, "learner"),
        ({"learner": OneVsRest(C=-1)}, "learner__C"),
    ],
)
def test_wrong_parameters(params, name):
    with pytest.raises(ParameterError, match=f"^{name}"):
        RankNet(**params).fit(*small_data())


def test_a_changed_model_is_refused(data, tmp_path):
    train, test = data
    net = RankNet(learner=OneVsRest(), width=2).fit(train.X, train.Y)
    Model(net).save(tmp_path / "model")
    assert_same(load(tmp_path / "model").learner.predict_topk(test.X, 5), net.predict_topk(test.X, 5))
    net.out_ = net.out_[:, :-1]
    with pytest.raises(ModelError, match="blocks"):
        net.predict_topk(test.X, 5)


def test_explanations_add_up(data):
    train, test = data
    net = RankNet(learner=OneVsRest(), width=2, learning_rate=0.05).fit(train.X, train.Y)
    top = net.predict_topk(test.X[:1], 5)
    for why, label, score in zip(net.explain(test.X[:1]), top.labels[0], top.scores[0], strict=True):
        assert why.label == label
        assert why.score == pytest.approx(score, rel=1e-5)
        assert why.bias + sum(effect for _, effect in why.parts) == pytest.approx(why.score, abs=1e-6)
        assert sum(effect for _, effect in why.sources) == pytest.approx(why.score, abs=1e-6)

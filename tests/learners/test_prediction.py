"""scikit-learn's `decision_function` and `predict_proba` against the ranking that they are made of."""

import numpy as np
import pytest
from sklearn.base import clone

from longtail import (
    Blend,
    InstanceForest,
    JainPropensity,
    LabelTree,
    OneVsRest,
    Popularity,
    RankNet,
    Stacked,
    TailDial,
    TAug,
    TextLearner,
    Tfidf,
)
from longtail.errors import ParameterError
from longtail.weighting import InversePropensity, PWcb
from tests.learners.contract import UNSEEN, small_data

LOGISTIC = OneVsRest(loss="logistic", n_jobs=1)
WITH = {
    "logistic": LOGISTIC,
    "forest": InstanceForest(n_trees=3, C=5.0),
    "popularity": Popularity(),
    "stacked": Stacked(learner=LOGISTIC),
    "blend": Blend(learners=[LOGISTIC, Popularity()]),
    "taug": TAug(learner=LOGISTIC, tau=0.4, copies=1),
    "dial": TailDial(learner=LOGISTIC, tail=0.0),
}
WITHOUT = {
    "margins": OneVsRest(),
    "tree": LabelTree(),
    "gains": InstanceForest(weighting=InversePropensity()),
    "multiplied": TAug(learner=LOGISTIC, merge=2.0),
    "dial": TailDial(learner=LOGISTIC, tail=0.5),
    "first": TailDial(learner=LOGISTIC, tail=0.0, first_tail=0.5),
    "auto": TailDial(learner=LOGISTIC, tail="auto"),
    "text": TextLearner(learner=OneVsRest()),
}


@pytest.fixture(scope="module")
def data():
    return small_data()


@pytest.mark.parametrize("name", WITH)
def test_columns_are_the_scores_of_the_ranking(name, data):
    X, Y = data
    learner = WITH[name].fit(X, Y)
    for labels in ([3, 0, 7], [3, 3], [8, 1, 8], []):
        scores, chances = learner.decision_function(X, labels), learner.predict_proba(X, labels)
        assert scores.shape == chances.shape == (X.shape[0], len(labels))
        assert scores.dtype == chances.dtype == np.float32
        assert ((chances >= 0) & (chances <= 1)).all()
        for column, label in enumerate(labels):
            top = learner.predict_topk(X, 1, only=[label])
            if learner._merged_candidates:  # whose scores depend on the candidates
                continue
            np.testing.assert_array_equal(scores[:, column], top.scores[:, 0])
            linked = np.where(top.labels[:, 0] < 0, 0, np.exp(learner._log_scores(top.scores[:, 0])))
            np.testing.assert_allclose(chances[:, column], linked, rtol=1e-6)
    best, top = learner.decision_function(X, k=4), learner.predict_topk(X, 4)
    assert best.shape == Y.shape
    rows, ranks = np.nonzero(top.labels >= 0)
    assert best.nnz == len(rows)
    np.testing.assert_array_equal(best[rows, top.labels[rows, ranks]], top.scores[rows, ranks])
    chances = learner.predict_proba(X, k=4).data
    assert len(chances) == best.nnz
    assert ((chances >= 0) & (chances <= 1)).all()


@pytest.mark.parametrize("name", ["logistic", "blend", "stacked", "dial"])
def test_a_column_does_not_depend_on_the_labels_asked_for_with_it(name, data):
    X, Y = data
    learner = clone(WITH[name]).set_params(**({"top_k": 3} if name in ("blend", "stacked") else {})).fit(X, Y)
    whole = learner.decision_function(X, k=learner._merged_candidates or Y.shape[1])
    for labels in ([0], [7, 3], list(range(Y.shape[1]))):
        columns = learner.decision_function(X, labels)
        for column, label in enumerate(labels):
            of_label = whole[:, [label]].tocoo()
            reached = columns[of_label.row, column] > -np.inf
            assert reached.any() or label == UNSEEN
            np.testing.assert_array_equal(columns[of_label.row[reached], column], of_label.data[reached])


def test_labels_that_are_not_reached(data):
    X, Y = data
    learner = OneVsRest(loss="logistic", n_jobs=1).fit(X, Y)
    assert (learner.decision_function(X, [0, UNSEEN])[:, 1] == -np.inf).all()
    assert (learner.predict_proba(X, [UNSEEN, 0])[:, 0] == 0).all()


@pytest.mark.parametrize("name", WITHOUT)
def test_scores_that_are_not_probabilities(name):
    assert not hasattr(WITHOUT[name], "predict_proba")


def test_texts():
    texts, Y = ["red fish", "red car", "blue car", "blue fish"], [[1, 0], [0, 1], [0, 1], [1, 0]]
    learner = TextLearner(features=Tfidf(min_df=1), learner=LOGISTIC).fit(texts, Y)
    rows = learner.features_.transform(texts)
    np.testing.assert_array_equal(learner.predict_proba(texts, [1, 0]), learner.learner_.predict_proba(rows, [1, 0]))
    assert learner.predict_proba(["fish"], [0])[0, 0] > 0.5


@pytest.mark.parametrize(
    ("learner", "name"),
    [
        (TailDial(learner=RankNet(learner=OneVsRest(C=-1))), "learner__learner__C"),
        (Stacked(second=InstanceForest(max_iter=0)), "second__max_iter"),
        (Blend(learners=[OneVsRest(), OneVsRest(weighting=PWcb(beta=2))]), "learners.1__weighting__beta"),
        (TextLearner(features=Tfidf(min_df=-1)), "features__min_df"),
        (OneVsRest(weighting=PWcb(propensity=JainPropensity(a=-1))), "weighting__propensity__a"),
    ],
)
def test_errors_give_the_path_of_a_nested_parameter(learner, name):
    with pytest.raises(ParameterError, match=rf"^{name} must be"):
        learner._check_parameters()

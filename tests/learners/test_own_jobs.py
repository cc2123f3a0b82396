"""A learner's own `n_jobs` holds wherever it works, also inside of other learners."""

import numpy as np
import pytest
from sklearn.base import clone

from longtail import (
    Blend,
    CentroidReranker,
    EmbeddingClassifier,
    InstanceForest,
    LabelTree,
    OneVsRest,
    Popularity,
    Stacked,
    TailDial,
    TAug,
    TextLearner,
    Tfidf,
)
from longtail.config import config_context, thread_count
from longtail.runtime import pool
from tests.learners.contract import small_data


class Spy(OneVsRest):
    """Notes the threads that each of its methods may use."""

    seen: dict[str, set[int]] = {}  # noqa: RUF012

    def _note(self, name):
        self.seen.setdefault(name, set()).add(thread_count())

    def _fit(self, X, Y):
        self._note("fit")
        super()._fit(X, Y)

    def _fit_augmented(self, X, Y, augmentation):
        self._note("copies")
        super()._fit_augmented(X, Y, augmentation)

    def _topk(self, X, k, allowed):
        self._note("topk")
        return super()._topk(X, k, allowed)

    def _weighted_topk(self, X, k, allowed, factors):
        self._note("topk")
        return super()._weighted_topk(X, k, allowed, factors)

    def _explain(self, X, labels):
        self._note("explain")
        return super()._explain(X, labels)

    def _estimate(self, X, Y):
        self._note("estimate")
        return super()._estimate(X, Y)


AROUND = {
    "alone": lambda spy: spy,
    "dial": lambda spy: TailDial(learner=spy),
    "stacked": lambda spy: Stacked(learner=spy),
    "blend": lambda spy: Blend(learners=[spy, Popularity()]),
    "taug": lambda spy: TAug(learner=spy, tau=0.4, copies=1),
    "two": lambda spy: TailDial(learner=Stacked(learner=spy)),
}


@pytest.mark.parametrize("name", AROUND)
def test_inside_of_others(name):
    X, Y = small_data()
    Spy.seen = {}
    with config_context(n_jobs=5):
        learner = AROUND[name](Spy(n_jobs=1))
        learner.estimate(X, Y)
        learner.fit(X, Y)
        learner.predict_topk(X, 3)
        learner.predict_topk(X, 3, tail=0.5)
        learner.explain(X[[0]])
        assert thread_count() == 5
    assert set(map(frozenset, Spy.seen.values())) == {frozenset({1})}, Spy.seen
    assert {"fit", "topk", "explain", "estimate"} <= Spy.seen.keys()
    assert ("copies" in Spy.seen) == (name == "taug")


def test_over_texts():
    Spy.seen = {}
    texts, Y = ["red fish", "red car", "blue car"], [[1, 0], [0, 1], [0, 1]]
    with config_context(n_jobs=5):
        TextLearner(features=Tfidf(min_df=1), learner=Spy(n_jobs=1)).fit(texts, Y).predict_topk(texts)
    assert Spy.seen == {"fit": {1}, "topk": {1}}


@pytest.mark.parametrize(("own", "most"), [(None, {2}), (1, {1}), (4, {2})])
def test_sides_trained_at_the_same_time_have_at_most_half(own, most):
    Spy.seen = {}
    with config_context(n_jobs=4):
        learner = TAug(learner=Spy(n_jobs=own), tau=0.4, copies=1, parallel=True).fit(*small_data())
    assert Spy.seen == {"fit": most, "copies": most}
    assert learner.head_learner_.n_jobs == own  # for predictions


def counted_threads(monkeypatch, work):
    """Threads of each `run_blocks` while some work is done."""
    used = []

    def count(n_jobs=None):
        used.append(thread_count(n_jobs))
        return used[-1]

    monkeypatch.setattr(pool, "thread_count", count)
    with config_context(n_jobs=3):
        work()
    return set(used)


X, Y = small_data()
NEW = Y[:, [0]]
METHODS = {
    "new labels": (OneVsRest(n_jobs=1), lambda learner: learner.add_labels(X, NEW)),
    "new labels of a tree": (LabelTree(n_jobs=1), lambda learner: learner.add_labels(X, NEW)),
    "new labels inside": (TailDial(learner=OneVsRest(n_jobs=1)), lambda learner: learner.add_labels(X, NEW)),
    "more trees": (InstanceForest(n_trees=2, n_jobs=1), lambda learner: learner.add_trees(X, Y, 2)),
    "more trees inside": (
        CentroidReranker(learner=InstanceForest(n_trees=2), n_jobs=1), lambda learner: learner.add_trees(X, Y, 2),
    ),
    "leaves": (InstanceForest(n_trees=2, n_jobs=1), lambda learner: learner.leaves(X)),
    "an update": (OneVsRest(n_jobs=1), lambda learner: learner.update(X, Y, train=(X, Y))),
    "weighted search": (LabelTree(n_jobs=1), lambda learner: learner.predict_weighted_topk(X, np.ones(14))),
    "embedded rows": (EmbeddingClassifier(embedding_dim=8, epochs=1, n_jobs=1), lambda learner: learner.embed(X)),
    "columns": (OneVsRest(n_jobs=1), lambda learner: learner.decision_function(X, [0, 3])),
}  # fmt: skip


@pytest.mark.parametrize("name", METHODS)
def test_every_method_uses_the_threads_of_its_learner(name, monkeypatch):
    learner, method = METHODS[name]
    learner = clone(learner).fit(X, Y)
    assert counted_threads(monkeypatch, lambda: method(learner)) <= {1}


def test_settings_of_a_run_are_no_parameters_of_a_model():
    assert OneVsRest(C=2.0, n_jobs=3)._model_params() == OneVsRest(C=2.0)._model_params()
    assert OneVsRest()._model_params().keys() == OneVsRest().get_params().keys() - {"n_jobs"}

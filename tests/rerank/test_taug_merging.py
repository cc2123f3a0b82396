"""TAug after its training: how the two sides are merged, and the learners that wrap it."""

import numpy as np
import pytest

from longtail import InstanceForest, LabelTree, Model, OneVsRest, Popularity, TAug, TextLearner, Tfidf, load
from longtail.errors import ModelError, ParameterError
from longtail.learners import Learner
from longtail.propensity import JainPropensity
from tests.learners.contract import assert_same, small_data

FOREST = {"n_trees": 4, "leaf_size": 3, "C": 5.0}
TREE = {"leaf_size": 4, "arity": 3, "precision": "float32"}
BASES = {"tree": LabelTree(**TREE), "one-vs-rest": OneVsRest(), "forest": InstanceForest(**FOREST)}
every_base = pytest.mark.parametrize("base", BASES)


def more_data():
    return small_data(n_rows=150, n_features=60, n_labels=40, seed=1)


def by_hand():
    """Counts 8, 4, 4 and 1 of 10 rows; the first two labels are the head."""
    Y = np.zeros((10, 4))
    for label, count in enumerate((8, 4, 4, 1)):
        Y[:count, label] = 1
    return np.ones((10, 1)), Y


def test_rankings_merge_by_score_and_equal_ones_by_the_lower_label():
    X, Y = by_hand()
    learner = TAug(learner=Popularity(), tau=0.5).fit(X, Y)
    assert learner.head_labels_.tolist() == [0, 1]
    top = learner.predict_topk([[1]], k=5)
    assert top.labels.tolist() == [[0, 1, 2, 3, -1]]
    np.testing.assert_allclose(top.scores, [[0.8, 0.4, 0.4, 0.1, -np.inf]], rtol=1e-6)
    own = TAug(learner=Popularity(), tau=0.5, rows="own").fit(X, Y)  # 8 rows have the head, 4 the tail
    top = own.predict_topk([[1]], k=3)
    assert top.labels.tolist() == [[0, 2, 1]]
    np.testing.assert_allclose(top.scores, [[1, 1, 0.5]], rtol=1e-6)


def test_a_number_multiplies_the_tail():
    X, Y = by_hand()
    learner = TAug(learner=Popularity(), tau=0.5, merge=3.0).fit(X, Y)
    top = learner.predict_topk([[1]], k=3)
    assert top.labels.tolist() == [[2, 0, 1]]
    np.testing.assert_allclose(top.scores, [[1.2, 0.8, 0.4]], rtol=1e-6)
    top = learner.set_params(merge=0.5).predict_topk([[1]], k=3, exclude=[1])
    assert top.labels.tolist() == [[0, 2, 3]]
    np.testing.assert_allclose(top.scores, [[0.8, 0.2, 0.05]], rtol=1e-6)
    why = learner.explain([[1]], [2, 0])
    assert [round(one.score, 6) for one in why] == [0.2, 0.8]
    assert why[0].sources == [("tail: Popularity", pytest.approx(0.2))]
    assert why[1].sources == [("head: Popularity", pytest.approx(0.8))]
    learner.set_params(merge="ranks")
    with pytest.raises(ParameterError, match=r"^merge "):
        learner.predict_topk([[1]], k=3)


def test_margins_become_numbers_from_0_to_1_when_they_are_multiplied():
    X, Y = more_data()
    learner = TAug(learner=OneVsRest(), tau=0.3, copies=1).fit(X, Y)
    plain = learner.predict_topk(X, 40)
    np.testing.assert_array_equal(learner.predict(X).toarray(), plain.at_least(1e-30).indicator(40).toarray())
    multiplied = learner.set_params(merge=2.0).predict_topk(X, 40)
    for row in range(0, 150, 7):
        filled = plain.labels[row] >= 0
        margins = dict(zip(plain.labels[row][filled], plain.scores[row][filled].astype(float), strict=True))
        for label, score in zip(multiplied.labels[row], multiplied.scores[row], strict=True):
            if label >= 0:
                factor = 2 if label in learner.tail_labels_ else 1
                assert score == pytest.approx(factor / (1 + np.exp(-3 * margins[label])), rel=1e-4)
    assert learner._decision_threshold == pytest.approx(0.5)
    np.testing.assert_array_equal(learner._log_scores(np.array([0.5, 1.0])), np.log([0.5, 1.0]))


@every_base
@pytest.mark.parametrize("merge", ["scores", 1.5])
def test_the_tail_dial_goes_by_all_rows_and_labels(base, merge):
    X, Y = more_data()
    learner = TAug(learner=BASES[base], tau=0.3, copies=1, rows="own", merge=merge).fit(X, Y)
    inverse = JainPropensity().inverse(learner.label_counts_, 150) ** 0.5
    plain, dialled = learner.predict_topk(X, 40), learner.predict_topk(X, 40, tail=0.5)
    strengths = np.exp(learner._log_scores(plain.scores.astype(float)))
    for row in range(0, 150, 11):
        filled = plain.labels[row] >= 0
        wanted = dict(zip(plain.labels[row][filled], strengths[row][filled], strict=True))
        for label, score in zip(dialled.labels[row], dialled.scores[row], strict=True):
            if label >= 0:
                assert score == pytest.approx(wanted[label] * inverse[label], rel=1e-4, abs=1e-30)
    assert (dialled.labels != plain.labels).any()


def test_explanations_name_the_side():
    X, Y = more_data()
    learner = TAug(learner=LabelTree(n_trees=2, **TREE), tau=0.3, copies=1).fit(X, Y)
    for label in (int(learner.head_labels_[1]), int(learner.tail_labels_[-1])):
        side = "head" if label in learner.head_labels_ else "tail"
        (why,) = learner.explain(X[:1], [label])
        assert (why.label, why.name) == (label, str(label))
        assert {source.partition(":")[0] for source, _ in why.sources} <= {side}


# Parameters, and the learners that wrap it and that it wraps


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tau", -0.1),
        ("tau", 1.1),
        ("tau", "half"),
        ("tau", np.nan),
        ("tau", None),
        ("copies", -1),
        ("copies", 1.5),
        ("copies", True),
        ("copies", 2**16),
        ("input_dropout", 1),
        ("input_dropout", -0.01),
        ("input_dropout", "all"),
        ("swaps", -1),
        ("swaps", 0.5),
        ("merge", "ranks"),
        ("merge", 0),
        ("merge", -1.0),
        ("merge", np.inf),
        ("merge", True),
        ("merge", None),
        ("rows", "some"),
        ("rows", None),
        ("parallel", "yes"),
        ("parallel", 1),
        ("random_state", -1),
        ("random_state", 2**32),
        ("n_jobs", 0),
        ("learner", "bonsai"),
        ("learner", LabelTree),
        ("learner", TextLearner()),
    ],
)
def test_wrong_parameters_are_refused(name, value):
    learner = TAug(**{"learner": Popularity()} | {name: value})
    with pytest.raises(ParameterError, match=f"^{name} "):
        learner.fit(*small_data())
    assert not hasattr(learner, "head_learner_")


def test_parameters_of_the_learner_are_refused_first_and_can_be_set():
    with pytest.raises(ParameterError, match=r"^learner__n_trees "):
        TAug(learner=LabelTree(n_trees=0)).fit(*small_data())
    learner = TAug().set_params(learner__n_trees=2, tau=0.2)
    assert (learner.learner.n_trees, learner.learner.arity, learner.tau) == (2, 100, 0.2)


class KnowsNoCopies(OneVsRest):
    """With one block of labels, learning from all copies together equals what `OneVsRest` learns from its own."""

    _fit_augmented = Learner._fit_augmented


def test_learners_that_know_no_copies_get_all_of_them():
    X, Y = more_data()
    params = {"tau": 0.2, "copies": 2, "input_dropout": 0.5, "swaps": 1}
    learner, other = (TAug(learner=base, **params).fit(X, Y) for base in (KnowsNoCopies(), OneVsRest()))
    assert isinstance(learner.tail_learner_, KnowsNoCopies)
    assert_same(learner.predict_topk(X, 5), other.predict_topk(X, 5))
    assert learner.tail_learner_.n_rows_ == 150
    np.testing.assert_array_equal(learner.tail_learner_.label_counts_, other.tail_learner_.label_counts_)


def test_texts_with_taug_inside(tmp_path):
    texts = ["red car", "blue car", "red bus", "green tree", "old green tree", "tall tree"] * 4
    Y = np.array([[1, 0, 0], [1, 0, 0], [1, 1, 0], [0, 0, 1], [0, 0, 1], [0, 0, 1]] * 4)
    learner = TextLearner(features=Tfidf(min_df=1), learner=TAug(learner=OneVsRest(), tau=0.67)).fit(texts, Y)
    assert learner.learner_.tail_labels_.tolist() == [1]
    assert learner.predict_topk(["a tall tree"], 1).labels.tolist() == [[2]]
    assert set(learner.predict_topk(["a red bus"], 2).labels[0]) == {0, 1}
    Model(learner).save(tmp_path / "model")
    assert_same(load(tmp_path / "model").learner.predict_topk(texts, 3), learner.predict_topk(texts, 3))


def test_sides_that_do_not_fit_together_are_refused():
    X, Y = more_data()

    def spoilt(**parts):
        learner = TAug(learner=Popularity(), tau=0.3).fit(X, Y)
        learner.predict_topk(X[:1], 2)
        vars(learner).update(parts)
        return learner

    sound = spoilt()
    head, tail = sound.head_labels_, sound.tail_labels_
    twice = np.concatenate([tail[:1], tail[:-1]])
    for wrong in (
        {"head_learner_": sound.tail_learner_},
        {"head_learner_": None},
        {"head_learner_": None, "tail_learner_": None},
        {"tail_labels_": twice},
        {"tail_labels_": tail[::-1]},
        {"head_labels_": head + np.int32(100)},
        {"head_labels_": head[:-1]},
    ):
        with pytest.raises(ModelError, match="train it again"):
            spoilt(**wrong).predict_topk(X, 2)

"""The tail dial as a learner: the contract of learners, and its positions against plain numpy."""

import copy
import math
from typing import ClassVar

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from longtail import (
    CentroidReranker,
    InstanceForest,
    JainPropensity,
    LabelTree,
    Model,
    OneVsRest,
    Popularity,
    RankNet,
    Stacked,
    TailDial,
    TAug,
    TextLearner,
    Tfidf,
    evaluate,
)
from longtail.data import Dataset
from longtail.errors import InputError, ModelError, ParameterError
from longtail.propensity import GivenPropensity
from longtail.rerank import DialPoint, choose_tail, dial_curve
from longtail.weighting import PW
from tests.learners.contract import UNSEEN, MatrixContract, assert_same, small_data
from tests.learners.rankings import assert_best, dialled

FOREST = {"n_trees": 4, "leaf_size": 3, "C": 5.0}
BASES = {
    "forest": InstanceForest(**FOREST),
    "one-vs-rest": OneVsRest(),
    "logistic": OneVsRest(loss="logistic"),
    "tree": LabelTree(leaf_size=4, arity=3, precision="float32"),
    "two trees": LabelTree(leaf_size=4, arity=3, n_trees=2, beam=2),
    "best-first": LabelTree(leaf_size=4, arity=3, search="best-first"),
    "re-ranker": CentroidReranker(learner=OneVsRest()),
    "popularity": Popularity(),
}
every_base = pytest.mark.parametrize("base", BASES)


class DialContract(MatrixContract):
    def undialled(self, fitted):
        return fitted.learner_


class TestAroundOneVsRest(DialContract):
    other_params: ClassVar = {
        "tail": 1.0,
        "propensity": JainPropensity(a=0.6),
        "max_loss": 2.0,
        "validation_fraction": 0.2,
        "random_state": 3,
        "learner": Popularity(),
    }

    def make(self, *, n_jobs=None, **params):
        return TailDial(**{"learner": OneVsRest(n_jobs=n_jobs), "tail": 0.7} | params)


class TestAroundLabelTree(DialContract):
    other_params: ClassVar = {"tail": 0}

    def make(self, *, n_jobs=None, **params):
        tree = LabelTree(leaf_size=4, arity=3, precision="float32", n_jobs=n_jobs)
        return TailDial(**{"learner": tree, "propensity": JainPropensity(a=0.9, b=0.5)} | params)


class TestFoundByItself(DialContract):
    other_params: ClassVar = {"tail": "auto"}

    def make(self, *, n_jobs=None, **params):
        return TailDial(**{"learner": InstanceForest(**FOREST, n_jobs=n_jobs), "tail": "auto"} | params)


def more_data():
    return small_data(n_rows=150, n_features=60, n_labels=40, seed=1)


def inverse_of(learner, propensity=None):
    return (propensity or JainPropensity()).inverse(learner.label_counts_, learner.n_rows_)


@every_base
@pytest.mark.parametrize("tail", [0.0, 0.3, 1.0])
def test_a_set_dial_ranks_as_a_turned_one(base, tail):
    X, Y = more_data()
    learner = TailDial(learner=BASES[base], tail=tail).fit(X, Y)
    plain = clone(BASES[base]).fit(X, Y)
    scores = dialled(plain, plain.predict_topk(X, 40), inverse_of(plain), tail)
    assert learner.tail_ == tail
    assert_best(learner.predict_topk(X, 6), scores)
    assert_best(learner.predict_topk(X, 6, tail=0.8), dialled(plain, plain.predict_topk(X, 40), inverse_of(plain), 0.8))
    assert_same(learner.predict_topk(X, 6, tail=0), plain.predict_topk(X, 6))
    decided = learner.predict(X).toarray() != 0
    threshold = math.exp(plain._log_scores(np.array([plain._decision_threshold]))[0])
    above = np.zeros(decided.shape, bool)
    for row, of_row in enumerate(scores):
        above[row, [label for label, score in of_row.items() if score > threshold * (1 + 1e-5)]] = True
    assert (decided >= above).all()
    assert decided.sum() <= sum(score > threshold * (1 - 1e-5) for of_row in scores for score in of_row.values())


@pytest.mark.parametrize("base", ["one-vs-rest", "logistic", "forest", "popularity"])
def test_the_search_looks_at_all_labels(base, monkeypatch):
    """Not only at the best by the plain score, as where a learner can't search with factors."""
    X, Y = more_data()
    monkeypatch.setattr("longtail.learners.base.CANDIDATES", 1)
    learner = clone(BASES[base]).fit(X, Y)
    steep = GivenPropensity(values=np.geomspace(1e-6, 1, 40))
    scores = dialled(learner, learner.predict_topk(X, 40), steep.inverse(learner.label_counts_, 150), 1.0)
    assert_best(TailDial(learner=learner, tail=1.0, propensity=steep).fit(X, Y).predict_topk(X, 3), scores)


def test_other_learners_look_at_their_best_candidates(monkeypatch):
    X, Y = more_data()
    monkeypatch.setattr("longtail.learners.base.CANDIDATES", 8)
    learner = clone(BASES["re-ranker"]).fit(X, Y)
    best = learner.predict_topk(X, 8)
    assert_best(learner.predict_topk(X, 3, tail=1), dialled(learner, best, inverse_of(learner), 1.0))
    more = learner.predict_topk(X, 12, tail=1)
    assert_best(more, dialled(learner, learner.predict_topk(X, 12), inverse_of(learner), 1.0))


def test_by_hand():
    """Shares 3/4 and 1/4 of four rows; inverse propensities are 1 + C (n + 1.5)^-0.55, C = (ln 4 - 1) 2.5^0.55."""
    X, Y = [[1]] * 4, [[1, 0], [1, 0], [1, 1], [0, 0]]
    c = (np.log(4) - 1) * 2.5**0.55
    one, three = 1 + c * 2.5**-0.55, 1 + c * 4.5**-0.55
    learner = TailDial(learner=Popularity(), tail=0.5).fit(X, Y)
    top = learner.predict_topk([[1]], k=3)
    assert top.labels.tolist() == [[0, 1, -1]]
    np.testing.assert_allclose(top.scores[0, :2], [0.75 * three**0.5, 0.25 * one**0.5], rtol=1e-6)
    assert learner.predict_topk([[1]], k=2, tail=0).scores.tolist() == [[0.75, 0.25]]


@pytest.mark.parametrize("base", ["one-vs-rest", "tree", "forest"])
def test_the_higher_the_dial_the_rarer_the_labels(base):
    X, Y = more_data()
    learner = clone(BASES[base]).fit(X, Y)
    frequency = [
        np.log(learner.label_counts_[learner.predict_topk(X, 3, tail=tail).labels]).mean() for tail in (0, 0.5, 1)
    ]
    assert frequency[0] > frequency[1] > frequency[2]


class TestPropensities:
    """That of the dial counts, then that of the weighting, of the learner inside, of the model, and the usual one."""

    MINE, WEIGHTED, MODEL = JainPropensity(a=1.1, b=0.1), JainPropensity(a=0.9, b=0.2), JainPropensity(a=0.7, b=0.3)

    @pytest.mark.parametrize(
        ("learner", "expected"),
        [
            (TailDial(learner=OneVsRest(weighting=PW(propensity=WEIGHTED)), propensity=MINE), MINE),
            (TailDial(learner=OneVsRest(weighting=PW(propensity=WEIGHTED))), WEIGHTED),
            (OneVsRest(weighting=PW(propensity=WEIGHTED)), WEIGHTED),
            (CentroidReranker(learner=OneVsRest(weighting=PW(propensity=WEIGHTED))), WEIGHTED),
            (TailDial(learner=OneVsRest(weighting="pw")), MODEL),
            (OneVsRest(), MODEL),
            (CentroidReranker(learner=TailDial(learner=Popularity(), propensity=MINE)), MINE),
        ],
    )
    def test_which_one_counts(self, learner, expected):
        X, Y = more_data()
        assert learner.propensity_model(self.MODEL) is expected
        model = Model(clone(learner).fit(X, Y), propensity=self.MODEL)
        np.testing.assert_allclose(
            model.learner._tail_factors(0.5), inverse_of(model.learner, expected) ** 0.5, rtol=1e-6
        )

    def test_the_usual_one(self):
        assert repr(OneVsRest().propensity_model()) == repr(JainPropensity())
        assert repr(TailDial(propensity="Amazon-670K").propensity_model()) == repr(JainPropensity(a=0.6, b=2.6))
        assert repr(TailDial().propensity_model(JainPropensity(a=0.1))) == repr(JainPropensity(a=0.1))

    def test_given_ones(self):
        X, Y = more_data()
        given = GivenPropensity(values=np.linspace(0.05, 1, 40))
        learner = TailDial(learner=OneVsRest(), tail=1.0, propensity=given).fit(X, Y)
        plain = learner.learner_.predict_topk(X, 40)
        assert_best(learner.predict_topk(X, 5), dialled(learner.learner_, plain, 1 / np.linspace(0.05, 1, 40), 1.0))


class TestNothingIsStale:
    """Factors are kept from call to call; what they depend on may change in between."""

    def test_another_position(self):
        X, Y = more_data()
        learner = OneVsRest().fit(X, Y)
        first = learner.predict_topk(X, 5, tail=0.2)
        learner.predict_topk(X, 5, tail=0.9)
        assert_same(learner.predict_topk(X, 5, tail=0.2), first)

    def test_other_labels(self):
        X, Y = more_data()
        learner = OneVsRest().fit(X, Y)
        learner.predict_topk(X, 5, tail=0.9)
        turned = sp.csr_array(Y[:, ::-1])
        learner.fit(X, turned)
        assert_same(learner.predict_topk(X, 5, tail=0.9), OneVsRest().fit(X, turned).predict_topk(X, 5, tail=0.9))

    def test_more_labels(self):
        X, Y = more_data()
        learner = OneVsRest().fit(X, Y[:, :30])
        learner.predict_topk(X, 5, tail=0.9)
        learner.add_labels(X, Y[:, 30:])
        plain = learner.predict_topk(X, 40)
        assert_best(learner.predict_topk(X, 5, tail=0.9), dialled(learner, plain, inverse_of(learner), 0.9))

    def test_another_propensity(self):
        X, Y = more_data()
        learner, other = OneVsRest().fit(X, Y), JainPropensity(a=1.5, b=0.2)
        plain = learner.predict_topk(X, 40)
        learner.predict_topk(X, 5, tail=0.9)
        top = Model(learner, propensity=other).predict_topk(X, 5, tail=0.9)
        assert_best(top, dialled(learner, plain, inverse_of(learner, other), 0.9))

    def test_a_dial_that_is_given_another_propensity(self):
        X, Y = more_data()
        learner, other = TailDial(learner=OneVsRest(), tail=0.9).fit(X, Y), JainPropensity(a=1.5, b=0.2)
        plain = learner.learner_.predict_topk(X, 40)
        learner.predict_topk(X, 5)
        learner.set_params(propensity=other)
        assert_best(learner.predict_topk(X, 5), dialled(learner.learner_, plain, inverse_of(learner, other), 0.9))


@pytest.mark.parametrize("base", ["one-vs-rest", "tree", "forest", "popularity", "re-ranker"])
def test_a_dial_over_no_labels_at_all(base):
    X, _ = more_data()
    learner = clone(BASES[base]).fit(X, sp.csr_array((150, 0), dtype=np.float32))
    assert (learner.predict_topk(X, 2, tail=0.5).labels == -1).all()


def test_labels_that_no_row_had_stay_unpredicted():
    X, Y = small_data()
    for base in BASES.values():
        assert UNSEEN not in clone(base).fit(X, Y).predict_topk(X, 14, tail=1).labels


class TestModel:
    def test_the_dial_inside_of_a_text_learner(self):
        texts = ["red car", "blue car", "red bus", "green tree", "old green tree", "tall tree"] * 4
        Y = np.array([[1, 0, 0], [1, 0, 0], [1, 1, 0], [0, 0, 1], [0, 0, 1], [0, 0, 1]] * 4)
        features = Tfidf(min_df=1)
        learner = TextLearner(features=features, learner=TailDial(learner=OneVsRest(), tail=0.9)).fit(texts, Y)
        plain = TextLearner(features=features, learner=OneVsRest()).fit(texts, Y)
        assert_same(learner.predict_topk(texts, 3), plain.predict_topk(texts, 3, tail=0.9))
        assert_same(learner.predict_topk(texts, 3, tail=0), plain.predict_topk(texts, 3))

    def test_a_dial_inside_goes_by_the_propensity_of_the_model(self):
        texts = ["red car", "blue car", "red bus", "green tree", "old green tree", "tall tree"] * 4
        Y = np.array([[1, 0, 0], [1, 0, 0], [1, 1, 0], [0, 0, 1], [0, 0, 1], [0, 0, 1]] * 4)
        learner = TextLearner(features=Tfidf(min_df=1), learner=TailDial(learner=OneVsRest(), tail=0.9)).fit(texts, Y)
        model = Model(learner, propensity=JainPropensity(a=1.5, b=0.1))
        assert_same(model.predict_topk(texts, 3), model.predict_topk(texts, 3, tail=0.9))

    def test_scores_of_a_position(self):
        X, Y = more_data()
        model = Model(OneVsRest().fit(X, Y))
        held_out = Dataset(*small_data(n_rows=60, n_features=60, n_labels=40, seed=2))
        inverse = inverse_of(model.learner)
        for tail in (None, 0.0, 0.7):
            top = model.learner.predict_topk(held_out.X, 5, tail=tail)
            expected = evaluate(top, held_out.Y, inverse_propensity=inverse)
            assert dict(model.evaluate(held_out, tail=tail)) == pytest.approx(dict(expected))
        assert model.predict_names(held_out.X[:1], 2, tail=1.0) != model.predict_names(held_out.X[:1], 2)

    def test_probabilities_were_learned_without_it(self):
        X, Y = more_data()
        model = Model(OneVsRest().fit(X, Y)).calibrate(Dataset(X, Y), method="platt")
        with pytest.raises(ParameterError, match="left out with probabilities"):
            model.predict_topk(X, 3, tail=0.5, probabilities=True)
        assert "ECE@5" in model.evaluate(Dataset(X, Y))
        assert "ECE@5" not in model.evaluate(Dataset(X, Y), tail=0.5)

    def test_what_was_found_is_kept(self, tmp_path):
        X, Y = more_data()
        learner = TailDial(learner=OneVsRest(), tail="auto", max_loss=30.0).fit(X, Y)
        Model(learner).save(tmp_path / "model")
        loaded = Model.load(tmp_path / "model").learner
        assert (loaded.tail, loaded.tail_) == ("auto", learner.tail_)
        assert_same(loaded.predict_topk(X, 5), learner.predict_topk(X, 5))


class TestExplanations:
    def test_sources_are_the_learner_and_the_dial(self):
        X, Y = more_data()
        learner = TailDial(learner=OneVsRest(), tail=0.8).fit(X, Y)
        factors = inverse_of(learner) ** 0.8
        for why in learner.explain(X[:1], k=3):
            margin = learner.learner_.explain(X[:1], [why.label])[0].score
            plain = 1 / (1 + np.exp(-3 * margin))
            sources = dict(why.sources)
            assert sources["OneVsRest"] == pytest.approx(plain, rel=1e-5)
            assert sources["tail dial"] == pytest.approx((factors[why.label] - 1) * plain, rel=1e-5)
            assert sum(sources.values()) == pytest.approx(why.score, rel=1e-6)

    def test_estimates_count_the_trial_in(self):
        X, Y = more_data()
        fixed = TailDial(learner=Popularity(), tail=0.5).estimate(X, Y)
        found = TailDial(learner=Popularity(), tail="auto").estimate(X, Y)
        assert fixed.model_mb == found.model_mb == Popularity().estimate(X, Y).model_mb


@pytest.mark.parametrize(
    "wrong",
    [
        {"tail": -0.1},
        {"tail": 1.5},
        {"tail": "best"},
        {"tail": True},
        {"tail": None},
        {"tail": math.nan},
        {"max_loss": -1},
        {"max_loss": "x"},
        {"validation_fraction": 0},
        {"validation_fraction": 1.0},
        {"random_state": -1},
        {"random_state": 0.5},
        {"learner": "dismec"},
        {"propensity": "nowhere"},
        {"learner": OneVsRest(C=-1)},
    ],
)
def test_wrong_parameters_are_refused(wrong):
    X, Y = small_data()
    name = "C" if isinstance(wrong.get("learner"), OneVsRest) else next(iter(wrong))
    with pytest.raises(ParameterError, match=name if name != "propensity" else "nowhere"):
        TailDial(**{"learner": Popularity()} | wrong).fit(X, Y)


def test_parameters_of_a_default_learner_can_be_set():
    learner = TailDial().set_params(learner__C=0.5, tail=0.25)
    assert isinstance(learner.learner, OneVsRest)
    assert (learner.learner.C, learner.tail) == (0.5, 0.25)
    assert TailDial().learner is None


def test_a_learner_of_other_labels_is_refused():
    X, Y = more_data()
    learner = TailDial(learner=Popularity()).fit(X, Y)
    learner.learner_ = copy.copy(Popularity().fit(X, Y[:, :30]))
    with pytest.raises(ModelError, match="train it again"):
        learner.predict_topk(X, 3)


def test_the_score_of_the_first_place_is_explained():
    X, Y = small_data()
    learner = TailDial(learner=OneVsRest(), tail=1.0, first_tail=0.0).fit(X, Y)
    top = learner.predict_topk(X, 3)
    lifted = 0
    for row in range(20):
        why = learner.explain(X[row : row + 1], k=3)
        assert [one.label for one in why] == top.labels[row].tolist()
        assert [one.score for one in why] == pytest.approx(top.scores[row].tolist(), rel=1e-5)
        assert all(one.bias + sum(effect for _, effect in one.parts) == pytest.approx(one.score) for one in why)
        lifted += any(name == "first place" and value > 0 for name, value in why[0].sources)
    assert lifted


def test_a_dial_around_a_dial_is_refused():
    X, Y = small_data()
    with pytest.raises(ParameterError, match="has a dial of its own"):
        TailDial(learner=TailDial(learner=OneVsRest())).fit(X, Y)


@pytest.mark.parametrize("wrapper", [TailDial, RankNet, Stacked, CentroidReranker, TAug])
def test_what_can_not_be_wrapped_is_refused(wrapper):
    X, Y = small_data()
    with pytest.raises(ParameterError, match=f"put {wrapper.__name__} into the learner over texts"):
        wrapper(learner=TextLearner()).fit(X, Y)
    model = Model(OneVsRest().fit(X, Y), label_names=[f"a long name {label}" * 9 for label in range(14)])
    with pytest.raises(ParameterError, match="give the learner of the model") as refused:
        wrapper(learner=model).fit(X, Y)
    assert len(str(refused.value)) < 200


def test_a_dial_lets_its_learner_grow():
    X, Y = small_data()
    forest = TailDial(learner=InstanceForest(n_trees=2), tail=0.5).fit(X, Y).add_trees(X, Y, 3)
    whole = TailDial(learner=InstanceForest(n_trees=5), tail=0.5).fit(X, Y)
    assert_same(forest.predict_topk(X, 3), whole.predict_topk(X, 3))
    grown = TailDial(learner=OneVsRest(), tail=0.5).fit(X, Y[:, :10]).add_labels(X, Y[:, 10:])
    assert grown.n_labels_ == grown.learner_.n_labels_ == 14
    assert grown.predict_topk(X, 3).labels.max() > 9
    with pytest.raises(InputError, match="Popularity has no instance trees"):
        TailDial(learner=Popularity()).fit(X, Y).add_trees(X, Y, 1)
    with pytest.raises(InputError, match="Popularity has no support for new labels"):
        TailDial(learner=Popularity()).fit(X, Y).add_labels(X, Y)


@pytest.mark.parametrize(
    ("curve", "max_loss"), [([], 1), ([DialPoint(0.0, 1, 1, 1, 1)], -1), ([DialPoint(0.0, 1, 1, 1, 1)], "x")]
)
def test_choices_that_make_no_sense_are_refused(curve, max_loss):
    with pytest.raises(ParameterError):
        choose_tail(curve, max_loss)
    X, Y = small_data()
    with pytest.raises(ParameterError, match="tails"):
        dial_curve(OneVsRest().fit(X, Y), X, Y, tails=0.5)

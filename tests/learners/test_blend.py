"""Several learners as one."""

from __future__ import annotations

from inspect import signature
from itertools import permutations

import numpy as np
import pytest

from longtail import (
    Blend,
    InstanceForest,
    JainPropensity,
    LabelTree,
    Model,
    OneVsRest,
    Popularity,
    TailDial,
    TAug,
    TextLearner,
    datasets,
    load,
)
from longtail.data.sparse import as_indicator
from longtail.errors import InputError, ParameterError
from longtail.learners.blend import LogOdds, find_weights, merged
from longtail.metrics import evaluate
from longtail.rerank import label_norms
from longtail.weighting import PW
from tests.learners.contract import MatrixContract, assert_same, small_data


class TestContract(MatrixContract):
    def make(self, **params):
        params = {"learners": [OneVsRest(), Popularity()], **params}
        return Blend(**params)


@pytest.fixture(scope="module")
def tags():
    train = datasets.load("debian-tags:train")
    order = np.random.default_rng(0).permutation(train.n_rows)
    texts = [train.texts[row] for row in order[:4000]]
    return texts[:3000], train.Y[order[:3000]], texts[3000:], train.Y[order[3000:4000]], train.label_names


@pytest.fixture(scope="module")
def parts(tags):
    texts, Y = tags[:2]
    return [TextLearner(learner=learner).fit(texts, Y) for learner in (OneVsRest(), LabelTree())]


def test_merging_by_hand():
    """The first part ranks 3 and 1, the second 1 and 2; what a part doesn't rank counts as its last."""
    one = LogOdds(np.array([[3, 1, -1]], np.int32), np.array([[2.0, 0.5, -np.inf]]), 3)
    other = LogOdds(np.array([[1, 2, -1]], np.int32), np.array([[3.0, -1.0, -np.inf]]), 3)
    top = merged([one, other], np.array([0.25, 0.75]), 4, 5)
    assert top.labels.tolist() == [[1, 3, 2, -1]]
    np.testing.assert_allclose(top.scores[0, :3], [0.25 * 0.5 + 0.75 * 3, 0.25 * 2 - 0.75, 0.25 * 0.5 - 0.75])


def test_ranks_after_the_candidates_change_nothing_before_them():
    """With one candidate each, 3 and 1 are compared by it alone; 2, which is nobody's, stands behind with its own."""
    one = LogOdds(np.array([[3, 1, 2]], np.int32), np.array([[2.0, 1.9, 0.5]]), 1)
    other = LogOdds(np.array([[1, 2, 3]], np.int32), np.array([[3.0, 1.0, -9.0]]), 1)
    top = merged([one, other], np.array([0.5, 0.5]), 3, 5)
    assert top.labels.tolist() == [[1, 3, 2]]
    np.testing.assert_allclose(top.scores[0], [0.5 * 2.0 + 0.5 * 3.0, 0.5 * 2.0 + 0.5 * 3.0, 0.5 * 0.5 + 0.5 * 1.0])


@pytest.mark.parametrize("candidates", [1, 3, 10])
def test_a_larger_k_starts_with_the_same_labels(tags, parts, candidates):
    _, _, texts, Y, _ = tags
    blend = Blend.from_fitted(parts, texts[:500], Y[:500], top_k=candidates)
    few, many = (blend.predict_topk(texts[:200], k) for k in (5, 60))
    np.testing.assert_array_equal(many.labels[:, : min(candidates, 5)], few.labels[:, :candidates])
    np.testing.assert_array_equal(many.scores[:, : min(candidates, 5)], few.scores[:, :candidates])


def test_unranked_labels_are_explained_by_the_last_candidates(tags, parts):
    _, _, texts, Y, _ = tags
    blend = Blend.from_fitted(parts, texts[:500], Y[:500], top_k=5)
    ranked = blend.predict_topk(texts[:1], 300)
    (best,) = blend.explain(texts[:1], [int(ranked.labels[0, 0])])
    (last,) = blend.explain(texts[:1], [int(ranked.labels[0, -1])])
    assert best.score == pytest.approx(float(ranked.scores[0, 0]), abs=1e-4)
    assert last.score < best.score - 1
    assert sum(effect for _, effect in last.sources) == pytest.approx(last.score)
    unseen = int(np.flatnonzero(blend.label_counts_ == 0)[0])
    with pytest.raises(InputError, match="no training row"):
        blend.explain(texts[:1], [unseen])


def test_a_useless_part_gets_no_weight():
    rng = np.random.default_rng(1)
    truth = as_indicator((rng.random((200, 30)) < 0.1).astype(np.float32))
    labels = np.tile(np.arange(30, dtype=np.int32), (200, 1))
    good = LogOdds(labels, truth.toarray() + 0.3 * rng.normal(size=(200, 30)), 30)
    bad = LogOdds(labels, rng.normal(size=(200, 30)), 30)
    weights = find_weights([good, bad], truth)
    assert weights[1] < 0.1
    assert weights.sum() == pytest.approx(1)


def test_no_part_makes_the_best_weights_worse():
    """Of three parts, two that are good where the other isn't; found whatever their order."""
    rng = np.random.default_rng(3)
    truth = as_indicator((rng.random((300, 20)) < 0.15).astype(np.float32))
    labels = np.tile(np.arange(20, dtype=np.int32), (300, 1))
    noise = [rng.normal(size=(300, 20)) * np.where(np.arange(20) < 10, low, high) for low, high in ((0.4, 2), (2, 0.4))]
    parts = [LogOdds(labels, truth.toarray() + one, 20) for one in (*noise, 1.2 * rng.normal(size=(300, 20)))]

    def worth(chosen):
        some = [parts[number] for number in chosen]
        return evaluate(merged(some, find_weights(some, truth), 5, 20), truth, ks=(5,))["nDCG@5"]

    two, orders = worth([0, 1]), [worth(order) for order in permutations(range(3))]
    assert min(orders) >= two - 1e-9
    assert max(orders) - min(orders) < 0.1


def test_a_blend_is_as_good_as_its_parts(tags, parts, tmp_path):
    _, _, texts, Y, names = tags
    blend = Blend.from_fitted(parts, texts[:500], Y[:500])
    for rows, less in ((slice(None, 500), 0.0), (slice(500, None), 0.5)):
        alone = [evaluate(part.predict_topk(texts[rows], 5), Y[rows])["nDCG@5"] for part in parts]
        assert evaluate(blend.predict_topk(texts[rows], 5), Y[rows])["nDCG@5"] >= max(alone) - less
    assert (blend.weights_ > 0.05).all()
    Model(blend, label_names=names).save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.takes_texts
    assert_same(again.predict_topk(texts[:50], 5), blend.predict_topk(texts[:50], 5))
    whys = again.explain(texts[0], k=3)
    top = blend.predict_topk(texts[:1], 3)
    for why, label, score in zip(whys, top.labels[0], top.scores[0], strict=True):
        assert why.label == label
        assert why.score == pytest.approx(float(score), abs=1e-4)
        assert why.bias + sum(effect for _, effect in why.parts) == pytest.approx(why.score)
        assert {name for name, _ in why.sources} == {"OneVsRest 1", "LabelTree 2", "offset"}
        assert sum(effect for _, effect in why.sources) == pytest.approx(why.score, abs=1e-3)


def test_weights_that_are_given_are_kept(tags, parts):
    _, _, texts, Y, _ = tags
    blend = Blend.from_fitted(parts, texts[:200], Y[:200], weights=[3, 0], names=["lines", "points"])
    np.testing.assert_array_equal(blend.weights_, [1, 0])
    np.testing.assert_array_equal(
        blend.predict_topk(texts[:100], 1).labels, parts[0].predict_topk(texts[:100], 1).labels
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"learners": []},
        {"learners": [OneVsRest()]},
        {"learners": OneVsRest()},
        {"learners": ["dismec", "bonsai"]},
        {"weights": [1]},
        {"weights": [1, -1]},
        {"weights": [0, 0]},
        {"weights": ["a", "b"]},
        {"names": ["a"]},
        {"names": 5},
        {"weights": 5},
        {"learners": 5},
        {"top_k": 0},
        {"validation_fraction": 0},
        {"validation_fraction": 1},
        {"learners": [OneVsRest(C=-1), Popularity()]},
    ],
    ids=str,
)
def test_wrong_parameters_are_refused(wrong):
    X, Y = small_data()
    with pytest.raises(ParameterError):
        Blend(**{"learners": [OneVsRest(), Popularity()], **wrong}).fit(X, Y)


def test_y_is_called_y():
    X, Y = small_data()
    blend = Blend(learners=[OneVsRest(), Popularity()], weights=[1, 1])
    assert blend.estimate(X=X, y=Y).seconds > 0
    again = Blend.from_fitted(blend.fit(X=X, y=Y).learners_, X=X, y=Y, weights=[1, 1])
    assert_same(blend.predict_topk(X), again.predict_topk(X))
    for method in (LabelTree.add_labels, OneVsRest.add_labels, InstanceForest.add_trees, Model.add_labels):
        assert "y" in signature(method).parameters


def test_learners_in_a_blend_are_parts():
    weighted = OneVsRest(weighting=PW(propensity=JainPropensity(a=0.6, b=2.6)))
    blend = Blend(learners=(Popularity(), TailDial(learner=weighted)))
    assert [path for path, _ in blend.parts()] == ["", "learners.0__", "learners.1__", "learners.1__learner__"]
    assert blend.find(OneVsRest, fitted=False) is weighted
    assert blend.propensity_model() is weighted.weighting.propensity
    with pytest.raises(ParameterError, match="must wrap TAug"):
        TAug(learner=blend)._check_parameters()
    X, Y = small_data()
    blend.set_params(weights=[1, 1]).fit(X, Y)
    other = Popularity().fit(X, Y)
    changed = blend._with_nested(lambda part: other if isinstance(part, Popularity) else part)
    assert (changed.learners_[0], changed.learners_[1]) == (other, blend.learners_[1])
    assert blend.learners_[0] is not other
    assert blend._with_nested(lambda part: part) is blend


def test_learners_that_have_nothing_in_common_are_refused(tags, parts):
    _, _, texts, Y, _ = tags
    X, labels = small_data()
    other = Popularity().fit(X, labels)
    with pytest.raises(InputError, match="different numbers of labels"):
        Blend.from_fitted([parts[0], other], texts[:20], Y[:20])
    with pytest.raises(InputError, match="texts and some features"):
        Blend.from_fitted([parts[0], Popularity().fit(np.ones((20, 2)), Y[:20])], texts[:20], Y[:20])
    with pytest.raises(InputError, match="labels"):
        Blend.from_fitted(parts, texts[:20], Y[:20, :5])
    with pytest.raises(InputError, match="nothing to find the weights on"):
        Blend.from_fitted(parts, texts[:20], Y[:20] * 0)


@pytest.mark.parametrize("wrong", [{"top_k": 0}, {"top_k": "x"}, {"validation_fraction": 7}])
def test_a_blend_of_fitted_learners_checks_its_parameters(wrong):
    X, Y = small_data()
    parts = [OneVsRest().fit(X, Y), Popularity().fit(X, Y)]
    with pytest.raises(ParameterError, match=f"{next(iter(wrong))} must be"):
        Blend.from_fitted(parts, X, Y, **wrong)
    blend = Blend.from_fitted(parts, X, Y).set_params(top_k=0)
    with pytest.raises(ParameterError, match="top_k must be"):
        blend.predict_topk(X)


def test_a_blend_has_no_norms_of_its_own():
    X, Y = small_data()
    blend = Blend.from_fitted([OneVsRest().fit(X, Y), Popularity().fit(X, Y)], X, Y)
    assert label_norms(blend) is None

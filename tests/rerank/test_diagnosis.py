"""Diagnosis of the tail: norms against dense weights, shares by hand, correlations against scipy."""

import json

import numpy as np
import pytest
import scipy.sparse as sp
from scipy import stats
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from longtail import (
    Blend,
    CentroidReranker,
    InstanceForest,
    LabelTree,
    Model,
    OneVsRest,
    Popularity,
    Stacked,
    TailDial,
    TAug,
    TextLearner,
    Tfidf,
    TopK,
)
from longtail.errors import InputError, ParameterError
from longtail.kernels.lanes import widened
from longtail.learners.label_trees.chunks import DENSE_FROM
from longtail.rerank import Diagnosis, diagnose, label_norms, normalised
from longtail.rerank.diagnosis import BinShare
from tests.learners.contract import UNSEEN, assert_same, small_data

PRECISIONS = ("float32", "bfloat16", "float16", "int8")
TREE = {"leaf_size": 4, "arity": 3, "prune_below": 0.0}
FOREST = {"n_trees": 4, "leaf_size": 3, "C": 5.0}


def more_data():
    """Forty labels from frequent to rare."""
    rng = np.random.default_rng(3)
    Y = sp.csr_array((rng.random((300, 40)) < np.geomspace(0.4, 0.015, 40)).astype(np.float32))
    of_label = (rng.random((40, 60)) < 0.06).astype(np.float32)
    noise = sp.random_array((300, 60), density=0.1, rng=rng, dtype=np.float32)
    return sp.csr_array(sp.csr_array(Y @ of_label) + noise), Y


def tree_weights(learner):
    """Weights of every lane of a label tree, decoded one by one; and its member."""
    weights = learner.weights_
    dense = np.zeros((weights.n_blocks * 64, learner.n_features_in_))
    for block, encoded in enumerate(weights.blocks()):
        entry = row = 0
        for key, kept in zip(encoded.keys, encoded.kept, strict=True):
            if kept > DENSE_FROM:
                dense[block * 64 : (block + 1) * 64, key] = widened(encoded.dense.reshape(-1, 64)[row])
                row += 1
            else:
                lanes = encoded.lanes[entry : entry + kept].astype(int)
                dense[block * 64 + lanes, key] = widened(encoded.values[entry : entry + kept])
                entry += kept
    return dense * weights.scales_[:, None], weights.members_


class TestNorms:
    @pytest.mark.parametrize("precision", ["bfloat16", "float32"])
    def test_one_vs_rest(self, precision):
        X, Y = small_data()
        learner = OneVsRest(precision=precision).fit(X, Y)
        norms = label_norms(learner)
        expected = np.linalg.norm(learner.coef_.toarray().astype(float), axis=1)
        assert np.isnan(norms[UNSEEN])
        assert np.delete(norms, UNSEEN) == pytest.approx(np.delete(expected, UNSEEN), rel=1e-6)

    @pytest.mark.parametrize("precision", PRECISIONS)
    @pytest.mark.parametrize("more", [{}, {"n_trees": 2, "overlap": 0.4}])
    def test_label_tree(self, precision, more):
        X, Y = small_data(n_labels=60)
        learner = LabelTree(**TREE | {"leaf_size": 20} | more, precision=precision).fit(X, Y)
        dense, members = tree_weights(learner)
        lengths = np.linalg.norm(dense, axis=1)
        norms = label_norms(learner)
        for label in range(60):
            own = lengths[members == label]
            assert len(own) >= (learner.label_counts_[label] > 0) * learner.n_trees
            assert norms[label] == pytest.approx(own.mean() if len(own) else np.nan, rel=1e-6, nan_ok=True)
        assert learner.weights_.lane_norms() == pytest.approx(lengths, rel=1e-6)
        assert np.isnan(norms[UNSEEN])
        assert np.diff(learner.weights_.dense_starts_).any()

    def test_instance_forest(self):
        X, Y = small_data()
        learner = InstanceForest(**FOREST).fit(X, Y)
        trees, values = learner.trees_, np.zeros((14, len(learner.trees_.rights_)))
        for node in range(values.shape[1]):
            for at in range(trees.label_starts_[node], trees.label_starts_[node + 1]):
                values[trees.labels_[at], node] += trees.values_[at]
        reached = np.zeros((80, values.shape[1]))
        np.put_along_axis(reached, learner.leaves(X), 0.25, axis=1)
        top = learner.predict_topk(X, 14)  # the score is linear in the leaves that are reached
        for row in (0, 7, 50):
            for label, score in zip(top.labels[row], top.scores[row], strict=True):
                assert label < 0 or score == pytest.approx(values[label] @ reached[row], rel=1e-5)
        norms = label_norms(learner)
        assert np.isnan(norms[UNSEEN])
        seen = np.delete(np.arange(14), UNSEEN)
        assert norms[seen] == pytest.approx(np.linalg.norm(values[seen], axis=1) / 4, rel=1e-6)

    def test_of_the_learner_inside(self):
        X, Y = small_data()
        inner = OneVsRest().fit(X, Y)
        for outer in (
            TailDial(learner=OneVsRest()),
            CentroidReranker(learner=OneVsRest()),
            TailDial(learner=CentroidReranker(learner=OneVsRest())),
        ):
            np.testing.assert_array_equal(label_norms(outer.fit(X, Y)), label_norms(inner))
        texts = [" ".join(f"word{at}" for at in X[[row]].indices) for row in range(80)]
        learner = TextLearner(features=Tfidf(min_df=1), learner=LabelTree(**TREE)).fit(texts, Y)
        np.testing.assert_array_equal(label_norms(learner), label_norms(learner.learner_))

    def test_of_two_sides(self):
        X, Y = small_data()
        learner = TAug(learner=Popularity(), copies=0).fit(X, Y)
        learner.head_labels_, learner.tail_labels_ = np.array([1, 3, 8]), np.delete(np.arange(14), [1, 3, 8])
        learner.head_learner_ = OneVsRest().fit(X, Y[:, learner.head_labels_])
        learner.tail_learner_ = LabelTree(**TREE).fit(X, Y[:, learner.tail_labels_])
        norms = label_norms(TailDialAround(learner))
        np.testing.assert_array_equal(norms[[1, 3, 8]], label_norms(learner.head_learner_))
        np.testing.assert_array_equal(norms[learner.tail_labels_], label_norms(learner.tail_learner_))
        even = normalised(learner)
        wanted = np.median(norms[norms > 0])
        assert label_norms(even)[norms > 0] == pytest.approx(np.full((norms > 0).sum(), wanted), rel=5e-3)
        learner.head_labels_, learner.tail_labels_ = np.arange(0), np.arange(14)
        learner.head_learner_, learner.tail_learner_ = None, Popularity().fit(X, Y)
        assert label_norms(learner) is None

    def test_of_a_matrix(self):
        X, Y = small_data()
        learner = Popularity().fit(X, Y)
        assert label_norms(learner) is None
        learner.coef_ = sp.csr_array(np.arange(28.0).reshape(14, 2))
        assert label_norms(learner) == pytest.approx(np.linalg.norm(np.arange(28.0).reshape(14, 2), axis=1))

    def test_unfitted_is_an_error(self):
        with pytest.raises(NotFittedError):
            label_norms(OneVsRest())


class TailDialAround(TailDial):
    """Made over a learner that is fitted already."""

    def __init__(self, inner):
        super().__init__()
        self.learner_, self.n_labels_ = inner, inner.n_labels_


class TestShares:
    """Counts 50, 30, 10, 5, 5, 0: half of 100 is reached by the first label, nine tenths by the third."""

    COUNTS = (50, 30, 10, 5, 5, 0)
    Y = np.array([[1, 1, 0, 0, 0, 0], [1, 0, 1, 0, 0, 0], [0, 0, 0, 1, 0, 1], [1, 0, 0, 0, 1, 0]])  # 3, 1, 1, 1, 1, 1
    TOP = np.array([[0, 1], [0, 2], [3, -1], [0, 1]])  # 3, 2, 1, 1: seven places

    def test_by_hand(self):
        found = Diagnosis.of(self.TOP, self.Y, self.COUNTS, None)
        assert (found.k, found.n_rows) == (2, 4)
        assert found.n_true.tolist() == [3, 1, 1, 1, 1, 1]
        assert found.n_predicted.tolist() == [3, 2, 1, 1, 0, 0]
        head, torso, tail = found.bins
        assert [part.n_labels for part in found.bins] == [1, 2, 3]
        assert [part.counts for part in found.bins] == [(50, 50), (10, 30), (0, 5)]
        assert [part.true_share for part in found.bins] == pytest.approx([37.5, 25, 37.5])
        assert [part.predicted_share for part in found.bins] == pytest.approx([300 / 7, 300 / 7, 100 / 7])
        assert head.ratio == pytest.approx((3 / 7) / (3 / 8))
        assert torso.ratio == pytest.approx((3 / 7) / (2 / 8))
        assert tail.ratio == pytest.approx((1 / 7) / (3 / 8))
        assert (found.norm_by_frequency, found.prediction_by_norm) == (None, None)
        assert sum(part.true_share for part in found.deciles) == pytest.approx(100)
        assert sum(part.n_labels for part in found.deciles) == 6

    def test_a_ranking_may_be_a_topk(self):
        one = Diagnosis.of(self.TOP, self.Y, self.COUNTS, None)
        other = Diagnosis.of(
            TopK(self.TOP.astype(np.int32), np.zeros((4, 2), np.float32)), sp.csr_array(self.Y), self.COUNTS, None
        )
        assert one.to_dict() == other.to_dict()

    def test_nothing_predicted_and_nothing_true(self):
        found = Diagnosis.of(np.full((4, 2), -1), np.zeros((4, 6)), self.COUNTS, np.ones(6))
        assert [part.predicted_share for part in found.bins] == [0, 0, 0]
        assert np.isnan(found.bins[0].ratio)
        assert found.to_dict()["bins"][0]["ratio"] is None
        json.dumps(found.to_dict(), allow_nan=False)
        assert "Diagnosis" not in repr(found)

    def test_text(self):
        found = Diagnosis.of(self.TOP, self.Y, self.COUNTS, np.array([4.0, 3.0, 2.0, 2.0, 1.0]))
        lines = repr(found).splitlines()
        assert lines[0] == "Labels in the first 2 places of 4 rows, in percent"
        assert lines[1].split() == ["labels", "training", "rows", "true", "predicted", "ratio"]
        assert lines[2].split() == ["head", "1", "50", "37.50", "42.86", "1.14"]
        assert lines[4].split() == ["tail", "3", "0-5", "37.50", "14.29", "0.38"]
        assert lines[-2].startswith("Norm by training rows: rank correlation 0.92;")
        assert "at equal frequency" in lines[-1]

    @pytest.mark.parametrize(
        ("top", "Y", "counts", "norms", "message"),
        [
            (TOP[:3], Y, COUNTS, None, "same rows"),
            (TOP, Y, COUNTS[:5], None, "each of them"),
            (TOP, Y, COUNTS, np.ones(7), "each of them"),
            (TOP + 4, Y, COUNTS, None, "same ids"),
        ],
    )
    def test_what_does_not_fit_is_refused(self, top, Y, counts, norms, message):
        with pytest.raises(InputError, match=message):
            Diagnosis.of(top, Y, counts, norms)

    def test_the_ratio_of_a_bin(self):
        assert BinShare("tail", 3, (1, 2), 10.0, 4.0).ratio == pytest.approx(0.4)


class TestCorrelations:
    def test_against_scipy(self):
        X, Y = more_data()
        learner = OneVsRest().fit(X[:200], Y[:200])
        found = diagnose(learner, X[200:], Y[200:], k=3)
        top = learner.predict_topk(X[200:], 3)
        predicted = np.bincount(top.labels.ravel(), minlength=40)
        norms, counts = label_norms(learner), learner.label_counts_
        np.testing.assert_array_equal(found.n_predicted, predicted)
        seen = counts > 0
        by_frequency, by_norm = found.norm_by_frequency, found.prediction_by_norm
        assert by_frequency.spearman == pytest.approx(stats.spearmanr(counts[seen], norms[seen])[0])
        assert by_frequency.pearson == pytest.approx(stats.pearsonr(np.log(counts[seen]), np.log(norms[seen]))[0])
        assert by_frequency.exponent == pytest.approx(stats.linregress(np.log(counts[seen]), np.log(norms[seen])).slope)
        assert np.isnan(by_frequency.partial)
        assert by_norm.spearman == pytest.approx(stats.spearmanr(norms[seen], predicted[seen])[0])
        at_all = seen & (predicted > 0)
        assert (by_norm.n_labels, by_norm.n_positive) == (seen.sum(), at_all.sum())
        line = stats.linregress(np.log(norms[at_all]), np.log(predicted[at_all]))
        assert (by_norm.pearson, by_norm.exponent) == pytest.approx((line.rvalue, line.slope))
        x, y, z = (stats.rankdata(values[seen]) for values in (norms, predicted, counts))
        left = [values - np.polyval(np.polyfit(z, values, 1), z) for values in (x, y)]
        assert by_norm.partial == pytest.approx(stats.pearsonr(*left)[0])

    def test_what_is_proportional_has_an_exponent_of_1(self):
        top = np.repeat([0, 1, 2], [2, 4, 8])[:, None]
        Y = np.zeros((14, 3))
        found = Diagnosis.of(top, Y, [3, 2, 1], np.array([0.5, 1.0, 2.0])).prediction_by_norm
        assert (found.spearman, found.pearson, found.exponent) == pytest.approx((1, 1, 1))

    @pytest.mark.parametrize("norms", [[1.0, 1.0, 1.0], [np.nan, np.nan, 1.0], [np.nan] * 3])
    def test_without_two_different_norms_there_is_no_correlation(self, norms):
        found = Diagnosis.of(np.array([[0], [1]]), np.eye(3)[:2], [3, 2, 1], np.array(norms))
        for one in (found.norm_by_frequency, found.prediction_by_norm):
            assert np.isnan([one.spearman, one.pearson, one.exponent, one.partial]).all()
        assert found.to_dict()["prediction_by_norm"]["spearman"] is None

    def test_the_dial_lifts_the_tail(self):
        X, Y = more_data()
        learner = OneVsRest().fit(X[:200], Y[:200])
        plain, turned = (diagnose(learner, X[200:], Y[200:], k=3, tail=tail) for tail in (None, 1.0))
        assert turned.bins[2].ratio > plain.bins[2].ratio
        assert turned.bins[0].ratio < plain.bins[0].ratio
        np.testing.assert_array_equal(turned.norms, plain.norms)
        with pytest.raises(ParameterError, match="tail"):
            diagnose(learner, X, Y, tail=2)
        with pytest.raises(ParameterError, match="k must be"):
            diagnose(learner, X, Y, k=0)


def unit_rows(X):
    lengths = np.sqrt(np.asarray(X.multiply(X).sum(axis=1))).ravel()
    return X.toarray() / np.where(lengths > 0, lengths, 1)[:, None]


class TestNormalised:
    @pytest.mark.parametrize("precision", ["bfloat16", "float32"])
    @pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
    @pytest.mark.parametrize("bias", ["scaled", "kept"])
    def test_one_vs_rest(self, precision, power, bias):
        X, Y = more_data()
        learner = OneVsRest(precision=precision).fit(X, Y)
        norms = label_norms(learner)
        even = normalised(learner, power, bias=bias)
        factors = (np.median(norms) / norms) ** power
        tolerance = 2e-6 if precision == "float32" else 5e-3
        assert label_norms(even) == pytest.approx(norms * factors, rel=tolerance)
        assert np.median(label_norms(even)) == pytest.approx(np.median(norms), rel=0.2)
        evidence = unit_rows(X) @ (learner.coef_.toarray() * factors[:, None]).T
        margins = evidence + learner.intercept_ * (factors if bias == "scaled" else 1)
        top = even.predict_topk(X, 40)
        found = np.empty_like(margins)
        np.put_along_axis(found, top.labels, top.scores, axis=1)
        np.testing.assert_allclose(found, margins, atol=1e-5 if precision == "float32" else 0.02)
        if precision == "float32":
            best = np.take_along_axis(margins, top.labels, axis=1)
            assert (np.diff(best, axis=1) <= 1e-5).all()
        if power == 0:
            assert_same(top, learner.predict_topk(X, 40))

    @pytest.mark.parametrize("precision", PRECISIONS)
    @pytest.mark.parametrize("bias", ["scaled", "kept"])
    def test_label_tree(self, precision, bias):
        X, Y = more_data()
        learner = LabelTree(**TREE, n_trees=2, precision=precision, loss="logistic").fit(X, Y)
        norms, even = label_norms(learner), normalised(learner, bias=bias)
        middle = np.median(norms)
        assert label_norms(even) == pytest.approx(np.full(40, middle), rel=1e-5)
        before, members = tree_weights(learner)
        after, _ = tree_weights(even)
        lengths = np.linalg.norm(before, axis=1)
        factors = np.where(members >= 0, middle / np.where(lengths > 0, lengths, 1), 1)
        np.testing.assert_allclose(after, before * factors[:, None], rtol=1e-5)
        wanted = learner.weights_.bias_ * (factors if bias == "scaled" else 1)
        np.testing.assert_allclose(even.weights_.bias_, wanted, rtol=1e-5)
        # What a label scores changes by its last step alone, log(1 + exp(-z)).
        label, row = 5, X[[3]]
        old, new = (one.explain(row, [label])[0] for one in (learner, even))
        assert old.score != pytest.approx(new.score, rel=1e-3)

    def test_stacking_normalises_both_learners_each_by_its_own_median(self):
        X, Y = small_data()
        stacked = Stacked(learner=OneVsRest(), second=OneVsRest(weighting="pw", C=3.0)).fit(X, Y)
        even = normalised(stacked)
        for part, alone in ((even.learner_, stacked.learner_), (even.second_, stacked.second_)):
            assert_same(part.predict_topk(X, 5), normalised(alone).predict_topk(X, 5))
        assert not np.allclose(label_norms(even.learner_), label_norms(even.second_), rtol=0.01)

    def test_parts_without_linear_weights_stay(self):
        X, Y = small_data()
        stacked = Stacked(learner=OneVsRest(), second=InstanceForest(n_trees=2)).fit(X, Y)
        even = normalised(stacked)
        assert even.second_ is stacked.second_
        np.testing.assert_array_equal(label_norms(even), label_norms(normalised(stacked.learner_)))

    def test_a_blend_normalises_every_learner(self):
        X, Y = small_data()
        learners = [OneVsRest(), TailDial(learner=LabelTree(**TREE)), Popularity()]
        blend = Blend(learners=learners, weights=[1, 1, 1]).fit(X, Y)
        even = normalised(blend)
        for part, alone in zip(even.learners_[:2], blend.learners_[:2], strict=True):
            assert_same(part.predict_topk(X, 5), normalised(alone).predict_topk(X, 5))
        assert even.learners_[2] is blend.learners_[2]
        assert (even.predict_topk(X, 5).scores != blend.predict_topk(X, 5).scores).any()

    def test_only_one_tree_by_hand(self):
        """One root with two labels: the score is exp(-max(0, 1 - z)^2)."""
        X, Y = np.array([[1.0, 0], [0, 1], [1, 1], [1, 0]]), np.array([[1, 0], [0, 1], [1, 1], [1, 0]])
        learner = LabelTree(precision="float32", prune_below=0.0).fit(X, Y)
        (dense, members), middle = tree_weights(learner), np.median(label_norms(learner))
        for bias in ("scaled", "kept"):
            top = normalised(learner, bias=bias).predict_topk([[0.6, 0.8]], k=2)
            for label, score in zip(top.labels[0], top.scores[0], strict=True):
                lane = int(np.flatnonzero(members == label)[0])
                factor = middle / np.linalg.norm(dense[lane])
                z = factor * (dense[lane] @ [0.6, 0.8])
                z += learner.weights_.bias_[lane] * (factor if bias == "scaled" else 1)
                assert score == pytest.approx(np.exp(-(max(0, 1 - z) ** 2)), rel=1e-4)

    @pytest.mark.parametrize(
        "learner",
        [
            OneVsRest(),
            LabelTree(**TREE),
            TailDial(learner=OneVsRest(), tail=0.5),
            CentroidReranker(learner=LabelTree(**TREE)),
        ],
    )
    def test_the_learner_stays_as_it_was_and_the_copy_can_be_saved(self, learner, tmp_path):
        X, Y = small_data()
        fitted = clone(learner).fit(X, Y)
        Model(fitted).save(tmp_path / "plain")
        fitted = Model.load(tmp_path / "plain").learner  # from disk, where arrays can't be written
        before = fitted.predict_topk(X, 5)
        even = normalised(fitted)
        assert type(even) is type(fitted)
        assert_same(fitted.predict_topk(X, 5), before)
        assert (even.predict_topk(X, 5).scores != before.scores).any()
        Model(even).save(tmp_path / "even")
        assert_same(Model.load(tmp_path / "even", verify=True).learner.predict_topk(X, 5), even.predict_topk(X, 5))

    def test_labels_without_weights_stay(self):
        """All weights of a label can be pruned away."""
        X, Y = more_data()
        learner = OneVsRest(prune_below=1e9).fit(X, Y)
        assert (label_norms(learner) == 0).all()
        assert_same(normalised(learner).predict_topk(X, 5), learner.predict_topk(X, 5))

    @pytest.mark.parametrize(
        ("wrong", "message"), [({"power": 2}, "power"), ({"power": "x"}, "power"), ({"bias": "none"}, "bias")]
    )
    def test_wrong_parameters_are_refused(self, wrong, message):
        X, Y = small_data()
        with pytest.raises(ParameterError, match=message):
            normalised(OneVsRest().fit(X, Y), **wrong)

    @pytest.mark.parametrize("learner", [Popularity(), InstanceForest(**FOREST), TailDial(learner=Popularity())])
    def test_learners_without_linear_weights_are_refused(self, learner):
        with pytest.raises(InputError, match="no linear weights"):
            normalised(clone(learner).fit(*small_data()))

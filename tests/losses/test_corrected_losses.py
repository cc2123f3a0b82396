"""Losses for missing labels, against the paper's equations, by enumeration, and where they stay fit to minimise."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

from longtail import weighting
from longtail.errors import InputError, ParameterError
from longtail.losses import (
    CORRECTION_ORDERS,
    Hinge,
    Logistic,
    Loss,
    Rebalanced,
    SquaredHinge,
    Surrogate,
    Unbiased,
    UnbiasedRebalanced,
    ZeroOne,
    get_loss,
)
from longtail.propensity import JainPropensity

PLAIN = [ZeroOne(), Hinge(), SquaredHinge(), Logistic()]
CORRECT_FIRST, REBALANCE_FIRST = CORRECTION_ORDERS
EACH = pytest.mark.parametrize("plain", PLAIN, ids=lambda loss: loss.name)
BOTH = pytest.mark.parametrize("order", CORRECTION_ORDERS)
SCORES = np.linspace(-6, 6, 481)
STEP = 1e-6


def forms(plain, p, factor=0.4):
    yield Unbiased(plain, propensity=p)
    yield Surrogate(plain, propensity=p)
    for order in CORRECTION_ORDERS:
        yield Rebalanced(plain, propensity=p, factor=factor, order=order)
        yield UnbiasedRebalanced(plain, propensity=p, factor=factor, order=order)


def is_convex(values):
    """Whether values on an even grid have no downward bend."""
    return bool((np.diff(values, 2) >= -1e-9 * np.abs(values).max()).all())


class TestZeroOne:
    def test_table_1(self):
        np.testing.assert_array_equal(ZeroOne().positive([-2, -1e-9, 0, 1e-9, 2]), [1, 1, 1, 0, 0])
        np.testing.assert_array_equal(ZeroOne().negative([-2, -1e-9, 0, 1e-9, 2]), [0, 0, 0, 1, 1])
        np.testing.assert_array_equal(ZeroOne().positive_gradient([[-2.0, 2.0]]), [[0, 0]])
        np.testing.assert_array_equal(ZeroOne().negative_gradient([[-2.0, 2.0]]), [[0, 0]])

    def test_added_up_it_is_the_hamming_loss(self):
        scores, y = [[1.0, -1.0, 2.0], [-3.0, 0.5, -0.5]], [[1, 1, 0], [0, 1, 1]]
        assert ZeroOne().weighted_value(scores, y) == 3

    def test_what_it_is(self):
        loss = get_loss("zero-one")
        assert isinstance(loss, ZeroOne)
        assert (loss.convex, loss.lower_bounded, loss.upper_bounded) == (False, True, True)

    @pytest.mark.parametrize("bound", [Hinge(), SquaredHinge(), Logistic()], ids=lambda loss: loss.name)
    def test_the_others_bound_it(self, bound):
        assert (bound.surrogate_scale * bound.positive(SCORES) >= ZeroOne().positive(SCORES)).all()
        assert (bound.surrogate_scale * bound.negative(SCORES) >= ZeroOne().negative(SCORES)).all()


class TestEquations:
    """Each equation as printed in the paper, z and y the label in -1/1 and 0/1; values by hand for p = 1/4."""

    s = np.array([-3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0])

    def test_7_unbiased_zero_one(self):
        loss = Unbiased(ZeroOne(), propensity=0.25)
        np.testing.assert_allclose(loss.positive([-1, 0, 1]), [4, 4, -3])
        np.testing.assert_array_equal(loss.negative([-1, 0, 1]), [0, 0, 1])

    def test_8_15_surrogate_zero_one(self):
        loss = Surrogate(ZeroOne(), propensity=0.25)
        np.testing.assert_allclose(loss.positive([-1, 0, 1]), [7, 7, 0])
        np.testing.assert_array_equal(loss.negative([-1, 0, 1]), [0, 0, 1])

    @pytest.mark.parametrize("p", [0.05, 0.5, 1.0])
    def test_14_is_15_on_another_scale(self, p):
        alpha, loss = 0.5 * p, Surrogate(ZeroOne(), propensity=p)
        weighted = [(1 - alpha) * (self.s <= 0), alpha * (self.s > 0)]
        np.testing.assert_allclose(loss.positive(self.s), weighted[0] / alpha)
        np.testing.assert_allclose(loss.negative(self.s), weighted[1] / alpha)

    def test_9_11_unbiased_hinge(self):
        loss = Unbiased(Hinge(), propensity=0.25)
        # 4 max(1 - s, 0) - 3 max(1 + s, 0)
        np.testing.assert_allclose(loss.positive(self.s), [16, 8, 4.5, 1, -2.5, -6, -9])
        np.testing.assert_allclose(loss.positive_gradient([-2, 0, 2]), [-4, -7, -3])
        for p, z in product([0.2, 0.7], [-1, 1]):
            eq_11 = (1 + z) / 2 * (np.maximum(1 - self.s, 0) + (p - 1) * np.maximum(1 + self.s, 0)) / p
            eq_11 = eq_11 + (1 - z) / 2 * np.maximum(1 + self.s, 0)
            loss = Unbiased(Hinge(), propensity=p)
            np.testing.assert_allclose(loss.positive(self.s) if z > 0 else loss.negative(self.s), eq_11, atol=1e-12)

    def test_4_unbiased_squared_hinge(self):
        loss = Unbiased(SquaredHinge(), propensity=0.25)
        # 4 max(1 - s, 0)^2 - 3 max(1 + s, 0)^2
        np.testing.assert_allclose(loss.positive(self.s), [64, 16, 8.25, 1, -5.75, -12, -27])
        np.testing.assert_allclose(loss.positive_gradient([-2, 0, 2]), [-24, -14, -18])

    @pytest.mark.parametrize("y", [0, 1])
    @pytest.mark.parametrize("p", [0.2, 0.7, 1.0])
    def test_12_13_unbiased_cross_entropy(self, p, y):
        probability = 1 / (1 + np.exp(-self.s))
        eq_13 = -y / p * np.log(probability) - (1 - y / p) * np.log(1 - probability)
        loss = Unbiased(Logistic(), propensity=p)
        np.testing.assert_allclose(loss.positive(self.s) if y else loss.negative(self.s), eq_13, atol=1e-12)

    def test_16_surrogate_squared_hinge(self):
        loss = Surrogate(SquaredHinge(), propensity=0.25)
        np.testing.assert_allclose(loss.positive(self.s), [112, 28, 15.75, 7, 1.75, 0, 0])
        np.testing.assert_allclose(loss.positive_gradient([-1, 0, 2]), [-28, -14, 0])

    def test_17_surrogate_logistic(self):
        loss = Surrogate(Logistic(), propensity=0.25)
        np.testing.assert_allclose(loss.positive([-1, 0, 1]), [9.192832, 4.852030, 2.192832], atol=1e-6)
        np.testing.assert_allclose(loss.positive_gradient(0.0), -3.5)

    @EACH
    def test_18(self, plain):
        p, factor = 0.25, 0.6
        loss = UnbiasedRebalanced(plain, propensity=p, factor=factor, order=REBALANCE_FIRST)
        eq_18 = (factor * plain.positive(self.s) - (1 - p) * plain.negative(self.s)) / p
        np.testing.assert_allclose(loss.positive(self.s), eq_18, atol=1e-12)
        other = UnbiasedRebalanced(plain, propensity=p, factor=factor, order=CORRECT_FIRST)
        unbiased = Unbiased(plain, propensity=p)
        np.testing.assert_allclose(other.positive(self.s), factor * unbiased.positive(self.s), atol=1e-12)
        np.testing.assert_array_equal(loss.negative(self.s), plain.negative(self.s))

    def test_19_20(self):
        for order, expected in [(CORRECT_FIRST, 0.6 * 7), (REBALANCE_FIRST, 0.6 * 4 + 3)]:
            loss = Rebalanced(ZeroOne(), propensity=0.25, factor=0.6, order=order)
            np.testing.assert_allclose(loss.positive([-1.0, 1.0]), [expected, 0])
            unshifted = UnbiasedRebalanced(ZeroOne(), propensity=0.25, factor=0.6, order=order)
            assert np.ptp(loss.positive(self.s) - unshifted.positive(self.s)) == pytest.approx(0)

    def test_21(self):
        beta, n, p = 0.9, 5, 0.25
        factor = (1 - beta) / (1 - beta**n)
        eq_21 = factor * (2 - p) / p * np.maximum(1 - self.s, 0) ** 2
        np.testing.assert_allclose(Rebalanced("squared-hinge", propensity=p, factor=factor).positive(self.s), eq_21)

    def test_each_form_says_where_it_stands(self):
        assert Unbiased("squared-hinge", propensity=1).equations == "4"
        assert "13" in Unbiased("logistic", propensity=1).equations
        assert "16" in Surrogate("squared-hinge", propensity=1).equations
        assert Surrogate("hinge", propensity=1).equations == "15"
        assert "21" in Rebalanced("squared-hinge", propensity=1, factor=1).equations
        assert Rebalanced("squared-hinge", propensity=1, factor=1, order=REBALANCE_FIRST).equations == "20"
        assert UnbiasedRebalanced("hinge", propensity=1, factor=1, order=REBALANCE_FIRST).equations == "18"


@EACH
def test_gradients_by_differences(plain):
    s = SCORES[(np.abs(np.abs(SCORES) - 1) > 10 * STEP) & (np.abs(SCORES) > 10 * STEP)]
    for loss in forms(plain, 0.3):
        for part, gradient in [(loss.positive, loss.positive_gradient), (loss.negative, loss.negative_gradient)]:
            np.testing.assert_allclose(gradient(s), (part(s + STEP) - part(s - STEP)) / (2 * STEP), atol=1e-6)


class TestUnbiasedness:
    """The mean over the possible recordings, each true label with probability p and no others."""

    @EACH
    @given(p=st.floats(0.01, 1), score=st.floats(-20, 20))
    def test_of_one_label(self, plain, p, score):
        loss = Unbiased(plain, propensity=p)
        mean_if_true = p * loss.positive(score) + (1 - p) * loss.negative(score)
        assert mean_if_true == pytest.approx(float(plain.positive(score)), abs=1e-8)
        assert loss.negative(score) == plain.negative(score)

    @EACH
    def test_of_rows_of_labels(self, plain):
        """Two rows of three labels with four true ones: all sixteen ways to record them."""
        rng = np.random.default_rng(5)
        p, scores, truth = np.array([0.2, 0.5, 0.9]), rng.normal(size=(2, 3)), np.array([[1, 0, 1], [1, 1, 0]])
        loss, mean, slope = Unbiased(plain, propensity=p), 0.0, np.zeros((2, 3))
        true = np.argwhere(truth)
        for recorded in product([False, True], repeat=len(true)):
            observed, chance = np.zeros_like(truth), 1.0
            for (row, label), seen in zip(true, recorded, strict=True):
                observed[row, label] = seen
                chance *= p[label] if seen else 1 - p[label]
            mean += chance * loss.weighted_value(scores, observed)
            slope += chance * loss.weighted_gradient(scores, observed)
        assert mean == pytest.approx(plain.weighted_value(scores, truth))
        np.testing.assert_allclose(slope, plain.weighted_gradient(scores, truth), atol=1e-12)

    @EACH
    def test_rebalancing_first_is_unbiased_for_the_balanced_loss_and_the_other_order_is_not(self, plain):
        p, factor = 0.3, 0.4
        first = UnbiasedRebalanced(plain, propensity=p, factor=factor, order=REBALANCE_FIRST)
        mean = p * first.positive(SCORES) + (1 - p) * first.negative(SCORES)
        np.testing.assert_allclose(mean, factor * plain.positive(SCORES), atol=1e-9)
        last = UnbiasedRebalanced(plain, propensity=p, factor=factor, order=CORRECT_FIRST)
        mean = p * last.positive(SCORES) + (1 - p) * last.negative(SCORES)
        extra = (1 - factor) * (1 - p) * plain.negative(SCORES)
        np.testing.assert_allclose(mean, factor * plain.positive(SCORES) + extra, atol=1e-9)
        assert extra.max() > 0.4

    def test_the_plain_and_the_surrogate_loss_are_biased(self):
        for loss in (Hinge(), Surrogate(Hinge(), propensity=0.5)):
            mean_if_true = 0.5 * loss.positive(0.5) + 0.5 * loss.negative(0.5)
            assert abs(mean_if_true - Hinge().positive(0.5)) > 0.4


class TestFitToMinimise:
    @EACH
    @pytest.mark.parametrize("p", [0.05, 0.5, 0.95, 1.0])
    @pytest.mark.parametrize("factor", [0.1, 0.5, 0.6, 1.0, 3.0])
    def test_convex_is_what_second_differences_say(self, plain, p, factor):
        for loss in [plain, *forms(plain, p, factor)]:
            assert loss.convex == (is_convex(loss.positive(SCORES)) and is_convex(loss.negative(SCORES))), loss

    @EACH
    @pytest.mark.parametrize("p", [0.05, 0.5, 0.95, 1.0])
    def test_lower_bounded_is_what_far_scores_say(self, plain, p):
        for loss in [plain, *forms(plain, p)]:
            far = np.concatenate([loss.positive([-1e6, 1e6]), loss.negative([-1e6, 1e6])])
            assert loss.lower_bounded == (far.min() > -100), loss

    def test_lost_and_kept_as_the_paper_says(self):
        """Section 2.2: convexity may go, and for the hinge and cross-entropy the lower bound goes."""
        kept = {plain.name: Unbiased(plain, propensity=0.5) for plain in PLAIN}
        assert {name: (loss.convex, loss.lower_bounded) for name, loss in kept.items()} == {
            "zero-one": (False, True),
            "hinge": (False, False),
            "squared-hinge": (False, False),
            "logistic": (True, False),
        }
        for plain in PLAIN[1:]:
            surrogate = Surrogate(plain, propensity=0.5)
            assert (surrogate.convex, surrogate.lower_bounded) == (True, True)

    def test_the_unbiased_hinge_bends_down_at_minus_one_alone(self):
        """The kink that figure 2 circles."""
        slopes = Unbiased(Hinge(), propensity=0.5).positive_gradient([-1.5, -0.5, 0.5, 1.5])
        np.testing.assert_allclose(slopes, [-2, -3, -3, -1])

    def test_the_unbiased_squared_hinge_bends_down_from_one_on(self):
        values = Unbiased(SquaredHinge(), propensity=0.5).positive(SCORES)
        bends = np.diff(values, 2) / (SCORES[1] - SCORES[0]) ** 2
        middle = SCORES[1:-1]
        np.testing.assert_allclose(bends[middle > 1.1], -2, atol=1e-6)
        np.testing.assert_allclose(bends[np.abs(middle) < 0.9], 2, atol=1e-6)
        np.testing.assert_allclose(bends[middle < -1.1], 4, atol=1e-6)

    def test_a_regulariser_saves_the_hinge_but_not_the_squared_hinge(self):
        w = np.array([1e2, 1e4, 1e6])
        objective = {plain.name: w**2 / 2 + Unbiased(plain, propensity=0.5).positive(w) for plain in PLAIN[1:]}
        assert (np.diff(objective["hinge"]) > 0).all()
        assert (np.diff(objective["logistic"]) > 0).all()
        assert (np.diff(objective["squared-hinge"]) < 0).all()

    @pytest.mark.parametrize("p", [0.1, 0.6])
    def test_the_unbiased_logistic_is_convex_in_the_score_and_not_in_the_probability(self, p):
        loss = Unbiased(Logistic(), propensity=p)
        np.testing.assert_allclose(loss.positive(SCORES), Logistic().value(SCORES) - (1 / p - 1) * SCORES, atol=1e-9)
        probability = np.linspace(0.001, 0.999, 999)
        assert not is_convex(loss.positive(np.log(probability / (1 - probability))))
        assert is_convex(Logistic().positive(np.log(probability / (1 - probability))))

    def test_equation_18_bends_the_logistic_loss_down_where_the_factor_is_below_1_minus_p(self):
        def loss(factor, p=0.3):
            return UnbiasedRebalanced("logistic", propensity=p, factor=factor, order=REBALANCE_FIRST)

        assert loss(0.71).convex
        assert not loss(0.69).convex
        assert not loss([0.71, 0.69]).convex
        assert loss(0.69).set_params(order=CORRECT_FIRST).convex

    def test_one_label_below_1_is_enough_to_lose_it(self):
        assert Unbiased("hinge", propensity=[1.0, 1.0]).convex
        assert not Unbiased("hinge", propensity=[1.0, 0.9]).convex
        assert not Unbiased("hinge", propensity=[1.0, 0.9]).lower_bounded

    @EACH
    @given(x=st.floats(-30, 30), y=st.floats(-30, 30), share=st.floats(0, 1), p=st.floats(0.01, 1))
    def test_surrogates_lie_below_their_chords_and_above_0(self, plain, x, y, share, p):
        for loss in (
            Surrogate(plain, propensity=p),
            Rebalanced(plain, propensity=p, factor=0.2, order=REBALANCE_FIRST),
        ):
            assert loss.positive(x) >= 0
            if plain.convex:
                chord = share * loss.positive(x) + (1 - share) * loss.positive(y)
                assert loss.positive(share * x + (1 - share) * y) <= chord * (1 + 1e-9) + 1e-9


class TestSurrogateBounds:
    @EACH
    @pytest.mark.parametrize("p", [0.1, 0.5, 1.0])
    def test_above_the_unbiased_loss_by_both_parts(self, plain, p):
        gap = Surrogate(plain, propensity=p).positive(SCORES) - Unbiased(plain, propensity=p).positive(SCORES)
        both = plain.positive(SCORES) + plain.negative(SCORES)
        np.testing.assert_allclose(gap, (1 / p - 1) * both, atol=1e-8)

    @pytest.mark.parametrize("plain", PLAIN[1:], ids=lambda loss: loss.name)
    @BOTH
    def test_above_the_unbiased_zero_one_loss_but_for_its_constant(self, plain, order):
        """The red lines of figure 2."""
        for bound, step in [
            (Surrogate(plain, propensity=0.3), Surrogate(ZeroOne(), propensity=0.3)),
            [Rebalanced(loss, propensity=0.3, factor=0.2, order=order) for loss in (plain, ZeroOne())],
        ]:
            scaled = plain.surrogate_scale * bound.positive(SCORES)
            assert (scaled >= step.positive(SCORES) - 1e-12).all()
            assert plain.surrogate_scale * bound.positive(0.0) == pytest.approx(float(step.positive(0.0)))

    def test_inside_the_margin_the_hinge_has_the_unbiased_slope(self):
        inside = SCORES[np.abs(SCORES) < 1]
        surrogate, unbiased = Surrogate("hinge", propensity=0.2), Unbiased("hinge", propensity=0.2)
        np.testing.assert_allclose(surrogate.positive_gradient(inside), unbiased.positive_gradient(inside))
        assert (surrogate.positive_gradient(2.0), unbiased.positive_gradient(2.0)) == (0, -4)


class TestParameters:
    @EACH
    def test_where_nothing_is_missing_they_are_the_plain_loss(self, plain):
        for loss in forms(plain, 1.0, factor=1.0):
            np.testing.assert_allclose(loss.positive(SCORES), plain.positive(SCORES))
            np.testing.assert_allclose(loss.positive_gradient(SCORES), plain.positive_gradient(SCORES))
            assert (loss.convex, loss.lower_bounded) == (plain.convex, plain.lower_bounded)

    @EACH
    def test_one_propensity_per_label_is_one_loss_per_label(self, plain):
        scores, p, factor = np.random.default_rng(0).normal(size=(5, 3)), [0.2, 0.5, 1.0], [0.3, 1.0, 2.0]
        for together, *apart in zip(
            forms(plain, p, factor), *(forms(plain, *of_label) for of_label in zip(p, factor, strict=True)), strict=True
        ):
            for part in ("positive", "negative", "positive_gradient", "negative_gradient"):
                columns = [getattr(loss, part)(scores[:, label]) for label, loss in enumerate(apart)]
                np.testing.assert_allclose(getattr(together, part)(scores), np.column_stack(columns))

    def test_costs_multiply(self):
        scores, y = np.random.default_rng(1).normal(size=(6, 2)), np.eye(6, 2)
        loss = Surrogate("hinge", propensity=[0.2, 0.5])
        assert loss.weighted_value(scores, y) == pytest.approx(Hinge().weighted_value(scores, y, [9, 3]))
        assert loss.weighted_value(scores, y, 2.0) == pytest.approx(Hinge().weighted_value(scores, y, [18, 6]))

    @pytest.mark.parametrize("scores", [0.0, [1.0, 2.0], [[1.0], [2.0], [3.0]]])
    def test_the_last_axis_is_the_labels(self, scores):
        loss = Unbiased("hinge", propensity=[0.2, 0.5, 1.0])
        for part in (loss.positive, loss.negative, loss.positive_gradient, loss.negative_gradient):
            with pytest.raises(InputError, match="loss is for 3 labels"):
                part(scores)

    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            (0, r"propensity must be a number above 0 and at most 1, got 0"),
            (1.5, "at most 1"),
            (float("nan"), "above 0"),
            (1e-310, "above 0"),
            ([0.5, -1.0], "propensity of label 1 must be"),
            ([[0.5]], "flat array"),
            ("0.5", "number or a flat array"),
            (True, "number or a flat array"),
            (None, "number or a flat array"),
        ],
    )
    def test_wrong_propensities(self, wrong, message):
        for loss in forms("hinge", wrong):
            with pytest.raises(ParameterError, match=message):
                loss.positive(0.0)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"factor": 0.0}, "factor must be a number above 0"),
            ({"factor": [1.0, np.inf]}, "factor of label 1 must be a number above 0"),
            ({"factor": [1.0, 1.0, 1.0]}, r"len\(factor\) must equal len\(propensity\) \(2\)"),
            ({"order": "both"}, "order must be one of correct-then-rebalance, rebalance-then-correct"),
        ],
    )
    @pytest.mark.parametrize("kind", [Rebalanced, UnbiasedRebalanced])
    def test_wrong_balance(self, kind, changes, message):
        with pytest.raises(ParameterError, match=message):
            kind("hinge", **{"propensity": [0.5, 0.5], "factor": 1.0, **changes}).positive([0.0, 0.0])

    @pytest.mark.parametrize("base", [Unbiased("hinge", propensity=0.5), "huber", 3])
    def test_wrong_base(self, base):
        with pytest.raises(ParameterError, match="must be a"):
            Surrogate(base, propensity=0.5).positive(0.0)

    @EACH
    def test_they_are_estimators(self, plain):
        for loss in forms(plain, np.array([0.5, 0.25])):
            assert isinstance(loss, Loss)
            again = clone(loss)
            np.testing.assert_array_equal(again.positive([0.5, 0.5]), loss.positive([0.5, 0.5]))
            again.set_params(propensity=0.125)
            assert again.positive(-1.0) != loss.positive([-1.0, -1.0])[0]
            assert get_loss(loss) is loss
            assert loss.citation
            assert loss.equations


class TestWeightingsAgree:
    """The weightings give a learner the costs of these losses."""

    counts, n_rows = np.array([1, 2, 10, 500]), 2000
    p = JainPropensity().propensities(counts, n_rows)

    def test_pw(self):
        costs = weighting.PW().costs(self.counts, self.n_rows)
        np.testing.assert_allclose(Surrogate("hinge", propensity=self.p).factors.positive, costs.positive, rtol=1e-6)

    @BOTH
    def test_pw_cb(self, order):
        counts = self.counts if order == CORRECT_FIRST else self.counts / self.p
        factor = weighting.class_balanced_factor(counts, 0.9)
        loss = Rebalanced("hinge", propensity=self.p, factor=factor, order=order)
        costs = weighting.PWcb(order=order).costs(self.counts, self.n_rows)
        np.testing.assert_allclose(loss.factors.positive, costs.positive, rtol=1e-6)

"""Losses against their definitions: values, derivatives by differences, convexity, duality, weighted totals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from longtail.errors import InputError, ParameterError
from longtail.losses import LOSSES, Hinge, Logistic, Loss, SquaredHinge, get_loss

EACH = pytest.mark.parametrize("loss", [SquaredHinge(), Hinge(), Logistic()], ids=lambda loss: loss.name)
GRID = np.linspace(-6, 6, 481)
STEP = 1e-6
MARGINS = st.floats(-50, 50)


def away_from_kinks(margins):
    return margins[np.abs(margins - 1) > 10 * STEP]


def test_table_1():
    score = np.array([-2.0, 0.0, 0.5, 1.0, 3.0])
    np.testing.assert_allclose(Hinge().positive(score), [3, 1, 0.5, 0, 0])
    np.testing.assert_allclose(Hinge().negative(score), [0, 1, 1.5, 2, 4])
    np.testing.assert_allclose(SquaredHinge().positive(score), [9, 1, 0.25, 0, 0])
    np.testing.assert_allclose(SquaredHinge().negative(score), [0, 1, 2.25, 4, 16])
    probability = 1 / (1 + np.exp(-score))
    np.testing.assert_allclose(Logistic().positive(score), -np.log(probability))
    np.testing.assert_allclose(Logistic().negative(score), -np.log(1 - probability))


@EACH
def test_gradient_by_differences(loss):
    z = away_from_kinks(GRID)
    by_differences = (loss.value(z + STEP) - loss.value(z - STEP)) / (2 * STEP)
    np.testing.assert_allclose(loss.gradient(z), by_differences, atol=1e-8)


@EACH
def test_curvature_by_differences(loss):
    z = away_from_kinks(GRID)
    by_differences = (loss.gradient(z + STEP) - loss.gradient(z - STEP)) / (2 * STEP)
    np.testing.assert_allclose(loss.curvature(z), by_differences, atol=1e-8)


@EACH
def test_gradients_of_the_parts_by_differences(loss):
    s = away_from_kinks(-away_from_kinks(GRID))
    for part, gradient in [(loss.positive, loss.positive_gradient), (loss.negative, loss.negative_gradient)]:
        np.testing.assert_allclose(gradient(s), (part(s + STEP) - part(s - STEP)) / (2 * STEP), atol=1e-8)


@EACH
def test_bounds_that_a_solver_relies_on(loss):
    gradient, curvature = loss.gradient(GRID), loss.curvature(GRID)
    assert np.abs(gradient).max() <= loss.lipschitz
    assert curvature.max() <= loss.smoothness
    if np.isfinite(loss.smoothness):
        assert curvature.max() == pytest.approx(loss.smoothness)
    beyond = GRID[loss.zero_margin <= GRID]
    assert (loss.value(beyond) == 0).all()
    assert (loss.gradient(beyond) == 0).all()
    assert (loss.value(GRID[loss.zero_margin > GRID]) > 0).all()
    assert (-gradient <= loss.dual_bound).all()


@EACH
def test_scaled_it_bounds_the_zero_one_loss_tightly(loss):
    assert loss.surrogate_scale * loss.value(0.0) == pytest.approx(1.0)
    assert (loss.surrogate_scale * loss.value(GRID) >= (GRID <= 0)).all()


@EACH
@given(x=MARGINS, y=MARGINS, share=st.floats(0, 1))
@settings(deadline=None)
def test_convex_nonnegative_nonincreasing(loss, x, y, share):
    low, high = min(x, y), max(x, y)
    chord = share * loss.value(x) + (1 - share) * loss.value(y)
    assert loss.value(share * x + (1 - share) * y) <= chord * (1 + 1e-12) + 1e-12
    assert loss.value(x) >= 0
    assert loss.value(low) >= loss.value(high)
    assert loss.gradient(low) <= loss.gradient(high) <= 0
    assert loss.value(y) >= loss.value(x) + loss.gradient(x) * (y - x) - 1e-9


@EACH
@given(z=MARGINS, dual=st.floats(-1, 5))
@settings(deadline=None)
def test_fenchel_young(loss, z, dual):
    assert loss.value(z) + loss.conjugate(dual) >= -dual * z - 1e-9
    best = -loss.gradient(z)
    assert loss.value(z) + loss.conjugate(best) == pytest.approx(-best * z, abs=1e-9)


@EACH
def test_the_conjugate_is_infinite_out_of_range(loss):
    assert np.isinf(loss.conjugate([-0.1])).all()
    assert np.isfinite(loss.conjugate([0.0, 0.5, 1.0])).all()
    assert np.isinf(loss.conjugate(1.1)) == np.isfinite(loss.dual_bound)


def test_logistic_far_out_has_no_overflow_and_keeps_its_digits():
    with np.errstate(all="raise", under="ignore"):
        np.testing.assert_array_equal(Logistic().value([-1e4, 1e4]), [1e4, 0])
        np.testing.assert_array_equal(Logistic().gradient([-1e4, 1e4]), [-1, 0])
        assert Logistic().gradient(50.0) == pytest.approx(-np.exp(-50.0), rel=1e-12)


@EACH
def test_weighted_total_row_by_row(loss):
    rng = np.random.default_rng(3)
    scores, y = rng.normal(size=(7, 4)), rng.random((7, 4)) < 0.4
    on, off = rng.uniform(1, 20, 4), rng.uniform(0.5, 2, 4)
    expected = sum(
        on[j] * loss.value(scores[i, j]) if y[i, j] else off[j] * loss.value(-scores[i, j])
        for i in range(7)
        for j in range(4)
    )
    assert loss.weighted_value(scores, y, on, off) == pytest.approx(expected)
    assert loss.weighted_value(scores, np.where(y, 1, -1), on, off) == pytest.approx(expected)
    gradient = loss.weighted_gradient(scores, y, on, off)
    for i, j in [(0, 0), (3, 2), (6, 3)]:
        nudge = np.zeros_like(scores)
        nudge[i, j] = STEP
        up, down = (loss.weighted_value(scores + side * nudge, y, on, off) for side in (1, -1))
        assert gradient[i, j] == pytest.approx((up - down) / (2 * STEP), abs=1e-6)


@EACH
def test_unweighted_total_is_the_sum_over_margins(loss):
    scores, y = np.array([0.3, -1.2, 2.0]), np.array([1, -1, -1])
    assert loss.weighted_value(scores, y) == pytest.approx(loss.value(y * scores).sum())


def test_shapes_must_agree():
    with pytest.raises(InputError, match="same entries"):
        Hinge().weighted_value([1.0, 2.0], [1])
    with pytest.raises(InputError, match="same entries"):
        Hinge().weighted_gradient([1.0], [[1]])


@pytest.mark.parametrize("name", ["squared-hinge", "squared_hinge", "Squared-Hinge"])
def test_get_loss_by_name(name):
    assert isinstance(get_loss(name), SquaredHinge)


@EACH
def test_get_loss_returns_an_object_as_it_is(loss):
    assert get_loss(loss) is loss
    assert LOSSES[loss.name] is type(loss)
    assert loss.citation
    assert loss.get_params() == {}
    assert repr(clone(loss)) == repr(loss)


@pytest.mark.parametrize("wrong", ["huber", None, 3])
def test_get_loss_lists_what_it_knows(wrong):
    with pytest.raises(ParameterError, match="squared-hinge, hinge, logistic"):
        get_loss(wrong)


def test_the_base_class_is_abstract():
    with pytest.raises(TypeError):
        Loss()

"""A and B from points: the optimum against scipy's, known curves, robustness, intervals, errors."""

from __future__ import annotations

from math import log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import least_squares
from sklearn.base import clone

from longtail.errors import InputError, ParameterError
from longtail.propensity import FittedPropensity, JainPropensity, PropensityPoints, fit_jain
from longtail.propensity.fitting import A_BOUNDS, B_BOUNDS

COUNTS = np.array([1.0, 2, 3, 5, 8, 13, 40, 100, 300, 1000, 4000])


def best_cost(counts, propensities, n_rows, weights):
    """Least weighted sum of squares that scipy finds from many starting points."""
    offset = log(log(n_rows) - 1)

    def residuals(place):
        a, b = place[0], np.exp(place[1])
        curve = 1 / (1 + np.exp(offset - a * np.log((counts + b) / (1 + b))))
        return np.sqrt(weights) * (curve - propensities)

    bounds = ([A_BOUNDS[0], log(B_BOUNDS[0])], [A_BOUNDS[1], log(B_BOUNDS[1])])
    starts = [(a, b) for a in (0.05, 0.5, 3) for b in (-4, 0, 4)]
    return min(2 * least_squares(residuals, start, bounds=bounds, xtol=1e-12, ftol=1e-14).cost for start in starts)


@pytest.mark.parametrize("seed", range(12))
def test_no_worse_than_scipy(seed):
    rng = np.random.default_rng(seed)
    n_rows = int(rng.integers(5000, 10**6))
    propensities = JainPropensity(a=rng.uniform(0, 1.5), b=np.exp(rng.uniform(-2, 3))).propensities(COUNTS, n_rows)
    propensities = np.clip(propensities + rng.normal(0, (0, 0.1, 1)[seed % 3], len(COUNTS)), 0, 1)
    weights = rng.uniform(0.2, 3, len(COUNTS)) if seed % 2 else np.ones(len(COUNTS))
    fitted = fit_jain(COUNTS, propensities, n_rows, weights=weights, resamples=1)
    curve = fitted.propensities(COUNTS, n_rows)
    cost = (weights * (curve - propensities) ** 2).sum()
    assert cost <= best_cost(COUNTS, propensities, n_rows, weights) + 1e-9
    assert fitted.error_ == pytest.approx(np.sqrt(cost / weights.sum()))


@given(st.floats(0.05, 2), st.floats(0.05, 50), st.integers(10_000, 10**7))
@settings(max_examples=30)
def test_points_on_a_curve_give_it_back(a, b, n_rows):
    points = JainPropensity(a=a, b=b).propensities(COUNTS, n_rows)
    fitted = fit_jain(COUNTS, points, n_rows, resamples=1)
    np.testing.assert_allclose(fitted.propensities(COUNTS, n_rows), points, atol=1e-5)
    assert fitted.error_ < 1e-5


def test_the_published_constants():
    for a, b in [(0.55, 1.5), (0.5, 0.4), (0.6, 2.6)]:
        points = JainPropensity(a=a, b=b).propensities(COUNTS, 50_000)
        fitted = fit_jain(COUNTS, points, 50_000, resamples=20)
        assert (fitted.a, fitted.b) == (pytest.approx(a, rel=1e-4), pytest.approx(b, rel=1e-3))
        assert fitted.a_interval_ == (pytest.approx(a, rel=1e-3), pytest.approx(a, rel=1e-3))


def test_shares_of_zero_and_one_are_points_like_others():
    """On the logit scale these would be infinite."""
    known = JainPropensity(a=0.6, b=2.6)
    counts = np.repeat(COUNTS, 10)
    points = known.propensities(counts, 50_000)
    points[[20, 60]] = 0, 1
    fitted = fit_jain(counts, points, 50_000, resamples=1)
    assert np.abs(fitted.propensities(COUNTS, 50_000) - known.propensities(COUNTS, 50_000)).max() < 0.03


def test_no_rise_gives_a_of_zero():
    fitted = fit_jain(COUNTS, np.linspace(0.3, 0.01, len(COUNTS)), 50_000, resamples=10)
    assert fitted.a == 0
    assert fitted.at_bound
    np.testing.assert_allclose(fitted.propensities([2, 4000], 50_000), 1 / log(50_000))


def test_constants_at_their_bounds_are_reported():
    fitted = fit_jain(COUNTS, np.where(COUNTS > 1, 1.0, 0.1), 50_000, resamples=5)
    assert fitted.at_bound
    assert fitted.a == A_BOUNDS[1]
    assert not fit_jain(COUNTS, JainPropensity().propensities(COUNTS, 50_000), 50_000, resamples=5).at_bound


def test_a_weight_counts_like_repetition():
    rng = np.random.default_rng(3)
    points, times = rng.uniform(0.05, 0.9, len(COUNTS)), rng.integers(1, 5, len(COUNTS))
    weighted = fit_jain(COUNTS, points, 9000, weights=times, resamples=1)
    repeated = fit_jain(np.repeat(COUNTS, times), np.repeat(points, times), 9000, resamples=1)
    assert (weighted.a, weighted.b) == (pytest.approx(repeated.a, abs=1e-6), pytest.approx(repeated.b, rel=1e-4))
    without = fit_jain(COUNTS, points, 9000, weights=np.arange(len(COUNTS)) > 2, resamples=1)
    alone = fit_jain(COUNTS[3:], points[3:], 9000, resamples=1)
    assert without.a == pytest.approx(alone.a, abs=1e-6)


def test_intervals_cover_the_truth_at_their_level():
    known, rng, covered = JainPropensity(a=0.55, b=1.5), np.random.default_rng(0), np.zeros(2)
    counts = np.repeat(COUNTS[1:], 6)
    truth = known.propensities(counts, 50_000)
    trials = 30
    for trial in range(trials):
        points = np.clip(truth + rng.normal(0, 0.04, len(truth)), 0, 1)
        fitted = fit_jain(counts, points, 50_000, level=0.9, resamples=60, random_state=trial)
        for place, (value, (low, high)) in enumerate([(0.55, fitted.a_interval_), (1.5, fitted.b_interval_)]):
            covered[place] += low <= value <= high
    assert ((covered / trials > 0.78) & (covered / trials < 0.99)).all()


def test_the_band_is_the_spread_of_the_resampled_curves():
    rng = np.random.default_rng(1)
    points = np.clip(JainPropensity().propensities(COUNTS, 9000) + rng.normal(0, 0.05, len(COUNTS)), 0, 1)
    fitted = fit_jain(COUNTS, points, 9000, level=0.8, resamples=60, random_state=2)
    assert fitted.draws_.shape == (60, 2)
    curves = [JainPropensity(a=a, b=b).propensities([3, 50], 9000) for a, b in fitted.draws_]
    np.testing.assert_allclose(fitted.band([3, 50]), np.quantile(curves, [0.1, 0.9], axis=0), rtol=1e-9)
    assert fitted.a_interval_ == tuple(np.quantile(fitted.draws_[:, 0], [0.1, 0.9]))
    low, high = fitted.band([1])
    np.testing.assert_allclose([low[0], high[0]], 1 / log(9000))


def test_the_seed_decides():
    points = [0.1, 0.2, 0.25, 0.5, 0.4]
    one, same, other = (fit_jain([1, 4, 9, 60, 90], points, 500, resamples=20, random_state=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.draws_, same.draws_)
    assert not np.array_equal(one.draws_, other.draws_)
    assert (one.a, one.b) == (other.a, other.b)


def test_many_points_of_few_counts_are_quick():
    rng = np.random.default_rng(0)
    counts = rng.integers(1, 300, 50_000).astype(float)
    points = np.clip(JainPropensity().propensities(counts, 10**6) + rng.normal(0, 0.1, len(counts)), 0, 1)
    fitted = fit_jain(counts, points, 10**6, resamples=30)
    assert fitted.a_interval_[0] - 0.02 < 0.55 < fitted.a_interval_[1] + 0.02


def test_it_is_a_propensity_model_like_any_other():
    fitted = fit_jain(COUNTS, JainPropensity().propensities(COUNTS, 9000), 9000, resamples=2)
    assert isinstance(fitted, JainPropensity)
    assert fitted.get_params() == {"a": fitted.a, "b": fitted.b}
    copy = clone(fitted)
    assert isinstance(copy, FittedPropensity)
    np.testing.assert_array_equal(copy.inverse([4], 9000), fitted.inverse([4], 9000))
    assert fitted.distance(JainPropensity(a=0)) == pytest.approx(
        np.sqrt(((JainPropensity().propensities(COUNTS, 9000) - 1 / log(9000)) ** 2).mean())
    )
    assert isinstance(fitted.points_, PropensityPoints)
    np.testing.assert_array_equal(fitted.points_.counts, COUNTS)


@pytest.mark.parametrize(
    ("counts", "points", "told"),
    [
        ([1, 2, 3], [0.1, 0.2], "3 counts and 2 propensities"),
        ([1, 2, 3, 4], [0.1, 0.2, 1.2, 0.3], "1.2 at 2"),
        ([1, 2, 3, 4], [0.1, float("nan"), 0.2, 0.3], "nan at 1"),
        ([1, 2, 3, 2], [0.1, 0.2, 0.3, 0.2], "have only 2"),
        ([1, 1], [0.1, 0.1], "have only 0"),
        ([], [], "have only 0"),
        ([2, 3, -4], [0.1, 0.1, 0.2], "label_counts"),
        ([2, 3, 4], [[0.1, 0.1, 0.2]], "flat"),
    ],
)
def test_wrong_points(counts, points, told):
    with pytest.raises((InputError, ParameterError), match=told):
        fit_jain(counts, points, 100)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"level": 1}, "level"),
        ({"level": "x"}, "level"),
        ({"resamples": 0}, "resamples"),
        ({"random_state": -1}, "random_state"),
        ({"n_rows": 2}, "n_rows"),
    ],
)
def test_wrong_parameters(options, told):
    n_rows = options.pop("n_rows", 100)
    counts = [0, 1, 2] if n_rows == 2 else [2, 3, 4]
    with pytest.raises(ParameterError, match=told):
        fit_jain(counts, [0.1, 0.2, 0.3], n_rows, **options)


@pytest.mark.parametrize("weights", [[1, 1], [1, 1, -1], [1, 1, float("inf")], ["a", "b", "c"]])
def test_wrong_weights(weights):
    with pytest.raises(ParameterError, match="weights"):
        fit_jain([2, 3, 4], [0.1, 0.2, 0.3], 100, weights=weights)


def test_weights_that_leave_too_few_points():
    with pytest.raises(InputError, match="have only 1"):
        fit_jain([2, 3, 4], [0.1, 0.2, 0.3], 100, weights=[1, 0, 0])

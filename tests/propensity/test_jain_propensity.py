"""The Jain model: its golden value, its range, its corners."""

from __future__ import annotations

from math import log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from longtail.errors import ParameterError
from longtail.propensity import JainPropensity

A = st.floats(0, 2)
B = st.floats(0.01, 10)
ROWS = st.integers(1, 10_000_000)


def test_golden_value():
    assert JainPropensity(a=0.55, b=1.5).propensities([1], 50)[0] == 0.25562221863533147


def test_the_equation_as_printed():
    a, b, rows = 0.6, 2.6, 490_449
    counts = np.array([0, 1, 7, 400, rows])
    c = (log(rows) - 1) * (b + 1) ** a
    expected = 1 / (1 + c * np.exp(-a * np.log(counts + b)))
    np.testing.assert_allclose(JainPropensity(a=a, b=b).propensities(counts, rows), expected, rtol=1e-14)


def test_a_label_with_one_row_has_propensity_one_over_ln_n_whatever_the_constants():
    for a, b in [(0.55, 1.5), (0.5, 0.4), (0.6, 2.6)]:
        np.testing.assert_allclose(JainPropensity(a=a, b=b).inverse([1], 1000), [log(1000)], rtol=1e-15)


def test_an_unseen_label_gets_the_finite_maximum():
    a, b, rows = 0.55, 1.5, 15_539
    c = (log(rows) - 1) * (b + 1) ** a
    np.testing.assert_allclose(JainPropensity(a=a, b=b).inverse([0], rows), [1 + c * b**-a], rtol=1e-14)


@pytest.mark.parametrize("n_rows", [1, 2])
def test_fewer_than_three_rows_never_give_more_than_one(n_rows):
    np.testing.assert_array_equal(JainPropensity().propensities([0, 1, n_rows], n_rows), [1, 1, 1])


@given(A, B, ROWS, st.lists(st.floats(0, 1), min_size=1, max_size=20))
@settings(deadline=None)
def test_range_and_order(a, b, n_rows, shares):
    counts = np.sort(np.floor(np.array(shares) * n_rows).astype(np.int64))
    model = JainPropensity(a=a, b=b)
    p, inverse = model.propensities(counts, n_rows), model.inverse(counts, n_rows)
    assert p.dtype == inverse.dtype == np.float64
    assert ((p > 0) & (p <= 1) & (inverse >= 1) & np.isfinite(inverse)).all()
    assert (np.diff(p) >= 0).all()
    assert (model.propensities(counts, n_rows * 2) <= p).all()
    np.testing.assert_allclose(p * inverse, 1)


def test_no_labels_at_all():
    assert JainPropensity().inverse([], 5).shape == (0,)


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({"a": -0.1}, "a must be a number of at least 0"),
        ({"a": float("nan")}, "a must be"),
        ({"a": "0.5"}, "a must be"),
        ({"b": 0}, "b must be a number above 0"),
        ({"b": None}, "b must be"),
        ({"a": 1000, "b": 0.01}, "a is too large"),
    ],
)
def test_wrong_parameters_are_refused_at_use_not_before(parameters, named):
    model = JainPropensity(**parameters)
    with pytest.raises(ParameterError, match=named):
        model.inverse([0, 1], 50)


@pytest.mark.parametrize("n_rows", [0, -1, 2.5, True, None, "50"])
def test_wrong_n_rows(n_rows):
    with pytest.raises(ParameterError, match="n_rows"):
        JainPropensity().inverse([0], n_rows)


@pytest.mark.parametrize(
    ("counts", "told"),
    [
        ([[1, 2]], "flat"),
        (["a"], "flat"),
        (3, "flat"),
        ([1, -1], "label 1"),
        ([np.nan], "label 0"),
        ([51], "a number from 0 to 50"),
    ],
)
def test_wrong_counts(counts, told):
    with pytest.raises(ParameterError, match=told):
        JainPropensity().inverse(counts, 50)


def test_it_is_an_estimator():
    model = JainPropensity(a=0.6)
    assert model.get_params() == {"a": 0.6, "b": 1.5}
    assert clone(model).get_params() == model.get_params()
    assert model.set_params(b=2.6).b == 2.6
    assert repr(model) == "JainPropensity(a=0.6, b=2.6)"

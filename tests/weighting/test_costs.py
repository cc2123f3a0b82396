"""The costs themselves: plain, finite, positive; taking and rescaling."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.errors import ParameterError
from longtail.weighting import Costs


def costs(positive):
    return Costs(positive, np.ones(len(positive)))


def test_plain_float32_arrays():
    made = costs([2, 3])
    assert made.positive.dtype == made.negative.dtype == np.float32
    assert len(made) == 2


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf, 1e39, 1e-60])
@pytest.mark.parametrize("side", ["positive", "negative"])
def test_a_cost_that_is_none_is_named(side, value):
    values = {"positive": [1.0, 1.0], "negative": [1.0, 1.0]}
    values[side] = [1.0, value]
    with pytest.raises(ParameterError, match=f"{side} cost of label 1 must be a number above 0"):
        Costs(**values)


def test_shapes():
    with pytest.raises(ParameterError, match=r"len\(negative\)"):
        Costs([1.0, 2.0], [1.0])
    with pytest.raises(ParameterError, match="flat"):
        Costs([[1.0]], [[1.0]])


def test_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        costs([1.0]).positive = np.ones(1, np.float32)


def test_equation_24_by_hand():
    np.testing.assert_array_equal(costs([6.0, 1.0, 1.0]).rescaled().positive, np.float32([2.25, 0.375, 0.375]))


@given(st.lists(st.floats(np.float32(1e-3), np.float32(1e4), width=32), min_size=1, max_size=200))
@settings(deadline=None)
def test_rescaled_has_mean_one_and_the_same_proportions(values):
    before = Costs(values, np.full(len(values), 0.5))
    after = before.rescaled()
    assert after.positive.mean(dtype=np.float64) == pytest.approx(1.0, abs=1e-6)
    np.testing.assert_allclose(after.positive * np.mean(values), before.positive, rtol=1e-6)
    np.testing.assert_array_equal(after.negative, before.negative)
    np.testing.assert_allclose(after.rescaled().positive, after.positive, rtol=1e-6)


def test_no_labels():
    assert len(costs([]).rescaled()) == 0


def test_take():
    part = Costs([1.0, 2.0, 3.0], [4.0, 5.0, 6.0]).take(np.array([2, 0]))
    np.testing.assert_array_equal(part.positive, [3, 1])
    np.testing.assert_array_equal(part.negative, [6, 4])

"""Known propensities."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

from longtail.errors import ParameterError
from longtail.propensity import GivenPropensity, JainPropensity, Propensity, get_propensity


def test_values_are_returned():
    model = GivenPropensity(values=np.array([0.25, 1.0], np.float32))
    np.testing.assert_array_equal(model.propensities([3, 0], 10), [0.25, 1])
    np.testing.assert_array_equal(model.inverse([3, 0], 10), [4, 1])


def test_it_reproduces_the_model_it_was_taken_from():
    counts = np.array([0, 1, 5, 30])
    model = JainPropensity()
    copy = GivenPropensity(values=model.propensities(counts, 40))
    np.testing.assert_allclose(copy.inverse(counts, 40), model.inverse(counts, 40), rtol=1e-15)


@pytest.mark.parametrize("value", [0, -0.5, 1.01, np.nan, np.inf, 1e-320])
def test_a_value_that_is_no_propensity_is_named(value):
    with pytest.raises(ParameterError, match=r"values of label 1 must be a number above 0 and at most 1"):
        GivenPropensity(values=[0.5, value]).inverse([1, 1], 10)


def test_one_value_per_label():
    with pytest.raises(ParameterError, match=r"number of labels \(3\), got 2"):
        GivenPropensity(values=[0.5, 0.5]).inverse([1, 1, 1], 10)
    with pytest.raises(ParameterError, match="flat"):
        GivenPropensity(values=[[0.5]]).inverse([1], 10)


def test_labels_beyond_the_values_get_the_smallest_if_never_seen():
    model = GivenPropensity(values=[0.5, 0.25])
    np.testing.assert_array_equal(model.propensities([3, 1, 0, 0], 10), [0.5, 0.25, 0.25, 0.25])
    for values, counts in (([0.5, 0.25], [3, 1, 0, 1]), ([], [0])):
        with pytest.raises(ParameterError, match="number of labels"):
            GivenPropensity(values=values).inverse(counts, 10)
    with pytest.raises(ParameterError, match=r"number of labels \(1\), got 2"):
        model.inverse([0], 10)


def test_clone_copies_the_values():
    model = GivenPropensity(values=np.array([0.5]))
    copy = clone(model)
    copy.values[0] = 1
    assert model.values[0] == 0.5


def test_get_propensity():
    model = GivenPropensity(values=[1.0])
    assert get_propensity(model) is model
    assert repr(get_propensity(None)) == "JainPropensity()"
    assert repr(get_propensity("amazon670k")) == "JainPropensity(a=0.6, b=2.6)"
    with pytest.raises(ParameterError, match="propensity must be"):
        get_propensity(0.5)  # type: ignore[arg-type]


def test_the_base_class_is_abstract():
    with pytest.raises(TypeError):
        Propensity()


@pytest.mark.parametrize("values", [5, "0.5", [[0.5]], [[0.5], [0.5, 1]], [0.5, 0], [0.5, 1.5], [float("nan")]])
def test_wrong_values_are_refused_before_any_counts_are_known(values):
    with pytest.raises(ParameterError, match="values"):
        GivenPropensity(values=values)._check_parameters()

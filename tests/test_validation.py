"""Constraints on parameters."""

from __future__ import annotations

import numpy as np
import pytest

from longtail import OneVsRest
from longtail.errors import ParameterError
from longtail.validation import IntegerRange, Integers, Number, SequenceOf, as_list, named, numbers_per_label


def test_integers_that_no_float_can_hold_are_not_numbers():
    assert not Number(above=0).accepts(10**400)
    with pytest.raises(ParameterError, match="C must be a number above 0"):
        OneVsRest(C=10**400)._check_parameters()
    with pytest.raises(ParameterError, match="got an integer of thousands of digits"):
        OneVsRest(C=10**5000)._check_parameters()


@pytest.mark.parametrize(
    ("value", "accepted"), [((1, 1), True), ([1, 3], True), ((0, 1), False), ((2, 1), False), ("12", False), (5, False)]
)
def test_ranges_of_integers(value, accepted):
    assert IntegerRange().accepts(value) == accepted


def test_increasing_integers():
    assert Integers(increasing=True).accepts(np.array([1, 6]))
    for wrong in ([6, 1], [1, 1], [0, 1], [], "16", None, iter([1])):
        assert not Integers(increasing=True).accepts(wrong)


def test_iterators_are_no_sequences_because_they_are_read_once():
    items = iter([1, 2])
    assert as_list(items) is None
    assert list(items) == [1, 2]


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ([1.0, -1.0, 2.0], "costs of label 1 must be a number above 0, got -1.0."),
        ([1.0, 2.0, np.inf], "costs of label 2 must be a number above 0, got inf."),
        ([1.0, np.nan, 2.0], "costs of label 1 must be a number above 0, got nan."),
        ([1e-310, 1.0, 2.0], "costs of label 0 must be a number above 0, got 1e-310."),
        ([1.0, 2.0], "len(costs) must equal the number of labels (3), got 2."),
        ([[1.0], [1.0, 2.0]], "costs must be a flat array with one number per label, got [[1.0], [1.0, 2.0]]."),
        (["a", "b", "c"], "costs must be a flat array with one number per label, got ['a', 'b', 'c']."),
        (1.0, "costs must be a flat array with one number per label, got 1.0."),
    ],
)
def test_numbers_per_label(values, told):
    with pytest.raises(ParameterError) as refusal:
        numbers_per_label("costs", values, Number(above=0), 3)
    assert str(refusal.value) == told


def test_no_numbers_for_no_labels():
    assert numbers_per_label("costs", [], Number(above=0), 0).shape == (0,)


def test_infinite_numbers_are_valid_only_where_they_may_be():
    anything = Number(may_be_infinite=True)
    assert anything.requirement == "a number"
    assert all(map(anything.accepts, (0, -np.inf, np.float32(np.inf))))
    assert not any(map(anything.accepts, (np.nan, "1", True, None)))
    assert not Number().accepts(np.inf)


def test_a_sequence_holds_enough_objects_of_its_class():
    two = SequenceOf(str, "name", 2)
    assert two.accepts(("a", "b"))
    assert not any(map(two.accepts, (["a"], ["a", 1], "ab", iter("ab"), None)))


def test_objects_are_given_or_named():
    table = {"unit-number": lambda: Number(low=0, high=1)}
    assert named("bound", "Unit_Number", table, Number) == Number(low=0, high=1)
    for wrong in ("unit", None, 3):
        with pytest.raises(ParameterError, match="bound must be a Number or one of unit-number"):
            named("bound", wrong, table, Number)

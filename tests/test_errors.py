import pytest

from longtail import Interrupted
from longtail.errors import LongtailError, ParameterError, counted, did_you_mean, truncated


def test_ctrl_c_is_never_taken_for_an_error():
    assert not issubclass(Interrupted, Exception)
    assert not issubclass(Interrupted, LongtailError)

    def careless():
        try:
            raise Interrupted("Stopped while counting.")
        except Exception:
            return "swallowed"

    with pytest.raises(KeyboardInterrupt, match="Stopped while counting"):
        careless()


def test_values_that_python_does_not_print():
    assert str(ParameterError("C", 10**5000, "must be a number")) == (
        "C must be a number, got an integer of thousands of digits."
    )


def test_similar_names_are_suggested():
    assert did_you_mean("tre", ["ship", "tree"]) == " (did you mean tree?)"
    assert did_you_mean("Amazon-67K", ["Amazon-670K", "Amazon-3M"], key=str.lower, most=2).startswith(
        " (did you mean A"
    )
    for name in ("zzz", "", None, 5):
        assert did_you_mean(name, ["ship", "tree"]) == ""


def test_long_values_are_truncated():
    assert truncated("x" * 60) == "x" * 60
    assert truncated("x" * 61) == "x" * 57 + "..."
    assert str(ParameterError("name", "x" * 999, "must be short")).count("x") < 300


def test_a_single_thing_is_not_plural():
    assert [counted(number, "row") for number in (0, 1, 1000)] == ["0 rows", "1 row", "1,000 rows"]

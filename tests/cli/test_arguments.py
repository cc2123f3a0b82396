import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail.cli.arguments import parse_cutoffs, parse_propensity, parse_settings
from longtail.cli.predict import format_label
from longtail.errors import ParameterError


def test_settings():
    assert parse_settings(["a=1", "b.c=[1, 2]", "d__e=null", "f=text", "g=", "h=a=b", "i=true", 'j="1"']) == {
        "a": 1,
        "b__c": [1, 2],
        "d__e": None,
        "f": "text",
        "g": "",
        "h": "a=b",
        "i": True,
        "j": "1",
    }


def test_settings_in_python():
    given = ["a=(1, 2)", "b=[1, None]", "c=None", "d=True", "e='x'", "f=(1, x)", "g=...", "h=" + "9" * 5000]
    assert parse_settings(given) == {
        "a": (1, 2), "b": [1, None], "c": None, "d": True, "e": "x", "f": "(1, x)", "g": "...", "h": "9" * 5000,
    }  # fmt: skip
    assert parse_settings(["a=" + "[" * 100_000])["a"] == "[" * 100_000


@pytest.mark.parametrize("wrong", [["a"], ["=1"], ["a=1", "a=2"]])
def test_wrong_settings(wrong):
    with pytest.raises(ParameterError, match="--set"):
        parse_settings(wrong)


def test_cutoffs():
    assert parse_cutoffs(["5,1, 1"]) == parse_cutoffs(["5", "1"]) == (5, 1)


@pytest.mark.parametrize("wrong", ["", "0", "1,", "1;3", "-1", "1.0"])
def test_wrong_cutoffs(wrong):
    with pytest.raises(ParameterError, match="-k"):
        parse_cutoffs([wrong])


def test_propensity():
    assert repr(parse_propensity("0.5, 0.4")) == "JainPropensity(a=0.5, b=0.4)"
    assert repr(parse_propensity("Amazon-670K")) == "JainPropensity(a=0.6, b=2.6)"


@pytest.mark.parametrize("wrong", ["1", "0.5", "a,b", "0.5,0.4,1", "nan,1", "0.5,0", "-1,1", ",", "Amazon-670", ""])
def test_wrong_propensity(wrong):
    with pytest.raises(ParameterError, match="--propensity must be A,B, two numbers") as error:
        parse_propensity(wrong)
    assert "Jain" not in str(error.value)
    assert ("did you mean Amazon-670K?" in str(error.value)) == wrong.startswith("Amazon")


@given(st.lists(st.text(min_size=1), min_size=1))
def test_labels_can_be_distinguished(names):
    """A reader that knows only the rule of the help text gets the names back."""
    line = " ".join(f"{format_label(name)}:1.5" for name in names)
    assert "\n" not in line
    back = []
    while line:
        if line.startswith('"'):
            name, end = json.JSONDecoder().raw_decode(line)
        else:
            end = line.partition(" ")[0].rindex(":")
            name = line[:end]
        assert line[end:].startswith(":1.5")
        line = line[end + 4 :].removeprefix(" ")
        back.append(name)
    assert back == names

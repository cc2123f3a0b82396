"""A propensity model as a file."""

from __future__ import annotations

import json

import pytest

from longtail.errors import InputError
from longtail.propensity import JainPropensity, fit_jain, read_propensity, write_propensity

COUNTS = [2, 6, 30, 200]


def test_there_and_back(tmp_path):
    fitted = fit_jain(COUNTS, JainPropensity(a=0.6, b=2.6).propensities(COUNTS, 900), 900, resamples=5)
    write_propensity(fitted, tmp_path / "p.json")
    back = read_propensity(tmp_path / "p.json")
    assert (type(back), back.a, back.b) == (JainPropensity, fitted.a, fitted.b)
    values = json.loads((tmp_path / "p.json").read_text())
    assert values["a_interval"] == list(fitted.a_interval_)
    assert (values["level"], values["rows"], values["labels"], values["bins"]) == (0.95, 900, 4, 4)
    assert values["points"]["counts"] == COUNTS


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "contains no propensity model"),
        ("[]", "contains no propensity model"),
        ('{"a": 1}', "contains no propensity model"),
        ('{"a": -1, "b": 1}', "a must be a number of at least 0"),
        ('{"a": 1, "b": "1"}', "b must be a number above 0"),
    ],
)
def test_mistakes(tmp_path, text, told):
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(InputError, match=rf"p\.json: {told}"):
        read_propensity(tmp_path / "p.json")
    with pytest.raises(InputError, match=r"none\.json"):
        read_propensity(tmp_path / "none.json")

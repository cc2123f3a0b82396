"""The rows that `longtail explain` takes."""

import warnings

import pytest
from typer.testing import CliRunner

from longtail.cli.program import program


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.txt").write_text("4 3 3\n0,1 0:1 1:0.5\n1 1:2\n1,2 2:1\n 0:1\n")
    done = CliRunner().invoke(program, ["train", "popularity", "train.txt", "--out", "model"])
    assert done.exit_code == 0, done.output
    return "model"


@pytest.mark.parametrize("value", ["1e39", "-1e39", "inf", "nan"])
def test_values_beyond_single_precision_are_refused(model, value):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        done = CliRunner().invoke(program, ["explain", model, f"1:{value}"])
    assert done.exit_code == 2
    assert "each value from -3.4e+38 to 3.4e+38" in done.stderr


@pytest.mark.parametrize("digits", [1, 18, 19, 5000])
def test_a_row_that_is_not_there_is_named_however_long_its_number(model, digits):
    done = CliRunner().invoke(program, ["explain", model, "train.txt#" + "9" * digits])
    assert done.exit_code == 2
    shown = "9" * digits if digits <= 18 else "9" * 18 + "..."
    assert done.stderr == f"error: train.txt: has 4 rows, counted from 0: there is no row {shown}.\n"

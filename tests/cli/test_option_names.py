"""Errors name the option as it was typed, and say what is accepted."""

import json

import pytest
from typer.testing import CliRunner

from longtail.cli.program import program


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.txt").write_text("4 3 3\n0,1 0:1 1:0.5\n1 1:2\n1,2 2:1\n 0:1\n")
    (tmp_path / "empty.txt").write_text("0 3 3\n")
    rows = [{"text": text, "labels": [text]} for text in ("red", "blue") * 4]
    (tmp_path / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("train dismec train.txt --out m --seed 4294967296", "--seed must be an integer from 0 to 4294967295, got "),
        ("data generate x.txt --labels 9 --labels-per-row 10", "--labels-per-row must be a number from 1 to 9, got 10"),
        ("data generate x.txt --features 9 --features-per-row 0", "--features-per-row must be a number from 1 to 9"),
        ("data generate x.txt --exponent 11", "--exponent must be a number from 0 to 10, got 11"),
        ("data generate x.txt --rows 99999999999999999999", "--rows must be an integer from 1 to "),
        ("losses --label-count 5 --beta 1", "--beta must be a number of at least 0 and below 1, got 1.0."),
        ("data vectors glove.txt out.txt", "OUT must end in .npz, got 'out.txt'."),
        ("evaluate m train.txt -k 2147483648", "-k must be integers from 1 to 2147483647, separated by commas"),
        ("study missing train.jsonl --severities 200", "--severities must be different numbers above 0 and below 100"),
        ("calibrate m train.txt -k 2147483648", "-k must be an integer from 1 to 2147483647, got '2147483648'."),
        ("report m --out page.txt train.txt", "--out must end in .html or .htm, got 'page.txt'."),
        ("losses --plot plot.jpg", "--plot must end in .png, .svg or .pdf, got 'plot.jpg'."),
        ("tune train.jsonl --validation-fraction 1", "--validation-fraction must be a number between 0 and 1"),
        ("propensity show empty.txt", "empty.txt: has no rows: give rows with labels."),
    ],
)
def test_errors_name_the_option(arguments, sentence, place):
    result = CliRunner().invoke(program, arguments.split())
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith(f"error: {sentence}"), result.stderr
    assert "random_state" not in result.stderr
    assert "n_rows" not in result.stderr

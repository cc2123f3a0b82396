"""`longtail evaluate`: several -k, the newer metrics, and intervals."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import longtail
from longtail.cli import console
from longtail.cli.program import program
from longtail.data import load
from longtail.metrics import bootstrap

XC = "4 3 3\n0,1 0:1 1:0.5\n1 1:2\n1,2 2:1\n 0:1\n"


@pytest.fixture
def run():
    def call(*arguments, code=0):
        result = CliRunner().invoke(program, [str(argument) for argument in arguments])
        assert result.exit_code == code, result.output
        return result

    return call


@pytest.fixture
def model(tmp_path, monkeypatch, run):
    monkeypatch.chdir(tmp_path)
    Path("train.txt").write_text(XC)
    run("train", "popularity", "train.txt", "--out", "model")
    return "model"


def test_json_with_intervals(model, run):
    plain = json.loads(run("evaluate", model, "train.txt", "--json").stdout)
    found = json.loads(run("evaluate", model, "train.txt", "--json", "--intervals").stdout)
    intervals = found.pop("intervals")
    assert found == plain
    assert list(intervals) == list(plain)
    loaded, data = longtail.load(model), load("train.txt")
    weights = loaded.propensity.inverse(loaded.label_counts, loaded.n_rows)
    expected = bootstrap(loaded.predict_topk(data, 5), data.Y, inverse_propensity=weights)
    for name, interval in expected.items():
        assert intervals[name] == pytest.approx([interval.low, interval.high], abs=1e-3)
    assert intervals["P@1"][0] < found["P@1"] == 75 < intervals["P@1"][1]


def test_table_with_intervals(model, run):
    text = run("evaluate", model, "train.txt", "-k", "1,2", "--intervals").stdout
    assert "4 rows, percent, with 95 % intervals\n" in text
    assert re.search(r"^ +@1 +low +high +@2 +low +high$", text, re.M)
    assert re.search(r"^P +75\.00 +25\.00 +100\.00 +50\.00 +\d+\.\d\d +\d+\.\d\d$", text, re.M)
    assert re.search(r"^macroF1 +\d", text, re.M)


def test_several_ks_are_united(model, run):
    united = run("evaluate", model, "train.txt", "-k", "1", "-k", "3,1", "--json").stdout
    assert united == run("evaluate", model, "train.txt", "-k", "1,3", "--json").stdout
    assert {name.partition("@")[2] for name in json.loads(united)} == {"1", "3"}
    table = run("evaluate", model, "train.txt", "-k", "3", "-k", "1").stdout
    assert re.search(r"^ +@3 +@1$", table, re.M)


def test_a_wrong_k_among_several_is_refused(model, run):
    for wrong in ("0", "x", ""):
        result = run("evaluate", model, "train.txt", "-k", "1", "-k", wrong, code=2)
        assert "-k must be" in result.stderr
        assert result.stdout == ""


def test_new_metrics(model, run):
    """Every row's ranking is 1, 0, 2; rows have {0, 1}, {1}, {1, 2} and none."""
    scores = json.loads(run("evaluate", model, "train.txt", "-k", "1", "--json").stdout)
    expected = {"MRR@1": 75, "ADG@1": 50, "microF1@1": 100 * 6 / 9, "macroF1@1": 100 * 6 / 7 / 3}
    expected |= {"Hamming@1": 100 * (1 + 0 + 1 + 1) / 12}
    assert {name: scores[name] for name in expected} == pytest.approx(expected, abs=1e-4)
    assert {"PSR@1", "PSADG@1"} <= set(scores)


def test_labels_that_the_model_has_never_seen(tmp_path, monkeypatch, run):
    monkeypatch.chdir(tmp_path)
    rows = [{"text": "red car", "labels": ["vehicle"]}, {"text": "blue car", "labels": ["vehicle", "blue"]}]
    Path("train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    Path("test.jsonl").write_text(json.dumps({"text": "car", "labels": ["vehicle", "unheard of"]}) + "\n")
    run("train", "popularity", "train.jsonl", "--out", "m", "--set", "features.min_df=1")
    plain = json.loads(run("evaluate", "m", "test.jsonl", "--json").stdout)
    found = json.loads(run("evaluate", "m", "test.jsonl", "--json", "--intervals").stdout)
    assert found["R@5"] == plain["R@5"] == 50
    assert found["intervals"]["R@5"] == [0, 100]  # one row says nothing of others


def test_no_rows(model, run):
    Path("empty.txt").write_text("0 3 3\n")
    assert "no rows" in run("evaluate", model, "empty.txt", "--intervals", code=2).stderr


@pytest.mark.parametrize("width", [40, 60, 80])
def test_a_narrow_terminal_shows_every_digit(model, run, monkeypatch, width):
    """Lines are longer than the terminal where the numbers need that; none ends in an ellipsis."""
    wide = run("evaluate", model, "train.txt", "-k", "1,2,3", "--intervals").stdout
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(console, "_is_terminal", lambda: True)
    narrow = run("evaluate", model, "train.txt", "-k", "1,2,3", "--intervals").stdout
    assert "…" not in narrow
    numbers = re.compile(r"\d+\.\d\d")
    assert numbers.findall(narrow) == numbers.findall(wide) != []


def test_rows_without_any_label_are_refused(model, run):
    Path("unlabelled.txt").write_text("2 3 3\n 0:1\n 1:1\n")
    error = run("evaluate", model, "unlabelled.txt", code=2).stderr
    assert error == "error: unlabelled.txt: its rows have no labels: give rows whose labels are known.\n"


def test_predictions_do_not_replace_their_rows(model, run):
    error = run("predict", model, "train.txt", "--out", "train.txt", code=2).stderr
    assert error == "error: train.txt: is both the input and the output: give another name.\n"
    assert Path("train.txt").read_text() == XC

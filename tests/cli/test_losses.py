"""`longtail losses`: the table, the JSON and the plot."""

import json
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from longtail.cli.losses import losses
from longtail.plots.losses import loss_curves

PROGRAM = typer.Typer()
PROGRAM.command()(losses)


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def call(*arguments, code=0):
        result = CliRunner().invoke(PROGRAM, [str(argument) for argument in arguments])
        assert result.exit_code == code, result.output
        return result

    return call


def row_of(text, loss, form):
    return next(line.split() for line in text.splitlines() if line.split()[:2] == [loss, form])


def test_table(run):
    result = run("--propensity", 0.25)
    assert result.stderr == ""
    assert "propensity 0.25" in result.stdout
    assert row_of(result.stdout, "hinge", "plain")[2:] == ["table", "1", "yes", "yes", "2.00", "1.00", "0.00"]
    assert row_of(result.stdout, "hinge", "unbiased")[2:] == ["4,", "9,", "11", "no", "no", "8.00", "1.00", "-6.00"]
    assert row_of(result.stdout, "zero-one", "surrogate")[2:] == ["8,", "15", "no", "yes", "7.00", "7.00", "0.00"]
    assert row_of(result.stdout, "logistic", "unbiased")[-5:-3] == ["yes", "no"]
    assert "rebalanced" not in result.stdout


def test_json(run):
    result = run("--json", "--propensity", 0.25)
    given = json.loads(result.stdout)
    assert result.stdout.count("\n") == 1
    assert set(given) == {"propensity", "losses"}
    assert len(given["losses"]) == 12
    squared = next(row for row in given["losses"] if (row["loss"], row["form"]) == ("squared-hinge", "surrogate"))
    assert squared == {
        "loss": "squared-hinge",
        "form": "surrogate",
        "equations": "15, 16",
        "convex": True,
        "lower_bounded": True,
        "values": {"-1": 28.0, "0": 7.0, "1": 0.0},
    }


def test_rebalanced(run):
    """n = 2 and beta = 1/2: F(2) = 2/3, and with p = 1/2 F(4) = 8/15."""
    given = json.loads(run("--json", "--propensity", 0.5, "--label-count", 2, "--beta", 0.5).stdout)
    assert (given["label_count"], given["beta"], len(given["losses"])) == (2, 0.5, 28)
    at_0 = {row["form"]: row["values"]["0"] for row in given["losses"] if row["loss"] == "hinge"}
    assert at_0["rebalanced, correct-then-rebalance"] == pytest.approx(2, abs=1e-6)
    assert at_0["rebalanced, rebalance-then-correct"] == pytest.approx(16 / 15 + 1, abs=1e-6)
    assert at_0["unbiased-rebalanced, correct-then-rebalance"] == pytest.approx(2 / 3, abs=1e-6)
    assert at_0["unbiased-rebalanced, rebalance-then-correct"] == pytest.approx(16 / 15 - 1, abs=1e-6)


@pytest.mark.parametrize(("name", "begins"), [("losses.png", b"\x89PNG"), ("losses.svg", b"<?xml"), ("l.pdf", b"%PDF")])
def test_plot_file(run, name, begins):
    result = run("--plot", name, "--json")
    assert Path(name).read_bytes().startswith(begins)
    assert name in result.stderr
    assert json.loads(result.stdout)["propensity"] == 0.5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--propensity", 0], "--propensity must be a number above 0 and at most 1, got 0.0"),
        (["--propensity", 1.5], "--propensity must be"),
        (["--propensity", "nan"], "--propensity must be"),
        (["--label-count", 3, "--beta", 1], "beta must be"),
        (["--plot", "losses.gif"], ".png, .svg or .pdf"),
        (["--plot", "no/losses.png"], "not a directory"),
    ],
)
def test_mistakes(run, arguments, message):
    result = run(*arguments, code=2)
    assert message in result.stderr
    assert (result.stdout, result.stderr.count("\n")) == ("", 1)
    assert not list(Path().iterdir())


def curves(axes):
    return {line.get_label(): line for line in axes.lines if not line.get_label().startswith("_")}


def test_the_curves_of_figure_2():
    """At p = 1/2 the surrogate hinge starts from 3 times the plain one and the unbiased one ends below 0."""
    drawn = loss_curves(0.5)
    assert [axes.get_title(loc="left") for axes in drawn.axes] == ["Hinge", "Squared hinge", "Logistic / ln 2"]
    hinge = curves(drawn.axes[0])
    for name, at_minus_1, at_2 in [("plain", 2, 0), ("unbiased", 4, -3), ("surrogate", 6, 0)]:
        x, y = hinge[name].get_data()
        np.testing.assert_allclose(np.interp([-1, 2], x, y), [at_minus_1, at_2], atol=0.05)
    for axes in drawn.axes:  # scaled to bound the 0-1 loss tightly: 3 at a score of 0
        x, y = curves(axes)["surrogate"].get_data()
        assert np.interp(0, x, y) == pytest.approx(3, abs=0.01)
        steps = [line for line in axes.lines if line.get_linestyle() == "--" and len(line.get_xdata())]
        assert [line.get_ydata()[0] for line in steps] == [1, 2, 3]
        assert [line.get_ydata()[-1] for line in steps] == [0, -1, 0]
    rings = [[line.get_xydata().tolist() for line in axes.lines if line.get_marker() == "o"] for axes in drawn.axes]
    assert rings == [[[[-1, 4]]], [[[1, -4]]], []]


def test_nothing_bends_down_where_nothing_is_missing():
    assert not [line for axes in loss_curves(1.0).axes for line in axes.lines if line.get_marker() == "o"]

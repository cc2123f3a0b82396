"""Several models as one, from the command line."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from longtail import datasets, load
from longtail.cli.program import program
from longtail.data import save
from longtail.data.dataset import Dataset


def run(*arguments):
    return CliRunner().invoke(program, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Two models, one of other labels, and rows to weigh them by."""
    data, path = datasets.load("debian-tags:train"), tmp_path_factory.mktemp("blend")
    for name, rows in (("train", slice(0, 600)), ("dev", slice(600, 900)), ("test", slice(900, 1200))):
        save(Dataset(None, data.Y[rows], texts=data.texts[rows], label_names=data.label_names), path / f"{name}.jsonl")
    save(Dataset(None, data.Y[:50, :9], texts=data.texts[:50], label_names=data.label_names[:9]), path / "few.jsonl")
    for recipe, rows, name in (
        ("dismec", "train", "dismec"), ("parabel", "train", "parabel"), ("dismec", "few", "few"),
    ):  # fmt: skip
        done = run("train", recipe, path / f"{rows}.jsonl", "--out", path / name)
        assert done.exit_code == 0, done.output
    return path


def test_a_blend_is_a_model(place):
    done = run("blend", place / "dismec", place / "parabel", "--on", place / "dev.jsonl", "--out", place / "both")
    assert done.exit_code == 0, done.output
    assert "dismec" in done.stdout
    assert "evaluate the blend on other rows" in done.stdout
    model = load(place / "both")
    assert model.recipe == "blend"
    assert run("evaluate", place / "both", place / "test.jsonl").exit_code == 0
    why = run("explain", place / "both", "a game of cards", "-k", 1)
    assert why.exit_code == 0, why.output
    assert "parabel" in why.output


def test_the_figures_as_json(place):
    models = [place / "dismec", place / "parabel"]
    done = run("blend", *models, "--on", place / "dev.jsonl", "--out", place / "b", "--weights", "1,3", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert [part["weight"] for part in found["models"]] == [0.25, 0.75]
    assert found["rows"] == 300
    assert found["blend"]["P@1"] > 0


def test_wrong_input_is_a_sentence(place):
    dismec, dev = place / "dismec", place / "dev.jsonl"
    for models, more, message in (
        ([dismec], [], "two models"),
        ([dismec, dismec], [], "must be a different directory each time"),
        ([dismec, place / "few"], [], ": blend models of the same training data."),
        ([dismec, place / "parabel"], ["--weights", "1"], "2 numbers"),
        ([dismec, place / "parabel"], ["--weights", "a,b"], "2 numbers"),
        ([dismec, place / "nowhere"], [], "nowhere"),
    ):
        done = run("blend", *models, "--on", dev, "--out", place / "x", *more)
        assert done.exit_code == 2, done.output
        assert message in done.output
        assert not (place / "x").exists()
    done = run("blend", dismec, place / "parabel", "--on", dev, "--out", dismec)
    assert done.exit_code == 2
    assert "another directory" in done.output
    assert load(dismec).recipe == "dismec"


def test_rows_that_a_model_has_seen_are_suspected(place):
    done = run("blend", place / "dismec", place / "parabel", "--on", place / "train.jsonl", "--out", place / "seen")
    assert done.exit_code == 0, done.output
    assert "was it trained on these rows?" in done.output

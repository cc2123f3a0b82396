"""Every command that takes a hierarchy takes pairs, JSON and SKOS, with the same result."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from longtail.cli.program import program
from longtail.data import read_hierarchy
from longtail.learners import LabelTree
from longtail.propensity import estimate_from_hierarchy

TOWNS = {"Rome": "Italy", "Milan": "Italy", "Lyon": "France", "Italy": "Europe", "France": "Europe", "Europe": "World"}
FILES = {
    "towns.tsv": "".join(f"{child}\t{parent}\n" for child, parent in TOWNS.items()),
    "towns.json": json.dumps(TOWNS),
    "towns.ttl": "@prefix skos: <http://www.w3.org/2004/02/skos/core#> .\n@prefix ex: <http://example.org/> .\n"
    + "".join(f"ex:{child} skos:broader ex:{parent} .\n" for child, parent in TOWNS.items()),
}
LABELS = ("Rome", "Milan", "Lyon", "Italy", "France", "Europe")
every_form = pytest.mark.parametrize("name", ["towns.json", "towns.ttl"])


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        Path(name).write_text(text)
    rng = np.random.default_rng(0)
    lines = []
    for row in range(200):
        town = LABELS[row % 3]
        above = [one for one in (TOWNS[town], "Europe") if rng.random() < 0.7]
        lines.append(json.dumps({"text": f"{town} word{row % 7}", "labels": [town, *above]}) + "\n")
    Path("data.jsonl").write_text("".join(lines))
    return tmp_path


def run(*arguments):
    result = CliRunner().invoke(program, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def pairs(name):
    return [
        tuple(one.rpartition("/")[2] if isinstance(one, str) else one for one in pair)
        for pair in read_hierarchy(name).pairs(LABELS)
    ]


@every_form
def test_the_reader(files, name):
    assert sorted(pairs(name), key=str) == sorted(pairs("towns.tsv"), key=str)


@every_form
def test_propensities(files, name):
    Y = np.random.default_rng(0).random((60, 6)) < 0.5
    found, expected = (
        estimate_from_hierarchy(Y, read_hierarchy(one).pairs(LABELS), min_descendants=1) for one in (name, "towns.tsv")
    )
    np.testing.assert_array_equal(found.propensities, expected.propensities)


@every_form
def test_label_trees(files, name):
    rng = np.random.default_rng(0)
    X, Y = rng.random((60, 8)), rng.random((60, 6)) < 0.5
    found, expected = (
        LabelTree(tree=read_hierarchy(one).pairs(LABELS), random_state=0).fit(X, Y).predict_topk(X, 3)
        for one in (name, "towns.tsv")
    )
    np.testing.assert_array_equal(found.labels, expected.labels)
    np.testing.assert_array_equal(found.scores, expected.scores)


@every_form
def test_the_commands(files, name):
    for command in (
        ("estimate", "longtail-tree", "data.jsonl", "--set", "n_hard_negatives=0", "--json", "--tree"),
        ("train", "longtail-tree", "data.jsonl", "--set", "n_hard_negatives=0", "--threads", 1, "--json"),
        ("propensity", "fit", "data.jsonl", "--min-descendants", 1, "--labels-per-bin", 1, "--json", "--hierarchy"),
    ):
        if command[0] == "train":
            figures = [
                json.loads(run(*command, "--tree", one, "--out", one.replace(".", "-"))) for one in (name, "towns.tsv")
            ]
            assert figures[0]["model_mb"] == figures[1]["model_mb"]
        elif command[0] == "estimate":
            figures = [json.loads(run(*command, one)) for one in (name, "towns.tsv")]
            assert figures[0]["model_mb"] == figures[1]["model_mb"]
        else:
            points = [json.loads(run(*command, one, "--resamples", 2))["points"] for one in (name, "towns.tsv")]
            assert points[0] == points[1]

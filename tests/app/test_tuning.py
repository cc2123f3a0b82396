"""Choosing well: the front, the picks, and a search on real rows."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from longtail import JainPropensity, datasets, load
from longtail.app.cli.program import program
from longtail.app.tuning.front import Point, front_of, picks_of
from longtail.app.tuning.space import RECIPES, space_of
from longtail.corpus import save
from longtail.corpus.dataset import Dataset
from longtail.recipes import find

optuna = pytest.importorskip("optuna", reason="longtail tune searches with optuna")


def run(*arguments):
    return CliRunner().invoke(program, [str(argument) for argument in arguments])


def points(*scores):
    return [Point(f"r{number}", {}, 0.0, pair, 1.0) for number, pair in enumerate(scores)]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=30))
def test_the_front_is_what_nothing_beats(scores):
    """Against the definition, pair by pair."""
    front = {point.scores for point in front_of(points(*scores))}
    wanted = {s for s in scores if not any(t != s and t[0] >= s[0] and t[1] >= s[1] for t in scores)}
    assert front == wanted


def test_picks_by_hand():
    """Shares of the bests (10 and 20): 1 + 0.25, 0.9 + 0.6 and 0.2 + 1: the middle one has the best mean."""
    picks = picks_of(front_of(points((10, 5), (9, 12), (2, 20))))
    assert [picks[name].scores for name in ("plain", "balanced", "tail")] == [(10, 5), (9, 12), (2, 20)]
    assert picks_of([]) == {}


def test_commands_can_be_typed():
    point = Point("pw-cb-dismec", {"regularisation": 0.3, "weighting.beta": 0.8}, 0.25, (1, 1), 1.0)
    told = point.command("my rows.jsonl", "out")
    assert told == (
        "longtail train pw-cb-dismec 'my rows.jsonl' --set regularisation=0.3 --set weighting.beta=0.8 --tail 0.25 "
        "--out out"
    )


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_dimension_exists(recipe):
    from longtail.app.plans import compose

    for part in space_of(recipe):
        assert part.low <= part.own(recipe) <= part.high
        name = part.name.replace(".", "__")
        compose(recipe, {name: part.own(recipe)}, JainPropensity(), threads=1, seed=0, memory_limit=None)
    assert find(recipe).name == recipe


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    data, path = datasets.load("debian-tags:train"), tmp_path_factory.mktemp("tune") / "rows.jsonl"
    order = np.random.default_rng(0).permutation(data.n_rows)[:900]
    save(Dataset(None, data.Y[order], texts=[data.texts[row] for row in order], label_names=data.label_names), path)
    return path


def test_a_search_from_the_command_line(rows, tmp_path):
    done = run(
        "tune", rows, "--budget", "8s", "--recipes", "dismec,pw-cb-dismec,popularity", "--folds", 2, "--threads", 2,
        "--out", tmp_path / "model", "--plot", tmp_path / "front.svg", "--json", "--pick", "tail",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    front = [(point["nDCG@5"], point["PSnDCG@5"]) for point in found["front"]]
    assert found["trained"] >= 2
    assert front == sorted(front, reverse=True)
    assert found["picks"]["plain"]["nDCG@5"] == max(score for score, _ in front)
    assert found["picks"]["tail"]["PSnDCG@5"] == max(score for _, score in front)
    assert all(point["recipe"] != "popularity" for point in found["front"])
    assert load(tmp_path / "model").recipe == found["picks"]["tail"]["recipe"]
    assert (tmp_path / "front.svg").read_text().startswith("<?xml")


def test_the_search_keeps_its_time_and_tells_in_words(rows):
    done = run("tune", rows, "--budget", "3s", "--recipes", "dismec", "--folds", 1, "--threads", 1)
    assert done.exit_code == 0, done.output
    assert "nothing beats on both" in done.stdout
    assert "balanced  longtail train dismec" in " ".join(done.stdout.split("\n"))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--budget", "soon"], "90s, 10m or 2h"),
        (["--recipes", "dismek"], "dismec"),
        (["--recipes", ","], "names of recipes"),
        (["--objectives", "P@1"], "two of"),
        (["--objectives", "P@1,speed"], "two of"),
        (["--pick", "best"], "plain, balanced, tail"),
        (["--held-out", "1"], "between 0 and 1"),
    ],
)
def test_wrong_options_are_a_sentence(rows, more, message):
    done = run("tune", rows, *more)
    assert done.exit_code == 2, done.output
    assert message in done.output

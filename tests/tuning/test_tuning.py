"""Choosing well: the front, the picks, and a search on real rows."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from longtail import JainPropensity, Popularity, config_context, datasets, load
from longtail.cli.program import program
from longtail.config import thread_count
from longtail.data import generate, save
from longtail.data import load as load_rows
from longtail.data.dataset import Dataset
from longtail.metrics import evaluate
from longtail.recipes import find, recipes
from longtail.recipes.compose import plan_of
from longtail.tuning.front import Point, front_of, picks_of
from longtail.tuning.search import Search
from longtail.tuning.space import has_dial, space_of

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
    point = Point("pw-cb-dismec", {"C": 0.3, "weighting.beta": 0.8}, 0.25, (1, 1), 1.0)
    told = point.command("my rows.jsonl", "out")
    assert told == (
        "longtail train pw-cb-dismec 'my rows.jsonl' --set C=0.3 --set weighting.beta=0.8 --tail 0.25 --out out"
    )
    assert point.command("rows", "out", ["--seed", "3"]).endswith("--tail 0.25 --seed 3 --out out")


@pytest.mark.parametrize("recipe", [recipe.name for recipe in recipes()])
def test_every_dimension_exists(recipe):
    from longtail.recipes.compose import compose

    for part in space_of(recipe):
        assert part.low <= part.own(recipe) <= part.high
        name = part.name.replace(".", "__")
        compose(recipe, {name: part.own(recipe)}, JainPropensity())
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


def a_search(path, names, budget=5.0, **more):
    data = load_rows(path)
    more = {"folds": 1, **more}
    return Search(data, names, ["nDCG@5", "PSnDCG@5"], budget, more.pop("propensity", JainPropensity()), **more)


def test_concurrent_trials_share_the_threads_in_training_and_prediction(rows, monkeypatch):
    search, used = a_search(rows, ["popularity"], n_jobs=2, random_state=3), []

    def spied(inner):
        return lambda *arguments: used.append(thread_count()) or inner(*arguments)

    for method in ("_fit", "_topk"):
        monkeypatch.setattr(Popularity, method, spied(getattr(Popularity, method)))
    with config_context(n_jobs=6):
        search._scored("popularity", {}, search.split(0), (0.0,), 1)
    assert used == [3, 3]


def test_the_search_keeps_its_time_and_tells_in_words(rows):
    a_search(rows, ["dismec"], 0.1).run()  # kernels are compiled
    start = time.monotonic()
    found = a_search(rows, ["dismec", "pw-dismec"], 3.0).run()
    assert time.monotonic() - start < 3.0 + 4 * max(point.seconds for point in found.points) + 15.0
    done = run("tune", rows, "--budget", "3s", "--recipes", "dismec", "--folds", 1, "--threads", 1, "--seed", 7)
    assert done.exit_code == 0, done.output
    assert "--seed 7" in done.stdout
    assert "on the Pareto front" in done.stdout
    assert "balanced  longtail train dismec" in " ".join(done.stdout.split("\n"))


def test_a_search_ends_when_there_is_nothing_left_to_try(rows):
    start = time.monotonic()
    found = a_search(rows, ["popularity"], 60.0).run()
    assert found.trained == 1
    assert time.monotonic() - start < 30


def test_failures_are_reported_and_not_retried(rows, monkeypatch):
    search = a_search(rows, ["popularity", "dismec"], 4.0)
    scored, tried = Search._scored, []

    def sometimes(self, recipe, *more):
        tried.append(recipe)
        if recipe == "popularity":
            raise ValueError("out of luck")
        return scored(self, recipe, *more)

    monkeypatch.setattr(Search, "_scored", sometimes)
    found = search.run()
    assert found.reasons == {"popularity": "out of luck"}
    assert tried.count("popularity") == 1
    assert found.trained >= 1


def test_the_dial_is_judged_as_it_will_be_trained(rows):
    """With other constants than the default ones, and the propensities of the rows that a split trains on."""
    propensity = JainPropensity(a=2.0, b=0.5)
    search = a_search(rows, ["dismec"], propensity=propensity)
    split = search.split(0)
    (found,), _ = search._scored("dismec", {}, split, (0.5,), 1)
    plan = plan_of("dismec", {}, propensity, tail=0.5)
    top = plan.learner.fit(split.X, split.Y).predict_topk(split.X_test, 5)
    scores = evaluate(top, split.Y_test, inverse_propensity=split.inverse)
    np.testing.assert_allclose(found, [scores["nDCG@5"], scores["PSnDCG@5"]])


def test_results_before_an_interruption_are_reported(rows, tmp_path, monkeypatch):
    scored, tried = Search._scored, []

    def stopped(self, recipe, *more):
        tried.append(recipe)
        if len(tried) > 12:
            raise KeyboardInterrupt
        return scored(self, recipe, *more)

    monkeypatch.setattr(Search, "_scored", stopped)
    options = ["--recipes", "dismec,pw-dismec", "--folds", 2, "--threads", 1, "--out", tmp_path / "model"]
    done = run("tune", rows, "--budget", "60s", *options)
    assert done.exit_code == 130, done.output
    assert "The search was stopped before its time was over: the results of " in done.stderr
    assert "can't be resumed; the commands above train the picks." in done.stderr
    assert "on the Pareto front" in done.stdout
    assert not (tmp_path / "model").exists()


TUNE = """
import sys
from longtail.cli import main
from longtail.tuning.search import Search

judged = Search._evaluated

def told(search, recipe, settings):
    sys.stderr.write(f"begun {recipe}\\n")
    found = judged(search, recipe, settings)
    sys.stderr.write(f"ended {recipe}\\n")
    return found

Search._evaluated = told
main()
"""


@pytest.fixture(scope="module")
def many_rows(tmp_path_factory):
    path = tmp_path_factory.mktemp("tune") / "rows.txt"
    save(generate(20_000, 1500, 3000, features_per_row=40.0, random_state=0), path)
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sent", "code", "more"),
    [
        (signal.SIGTERM, 143, ["--jobs", "2"]),
        (signal.SIGINT, 130, ["--jobs", "1"]),
        pytest.param(signal.SIGTERM, 143, ["--cluster", "local"], marks=pytest.mark.xdist_group("cluster")),
    ],
)
def test_a_signal_stops_the_trials_and_keeps_what_ended(many_rows, tmp_path, sent, code, more):
    """A forest of these rows takes a minute, and the search ten."""
    if "--cluster" in more:
        pytest.importorskip("ray", reason="needs the extra ray")
    options = ["--recipes", "popularity,fastxml", "--folds", "2", "--threads", "2", "--out", str(tmp_path / "model")]
    command = [sys.executable, "-c", TUNE, "tune", str(many_rows), "--budget", "10m", *options, *more]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wanted, seen = {"ended popularity", "begun fastxml"}, []
    while wanted - set(seen):
        line = process.stderr.readline()
        assert line, seen
        seen.append(line.strip())
    time.sleep(2.0)
    process.send_signal(sent)
    start = time.monotonic()
    given, said = process.communicate(timeout=120)
    assert time.monotonic() - start < 40, "within seconds, more on a machine that is busy"
    assert process.returncode == code, said
    assert "Traceback" not in said
    assert "ended fastxml" not in said
    last = said.splitlines()[-1]
    assert last.startswith("The search was stopped before its time was over: the results of 1 trial are above.")
    assert last.endswith("model was not trained. A search can't be resumed; the commands above train the picks.")
    assert "balanced  longtail train popularity" in given
    assert "1 trial trained to the end" in given
    assert not (tmp_path / "model").exists()


def test_the_budget_stops_a_trial_that_runs(rows, monkeypatch):
    """One trial ends immediately, the other would never end."""
    from longtail.learners import OneVsRest
    from longtail.runtime.pool import run_blocks

    def forever(self, X, Y):
        def work(block, stop):
            while not stop[0]:
                time.sleep(0.01)

        list(run_blocks(work, range(2), n_jobs=1, description="training"))

    monkeypatch.setattr(OneVsRest, "_fit", forever)
    search = a_search(rows, ["popularity", "dismec"], folds=2, budget=2.0)
    start = time.monotonic()
    found = search.run()
    assert 2 <= time.monotonic() - start < 60
    assert {point.recipe for point in found.points} == {"popularity"}
    assert not found.is_stopped


def test_one_trial_ends_whatever_the_budget_is(rows):
    found = a_search(rows, ["dismec"], folds=3, budget=0.01).run()
    assert found.trained == 1
    assert found.points


def test_folds_partition_the_rows(rows):
    search = a_search(rows, ["dismec"], folds=3)
    parts = np.array([search._in_test(number) for number in range(3)])
    assert (parts.sum(axis=0) == 1).all()
    np.testing.assert_allclose(parts.sum(axis=1) / parts.shape[1], 1 / 3, atol=0.03)
    counts = np.array([search.dataset.take(part).label_counts for part in parts])
    often = counts.sum(axis=0) >= 6
    assert (counts[:, often] > 0).mean() > 0.97  # rare labels are in every fold


def test_recipes_that_turn_the_dial_by_themselves():
    assert [has_dial(name) for name in ("ranknet+bonsai", "glas+ranknet", "longtail-tail", "dismec")] == [1, 1, 1, 0]


@pytest.mark.parametrize(
    ("content", "more", "message"),
    [
        ('{"text": "some words", "labels": []}\n' * 30, [], "has no labels"),
        ('{"text": "some words", "labels": ["a"]}\n' * 3, [], "3 rows"),
        ("1 2 1\n0 0:1\n", ["--recipes", "xml-cnn"], "has 1 row:"),
        ("30 2 1\n" + "0 0:1\n" * 30, ["--recipes", "ranknet+xml-cnn"], "no texts"),
    ],
)
def test_untrainable_data_is_refused_before_training(tmp_path, content, more, message):
    path = tmp_path / ("rows.jsonl" if content.startswith("{") else "rows.txt")
    path.write_text(content)
    done = run("tune", path, *more)
    assert done.exit_code == 2, done.output
    assert message in done.output


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--budget", "soon"], "90s, 10m or 2h"),
        (["--recipes", "dismek"], "dismec"),
        (["--recipes", ","], "names of recipes"),
        (["--objectives", "P@1"], "two different metrics"),
        (["--objectives", "P@1,speed"], "two different metrics"),
        (["--objectives", "P@1,P@1"], "two different metrics"),
        (["--pick", "best"], "plain, balanced, tail"),
        (["--validation-fraction", "1"], "between 0 and 1"),
        (["--pick", "tail"], "give --out too"),
        (["--folds", "1000"], "at most 180"),
    ],
)
def test_wrong_options_are_a_sentence(rows, more, message):
    done = run("tune", rows, *more)
    assert done.exit_code == 2, done.output
    assert message in done.output

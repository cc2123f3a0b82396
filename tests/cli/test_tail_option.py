"""The tail dial on the command line: `train --tail`, `predict --tail` and `evaluate --tail`."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import longtail
from longtail import Dataset, OneVsRest, Popularity, TailDial, TextLearner
from longtail.cli.arguments import parse_tail
from longtail.cli.program import program
from longtail.data import load, save
from longtail.errors import ParameterError
from longtail.propensity import JainPropensity
from longtail.recipes.compose import dialled

TEXTS = ["red fish blue fish", "red car", "blue car", "red fish", "green car", "old car"] * 5
LABELS = [["animal", "two words"], ["vehicle"], ["vehicle", "a:b"], ["animal"], ["vehicle"], ["vehicle"]] * 5


@pytest.fixture
def run():
    def call(*arguments, code=0):
        result = CliRunner().invoke(program, [str(argument) for argument in arguments])
        assert result.exit_code == code, result.output
        return result

    return call


def rows(n, seed):
    """Feature l indicates label l, frequent labels first; every row has noise."""
    rng = np.random.default_rng(seed)
    Y = (rng.random((n, 6)) < [0.7, 0.5, 0.4, 0.2, 0.1, 0.1]).astype(np.float32)
    Y[:6] = np.eye(6)
    return Dataset(Y + rng.random((n, 6)), Y)


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save(rows(80, 0), "train.txt")
    save(rows(40, 1), "test.txt")
    lines = [json.dumps({"text": text, "labels": names}) for text, names in zip(TEXTS, LABELS, strict=True)]
    Path("train.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path


@pytest.fixture
def plain(files, run):
    run("train", "dismec", "train.txt", "--out", "plain", "--propensity", "0.9,0.5")
    return longtail.load("plain")


def predicted(result):
    return [
        [(int(label), float(score)) for label, score in (pair.split(":") for pair in line.split())]
        for line in result.stdout.splitlines()
    ]


def same_rows(found, top):
    assert [[label for label, _ in row] for row in found] == top.labels.tolist()
    np.testing.assert_allclose([[score for _, score in row] for row in found], top.scores, rtol=1e-5)


def test_a_model_with_the_dial_set(plain, run):
    run("train", "dismec", "train.txt", "--out", "set", "--tail", 0.5, "--propensity", "0.9,0.5")
    model = longtail.load("set")
    assert isinstance(model.learner, TailDial)
    assert (model.learner.tail_, repr(model.learner.propensity)) == (0.5, "JainPropensity(a=0.9, b=0.5)")
    test = load("test.txt")
    same_rows(predicted(run("predict", "set", "test.txt", "-k", 3)), plain.predict_topk(test, 3, tail=0.5))
    same_rows(predicted(run("predict", "set", "test.txt", "-k", 3, "--tail", 0)), plain.predict_topk(test, 3))
    by_hand = json.loads(run("evaluate", "plain", "test.txt", "--tail", 0.5, "--json").stdout)
    assert json.loads(run("evaluate", "set", "test.txt", "--json").stdout) == pytest.approx(by_hand)


def test_the_dial_of_a_plain_model(plain, run):
    test = load("test.txt")
    top = plain.predict_topk(test, 2, tail=1.0)
    same_rows(predicted(run("predict", "plain", "test.txt", "-k", 2, "--tail", 1)), top)
    assert (top.labels != plain.predict_topk(test, 2).labels).any()
    for tail in (0, 0.7):
        found = json.loads(run("evaluate", "plain", "test.txt", "--tail", tail, "--json").stdout)
        assert found == pytest.approx(dict(plain.evaluate(test, tail=tail)), abs=1e-3)
    wide = json.loads(run("evaluate", "plain", "test.txt", "--tail", 0.7, "--intervals", "--json").stdout)
    assert wide["PSP@5"] == pytest.approx(found["PSP@5"], abs=1e-3)
    low, high = wide["intervals"]["PSP@5"]
    assert low <= wide["PSP@5"] <= high


def test_auto_finds_a_position_by_itself(files, run):
    run("train", "dismec", "train.txt", "--out", "auto", "--tail", "auto", "--set", "max_loss=50", "--seed", 2)
    learner, data = longtail.load("auto").learner, load("train.txt")
    by_hand = TailDial(learner=OneVsRest(random_state=2), tail="auto", max_loss=50, random_state=2).fit(data.X, data.Y)
    assert learner.tail == "auto"
    assert learner.tail_ == by_hand.tail_
    assert learner.learner.C == 1


def test_settings_reach_the_learner_inside(files, run):
    run("train", "dismec", "train.txt", "--out", "set", "--tail", 0.25, "--set", "C=0.5")
    assert longtail.load("set").learner.learner_.C == 0.5
    assert longtail.load("set").learner.learner_.n_jobs is None


def test_texts(files, run):
    run("train", "popularity", "train.jsonl", "--out", "texts", "--tail", 1, "--set", "features.min_df=1")
    learner = longtail.load("texts").learner
    assert isinstance(learner, TextLearner)
    assert isinstance(learner.learner_, TailDial)
    counts = {"vehicle": 20, "animal": 10}
    inverse = JainPropensity().inverse(list(counts.values()), 30)
    first = run("predict", "texts", "train.jsonl", "-k", 2).stdout.splitlines()[0].split()
    assert [pair.rpartition(":")[0] for pair in first] == list(counts)
    scores = [float(pair.rpartition(":")[2]) for pair in first]
    assert scores == pytest.approx(np.array(list(counts.values())) / 30 * inverse, rel=1e-4)


def test_a_recipe_that_has_a_dial_gets_it_turned():
    learner = TailDial(learner=Popularity(), tail=0.1)
    assert dialled(learner, 0.6, JainPropensity()) is learner
    assert learner.tail == 0.6
    assert dialled(learner, None, JainPropensity()).tail == 0.6


@pytest.mark.parametrize("text", ["2", "-0.1", "much", "nan", "", "Auto"])
def test_wrong_positions(text):
    with pytest.raises(ParameterError, match="--tail must be a number from 0 to 1, or 'auto'"):
        parse_tail(text)


@pytest.mark.parametrize(
    "arguments",
    [
        ("train", "dismec", "train.txt", "--out", "m", "--tail", "1.5"),
        ("train", "dismec", "nowhere.txt", "--out", "m", "--tail", "some"),
        ("predict", "plain", "test.txt", "--tail", "1.5"),
        ("predict", "plain", "test.txt", "--tail", "auto"),
        ("predict", "plain", "test.txt", "--tail", "nan"),
        ("evaluate", "plain", "test.txt", "--tail", "-1"),
    ],
)
def test_mistakes(plain, run, arguments):
    result = run(*arguments, code=2)
    assert result.stdout == ""
    assert "tail" in result.stderr
    assert not Path("m").exists()


def test_two_ways_to_set_the_dial_together_are_refused(files, run):
    result = run("train", "ranknet+dismec", "train.txt", "--out", "m", "--tail", 0.6, "--set", "tail=0.3", code=2)
    assert "give only one of them" in result.stderr


def test_both_positions_of_a_dial_are_reported(files, run):
    result = run("train", "longtail-tail", "train.txt", "--out", "m")
    assert "The tail dial is at 0.26 for rank 1, and at 1 for the others." in result.stdout


@pytest.mark.parametrize("command", ["predict", "evaluate"])
@pytest.mark.parametrize("tail", ["2", "-0.5", "x", "auto", "nan"])
def test_wrong_positions_for_a_prediction_are_refused_in_a_sentence(plain, run, command, tail):
    result = run(command, "plain", "test.txt", "--tail", tail, code=2)
    assert "error: --tail must be a number from 0 to 1" in result.stderr


def test_rows_without_any_label_are_refused(files, run):
    Path("none.jsonl").write_text('{"text": "red fish", "labels": []}\n')
    result = run("train", "dismec", "none.jsonl", "--out", "m", code=2)
    assert "none.jsonl: has no labels: there is nothing to learn." in result.stderr

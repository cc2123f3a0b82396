"""`longtail diagnose`: shares, norms and the plot of them."""

import json
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import longtail
from longtail import Dataset, JainPropensity, Model, OneVsRest, Popularity, TextLearner, Tfidf, recipe
from longtail.cli.program import program
from longtail.data import load, save
from longtail.plots.by_frequency import norms_and_shares, smoothed
from longtail.plots.style import COLOURS
from longtail.rerank import Diagnosis, diagnose, normalised


@pytest.fixture
def run():
    def call(*arguments, code=0):
        result = CliRunner().invoke(program, ["diagnose", *map(str, arguments)])
        assert result.exit_code == code, result.output
        return result

    return call


def rows(n, seed):
    """Feature l indicates label l, frequent labels first; every row has noise."""
    rng = np.random.default_rng(seed)
    Y = (rng.random((n, 12)) < np.geomspace(0.6, 0.03, 12)).astype(np.float32)
    Y[:12] = np.eye(12)
    return Dataset(Y + 1.5 * rng.random((n, 12)), Y)


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train = rows(150, 0)
    save(rows(60, 1), "test.txt")
    propensity = JainPropensity(a=0.9, b=0.5)
    Model(OneVsRest(n_jobs=1).fit(train.X, train.Y), propensity=propensity).save("plain")
    Model(recipe("pw-cb-dismec").fit(train.X, train.Y), propensity=propensity).save("weighted")
    Model(Popularity().fit(train.X, train.Y)).save("popular")
    return tmp_path


def test_json(files, run):
    found = json.loads(run("plain", "test.txt", "-k", 3, "--json").stdout)
    model, test = longtail.load("plain"), load("test.txt")
    assert found.pop("name") == "plain"
    assert found == diagnose(model.learner, test.X, test.Y, k=3).to_dict()
    assert [part["name"] for part in found["bins"]] == ["head", "torso", "tail"]
    assert (found["rows"], found["k"], len(found["deciles"])) == (60, 3, 10)


def test_before_and_after(files, run):
    found = json.loads(run("weighted", "test.txt", "--before", "plain", "-k", 2, "--tail", 0.5, "--json").stdout)
    before, test = found.pop("before"), load("test.txt")
    assert (before.pop("name"), found["name"]) == ("plain", "weighted, tail 0.5")
    assert before == diagnose(longtail.load("plain").learner, test.X, test.Y, k=2).to_dict()
    model = longtail.load("weighted")
    top = model.predict_topk(test, 2, tail=0.5)
    expected = diagnose(model.learner, test.X, test.Y, k=2)
    assert found["norm_by_frequency"] == expected.to_dict()["norm_by_frequency"]
    assert found["bins"] == Diagnosis.of(top, test.Y, model.label_counts, None).to_dict()["bins"]


def test_tables(files, run):
    text = run("weighted", "test.txt", "--before", "plain", "-k", 2).stdout
    assert text.startswith("weighted on test.txt: 60 rows, first 2 ranks, shares in percent\n")
    header = next(line for line in text.splitlines() if "training rows" in line)
    assert re.split(r" {2,}", header.strip()) == [
        "labels", "training rows", "true", "plain: predicted", "ratio", "weighted: predicted", "ratio",
    ]  # fmt: skip
    test = load("test.txt")
    before, after = (
        diagnose(longtail.load(name).learner, test.X, test.Y, k=2).bins[2] for name in ("plain", "weighted")
    )
    line = next(line for line in text.splitlines() if line.startswith("tail"))
    wanted = [after.true_share, before.predicted_share, before.ratio, after.predicted_share, after.ratio]
    assert line.split()[-5:] == [f"{number:.2f}" for number in wanted]
    assert "plain: norm by training rows" in text
    assert "weighted: predictions by norm" in text
    assert "Norms of the weight vectors of labels" in run("plain", "test.txt").stdout


def test_the_same_model_with_the_dial_turned(files, run):
    text = run("plain", "test.txt", "--before", "plain", "--tail", 1).stdout
    assert "plain: predicted" in text
    assert "plain, tail 1: predicted" in text


def test_models_of_the_same_name_are_called_by_their_paths(files, run):
    Path("old").mkdir()
    Path("plain").rename("old/model")
    Path("weighted").rename("model")
    text = run("model", "test.txt", "--before", "old/model").stdout
    assert "old/model: predicted" in text


def test_normalised_scores(files, run):
    found = json.loads(run("plain", "test.txt", "-k", 3, "--normalise", "--json").stdout)["scores"]
    model, test = longtail.load("plain"), load("test.txt")
    for name, learner in (
        ("as it is", model.learner),
        ("normalised", normalised(model.learner)),
        ("bias kept", normalised(model.learner, bias="kept")),
    ):
        scores = Model(learner, propensity=model.propensity).evaluate(test, ks=(1, 3))
        assert found[name] == pytest.approx({key: scores[key] for key in ("P@1", "P@3", "PSP@1", "PSP@3")}, abs=1e-4)
    text = run("plain", "test.txt", "-k", 3, "--normalise").stdout
    assert re.search(r"^normalised +\d+\.\d\d +\d+\.\d\d +\d+\.\d\d +\d+\.\d\d$", text, re.M)
    assert "equal norm" in text
    assert list(found["as it is"]) == ["P@1", "P@3", "PSP@1", "PSP@3"]
    once = json.loads(run("plain", "test.txt", "-k", 1, "--normalise", "--json").stdout)["scores"]
    assert list(once["as it is"]) == ["P@1", "PSP@1"]


def test_a_model_without_classifiers(files, run):
    assert "no weight vectors of labels" in run("popular", "test.txt").stdout
    assert json.loads(run("popular", "test.txt", "--json").stdout)["norm_by_frequency"] is None
    assert "no linear weights to normalise" in run("popular", "test.txt", "--normalise", code=2).stderr


def test_labels_that_the_model_does_not_know(tmp_path, monkeypatch, run):
    monkeypatch.chdir(tmp_path)
    lines = [{"text": "red car", "labels": ["car"]}, {"text": "green tree", "labels": ["tree"]}] * 4
    Path("train.jsonl").write_text("\n".join(map(json.dumps, lines)))
    new = [{"text": "red car", "labels": ["car", "unheard of"]}, {"text": "tree", "labels": ["tree"]}]
    Path("test.jsonl").write_text("\n".join(map(json.dumps, new)))
    data = load("train.jsonl")
    learner = TextLearner(features=Tfidf(min_df=1), learner=OneVsRest()).fit(data.texts, data.Y)
    Model(learner, label_names=data.label_names).save("model")
    found = json.loads(run("model", "test.jsonl", "-k", 1, "--json").stdout)
    tail = found["bins"][2]
    assert (tail["labels"], tail["training_rows"]) == (1, [0, 0])
    assert tail["true_share"] == pytest.approx(100 / 3, abs=1e-3)
    assert (tail["predicted_share"], tail["ratio"]) == (0, 0)


@pytest.mark.parametrize("name", ["plot.svg", "plot.png"])
def test_plot(files, run, name):
    result = run("weighted", "test.txt", "--before", "plain", "--plot", name)
    assert f"Wrote {name}." in result.stderr
    assert Path(name).stat().st_size > 5000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere", "test.txt"], "nowhere is not a model"),
        (["plain", "nowhere.txt"], "nowhere.txt"),
        (["plain", "test.txt", "--before", "other"], "other knows 4 labels and plain 12: diagnose models of the same"),
        (["plain", "test.txt", "--plot", "x.txt"], "must end in"),
        (["plain", "test.txt", "--plot", "no/x.svg"], "not a directory"),
        (["plain", "test.txt", "-k", "0"], "-k"),
        (["plain", "test.txt", "--tail", "2"], "--tail"),
    ],
)
def test_mistakes(files, run, arguments, message):
    small = rows(20, 3)
    Model(Popularity().fit(small.X, small.Y[:, :4])).save("other")
    result = run(*arguments, code=2)
    assert result.stdout == ""
    assert message in " ".join(result.stderr.split())


class TestPlot:
    def diagnosis(self, norms, counts=None):
        counts = np.arange(100, 0, -1) if counts is None else counts
        rng = np.random.default_rng(0)
        Y = rng.random((50, len(counts))) < 0.1
        return Diagnosis.of(rng.integers(0, len(counts), (50, 3)), Y, counts, norms)

    def test_medians_of_neighbours(self):
        norms = np.random.default_rng(1).random(100)
        norms[3] = np.nan
        found = self.diagnosis(norms)
        ranks, lower, median, upper = smoothed(found)
        assert len(ranks) == 40
        kept = np.delete(norms, 3)
        edges = np.linspace(0, 99, 41).round().astype(int)
        assert median == pytest.approx([np.median(kept[a:b]) for a, b in pairwise(edges)])
        assert ranks[0] == pytest.approx((1 + edges[1]) / 2)
        assert (lower <= median).all()
        assert (median <= upper).all()

    def test_labels_are_sorted_by_frequency(self):
        order = np.random.default_rng(2).permutation(100)
        norms = np.linspace(9, 1, 100)
        sorted_, shuffled = self.diagnosis(norms), self.diagnosis(norms[order], np.arange(100, 0, -1)[order])
        np.testing.assert_allclose(smoothed(sorted_), smoothed(shuffled))

    def test_the_curves_of_the_plot(self):
        norms = np.linspace(9, 1, 100)
        figure = norms_and_shares(
            {"plain": self.diagnosis(norms), "turned": self.diagnosis(norms), "none": self.diagnosis(None)}
        )
        left, right = figure.axes
        assert [line.get_color() for line in left.lines] == list(COLOURS[:2])
        assert [line.get_linestyle() == "--" for line in left.lines] == [False, True]
        assert len(right.lines) == 4
        found = self.diagnosis(norms)
        assert right.lines[0].get_ydata() == pytest.approx([part.predicted_share for part in found.deciles])
        assert right.lines[-1].get_ydata() == pytest.approx([part.true_share for part in found.deciles])
        assert [text.get_text() for text in figure.legends[0].get_texts()] == ["plain", "turned", "none"]

    def test_a_tenth_without_predictions_has_no_point(self):
        Y = np.eye(20)
        found = Diagnosis.of(np.zeros((20, 1), int), Y, np.arange(20, 0, -1), np.ones(20))
        right = norms_and_shares({"one": found}).axes[1]
        assert np.isnan(right.lines[0].get_ydata()[1:]).all()
        assert right.get_yscale() == "log"

"""`longtail compare`: two models on the same rows."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import longtail
from longtail import Dataset, Model, OneVsRest, Popularity, TextLearner, Tfidf
from longtail.cli.program import program
from longtail.data import load, save
from longtail.metrics import compare as compare_rankings


@pytest.fixture
def run():
    def call(*arguments, code=0):
        result = CliRunner().invoke(program, ["compare", *map(str, arguments)])
        assert result.exit_code == code, result.output
        return result

    return call


def rows(n: int, seed: int) -> Dataset:
    """Feature l indicates label l; three in four rows have a second label, and every row has noise."""
    rng = np.random.default_rng(seed)
    Y = np.zeros((n, 5), np.float32)
    Y[np.arange(n), rng.integers(0, 5, n)] = 1
    Y[np.arange(n), rng.integers(0, 3, n)] = 1
    return Dataset(Y + 0.4 * rng.random((n, 5)), Y)


@pytest.fixture
def models(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train, test = rows(60, 0), rows(40, 1)
    Model(Popularity().fit(train.X, train.Y)).save("a")
    Model(OneVsRest(n_jobs=1).fit(train.X, train.Y)).save("b")
    save(test, "test.txt")
    return "a", "b", "test.txt"


def test_json(models, run):
    result = run(*models, "-k", "1", "-k", "2", "--resamples", 200, "--permutations", 1000, "--seed", 3, "--json")
    found = json.loads(result.stdout)
    a, b, test = longtail.load("a"), longtail.load("b"), load("test.txt")
    expected = compare_rankings(
        *(model.predict_topk(test, 2) for model in (a, b)),
        test.Y,
        inverse_propensity=a.propensity.inverse(a.label_counts, a.n_rows),
        ks=(1, 2),
        resamples=200,
        permutations=1000,
        random_state=3,
    )
    assert (found["rows"], found["level"], found["correction"], found["permutations"]) == (40, 0.95, "holm", 1000)
    assert list(found["metrics"]) == list(expected)
    for name, item in expected.items():
        values = [item.a, item.b, item.difference, item.low, item.high, item.p_value, item.adjusted]
        assert list(found["metrics"][name].values()) == pytest.approx(values, abs=1e-3)
    assert found["metrics"]["P@1"]["difference"] > 0
    assert found["metrics"]["P@1"]["adjusted_p"] < 0.05


def test_table(models, run):
    text = run(*models, "-k", "1", "--permutations", 100, "--correction", "benjamini-hochberg").stdout
    assert text.startswith("a: a, b: b, on test.txt: 40 rows, percent, with 95 % intervals of b - a\n")
    assert re.search(r"^ +a +b +b - a +low +high +p +p, benjamini-hochberg$", text, re.M)
    assert re.search(r"^P@1 +\d+\.\d\d +\d+\.\d\d +\d+\.\d\d +\d+\.\d\d +\d+\.\d\d +0\.\d{4} +0\.\d{4}$", text, re.M)
    assert re.search(r"^Hamming@1 ", text, re.M)


def test_chosen_metrics(models, run):
    text = run(*models, "--metrics", "P@1, PSP@5", "--permutations", 100, "--json").stdout
    assert list(json.loads(text)["metrics"]) == ["P@1", "PSP@5"]


def test_a_model_against_itself(models, run):
    found = json.loads(run("a", "a", "test.txt", "--json").stdout)
    assert {(item["difference"], item["p"]) for item in found["metrics"].values()} == {(0, 1)}
    assert found["permutations"] == 1


def test_labels_are_matched_by_name(tmp_path, monkeypatch, run):
    """Model b knows labels of a in another order, one that only the test rows have, and one that nobody else has; its
    ids must be understood as those of a."""
    monkeypatch.chdir(tmp_path)
    known = {"a": [["x"], ["x"], ["x", "y"], ["y", "z"]]}
    known["b"] = [["only b"], ["only b", "z"], ["only b", "z", "new"], ["only b", "z", "new", "x"]]
    known["test"] = [["x", "z"], ["z"], ["new"], ["x", "new"]]
    for name, labels in known.items():
        lines = [json.dumps({"text": "some words", "labels": of_row}) for of_row in labels]
        Path(f"{name}.jsonl").write_text("\n".join(lines))
    for name in ("a", "b"):
        data = load(f"{name}.jsonl")
        learner = TextLearner(features=Tfidf(min_df=1), learner=Popularity())
        Model(learner.fit(data.texts, data.Y), label_names=data.label_names).save(name)
    result = run("a", "b", "test.jsonl", "-k", "1,3", "--permutations", 16, "--json")
    found = json.loads(result.stdout)["metrics"]
    # a ranks x, y, z and b ranks "only b", z, new: hits in three places are 2, 1, 0, 1 and 1, 1, 1, 1.
    assert (found["P@1"]["a"], found["P@1"]["b"]) == (50, 0)
    assert found["P@3"]["a"] == pytest.approx(100 * (2 + 1 + 0 + 1) / 12, abs=1e-4)
    assert found["P@3"]["b"] == pytest.approx(100 * (1 + 1 + 1 + 1) / 12, abs=1e-4)
    assert found["Hamming@1"]["b"] == pytest.approx(100 * (3 + 2 + 2 + 3) / (4 * 5), abs=1e-4)
    assert "different training rows or propensities: those of a are used." in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere", "b", "test.txt"], "nowhere is not a model"),
        (["a", "b", "nowhere.txt"], "nowhere.txt"),
        (["a", "b", "test.txt", "-k", "0"], "-k must be"),
        (["a", "b", "test.txt", "--correction", "sidak"], "--correction must be one of holm"),
        (
            ["a", "b", "test.txt", "--metrics", "P@7"],
            "--metrics must be at cutoffs of -k: give -k 1,3,5,7, too, got 'P@7'.",
        ),
        (["a", "b", "test.txt", "--metrics", "psp@1"], "such as P@1 (did you mean PSP@1?)"),
        (["a", "b", "test.txt", "--metrics", ""], "--metrics must be one of P, "),
        (["a", "small", "test.txt"], "know 5 and 2 labels"),
        (["cats", "ships", "test.txt"], "error: The models have no label in common: compare models that were trained"),
    ],
)
def test_mistakes(models, run, arguments, message):
    for name in ("cats", "ships"):
        Model(Popularity().fit([[1], [2]], [[0, 1], [1, 1]]), label_names=[f"{name} 1", f"{name} 2"]).save(name)
    Model(Popularity().fit([[1], [2]], [[0, 1], [1, 1]])).save("small")
    result = run(*arguments, code=2)
    assert message in result.stderr
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("option", [("--resamples", 0), ("--permutations", 0), ("--seed", -1)])
def test_usage(models, run, option):
    assert run(*models, *option, code=2).stdout == ""

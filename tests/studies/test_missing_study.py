"""How much corrections recover where labels are missing."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from longtail import datasets
from longtail.cli.program import program
from longtail.data import mask_labels, save
from longtail.data.dataset import Dataset
from longtail.studies.missing import Mean, MissingStudy


def run(*arguments):
    return CliRunner().invoke(program, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def data():
    whole = datasets.load("debian-tags:train")
    order = np.random.default_rng(0).permutation(whole.n_rows)[:1500]
    texts = [whole.texts[row] for row in order]
    Y = whole.Y[order]
    return (
        Dataset(None, Y[:1000], texts=texts[:1000], label_names=whole.label_names),
        Dataset(None, Y[1000:], texts=texts[1000:], label_names=whole.label_names),
    )


def test_means_by_hand():
    """Standard error 1, and Student's t for two degrees of freedom is 4.303."""
    mean = Mean.of([8.0, 10.0, 12.0])
    assert mean.value == 10
    assert mean.half == pytest.approx(4.3027 * 2 / 3**0.5, abs=1e-3)
    assert Mean.of([3.0]) == Mean(3.0, None)


def test_the_study_hides_what_it_says(data):
    study = MissingStudy(*data, ["pw-dismec"], severities=(0.1, 0.9), seeds=1)
    for severity in (0.1, 0.9):
        left = mask_labels(data[0].Y, study.propensities(severity), random_state=0).observed.nnz / data[0].Y.nnz
        assert study.kept(severity) == pytest.approx(left, abs=0.03)
    assert study.kept(0.1) < study.kept(0.9)
    assert study.reference == 0.9
    assert len(study.runs) == 1 + 2 + 1 + 2  # complete; plain twice; told rightly once, and all at the reference


def test_hidden_labels_cost_and_corrections_recover(data):
    study = MissingStudy(*data, ["pw-dismec"], severities=(0.1, 0.55), seeds=2)
    heard = []
    found = {(o.recipe, o.severity, o.given): o for o in study.run(lambda number, what: heard.append(number))}
    assert heard == list(range(len(study.runs)))
    whole, half, little = (found["dismec", severity, None].scores["nDCG@5"].value for severity in (None, 0.55, 0.1))
    assert whole > half > little
    mended = found["pw-dismec", 0.55, 0.55]
    gain = mended.against_base["nDCG@5"]
    assert gain.value == pytest.approx(mended.scores["nDCG@5"].value - half)
    assert mended.recovered["nDCG@5"].value == pytest.approx(100 * gain.value / (whole - half), rel=0.2)
    assert ("pw-dismec", 0.55, 0.1) in found  # told another curve


def test_from_the_command_line(data, tmp_path):
    for name, part in zip(("train", "test"), data, strict=True):
        save(part, tmp_path / f"{name}.jsonl")
    done = run(
        "study", "missing", tmp_path / "train.jsonl", "--severities", "0.3", "--seeds", 1, "--threads", 2, "--json",
        "--plot", tmp_path / "study.svg",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)["outcomes"]
    assert {row["recipe"] for row in rows} == {"dismec", "pw-dismec", "pw-cb-dismec"}
    assert (tmp_path / "study.svg").exists()
    told = run("study", "missing", tmp_path / "train.jsonl", "--severities", "0.3", "--seeds", 1, "--threads", 2)
    assert "% recovered" in told.stdout


def test_what_is_no_number_is_nothing_in_json(tmp_path):
    """Of the tail there is nothing to find where no test row has a label of it."""
    lines = ['{"text": "some words here", "labels": ["a"]}', '{"text": "other things there", "labels": ["b"]}'] * 20
    (tmp_path / "train.jsonl").write_text("\n".join([*lines, '{"text": "rare things", "labels": ["c"]}']))
    (tmp_path / "test.jsonl").write_text("\n".join(lines[:10]))
    (tmp_path / "more.jsonl").write_text("\n".join([*lines[:10], '{"text": "new things", "labels": ["a", "d"]}']))
    options = ["--test", tmp_path / "test.jsonl", "--severities", "0.3", "--seeds", 1, "--threads", 1]
    done = run("study", "missing", tmp_path / "train.jsonl", *options, "--json")
    assert done.exit_code == 0, done.output
    scores = [row["scores"] for row in json.loads(done.stdout)["outcomes"]]
    assert {row["tail recall@5"]["value"] for row in scores} == {None}
    assert run("study", "missing", tmp_path / "train.jsonl", *options).exit_code == 0
    options[1] = tmp_path / "more.jsonl"  # with a label that no training row has
    more = run("study", "missing", tmp_path / "train.jsonl", *options, "--json")
    assert more.exit_code == 0, more.output
    assert {row["scores"]["tail recall@5"]["value"] for row in json.loads(more.stdout)["outcomes"]} == {0.0}


def test_too_uncertain_results_are_reported(data, tmp_path):
    few = Dataset(None, data[0].Y[:150], texts=data[0].texts[:150], label_names=data[0].label_names)
    save(few, tmp_path / "few.jsonl")
    save(data[0], tmp_path / "many.jsonl")
    options = ["--recipes", "pw-dismec", "--severities", "0.9", "--seeds", 2, "--threads", 1]
    assert "too wide to be conclusive" in run("study", "missing", tmp_path / "few.jsonl", *options).stdout
    options[3] = "0.1"
    assert "too wide to be conclusive" not in run("study", "missing", tmp_path / "many.jsonl", *options).stdout


def test_other_propensities_are_shown_where_there_are_several(data, tmp_path):
    few = Dataset(None, data[0].Y[:150], texts=data[0].texts[:150], label_names=data[0].label_names)
    save(few, tmp_path / "few.jsonl")
    options = ["--recipes", "pw-dismec", "--seeds", 1, "--threads", 1]
    done = run("study", "missing", tmp_path / "few.jsonl", *options, "--severities", "0.3,0.9", "--json")
    rows = [(row["a"], row["given_a"]) for row in json.loads(done.stdout)["outcomes"] if row["recipe"] == "pw-dismec"]
    assert sorted(rows) == [(0.3, 0.3), (0.9, 0.3), (0.9, 0.9)]
    title = "Trained with the propensities of each A; the true ones have A = "
    both = run("study", "missing", tmp_path / "few.jsonl", *options, "--severities", "0.3,0.9")
    assert f"{title}0.9" in both.stdout
    assert title not in run("study", "missing", tmp_path / "few.jsonl", *options, "--severities", "0.9").stdout


def test_label_trees_get_the_propensity_curve(data):
    study = MissingStudy(*data, ["pw-bonsai"], severities=(0.3,), seeds=1)
    found = {outcome.recipe: outcome for outcome in study.run() if outcome.severity is not None}
    assert found["pw-bonsai"].scores["nDCG@5"].value > 20


def test_test_rows_with_their_labels_in_another_order(data, tmp_path):
    """Names beside the files identify the labels, not their columns."""
    rng = np.random.default_rng(0)
    Y = rng.random((120, 4)) < 0.4
    whole = Dataset(Y + 0.1 * rng.random(Y.shape), Y, label_names=["a", "b", "c", "d"])
    save(whole.take(range(80)), tmp_path / "train.txt")
    test, order = whole.take(range(80, 120)), [3, 1, 0, 2]
    save(test, tmp_path / "test.txt")
    names = [whole.label_names[label] for label in order]
    save(Dataset(test.X, test.Y[:, order], label_names=names), tmp_path / "turned.txt")
    options = ["--recipes", "pw-dismec", "--severities", "0.5", "--seeds", 1, "--threads", 1, "--json"]
    found = [
        json.loads(run("study", "missing", tmp_path / "train.txt", "--test", tmp_path / f"{name}.txt", *options).stdout)
        for name in ("test", "turned")
    ]
    assert found[0] == found[1]
    assert found[0]["outcomes"][0]["scores"]["P@5"]["value"] > 20


def test_rows_that_nothing_can_be_judged_by_are_refused(tmp_path):
    (tmp_path / "train.jsonl").write_text('{"text": "some words", "labels": ["a"]}\n' * 20)
    (tmp_path / "other.jsonl").write_text('{"text": "some words", "labels": ["b"]}\n' * 20)
    (tmp_path / "none.jsonl").write_text('{"text": "some words", "labels": []}\n' * 20)
    (tmp_path / "features.txt").write_text("2 3 1\n0 0:1\n0 1:1\n")
    reasons = {"other.jsonl": "No row has a label of the training", "none.jsonl": "its rows have no labels"}
    for test, message in reasons.items():
        done = run("study", "missing", tmp_path / "train.jsonl", "--test", tmp_path / test)
        assert done.exit_code == 2
        assert message in done.output
    mixed = run("study", "missing", tmp_path / "features.txt", "--test", tmp_path / "train.jsonl")
    assert mixed.exit_code == 2
    assert "no labels" in run("study", "missing", tmp_path / "none.jsonl").output


@pytest.mark.parametrize(
    "more", [["--severities", "a"], ["--severities", "0.1,0.1"], ["--recipes", "none"], ["--seeds", "0"]]
)
def test_wrong_options_are_a_sentence(more):
    assert run("study", "missing", "debian-tags:train", *more).exit_code == 2

"""Instance trees from the command line: what explain says, settings, interruptions, and rows of other data."""

import json
import re

import pytest

from longtail import load
from longtail.learners.instance_trees import training
from tests.cli.test_model_commands import LABELS, TEXTS, as_json, run

FOREST = ("--set", "n_trees=4", "--set", "leaf_size=2", "--set", "C=100", "--threads", 1)


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "train.jsonl"
    lines = [json.dumps({"text": text, "labels": names}) for text, names in zip(TEXTS, LABELS, strict=True)]
    path.write_text("\n".join(lines * 5) + "\n")
    return path


@pytest.fixture(scope="module")
def models(texts, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for recipe in ("fastxml", "pfastrexml"):
        result = run("train", recipe, texts, "--out", folder / recipe, *FOREST)
        assert result.exit_code == 0, result.stderr
    return folder


def shown(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.stderr
    return result.stdout, " ".join(result.stderr.split())


def test_the_path_names_its_tree_and_its_share(models):
    for recipe in ("fastxml", "pfastrexml"):
        (why,) = as_json("explain", models / recipe, "a red ship", "-k", 1)["labels"]
        printed, _ = shown("explain", models / recipe, "a red ship", "-k", 1)
        assert f"Path through {why['path_name']}: {100 * why['path_share']:.0f} % of the score of the trees" in printed
        assert 0 < why["path_share"] <= 1
        assert re.fullmatch(r"tree \d, leaf \d+ of \d+ rows", why["path_name"])


def test_sources_tell_what_the_centroid_did(models):
    (why,) = as_json("explain", models / "pfastrexml", "a red ship", "--label", "ship")["labels"]
    (_, alone), (centroid, change) = why["sources"]
    printed, _ = shown("explain", models / "pfastrexml", "a red ship", "--label", "ship")
    assert "InstanceForest alone " in printed
    assert f"centroid, which brings it to {why['score']:.3g} " in printed
    assert centroid in printed
    assert alone + change == pytest.approx(why["score"])


def test_small_amounts_keep_their_digits(models, tmp_path):
    model = load(models / "pfastrexml")
    model.learner.learner_.set_params(alpha=0.5, gamma=100.0)
    model.save(tmp_path / "far")
    (why,) = as_json("explain", tmp_path / "far", "a red ship and a blue tree", "-k", 1)["labels"]
    assert 0 < why["score"] < 0.005, "else it says nothing about small amounts"
    assert why["parts"]
    printed, _ = shown("explain", tmp_path / "far", "a red ship and a blue tree", "-k", 1)
    table = printed.partition("where it comes from")[0]
    amounts = {name: float(amount) for name, amount in re.findall(r"^(\w+) +([+-][\d.]+)$", table, re.MULTILINE)}
    assert amounts["score"] == pytest.approx(why["score"], rel=0.005)
    for name, effect in why["parts"]:
        assert amounts[name] == pytest.approx(effect, rel=0.005, abs=1e-4 * abs(why["score"]))


def test_a_label_in_no_leaf_is_reported(models):
    for recipe in ("fastxml", "pfastrexml"):
        printed, _ = shown("explain", models / recipe, "a red ship", "--label", "bird")
        assert "None of the leaves that the row reached holds this label, so it is not ranked." in printed
        assert "only their bias counts" not in shown("explain", models / recipe, "a red ship", "--label", "bird")[1]


def test_only_a_row_without_known_features_gets_the_note(models):
    for recipe in ("fastxml", "pfastrexml"):
        for text in ("a red ship", "a blue tree", "unknown words"):
            printed, said = shown("explain", models / recipe, text, "-k", 3)
            assert ("Nothing in the row is known" in said) == (text == "unknown words")
            assert ("bias only" in printed) or text != "unknown words"


def test_nothing_is_not_called_unknown_beside_a_path_that_shows_words(models, tmp_path):
    """With both at 0, all candidates have equal scores, whatever the row."""
    model = load(models / "pfastrexml")
    model.learner.learner_.set_params(alpha=0.0, gamma=0.0)
    model.save(tmp_path / "alike")
    printed, said = shown("explain", tmp_path / "alike", "a red ship", "--label", "ship")
    assert re.search(r"^(left|right) +(a|red|ship) [+-]", printed, re.MULTILINE)
    assert "Nothing in the row matters to these labels: only their bias counts." in said


def test_settings_that_contradict_each_other_are_refused(texts, tmp_path):
    for recipe, settings, message in (
        ("pfastrexml", ("n_trees=2", "learner.n_trees=3"), "learner.n_trees sets the same as n_trees"),
        ("fastxml", ("n_trees=2", "learner.n_trees=3"), "learner.n_trees sets the same as n_trees"),
        ("fastxml", ("learner.n_trees=3", "n_trees=2"), "n_trees sets the same as learner.n_trees"),
        ("pfastrexml", ("learner=null", "learner.n_trees=3"), "learner.n_trees is inside learner, which is set to"),
        ("pfastrexml", ("n_trees=3", "learner=null"), "n_trees is inside learner, which is set to"),
    ):
        options = [part for setting in settings for part in ("--set", setting)]
        refused = run("train", recipe, texts, "--out", tmp_path / "model", *options)
        assert refused.exit_code == 2
        assert message in " ".join(refused.stderr.split())


def test_interruptions_count_all_trees_and_say_how_to_resume(texts, tmp_path, monkeypatch):
    grow = training.TreeTrainer.grow_one
    arguments = ("train", "fastxml", texts, "--out", tmp_path / "model", *FOREST)

    def stopped(last, *more):
        def stops(self, number, stop):
            if number == last and self.X.shape[0] > 2:  # two rows has the trial that compiles
                raise KeyboardInterrupt
            return grow(self, number, stop)

        monkeypatch.setattr(training.TreeTrainer, "grow_one", stops)
        result = run(*arguments, *more)
        assert result.exit_code == 130
        return " ".join(result.stderr.split())

    first = stopped(1)
    assert "1 of 4 trees were done. No model was written. What was finished is kept in" in first
    assert "Starting from the beginning" not in first
    again = stopped(3, "--resume")
    kept = (
        "No model was written. What was finished is kept in model.unfinished: run the same command again to continue."
    )
    assert f"3 of 4 trees were done. {kept}" in again
    restarted = stopped(0)
    assert "With --resume, a run with the same data and the same parameters resumes from it." in restarted
    assert "0 of 4 trees were done. No model was written." in restarted
    assert "resume to" not in restarted
    assert not (tmp_path / "model.unfinished").exists()
    (tmp_path / "model.unfinished").mkdir()
    assert "Starting from the beginning" not in stopped(0), "there was nothing to discard"


def test_rows_of_other_data_are_reported(tmp_path):
    (tmp_path / "train.txt").write_text("4 3 2\n0 0:1 1:0.5\n1 2:1\n0,1 0:1 2:1\n0 0:1\n")
    (tmp_path / "train.labels.txt").write_text("ship\ntree\n")
    (tmp_path / "other.txt").write_text("2 3 5\n4 0:1\n3 2:1\n")
    (tmp_path / "wrong.txt").write_text("2 3 5\n4 0:1\n3 2:x\n")
    assert run("train", "fastxml", tmp_path / "train.txt", "--out", tmp_path / "model", *FOREST).exit_code == 0
    refused = run("evaluate", tmp_path / "model", tmp_path / "other.txt")
    assert refused.exit_code == 2
    said = " ".join(refused.stderr.split())
    assert "other.txt: The data set has 5 labels instead of 2" in said
    assert "wrong.txt:3:" in run("evaluate", tmp_path / "model", tmp_path / "wrong.txt").stderr
    assert run("evaluate", tmp_path / "model", tmp_path / "train.txt").exit_code == 0
    assert run("predict", tmp_path / "model", tmp_path / "other.txt").exit_code == 0, "labels don't matter here"

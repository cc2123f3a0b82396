"""`longtail explain`, `calibrate`, `estimate` and the resumption of `train`, as a user runs them."""

import json
import shutil

import numpy as np
import pytest
from typer.testing import CliRunner

from longtail import Dataset, Model, OneVsRest
from longtail.cli.program import program
from longtail.data import save
from longtail.learners.linear import training
from longtail.runtime import memory
from longtail.store import files

TEXTS = ["a red ship", "a blue ship", "a red tree", "a blue tree", "a red ship and a tree", "a blue bird"]
LABELS = [["ship"], ["ship"], ["tree"], ["tree"], ["ship", "tree"], ["bird"]]


def run(*arguments):
    return CliRunner().invoke(program, [str(argument) for argument in arguments])


def as_json(*arguments):
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "train.jsonl"
    lines = [json.dumps({"text": text, "labels": names}) for text, names in zip(TEXTS, LABELS, strict=True)]
    path.write_text("\n".join(lines * 60) + "\n")
    return path


@pytest.fixture(scope="module")
def model(texts, tmp_path_factory):
    out = tmp_path_factory.mktemp("models") / "model"
    assert run("train", "dismec", texts, "--out", out).exit_code == 0
    return out


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "train.txt"
    path.write_text("4 3 2\n0 0:1 1:0.5\n1 2:1\n0,1 0:1 2:1\n0 0:1\n")
    out = tmp_path_factory.mktemp("models") / "rows"
    assert run("train", "dismec", path, "--out", out).exit_code == 0
    return path, out


def test_explain_names_the_words(model):
    (why,) = as_json("explain", model, "a red ship", "--label", "ship")["labels"]
    assert why["name"] == "ship"
    assert why["parts"][0][0] == "ship"
    assert why["parts"][0][1] > 0
    assert why["bias"] + sum(effect for _, effect in why["parts"]) == pytest.approx(why["score"], abs=1e-4)
    shown = run("explain", model, "a red ship", "--parts", 1, "-k", 2)
    assert shown.exit_code == 0
    assert "others" in shown.stdout
    assert "score" in shown.stdout


def test_explain_a_row_of_a_file(model, texts, rows):
    by_file = as_json("explain", model, f"{texts}#1", "-k", 1)
    assert by_file == as_json("explain", model, TEXTS[1], "-k", 1)
    path, features = rows
    assert as_json("explain", features, f"{path}#0") == as_json("explain", features, "1:0.5 0:1")


@pytest.mark.parametrize(
    ("row", "more", "message"),
    [
        ("words", [], "feature:value"),
        ("9:1", [], "from 0 to 2"),
        ("0:1 0:2", [], "each feature once"),
        ("0:1", ["--label", "7"], "id from 0 to 1"),
    ],
)
def test_explain_refuses_what_it_cannot_read(rows, row, more, message):
    result = run("explain", rows[1], row, *more)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


def test_explain_suggests_the_label_that_was_meant(model):
    result = run("explain", model, "a ship", "--label", "shp")
    assert result.exit_code == 2
    assert "did you mean ship?" in result.stderr


def test_explain_has_as_many_labels_as_there_are(model):
    assert len(as_json("explain", model, "a red ship", "-k", 2_000_000_000)["labels"]) == 3


def test_explain_names_a_label_without_rows(tmp_path):
    learner = OneVsRest(n_jobs=1).fit([[1, 0], [0, 1]], [[1, 0, 0], [0, 1, 0]])
    Model(learner, label_names=["ship", "tree", "sea monster"]).save(tmp_path / "model")
    for given in ("sea monster", "2"):
        result = run("explain", tmp_path / "model", "0:1", "--label", "ship", "--label", given)
        assert result.exit_code == 2
        assert "Label 'sea monster' has no training row" in " ".join(result.stderr.split())
    Model(learner).save(tmp_path / "unnamed")
    assert "Label 2 has no training row" in run("explain", tmp_path / "unnamed", "0:1", "--label", 2).stderr


def test_calibrate_then_predict_probabilities(model, texts, tmp_path):
    assert run("predict", model, texts, "--probabilities").exit_code == 2
    figures = as_json("calibrate", model, texts, "--out", tmp_path / "calibrated", "--method", "platt")
    assert figures["rows"] == 360
    assert 0 <= figures["ECE@1"] <= 100
    result = run("predict", tmp_path / "calibrated", texts, "--probabilities", "-k", 3)
    assert result.exit_code == 0
    chances = [float(pair.rpartition(":")[2]) for line in result.stdout.splitlines() for pair in line.split()]
    assert all(0 <= chance <= 1 for chance in chances)
    assert max(chances) > 0.8
    assert run("calibrate", model, texts, "--method", "magic").exit_code == 2


@pytest.mark.parametrize("command", [("update",), ("calibrate",), ("blend", "--on")])
def test_what_writes_a_model_compares_all_checksums_first(model, texts, tmp_path, monkeypatch, command):
    """Else damage would be saved under new checksums."""
    monkeypatch.setattr(files, "HASH_ALWAYS", 10)
    damaged = tmp_path / "damaged"
    shutil.copytree(model, damaged)
    file = max(damaged.glob("*.npy"), key=lambda file: file.stat().st_size)
    changed = bytearray(file.read_bytes())
    changed[-1] ^= 1
    file.write_bytes(changed)
    name, *more = command
    others = [model] if name == "blend" else []
    done = run(name, damaged, *others, *more, texts, "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert "was changed" in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_dash_is_standard_output_where_lines_are_written(model, texts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = run("predict", model, texts)
    assert run("predict", model, texts, "--out", "-").stdout == shown.stdout
    for command in (
        ("report", model, texts, "--out", "-"),
        ("data", "convert", texts, "-"),
        ("losses", "--plot", "-"),
        ("tree", model, "--html", "-"),
        ("calibrate", model, texts, "--out", "-"),
    ):
        refused = run(*command)
        assert refused.exit_code == 2
        assert "standard output" in refused.stderr
    assert not list(tmp_path.iterdir())


def test_rows_in_place_of_a_model_and_a_model_in_place_of_rows(model, texts):
    for given in (texts, "debian-tags:test"):
        refused = run("evaluate", given, texts)
        assert refused.exit_code == 2
        assert f"{given} holds rows, and a model is wanted here: give the directory" in refused.stderr
    for command in (("evaluate", model, model), ("train", "dismec", model, "--out", "new"), ("predict", model, model)):
        refused = run(*command)
        assert refused.exit_code == 2
        assert f"{model}: is a model, and rows are wanted here: give a file of rows" in refused.stderr


def test_labels_are_matched_by_the_names_beside_a_file(tmp_path):
    """Columns of the test rows are in another order than those of the training rows."""
    X, Y = np.eye(3), np.array([[1, 0, 0], [1, 1, 0], [0, 0, 1]])
    names = ["a", "b", "c"]
    Model(OneVsRest(n_jobs=1).fit(X, Y), label_names=names).save(tmp_path / "model")
    save(Dataset(X, Y, label_names=names), tmp_path / "test.txt")
    save(Dataset(X, Y[:, [2, 0, 1]], label_names=["c", "a", "b"]), tmp_path / "turned.txt")
    scores = [as_json("evaluate", tmp_path / "model", tmp_path / f"{name}.txt") for name in ("test", "turned")]
    assert scores[0] == scores[1]
    assert scores[0]["P@1"] == 100


def test_no_word_in_enough_rows(texts, tmp_path):
    refused = run("train", "dismec", texts, "--out", tmp_path / "new", "--set", "features.min_df=5000")
    assert refused.exit_code == 2
    assert "--set features.min_df must be lower, because no word is in that many of the" in refused.stderr


def test_one_row_is_not_rows(model, tmp_path):
    (tmp_path / "one.jsonl").write_text(json.dumps({"text": "a ship", "labels": ["ship"]}) + "\n")
    done = run("predict", model, tmp_path / "one.jsonl", "--out", tmp_path / "out.txt")
    assert done.stderr.endswith(f"Wrote 1 line to {tmp_path / 'out.txt'}.\n")
    assert ": 1 row, percent" in run("evaluate", model, tmp_path / "one.jsonl").stdout


def test_a_refused_memory_limit_is_the_option(texts, tmp_path):
    refused = run("train", "dismec", texts, "--out", tmp_path / "new", "--memory-limit", "1MB")
    assert refused.exit_code == 2
    assert "error: --memory-limit was exceeded before training" in refused.stderr
    advised = refused.stderr.partition("raise it to at least ")[2].partition(",")[0]
    assert run("train", "dismec", texts, "--out", tmp_path / "new", "--memory-limit", advised).exit_code == 0


def test_a_memory_limit_that_prediction_cant_keep_is_refused(model, texts, tmp_path):
    done = run("predict", model, texts, "--memory-limit", "1MB", "--out", tmp_path / "out.txt")
    assert done.exit_code == 2
    assert "--memory-limit leaves no room" in done.stderr
    assert not (tmp_path / "out.txt").exists()


def test_an_exceeded_memory_limit_is_reported(texts, tmp_path, monkeypatch):
    done = run("train", "dismec", texts, "--out", tmp_path / "model", "--memory-limit", "900GB")
    assert (done.exit_code, "was exceeded" in done.stderr) == (0, False)

    class Passed(memory.MemoryWatch):
        def __exit__(self, *error):
            super().__exit__(*error)
            self.peak = 10**12

    monkeypatch.setattr(memory, "MemoryWatch", Passed)
    done = run("train", "dismec", texts, "--out", tmp_path / "model", "--memory-limit", "900GB")
    assert done.exit_code == 0
    assert "The memory limit of 900GB was exceeded: the peak was 1,000 GB." in " ".join(done.stderr.split())


def test_estimate_before_training(texts):
    figures = as_json("estimate", "pw-cb-dismec", texts, "--threads", 1)
    assert figures["rows"] == 360
    assert figures["labels"] == 3
    assert figures["seconds"] > 0
    assert figures["model_mb"] < 1
    assert figures["peak_memory_mb"] > figures["block_mb"]
    refused = run("estimate", "dismec", texts, "--memory-limit", "1MB")
    assert refused.exit_code == 2
    assert "raise it to" in refused.stderr
    assert run("train", "dismec", texts, "--out", texts.parent / "no", "--memory-limit", "1MB").exit_code == 2
    assert not (texts.parent / "no").exists()


def test_estimate_takes_what_train_takes_for_labels(texts, tmp_path):
    (tmp_path / "tree.tsv").write_text("ship\tthings\ntree\tthings\nbird\tanimals\n")
    tree = ("--tree", tmp_path / "tree.tsv", "--set", "n_hard_negatives=0", "--threads", 1)
    own, without = as_json("estimate", "longtail-tree", texts, *tree), as_json("estimate", "longtail-tree", texts)
    assert own["model_mb"] > without["model_mb"]  # three nodes, and not one leaf
    assert as_json("estimate", "longtail-tree", texts, "--label-texts", "names")["labels"] == 3
    for option, value in (("--tree", tmp_path / "tree.tsv"), ("--label-texts", "names")):
        refused = run("estimate", "dismec", texts, option, value)
        assert refused.exit_code == 2
        assert "is for recipes of label trees" in " ".join(refused.stderr.split())


def test_an_interrupted_run_is_resumed(tmp_path, monkeypatch):
    data = tmp_path / "data.jsonl"
    lines = [json.dumps({"text": f"word{number} other", "labels": [f"label {number}"]}) for number in range(200)]
    data.write_text("\n".join(lines * 2))
    arguments = ("train", "dismec", data, "--threads", 1, "--out")
    assert run(*arguments, tmp_path / "whole").exit_code == 0
    solve, solved = training.BlockTrainer.solve, []

    def interrupt(self, labels, number, stop):
        if number == 3:
            raise KeyboardInterrupt
        return solve(self, labels, number, stop)

    monkeypatch.setattr(training.BlockTrainer, "solve", interrupt)
    stopped = run(*arguments, tmp_path / "model")
    assert stopped.exit_code == 130
    assert "No model was written. What was finished is kept" in stopped.stderr
    again = run(*arguments, tmp_path / "model", "--resume")
    assert again.exit_code == 130
    for one in (stopped, again):
        assert "192 of 200 labels were done" in " ".join(one.stderr.split()), "those of an earlier run too"
    monkeypatch.setattr(training.BlockTrainer, "solve", lambda *args: solved.append(args[2]) or solve(*args))
    other = run(*arguments, tmp_path / "model", "--resume", "--set", "C=2")
    assert other.exit_code == 2
    assert "another training" in other.stderr
    assert run(*arguments, tmp_path / "model", "--resume").exit_code == 0
    assert set(solved) == {3}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.jsonl", "model", "whole"]
    for file in (tmp_path / "whole").glob("*.npy"):
        assert file.read_bytes() == (tmp_path / "model" / file.name).read_bytes()


def test_rows_with_none_of_the_labels_are_refused(model, tmp_path):
    other = tmp_path / "other.jsonl"
    other.write_text(json.dumps({"text": "a ship", "labels": ["vessel"]}) + "\n")
    for command in (
        ("evaluate", model, other),
        ("evaluate", model, other, "--intervals"),
        ("compare", model, model, other),
    ):
        result = run(*command)
        assert result.exit_code == 2
        assert "No row has a label of the training data" in result.stderr


def test_probable_mistakes_are_warned_about(model, texts, tmp_path):
    assert "taken as a text" in run("explain", model, "missing.jsonl#2").stderr
    assert "only their bias counts" in run("explain", model, "unknown words").stderr
    started = run("train", "popularity", texts, "--out", tmp_path / "new", "--resume")
    assert started.exit_code == 0
    assert "nothing to resume" in started.stderr
    trained_on = run("calibrate", model, texts, "--out", tmp_path / "calibrated", "--method", "platt")
    assert "give rows that it hasn't seen" in trained_on.stderr
    assert "ECE@1" in as_json("evaluate", tmp_path / "calibrated", texts, "--intervals")
    shown = run("evaluate", tmp_path / "calibrated", texts, "--intervals")
    assert shown.exit_code == 0
    assert "ECE" in shown.stdout


def test_estimate_for_several_machines(texts):
    one = as_json("estimate", "dismec", texts, "--threads", 1)
    several = as_json("estimate", "dismec", texts, "--threads", 1, "--nodes", 4)
    assert "cluster" not in one
    cluster = several["cluster"]
    assert cluster["nodes"] == 4
    assert cluster["busy_threads"] == 1, "three labels are one block"
    said = run("estimate", "fastxml", texts, "--threads", 1, "--nodes", 4).stdout
    assert "On 4 nodes with 1 thread each, with the data on every node:" in said
    assert "object store" in said
    assert "can't be shared" in run("estimate", "popularity", texts, "--nodes", 3).stdout
    assert run("estimate", "dismec", texts, "--nodes", 0).exit_code == 2

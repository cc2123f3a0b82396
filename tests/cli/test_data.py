from pathlib import Path

import pytest

from longtail.data import load
from tests.cli.test_cli import XC, files, only_error, run

__all__ = ["files", "run"]


def test_list(run):
    text = run("data", "list").stdout
    for part in ("debian-depends", "30,605", "bundled", "EURLex-4K", "to fetch", "0.6,2.6", "XMLRepository"):
        assert part in text


def test_stats_of_features(files, run):
    text = run("data", "stats", "train.txt").stdout
    for name, value in (("rows", "4"), ("features", "3"), ("labels", "3"), ("labels per row", "1.25")):
        assert f"\n{name} " in text
        assert text.partition(f"\n{name} ")[2].split()[0] == value


def test_stats_of_texts(files, run):
    assert "characters per row" in run("data", "stats", "new.jsonl").stdout


def test_stats_of_a_data_set_by_name(run):
    assert "5,592" in run("data", "stats", "debian-tags:test").stdout


@pytest.mark.parametrize("target", ["copy.txt", "copy.txt.gz", "copy.npz"])
def test_convert_features(files, run, target):
    run("data", "convert", "train.txt", target)
    back, original = load(target), load("train.txt")
    assert (back.X != original.X).nnz == 0
    assert (back.Y != original.Y).nnz == 0


def test_convert_texts(files, run):
    result = run("data", "convert", "train.jsonl", "copy.jsonl.xz")
    assert result.stdout == ""
    assert load("copy.jsonl.xz").texts == load("train.jsonl").texts


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["stats", "nowhere"], "nowhere"),
        (["convert", "nowhere.txt", "x.txt"], "nowhere.txt"),
        (["convert", "train.txt", "x.unknown"], "has an unknown suffix"),
        (["convert", "train.txt", "x.jsonl"], "texts"),
        (["convert", "train.jsonl", "x.txt"], "x.txt"),
        (["convert", "train.txt", "no/x.txt"], "not a directory"),
        (["convert", "train.txt", "train.txt"], "another name"),
        (["verify", "Bibtex", "train.txt"], "4,880"),
        (["verify", "Bibtexx", "train.txt"], "did you mean Bibtex?"),
        (["verify", "Bibtex", "nowhere.txt"], "nowhere.txt"),
    ],
)
def test_mistakes(files, run, arguments, message):
    assert message in only_error(run("data", *arguments, code=2))
    assert Path("train.txt").read_text() == XC
    assert not list(Path().glob("x.*"))


@pytest.mark.parametrize(
    ("out", "test_out"),
    [("x.txt", "x.txt"), ("x.txt", "./x.txt"), ("x.npz", "x.X.npz"), ("x.txt", "link.txt"), ("hard.txt", "train.txt")],
)
def test_generate_refuses_one_file_for_both(files, run, out, test_out, monkeypatch):
    Path("link.txt").symlink_to("x.txt")
    Path("hard.txt").hardlink_to("train.txt")
    monkeypatch.setattr("longtail.data.generate", None)  # nothing is made before
    error = only_error(run("data", "generate", out, "--test-out", test_out, code=2))
    assert "is both OUT and --test-out" in error
    assert Path("train.txt").read_text() == XC
    assert not list(Path().glob("x.*"))


def test_generate_writes_rows_and_test_rows(files, run):
    run("data", "generate", "x.txt", "--test-out", "y.txt", "--rows", 40, "--labels", 9, "--features", 50)
    assert (load("x.txt").n_rows, load("y.txt").n_rows) == (40, 4)


def test_verify(files, run):
    rows = "".join(f"{row % 159},{(row + 7) % 159} {row % 1836}:1\n" for row in range(2515))
    Path("test.txt").write_text(f"2515 1836 159\n{rows}")
    assert "test.txt is Bibtex, test: 2,515 rows" in run("data", "verify", "bibtex", "test.txt").stdout


def test_convert_to_a_directory_of_arrays(run, tmp_path):
    (tmp_path / "train.txt").write_text("2 1 2\n0 0:1\n1 0:2\n")
    (tmp_path / "train.labels.txt").write_text("cat\ndog\n")
    done = run("data", "convert", tmp_path / "train.txt", tmp_path / "train")
    assert f"Wrote 2 rows to {tmp_path / 'train'}." in done.stderr
    found = load(tmp_path / "train")
    assert found.label_names == ["cat", "dog"]
    assert found.X.toarray().tolist() == [[1], [2]]
    run("data", "stats", tmp_path / "train")
    run("train", "popularity", tmp_path / "train", "--out", tmp_path / "model")
    assert run("predict", tmp_path / "model", tmp_path / "train", "--memory-limit", "20GB").stdout.count("\n") == 2
    refused = run("data", "convert", tmp_path / "train.txt", tmp_path / "model", code=2)
    assert "is not a directory of arrays" in " ".join(refused.stderr.split())
    (tmp_path / "texts.jsonl").write_text('{"text": "a", "labels": ["b"]}\n')
    texts = run("data", "convert", tmp_path / "texts.jsonl", tmp_path / "texts", code=2)
    assert "has only texts" in " ".join(texts.stderr.split())

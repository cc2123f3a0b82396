"""Loading by path or name: detected formats, label names next to files, bundled data, and unsupported files."""

from __future__ import annotations

import pytest

from longtail.data import Dataset, load, save
from longtail.data.streams import COMPRESSIONS
from longtail.errors import InputError

FEATURES = Dataset([[0, 1.5], [2, 0]], [[1, 0, 1], [0, 0, 0]], label_names=["a", "b", "c"])
TEXTS = Dataset(None, [[1, 0, 1], [0, 1, 0]], label_names=["a", "b", "c"], texts=["one", "two"])


@pytest.mark.parametrize("suffix", ["", *COMPRESSIONS])
@pytest.mark.parametrize(
    ("dataset", "ending"), [(FEATURES, ".txt"), (FEATURES, ".xc"), (TEXTS, ".jsonl"), (TEXTS, ".ndjson")]
)
def test_save_and_load(tmp_path, dataset, ending, suffix):
    path = tmp_path / f"toy{ending}{suffix}"
    save(dataset, path)
    found = load(path)
    assert (found.label_names, found.texts) == (dataset.label_names, dataset.texts)
    assert (found.Y != dataset.Y).nnz == 0
    assert found.name == "toy"


@pytest.mark.parametrize("given", ["toy.npz", "toy.X.npz", "toy.Y.npz"])
def test_npz(tmp_path, given):
    save(FEATURES, tmp_path / given)
    assert {path.name for path in tmp_path.iterdir()} == {"toy.X.npz", "toy.Y.npz", "toy.labels.txt"}
    for name in (given, "toy"):
        assert load(tmp_path / name).label_names == ["a", "b", "c"]


def test_detected_from_the_first_bytes(tmp_path):
    (tmp_path / "rows.dat").write_text("1 2 3\n0 1:1\n")
    (tmp_path / "texts").write_text('{"text": "a", "labels": ["x"]}\n')
    (tmp_path / "texts.txt").write_text(' {"text": "a", "labels": ["x"]}\n')
    assert load(tmp_path / "rows.dat").n_features == 2
    assert load(tmp_path / "texts").texts == ["a"]
    assert load(str(tmp_path / "texts.txt")).texts == ["a"]


def test_neither(tmp_path):
    (tmp_path / "page.html").write_text("<html>")
    with pytest.raises(InputError, match=r"page\.html: is not in a supported format; accepted: XC text .*JSONL.*npz"):
        load(tmp_path / "page.html")
    with pytest.raises(InputError, match=r"accepted: XC text"):
        load(tmp_path)
    with pytest.raises(InputError, match=r"page\.csv: has an unknown suffix; accepted: XC text"):
        save(FEATURES, tmp_path / "page.csv")
    with pytest.raises(InputError, match="has an unknown suffix"):
        save(FEATURES, tmp_path / "toy.npz.gz")


def test_empty_file(tmp_path):
    (tmp_path / "a.txt").touch()
    with pytest.raises(InputError, match=r"a\.txt: is empty"):
        load(tmp_path / "a.txt")


def test_names_in_the_directory(tmp_path):
    (tmp_path / "train.txt").write_text("1 2 3\n0 1:1\n")
    assert load(tmp_path / "train.txt").label_names is None
    (tmp_path / "label_names.txt").write_text("x\ny\nz\n")
    assert load(tmp_path / "train.txt").label_names == ["x", "y", "z"]
    (tmp_path / "train.labels.txt").write_text("u\nv\nw\n")
    assert load(tmp_path / "train.txt").label_names == ["u", "v", "w"]
    assert load(tmp_path / "train.txt", label_names=["1", "2", "3"]).label_names == ["1", "2", "3"]
    (tmp_path / "train.labels.txt").write_text("u\nv\n")
    with pytest.raises(InputError, match=r"train\.labels\.txt: has 2 names for 3 labels"):
        load(tmp_path / "train.txt")


def test_given_names(tmp_path):
    save(TEXTS, tmp_path / "a.jsonl")
    assert load(tmp_path / "a.jsonl", label_names=["z", "b"]).label_names == ["z", "b", "a", "c"]
    save(FEATURES, tmp_path / "a.txt")
    save(FEATURES, tmp_path / "a.npz")
    for name in ("a.txt", "a.npz"):
        with pytest.raises(InputError, match="has 3 labels, but 1 label names are given"):
            load(tmp_path / name, label_names=["z"])


def test_labels_optional(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n')
    assert load(tmp_path / "a.jsonl", labels_optional=True, label_names=["x"]).Y.shape == (1, 1)


def test_names_with_line_breaks_are_refused_before_writing(tmp_path):
    with pytest.raises(InputError, match="line break"):
        save(Dataset([[1]], [[1]], label_names=["a\nb"]), tmp_path / "a.txt")
    assert not list(tmp_path.iterdir())


def test_registered_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load("debian-tags:test").name == "debian-tags:test"
    (tmp_path / "debian-tags").mkdir()
    assert load("Debian-Tags:TEST").n_rows == 5592
    with pytest.raises(InputError, match="no split 'dev'"):
        load("debian-tags:dev")
    with pytest.raises(
        InputError, match=r"Bibtex does not come with longtail: get it from http.*longtail data verify Bibtex"
    ):
        load("bibtex")
    with pytest.raises(
        InputError, match=r"no such file, and no data set of that name \(did you mean debian-tags\?\)\.$"
    ):
        load("debain-tags")
    with pytest.raises(InputError, match="known are debian-tags"):
        load(tmp_path / "nothing.txt")


def test_a_file_comes_before_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bibtex").write_text("1 2 3\n0 1:1\n")
    assert load("bibtex").n_rows == 1

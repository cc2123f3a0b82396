"""Word vectors from other people's files."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

from longtail.errors import InputError
from longtail.features.word_vectors import convert_vectors, read_vectors, read_words


def converted(path, content, **how):
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(content.encode()))
    else:
        path.write_text(content, encoding="utf-8")
    target = path.with_name("out.npz")
    assert convert_vectors(path, target) == (len(read_words(target)), read_vectors(target).shape[1])
    return read_words(target), read_vectors(target)


@pytest.mark.parametrize("name", ["glove.txt", "glove.txt.gz"])
def test_text(tmp_path, name):
    words, vectors = converted(tmp_path / name, "the 0.1 -2 3e-1\n, 1 2 3\nnew york 4 5 6\nblå 7 8 9\n")
    assert words == ["the", ",", "new york", "blå"]
    np.testing.assert_allclose(vectors, [[0.1, -2, 0.3], [1, 2, 3], [4, 5, 6], [7, 8, 9]])
    assert vectors.dtype == np.float32


def test_counts_in_the_first_line_are_left_out(tmp_path):
    words, vectors = converted(tmp_path / "word2vec.txt", "2 3\na 1 2 3\nb 4 5 6\n")
    assert words == ["a", "b"]
    assert vectors.shape == (2, 3)


def test_json(tmp_path):
    assert converted(tmp_path / "plain.json", json.dumps({"a": [1, 2], "b": [3, 4]}))[0] == ["a", "b"]
    wink = {
        "precision": 8, "l2NormIndex": 2, "wordIndex": 3, "size": 3, "dimensions": 2, "words": ["the", "of", "a"],
        "vectors": {"the": [1, 2, 2.24, 0], "of": [3, 4, 5, 1], "a": [0, 1, 1, 2]}, "unkVector": [0, 0, 0, -1],
    }  # fmt: skip
    words, vectors = converted(tmp_path / "wink.json", json.dumps(wink))
    assert words == ["the", "of", "a"]
    np.testing.assert_array_equal(vectors, [[1, 2], [3, 4], [0, 1]])


def test_arrays_with_words_beside_them(tmp_path):
    np.save(tmp_path / "a.npy", np.array([[1, 2], [3, 4]], np.float16))
    (tmp_path / "a.txt").write_text("red\nblue\n")
    assert convert_vectors(tmp_path / "a.npy", tmp_path / "out.npz") == (2, 2)
    assert read_words(tmp_path / "out.npz") == ["red", "blue"]
    np.testing.assert_array_equal(read_vectors(tmp_path / "out.npz"), [[1, 2], [3, 4]])
    (tmp_path / "a.txt").write_text("red\n")
    with pytest.raises(InputError, match=r"1 words, and a\.npy 2 rows"):
        convert_vectors(tmp_path / "a.npy", tmp_path / "out.npz")
    np.save(tmp_path / "a.npy", np.array(["x"]))
    with pytest.raises(InputError, match="not a two-dimensional numeric array"):
        convert_vectors(tmp_path / "a.npy", tmp_path / "out.npz")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", "", "no words"),
        ("a.txt", "a 1 2\nb 1\n", "a.txt:2: must be a word and 2 numbers"),
        ("a.txt", "label,text\n", "a.txt:1: must be a word and its numbers"),
        ("a.txt", "a 1 2\nb 1 x\n", "a.txt:2"),
        ("a.txt", "a 1 nan\n", "NaN"),
        ("a.json", "[1]", "object"),
        ("a.json", "{", "JSON"),
        ("a.json", '{"a": [1], "b": [1, 2]}', "'b'"),
        ("a.json", '{"a": "x"}', "numeric"),
        ("a.json", '{"a": 5}', "numeric"),
        ("a.json", "[" * 200_000 + "]" * 200_000, "nested too deeply"),
        ("a.json", '{"dimensions": -1, "vectors": {"a": [1, 2]}}', '-1 for "dimensions", which must be an integer'),
        ("a.json", '{"dimensions": true, "vectors": {"a": [1, 2]}}', 'True for "dimensions"'),
        ("a.npy", "PK\x03\x04", "not a numpy array"),
    ],
)
def test_wrong_files_are_refused(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message):
        convert_vectors(tmp_path / name, tmp_path / "out.npz")


def test_an_archive_of_arrays_is_no_array(tmp_path):
    np.savez(tmp_path / "a.npz", vectors=np.zeros((2, 3)))
    (tmp_path / "a.npz").rename(tmp_path / "a.npy")
    with pytest.raises(InputError, match="is not a numpy array"):
        convert_vectors(tmp_path / "a.npy", tmp_path / "out.npz")


def test_what_fails_leaves_the_old_file(tmp_path, monkeypatch):
    words, _ = converted(tmp_path / "a.txt", "red 1 0\nblue 0 1\n")

    def full(file, **arrays):
        file.write(b"PK")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(InputError, match=r"out\.npz: can't be written: No space left"):
        convert_vectors(tmp_path / "a.txt", tmp_path / "out.npz")
    assert read_words(tmp_path / "out.npz") == words
    assert {path.name for path in tmp_path.iterdir()} == {"a.txt", "out.npz"}


def test_files_that_are_not_there(tmp_path):
    with pytest.raises(InputError, match="is not a file"):
        convert_vectors(tmp_path / "nowhere.txt", tmp_path / "out.npz")
    with pytest.raises(InputError, match="is not a file"):
        convert_vectors(tmp_path / "nowhere.npy", tmp_path / "out.npz")
    with pytest.raises(InputError, match="is not a file"):
        read_words(tmp_path / "nowhere.npz")
    (tmp_path / "text.npz").write_text("no vectors")
    with pytest.raises(InputError, match="no word vectors"):
        read_vectors(tmp_path / "text.npz")
    np.save(tmp_path / "bare.npy", np.zeros((2, 3)))
    with pytest.raises(InputError, match="no word vectors"):
        read_vectors(tmp_path / "bare.npy")

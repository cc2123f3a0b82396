"""JSONL: label ids, round trips, and every mistake with its line."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.data import Dataset, read_jsonl, write_jsonl
from longtail.data.streams import COMPRESSIONS, write_whole
from longtail.errors import InputError

GOLDEN = (
    '{"text": "a cat", "labels": ["pet", "animal"], "id": 7}\n'
    '{"labels": [], "text": ""}\n'
    '{"text": "caf\\u00e9 ☕\\u2028", "labels": ["été"]}\n'
)


@pytest.fixture
def write(tmp_path):
    def write_file(content, name="train.jsonl"):
        path = tmp_path / name
        with write_whole(path) as file:
            file.write(content.encode() if isinstance(content, str) else content)
        return path

    return write_file


@pytest.mark.parametrize("suffix", ["", *COMPRESSIONS])
def test_golden(write, suffix):
    dataset = read_jsonl(write(GOLDEN, "golden.jsonl" + suffix))
    assert dataset.texts == ["a cat", "", "café ☕\u2028"]
    assert dataset.label_names == ["animal", "pet", "été"]
    assert dataset.Y.toarray().tolist() == [[1, 1, 0], [0, 0, 0], [0, 0, 1]]
    assert dataset.X is None
    assert dataset.name == "golden"


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text[:-1],
        lambda text: text + "\n\n  \n",
        lambda text: "\ufeff" + text,
    ],
    ids=["crlf", "no newline at the end", "blank lines at the end", "byte order mark"],
)
def test_tolerated(write, change):
    assert read_jsonl(write(change(GOLDEN))).Y.nnz == 3


def test_given_names_come_first_and_unseen_ones_after(write):
    dataset = read_jsonl(write(GOLDEN), label_names=["zebra", "pet"])
    assert dataset.label_names == ["zebra", "pet", "animal", "été"]
    assert dataset.Y.toarray().tolist() == [[0, 1, 1, 0], [0, 0, 0, 0], [0, 0, 0, 1]]


def test_given_names_must_differ(write):
    with pytest.raises(InputError, match="'pet' twice"):
        read_jsonl(write(GOLDEN), label_names=["pet", "cat", "pet"])


def test_labels_can_be_left_out_for_prediction(write):
    path = write('{"text": "a"}\n{"text": "b", "labels": ["x"]}\n')
    assert read_jsonl(path, labels_optional=True, label_names=["x"]).Y.toarray().tolist() == [[0], [1]]
    with pytest.raises(InputError, match=r"train\.jsonl:1: has no 'labels'"):
        read_jsonl(path)


def test_no_labels_at_all(write):
    dataset = read_jsonl(write('{"text": "a", "labels": []}\n'))
    assert dataset.Y.shape == (1, 0)


ROW = '{"text": "a", "labels": ["x"]}\n'
BAD = {
    "empty file": ("", None, "is empty"),
    "only blank": ("\n\n", None, "is empty"),
    "invalid": (ROW + "{text: 1}\n", 2, "is not valid JSON"),
    "cut": (ROW + '{"text": "a", "lab', 2, "is not valid JSON"),
    "tab in a text": (ROW + '{"text": "a\tb", "labels": []}\n', 2, "Invalid control character at character 12"),
    "two on a line": (ROW + ROW[:-1] + ROW, 2, "is not valid JSON: Extra data"),
    "not an object": (ROW + "[1]\n", 2, "must be a JSON object"),
    "no text": ('{"labels": []}\n', 1, "has no 'text'"),
    "no labels": (ROW + '{"text": "a"}\n', 2, "has no 'labels'"),
    "text is a number": ('{"text": 3, "labels": []}\n', 1, "'text' must be a string, got a number"),
    "labels is a string": ('{"text": "a", "labels": "x"}\n', 1, "must be a list of names, got a string"),
    "label is a number": ('{"text": "a", "labels": [1]}\n', 1, "must hold names, got a number"),
    "label is null": ('{"text": "a", "labels": [null]}\n', 1, "must hold names, got null"),
    "label is empty": ('{"text": "a", "labels": [""]}\n', 1, "must hold names, got an empty string"),
    "label twice": (ROW + '{"text": "a", "labels": ["x", "y", "x"]}\n', 2, "label 'x' appears twice"),
    "blank between": (ROW + "\n" + ROW, 2, "is blank"),
    "not utf-8": (ROW.encode() + b'{"text": "caf\xe9", "labels": []}\n', 2, "byte 14 is not UTF-8 (0xe9)"),
    "half a pair": (ROW + '{"text": "\\ud83d", "labels": []}\n', 2, "surrogate"),
    "deep": (ROW + 100_000 * "[" + "\n", 2, "is not valid JSON"),
    "long number": ('{"text": "a", "labels": [], "n": ' + 5000 * "1" + "}\n", 1, "is not valid JSON"),
}


@pytest.mark.parametrize(("content", "line", "reason"), BAD.values(), ids=BAD)
def test_mistakes(write, content, line, reason):
    path = write(content)
    with pytest.raises(InputError) as caught:
        read_jsonl(path)
    assert reason in caught.value.reason
    assert (caught.value.path, caught.value.line) == (str(path), line)


def test_cut_archive(write):
    path = write(100 * ROW, "train.jsonl.xz")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match=r"train\.jsonl\.xz: ends before its xz data"):
        read_jsonl(path)


texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)


@settings(max_examples=50, deadline=None)
@given(
    names=st.lists(texts.filter(bool), min_size=1, max_size=6, unique=True),
    rows=st.lists(st.tuples(texts, st.sets(st.integers(0, 5))), min_size=1, max_size=6),
    suffix=st.sampled_from(["", *COMPRESSIONS]),
)
def test_round_trip(tmp_path_factory, names, rows, suffix):
    Y = np.zeros((len(rows), len(names)))
    for row, (_, labels) in enumerate(rows):
        Y[row, [label for label in labels if label < len(names)]] = 1
    dataset = Dataset(None, Y, label_names=names, texts=[text for text, _ in rows])
    path = tmp_path_factory.getbasetemp() / f"round.jsonl{suffix}"
    write_jsonl(dataset, path)
    found = read_jsonl(path, label_names=names)
    assert (found.texts, found.label_names) == (dataset.texts, names)
    np.testing.assert_array_equal(found.Y.toarray(), Y)
    alone = read_jsonl(path)
    used = sorted(name for name, count in zip(names, dataset.label_counts, strict=True) if count)
    assert alone.label_names == used
    np.testing.assert_array_equal(alone.Y.toarray(), Y[:, [names.index(name) for name in used]])


def test_writing_without_names_uses_ids(tmp_path):
    write_jsonl(Dataset(None, [[0, 1]], texts=["a"]), tmp_path / "a.jsonl")
    assert json.loads((tmp_path / "a.jsonl").read_text()) == {"text": "a", "labels": ["1"]}


def test_writing_what_does_not_fit(tmp_path):
    with pytest.raises(InputError, match="needs texts"):
        write_jsonl(Dataset([[1]], [[1]]), tmp_path / "a.jsonl")
    with pytest.raises(InputError, match="row 0 has characters that UTF-8 can't encode"):
        write_jsonl(Dataset(None, [[1]], texts=["\ud800"]), tmp_path / "a.jsonl")
    assert not list(tmp_path.iterdir())

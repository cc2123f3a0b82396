"""Files of pairs: names or ids, terms beside the labels, rows with all terms above theirs."""

from __future__ import annotations

import pytest

from longtail.data.label_index import LabelIndex
from longtail.errors import InputError
from longtail.propensity import read_pairs

NAMES = ["animal", "cat", "dog, small"]


@pytest.fixture
def read(tmp_path):
    def read(text, n_labels=3, label_names=NAMES):
        path = tmp_path / "pairs.tsv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        labels = LabelIndex(label_names, n_labels)
        return read_pairs(labels, path)[0].tolist(), labels

    return read


def test_names(read):
    pairs, labels = read("cat\tanimal\r\ndog, small\tanimal\n\n")
    assert pairs == [[1, 0], [2, 0]]
    assert (len(labels), labels.names) == (3, NAMES)


def test_terms_that_are_no_labels_get_ids_after_them(read):
    pairs, labels = read("cat\tpet\npet\tanimal\nanimal\tbeing\n")
    assert pairs == [[1, 3], [3, 0], [0, 4]]
    assert (len(labels), labels.names) == (5, [*NAMES, "pet", "being"])


def test_two_files_share_their_terms(tmp_path):
    (tmp_path / "some.tsv").write_text("cat\tpet\n")
    (tmp_path / "more.tsv").write_text("dog, small\tpet\n")
    some, more = read_pairs(LabelIndex(NAMES), tmp_path / "some.tsv", tmp_path / "more.tsv")
    assert (some.tolist(), more.tolist()) == ([[1, 3]], [[2, 3]])


@pytest.mark.parametrize("label_names", [None, NAMES])
def test_ids(read, label_names):
    assert read("1\t0\n2\t0\n", label_names=label_names)[0] == [[1, 0], [2, 0]]


def test_names_that_are_numbers_are_names(read):
    assert read("195\t91\n", label_names=["91", "1", "195"])[0] == [[2, 0]]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("cat animal\n", ":1: must be two names"),
        ("cat\tanimal\ncat\t\n", ":2: must be two names"),
        ("cat\tanimal\tx\n", ":1: must be two names"),
        ("lion\tbeast\n", "has no pair with a label of the data: use the names or ids"),
        ("\n\n", "is empty"),
        (b"cat\tanimal\nc\xe4t\tanimal\n", ":2: is not UTF-8"),
    ],
)
def test_mistakes(read, text, told):
    with pytest.raises(InputError, match=told):
        read(text)


def test_ids_outside_the_labels(read):
    with pytest.raises(InputError, match="has 3, and labels have ids from 0 to 2"):
        read("1\t0\n3\t0\n", label_names=None)
    with pytest.raises(InputError, match="use the ids, from 0 to 2, of its labels"):
        read("a\tb\n", label_names=None)


def test_a_name_of_two_labels_is_refused_only_where_it_is_used(read):
    names = ["bank", "bank", "money"]
    with pytest.raises(InputError, match="'bank' is the name of several labels: use label ids"):
        read("bank\tmoney\n", label_names=names)
    assert read("loan\tmoney\n", label_names=names)[0] == [[3, 2]]


def test_numbers_of_any_length_are_compared_with_the_ids(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text(f"{'1' * 5000}\t1\n")
    with pytest.raises(InputError, match=r"has 1{37}\.\.\., and labels have ids from 0 to 2"):
        read_pairs(LabelIndex(n_labels=3), path)

"""Files of pairs: names or ids, terms beside the labels, rows with all terms above theirs."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

from longtail.errors import InputError
from longtail.propensity import LabelIds

NAMES = ["animal", "cat", "dog, small"]


@pytest.fixture
def read(tmp_path):
    def read(text, n_labels=3, label_names=NAMES):
        path = tmp_path / "pairs.tsv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        ids = LabelIds(n_labels, label_names)
        return ids.read(path).tolist(), ids

    return read


def test_names(read):
    pairs, ids = read("cat\tanimal\r\ndog, small\tanimal\n\n")
    assert pairs == [[1, 0], [2, 0]]
    assert (ids.n_nodes, ids.names) == (3, NAMES)


def test_terms_that_are_no_labels_get_ids_after_them(read):
    pairs, ids = read("cat\tpet\npet\tanimal\nanimal\tbeing\n")
    assert pairs == [[1, 3], [3, 0], [0, 4]]
    assert (ids.n_nodes, ids.names) == (5, [*NAMES, "pet", "being"])


def test_two_files_share_their_terms(read, tmp_path):
    _, ids = read("cat\tpet\n")
    (tmp_path / "more.tsv").write_text("dog, small\tpet\n")
    assert ids.read(tmp_path / "more.tsv").tolist() == [[2, 3]]


@pytest.mark.parametrize("label_names", [None, NAMES])
def test_ids(read, label_names):
    assert read("1\t0\n2\t0\n", label_names=label_names)[0] == [[1, 0], [2, 0]]


def test_names_that_are_numbers_are_names(read):
    assert read("195\t91\n", label_names=["91", "1", "195"])[0] == [[2, 0]]


def test_rows_with_all_terms_above_theirs(tmp_path):
    """cat stands under animal and being in each of its rows; dog, in fewer than five rows, is left out."""
    rows = [{"labels": ["cat"], "labels_all": ["cat", "animal", "being", other]} for other in "uvwxy"]
    rows += [{"labels": ["dog", 7], "labels_all": ["dog", 7, "animal"]}] * 4
    with gzip.open(tmp_path / "all.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    ids = LabelIds(4, ["animal", "being", "cat", "dog"])
    assert ids.read(tmp_path / "all.jsonl.gz").tolist() == [[2, 0], [2, 1]]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("cat animal\n", ":1: must be two names"),
        ("cat\tanimal\ncat\t\n", ":2: must be two names"),
        ("cat\tanimal\tx\n", ":1: must be two names"),
        ("lion\tbeast\n", "has no pair with a label of the data: use the names or ids"),
        ("\n\n", "is empty"),
        (b"cat\tanimal\nc\xe4t\tanimal\n", ":2: is not UTF-8"),
        ('{"labels": ["cat"]}\n', ":1: must be a JSON object with lists 'labels' and 'labels_all'"),
        ('{"labels": 3, "labels_all": [3]}\n', ":1: must be"),
        ('{"labels": [], "labels_all": []}\n{\n', ":2: must be"),
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
    with pytest.raises(InputError, match="'bank' is the name of several labels: give pairs of ids"):
        read("bank\tmoney\n", label_names=names)
    assert read("loan\tmoney\n", label_names=names)[0] == [[3, 2]]


def test_no_pairs():
    assert LabelIds(3, NAMES).pairs([("cat", "animal")]).dtype == np.int64

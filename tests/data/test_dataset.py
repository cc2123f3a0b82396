"""The Dataset: accepted input, refused input, and its description."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from longtail.data import Dataset
from longtail.errors import InputError, ParameterError


def toy(**changes):
    parts = {
        "X": [[1.0, 0], [0, 2], [3, 0]],
        "Y": [[1, 0, 0, 0], [1, 0, 1, 0], [0, 0, 0, 0]],
        "label_names": ["a", "b", "c", "d"],
        "texts": ["one", "two", "three"],
        "label_texts": ["A", "B", "C", "D"],
        "name": "toy",
    }
    return Dataset(**{**parts, **changes})


def test_counts_and_repr():
    dataset = toy()
    assert (dataset.n_rows, len(dataset), dataset.n_features, dataset.n_labels) == (3, 3, 2, 4)
    assert dataset.label_counts.tolist() == [2, 0, 1, 0]
    assert dataset.label_counts.dtype == np.int64
    assert repr(dataset) == "Dataset('toy': 3 rows, 2 features, texts, 4 labels with names, 1.00 labels per row)"
    assert repr(toy(X=None, label_names=None, name=None)) == "Dataset(3 rows, texts, 4 labels, 1.00 labels per row)"
    assert toy(X=None).n_features is None


@pytest.mark.parametrize("make", [np.array, sp.csr_array, sp.csc_matrix, sp.coo_array, lambda rows: rows])
def test_any_matrix(make):
    dataset = toy(X=make([[1, 0], [0, 2], [3, 0]]), Y=make([[5, 0, 0, 0], [1, 0, 1, 0], [0, 0, 0, 0]]))
    for matrix in (dataset.X, dataset.Y):
        assert isinstance(matrix, sp.csr_array)
        assert (matrix.dtype, matrix.indices.dtype) == (np.float32, np.int32)
    assert dataset.Y.data.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("rows", "picked"),
    [([2, 0], [2, 0]), (np.array([False, True, True]), [1, 2]), ([], []), (np.array([1], np.uint8), [1])],
)
def test_take(rows, picked):
    part = toy().take(rows)
    picked = np.array(picked, int)
    np.testing.assert_array_equal(part.X.toarray(), toy().X.toarray()[picked])
    np.testing.assert_array_equal(part.Y.toarray(), toy().Y.toarray()[picked])
    assert part.texts == [["one", "two", "three"][row] for row in picked]
    assert (part.label_names, part.label_texts, part.name) == (toy().label_names, toy().label_texts, "toy")


@pytest.mark.parametrize("rows", [[3], [-1], [0.5], [[0]], np.array([True])])
def test_take_refuses(rows):
    with pytest.raises(ParameterError, match="rows must"):
        toy().take(rows)


def test_replace_checks_again():
    assert replace(toy(), X=None).n_features is None
    with pytest.raises(InputError, match="label_names has 1 entries, but there are 4 labels"):
        replace(toy(), label_names=["a"])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"X": [[1.0]]}, "X has 1 rows and Y has 3"),
        ({"X": [[np.nan, 1], [0, 0], [0, 0]]}, "NaN"),
        ({"texts": ["one"]}, "texts has 1 entries, but there are 3 rows"),
        ({"texts": "one"}, "texts is one string"),
        ({"texts": ["one", 2, "three"]}, "texts must hold strings, got 2"),
        ({"label_texts": ["A"]}, "label_texts has 1 entries, but there are 4 labels"),
        ({"X": None, "texts": None}, "needs features"),
        ({"Y": [1, 0, 1]}, "must have rows and columns"),
    ],
)
def test_refused(changes, reason):
    with pytest.raises(InputError, match=reason):
        toy(**changes)


def test_labels_have_names_or_ids():
    assert Dataset([[1]], [[1, 0]], label_names=["a", "b"]).labels.all_shown() == ["a", "b"]
    assert Dataset([[1]], [[1, 0]]).labels.all_shown() == ["0", "1"]


def test_rows_of_different_lengths_are_not_ids():
    with pytest.raises(ParameterError, match="rows must be a sequence of row ids or a mask"):
        Dataset([[1], [2]], [[1], [1]]).take([[0], [0, 1]])


def test_labels_are_needed():
    with pytest.raises(InputError, match="A data set needs labels"):
        Dataset([[1]], None)


@pytest.mark.parametrize(
    ("rejected", "told"),
    [
        (["ab"], "rejected must hold a sequence of names for each row, got 'ab'"),
        ([[1]], "rejected must hold a sequence of names for each row, got"),
        ([5], "rejected must hold a sequence of names for each row, got 5"),
        (5, "rejected is no sequence, but there are 1 rows"),
        ([[], []], "rejected has 2 entries, but there are 1 rows"),
    ],
)
def test_rejected_labels_are_names(rejected, told):
    with pytest.raises(InputError, match=told):
        Dataset([[1]], [[1]], rejected=rejected)
    assert Dataset([[1], [2]], [[1], [1]], rejected=[(), ("a",)]).rejected == [[], ["a"]]

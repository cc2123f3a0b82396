"""Pairs of npz files: round trips, and files that are missing, wrong or damaged."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from longtail.data import Dataset, read_npz, write_npz
from longtail.errors import InputError


@pytest.fixture
def pair(tmp_path):
    prefix = tmp_path / "toy"
    write_npz(Dataset([[0, 1.5], [2, 0]], [[1, 0, 1], [0, 0, 0]], label_names=["a", "b b", "é"]), prefix)
    return prefix


@pytest.mark.parametrize("ending", ["", ".npz", ".X.npz", ".Y.npz"])
def test_by_any_name(pair, ending):
    dataset = read_npz(f"{pair}{ending}")
    assert dataset.X.toarray().tolist() == [[0, 1.5], [2, 0]]
    assert dataset.Y.toarray().tolist() == [[1, 0, 1], [0, 0, 0]]
    assert dataset.label_names == ["a", "b b", "é"]
    assert dataset.name == "toy"


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_round_trip(tmp_path_factory, data):
    rows = data.draw(st.integers(0, 5))
    values = st.floats(width=32, allow_nan=False, allow_infinity=False)
    X = data.draw(hnp.arrays(np.float32, (rows, 4), elements=values))
    Y = data.draw(hnp.arrays(np.float32, (rows, 3), elements=st.sampled_from([0, 1])))
    prefix = tmp_path_factory.getbasetemp() / "round"
    write_npz(Dataset(X, Y), prefix)
    found = read_npz(prefix)
    np.testing.assert_array_equal(found.X.toarray(), X)
    np.testing.assert_array_equal(found.Y.toarray(), Y)


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "bsr"])
def test_any_sparse_format(tmp_path, form):
    X = sp.random_array((6, 5), density=0.4, rng=np.random.default_rng(0))
    sp.save_npz(tmp_path / "a.X.npz", X.asformat(form))
    sp.save_npz(tmp_path / "a.Y.npz", sp.eye_array(6).asformat(form))
    np.testing.assert_array_equal(read_npz(tmp_path / "a").X.toarray(), X.toarray().astype(np.float32))


def refused(prefix, match):
    with pytest.raises(InputError, match=match):
        read_npz(prefix)


def test_missing_half(pair):
    (pair.parent / "toy.Y.npz").unlink()
    refused(pair, r"toy\.Y\.npz: is missing: an npz data set is a pair")


def test_cut_or_garbage(pair):
    path = pair.parent / "toy.X.npz"
    data = path.read_bytes()
    for content in (b"", b"garbage", data[: len(data) // 2], data[:100] + bytes(len(data) - 100)):
        path.write_bytes(content)
        refused(pair, r"toy\.X\.npz: is (damaged|not a sparse matrix)")


def test_not_a_sparse_matrix(pair):
    np.savez(pair.parent / "toy.X.npz", X=np.eye(2))
    refused(pair, "is not a sparse matrix")


def test_pickles_are_refused(pair):
    np.savez(pair.parent / "toy.X.npz", format=np.array("csr"), shape=np.array([{}], dtype=object), data=np.ones(1))
    refused(pair, "is not a sparse matrix")


def test_index_out_of_range(pair):
    np.savez(
        pair.parent / "toy.X.npz",
        format=np.array("csr"), shape=[2, 2], data=np.ones(1), indices=np.array([7]), indptr=np.array([0, 1, 1]),
    )  # fmt: skip
    refused(pair, "is not a sparse matrix")


def test_nan(pair):
    sp.save_npz(pair.parent / "toy.X.npz", sp.csr_array([[np.nan, 1], [0, 0]]))
    refused(pair, "a NaN, an infinite value or one too large for float32 in row 0")


def test_halves_that_do_not_fit(pair):
    sp.save_npz(pair.parent / "toy.X.npz", sp.csr_array(np.eye(3)))
    refused(pair, r"toy\.\*\.npz: X has 3 rows and Y has 2")


def test_names_that_do_not_fit(pair):
    (pair.parent / "toy.labels.txt").write_text("a\nb\n")
    refused(pair, r"toy\.labels\.txt: has 2 names for 3 labels")
    (pair.parent / "toy.labels.txt").write_bytes(b"a\nb\n\xff\n")
    refused(pair, r"toy\.labels\.txt:3: is not UTF-8")


def test_writing_what_does_not_fit(tmp_path):
    with pytest.raises(InputError, match="needs features"):
        write_npz(Dataset(None, [[1]], texts=["a"]), tmp_path / "a")
    with pytest.raises(InputError, match="label 0 has a line break"):
        write_npz(Dataset([[1]], [[1]], label_names=["a\nb"]), tmp_path / "a")
    assert not list(tmp_path.iterdir())

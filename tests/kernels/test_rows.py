from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from longtail.kernels.rows import (
    BAD_COLUMN,
    BAD_OFFSETS,
    NOT_CANONICAL,
    NOT_FINITE,
    count_features,
    find_fault,
    inverse_lengths,
    sparse_dot,
    squared_lengths,
)


def test_lengths_and_counts_equal_numpys():
    X = sp.random_array((40, 15), density=0.2, rng=np.random.default_rng(0), dtype=np.float32, format="csr")
    lengths, counts = np.empty(40), np.zeros(15, np.int64)
    squared_lengths(X.indptr.astype(np.int64), X.data, lengths)
    count_features(X.indices, counts)
    np.testing.assert_allclose(lengths, (X.toarray().astype(float) ** 2).sum(axis=1), rtol=1e-6)
    np.testing.assert_array_equal(counts, (X.toarray() != 0).sum(axis=0))


def fault(indptr, indices, values=None, n_columns=4):
    values = np.ones(len(indices)) if values is None else values
    return find_fault(np.array(indptr, np.int32), np.array(indices, np.int32), np.array(values, np.float32), n_columns)


@pytest.mark.parametrize(
    ("indptr", "indices", "values", "expected"),
    [
        ([0, 2, 2, 3], [0, 3, 1], None, (0, 0)),
        ([0], [], None, (0, 0)),
        ([0, 0, 0], [], None, (0, 0)),
        ([0, 1], [0, 9], None, (0, 0)),  # what lies behind the last row is not looked at
        ([1, 2], [0, 1], None, (BAD_OFFSETS, 0)),
        ([0, 2, 1, 3], [0, 1, 2], None, (BAD_OFFSETS, 1)),
        ([0, -1, 2], [0, 1], None, (BAD_OFFSETS, 0)),
        ([0, 3], [0, 1], [1, 1, 1], (BAD_OFFSETS, 0)),
        ([0, 3], [0, 1, 2], [1, 1], (BAD_OFFSETS, 0)),
        ([0, 5, 2], [0, 1], None, (BAD_OFFSETS, 1)),
        ([0, 1, 2], [0, 4], None, (BAD_COLUMN, 1)),
        ([0, 1, 2], [-1, 0], None, (BAD_COLUMN, 0)),
        ([0, 1, 3, 4], [0, 2, 1, 0], None, (NOT_CANONICAL, 1)),
        ([0, 1, 3], [0, 2, 2], None, (NOT_CANONICAL, 1)),
        ([0, 1, 2, 3], [0, 0, 0], [1, np.nan, np.inf], (NOT_FINITE, 1)),
        ([0, 1, 2], [0, 0], [1, -np.inf], (NOT_FINITE, 1)),
    ],
)
def test_each_error_is_found_in_its_row(indptr, indices, values, expected):
    assert fault(indptr, indices, values) == expected


def test_the_most_severe_error_is_reported_first():
    nan = [np.nan, 1.0, 1.0]
    assert fault([0, 1, 3], [0, 2, 1], nan) == (NOT_CANONICAL, 1)
    assert fault([0, 1, 3], [0, 2, 7], nan) == (BAD_COLUMN, 1)
    assert fault([0, 2, 3], [2, 1, 7], nan) == (BAD_COLUMN, 1)
    assert fault([0, 2, 1], [7, 7, 1], nan) == (BAD_OFFSETS, 1)


@given(
    lengths=st.lists(st.integers(0, 3), max_size=5),
    columns=st.lists(st.integers(-1, 5), min_size=15, max_size=15),
    values=st.lists(st.sampled_from([0.0, 1.0, -2.5, np.nan, np.inf]), min_size=15, max_size=15),
)
def test_errors_are_those_that_python_finds(lengths, columns, values):
    indptr = np.cumsum([0, *lengths])
    rows = [(columns[first:last], values[first:last]) for first, last in pairwise(indptr)]
    wrong = {
        BAD_COLUMN: [any(not 0 <= column < 5 for column in row) for row, _ in rows],
        NOT_CANONICAL: [sorted(set(row)) != row for row, _ in rows],
        NOT_FINITE: [not np.isfinite(row).all() for _, row in rows],
    }
    code, row = fault(indptr, columns, values, n_columns=5)
    assert code == next((code for code, found in wrong.items() if any(found)), 0)
    if code:
        assert wrong[code][row]


def test_inverse_lengths_by_hand():
    indptr = np.array([0, 2, 2, 3, 4, 6, 7], np.int32)
    values = np.array([3, -4, 0, 1e30, 1e-30, 0, 0.25], np.float32)
    out = np.full(6, np.nan)
    inverse_lengths(indptr, values, out)
    np.testing.assert_allclose(out, [0.2, 1, 1, 1e-30, 1e30, 4], rtol=1e-6)  # no overflow, and 1 without length


@pytest.mark.parametrize(("begin", "end"), [(0, 0), (0, 1), (2, 5), (1, 8), (0, 11)])
def test_a_sparse_inner_product_is_numpys(begin, end):
    rng = np.random.default_rng(0)
    places, factors = rng.permutation(20)[:11].astype(np.int32), rng.normal(size=11).astype(np.float32)
    dense = rng.normal(size=20).astype(np.float32)
    expected = factors[begin:end].astype(float) @ dense[places[begin:end]].astype(float)
    assert sparse_dot(places, factors, begin, end, dense) == pytest.approx(expected, rel=1e-12, abs=1e-15)


def test_a_sparse_inner_product_is_found_in_double_precision():
    factors = np.array([1e8, 1, -1e8], np.float32)
    assert sparse_dot(np.arange(3, dtype=np.int32), factors, 0, 3, np.ones(3, np.float32)) == 1

"""Each kernel against plain numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.errors import InputError, ParameterError
from longtail.metrics import kernels, top_k_from_sparse


@pytest.fixture
def truth() -> sp.csr_array:
    return sp.random_array((60, 25), density=0.2, rng=np.random.default_rng(1), format="csr", dtype=np.float32)


def offsets(matrix: sp.csr_array) -> tuple[np.ndarray, np.ndarray]:
    return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32)


def test_judge(truth: sp.csr_array) -> None:
    rng = np.random.default_rng(2)
    labels = np.argsort(rng.random((60, 25)), axis=1)[:, :7].astype(np.int32)
    labels[::3, 4:] = -1
    weights = 1 + rng.random(25)
    hits, gains = np.full((7, 60), 9, np.uint8), np.full((7, 60), 9.0)
    kernels.judge(labels, *offsets(truth), weights, hits, gains)
    expected = (np.take_along_axis(truth.toarray() != 0, labels, axis=1) & (labels >= 0)).T
    np.testing.assert_array_equal(hits, expected)
    np.testing.assert_array_equal(gains, expected * weights[labels].T)
    kernels.judge(labels, *offsets(truth), np.empty(0), hits, np.empty((0, 0)))
    np.testing.assert_array_equal(hits, expected)


def test_best_gains(truth: sp.csr_array) -> None:
    weights = 1 + np.random.default_rng(3).random(25)
    best = np.full((6, 60), 9.0)
    kernels.best_gains(*offsets(truth), weights, best)
    np.testing.assert_array_equal(best, np.sort((truth.toarray() != 0) * weights, axis=1)[:, ::-1][:, :6].T)


def test_count_labels() -> None:
    labels = np.array([[2, 0, -1], [2, 1, 0]], np.int32)
    hits = np.array([[1, 1], [0, 1], [0, 1]], np.uint8)
    predicted, hit = np.zeros((3, 2), np.int64), np.zeros((3, 2), np.int64)
    kernels.count_labels(labels, hits, np.array([0, 1, 1]), predicted, hit)
    assert predicted.tolist() == [[0, 2], [0, 1], [2, 0]]
    assert hit.tolist() == [[0, 1], [0, 1], [2, 0]]


def test_first_duplicate() -> None:
    labels = np.array([[1, 2, -1, -1], [3, 1, 2, 0], [4, 0, 1, 4]], np.int32)
    assert kernels.first_duplicate(labels) == 2
    assert kernels.first_duplicate(labels[:2]) == -1


@given(st.lists(st.floats(-1e12, 1e12), max_size=40))
@settings(max_examples=50, deadline=None)
def test_add_up_is_as_good_as_an_exact_sum(values: list[float]) -> None:
    high, low = np.zeros(1), np.zeros(1)
    kernels.add_up(np.array([values]).reshape(1, -1), high, low)
    assert high[0] + low[0] == pytest.approx(math.fsum(values), rel=1e-15, abs=1e-15)


def test_add_up_keeps_what_rounding_takes() -> None:
    high, low = np.zeros(1), np.zeros(1)
    kernels.add_up(np.array([[1e16, 1.0, 1.0, 1.0, -1e16]]), high, low)
    assert high[0] + low[0] == 3.0


scores_on_a_grid = st.integers(-3, 3).map(lambda value: value / 2)


@given(st.lists(st.dictionaries(st.integers(0, 9), scores_on_a_grid), min_size=1, max_size=6), st.integers(1, 12))
@settings(max_examples=100, deadline=None)
def test_top_k_from_sparse(rows: list[dict[int, float]], k: int) -> None:
    """Stored zeros are ranked, ties go by label id, and what is left over is padding."""
    entries = [(row, label, score) for row, scores in enumerate(rows) for label, score in scores.items()]
    indptr = np.concatenate([[0], np.cumsum([len(scores) for scores in rows])])
    labels = np.array([label for _, label, _ in entries], np.int32)
    matrix = sp.csr_array((np.array([score for *_, score in entries]), labels, indptr), shape=(len(rows), 10))
    top = top_k_from_sparse(matrix, k)
    for row, scores in enumerate(rows):
        expected = sorted(scores.items(), key=lambda item: (-item[1], item[0]))[:k]
        missing = k - len(expected)
        assert top.labels[row].tolist() == [label for label, _ in expected] + [-1] * missing
        assert top.scores[row].tolist() == [score for _, score in expected] + [-math.inf] * missing


def test_top_k_from_sparse_refuses() -> None:
    with pytest.raises(ParameterError, match="k must be"):
        top_k_from_sparse(sp.csr_array([[1.0]]), 0)
    with pytest.raises(InputError, match="scores has a NaN"):
        top_k_from_sparse(sp.csr_array([[np.nan]]), 1)

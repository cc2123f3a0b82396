"""Centroids and the ranking by them, against plain numpy."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.rerank.centroid_kernels import Centroids, find_centroids, rerank


def as_csr(matrix):
    made = sp.csr_array(np.asarray(matrix, np.float32)) if not sp.issparse(matrix) else sp.csr_array(matrix)
    made.indptr, made.indices = made.indptr.astype(np.int32), made.indices.astype(np.int32)
    return made


def unit_scales(X, bias):
    return 1 / np.sqrt((X.toarray().astype(float) ** 2).sum(axis=1) + bias**2)


def find(X, Y, bias=1.0, drop=0.0, first=0, last=None, scales=None):
    columns = sp.csc_array(Y)
    dense = np.zeros(X.shape[1])
    counts, features, values, bias_parts, squares = find_centroids(
        X.indptr, X.indices, X.data, unit_scales(X, bias) if scales is None else scales, bias,
        columns.indptr.astype(np.int32), columns.indices.astype(np.int32), first,
        Y.shape[1] if last is None else last, drop, dense, np.full(X.shape[1], -1, np.int32),
    )  # fmt: skip
    assert not dense.any(), "the working memory was left dirty"
    return Centroids(np.append(0, np.cumsum(counts)).astype(np.int64), features, values, bias_parts, squares)


def in_numpy(X, Y, bias, scales):
    """Centroids of all labels with the bias feature last, a row per label; zeros where a label has no row."""
    rows = np.column_stack([X.toarray().astype(float), np.full(X.shape[0], bias)]) * scales[:, None]
    truth = Y.toarray() != 0
    return np.array(
        [rows[truth[:, label]].mean(axis=0) if truth[:, label].any() else rows[0] * 0 for label in range(Y.shape[1])]
    )


def as_dense(centroids, n_features):
    dense = np.zeros((len(centroids.bias), n_features))
    for label in range(len(dense)):
        part = slice(centroids.starts[label], centroids.starts[label + 1])
        assert (np.diff(centroids.features[part]) > 0).all(), "a feature stands twice, or out of order"
        dense[label, centroids.features[part]] = centroids.values[part]
    return dense


def data(seed, n=60, n_features=30, n_labels=12, negative=False):
    rng = np.random.default_rng(seed)
    X = sp.random_array((n, n_features), density=0.25, rng=rng, format="csr", dtype=np.float32)
    X.data[:] = rng.normal(size=X.nnz) if negative else rng.uniform(0.05, 3, X.nnz)
    Y = sp.random_array((n, n_labels), density=0.15, rng=rng, format="csr", dtype=np.float32)
    X, Y = sp.lil_array(X), sp.lil_array(Y.sign())
    X[[4], :] = 0
    Y[:, [5]] = 0  # a label without rows
    return as_csr(X), as_csr(Y)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("negative", [False, True])
@pytest.mark.parametrize("bias", [0.0, 1.0, 2.5])
def test_centroids_are_the_means_of_the_rows(seed, negative, bias):
    X, Y = data(seed, negative=negative)
    scales = unit_scales(X, bias) if bias else np.random.default_rng(seed).uniform(0.2, 2, X.shape[0])
    found, expected = find(X, Y, bias, scales=scales), in_numpy(X, Y, bias, scales)
    np.testing.assert_allclose(as_dense(found, 30), expected[:, :-1], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(found.bias, expected[:, -1], rtol=1e-5)
    np.testing.assert_allclose(found.squares, (expected**2).sum(axis=1), rtol=1e-5)
    assert found.starts[5] == found.starts[6]


def test_labels_can_be_processed_in_parts():
    X, Y = data(0)
    whole, parts = (
        find(X, Y, drop=0.1),
        [find(X, Y, drop=0.1, first=first, last=last) for first, last in ((0, 5), (5, 12))],
    )
    for name in ("features", "values", "bias", "squares"):
        np.testing.assert_array_equal(np.concatenate([getattr(part, name) for part in parts]), getattr(whole, name))


def test_many_values_in_one_centroid():
    """More features than there is room for at first."""
    rng = np.random.default_rng(0)
    X = as_csr(rng.uniform(0.1, 1, (3, 5000)))
    Y = as_csr(np.array([[1, 1], [1, 0], [0, 1]]))
    expected = in_numpy(X, Y, 1.0, unit_scales(X, 1.0))
    np.testing.assert_allclose(as_dense(find(X, Y), 5000), expected[:, :-1], rtol=1e-5)


def test_stored_zeros_are_no_values():
    dense = np.array([[0, 1, 0], [2, 0, 0]], np.float32)
    stored = sp.csr_array((dense.ravel(), np.tile(np.arange(3, dtype=np.int32), 2), np.array([0, 3, 6], np.int32)))
    found = find(stored, as_csr(np.array([[1], [1]])))
    np.testing.assert_array_equal(found.features, [0, 1])


def test_values_that_cancel_out_count_once():
    """Feature 0 adds up to 0 after two rows and to 1 after three."""
    X, Y = as_csr(np.array([[1, 0], [-1, 0], [1, 3]])), as_csr(np.ones((3, 1)))
    scales = np.ones(3)
    found = find(X, Y, scales=scales)
    np.testing.assert_allclose(as_dense(found, 2), [[1 / 3, 1]], rtol=1e-6)
    np.testing.assert_allclose(found.squares, [1 / 9 + 1 + 1], rtol=1e-6)
    nothing = find(as_csr(np.array([[1], [-1]])), as_csr(np.ones((2, 1))), scales=np.ones(2))
    np.testing.assert_array_equal(as_dense(nothing, 1), [[0]])


@settings(max_examples=80)
@given(
    sizes=st.lists(st.integers(0, 12), min_size=1, max_size=12),
    signs=st.integers(0, 2**12),
    drop=st.sampled_from([0.0, 0.01, 0.05, 0.1, 0.3, 0.5, 0.9, 2.0]),
)
def test_dropped_values_are_small_and_within_the_bound(sizes, signs, drop):
    row = np.array([size * (-1 if signs >> at & 1 else 1) for at, size in enumerate(sizes)], np.float32)
    X, Y = as_csr(row[None, :]), as_csr(np.ones((1, 1)))
    whole = in_numpy(X, Y, 1.0, unit_scales(X, 1.0))[0]
    found = find(X, Y, drop=drop)
    kept = as_dense(found, len(sizes))[0]
    dropped = np.where(kept == 0, whole[:-1], 0)
    np.testing.assert_allclose(kept + dropped, whole[:-1], rtol=1e-5)
    assert np.linalg.norm(dropped) <= drop + 1e-6
    np.testing.assert_allclose(found.squares, whole @ whole, rtol=1e-5)  # of the whole, whatever was dropped
    if kept.any() and drop > 0:
        smallest = np.abs(kept[kept != 0]).min()
        assert np.abs(dropped).max() < smallest * (1 + 1e-6)
        next_too = np.abs(whole[:-1]) <= smallest * (1 + 1e-6)
        assert np.linalg.norm(whole[:-1][next_too]) > drop - 1e-6, "more could have been dropped"


def test_nothing_is_dropped_without_leave():
    X, Y = data(1)
    tiny = X.copy()
    tiny.data[::7] = 1e-12
    assert len(find(tiny, Y).values) == np.count_nonzero(in_numpy(tiny, Y, 1.0, unit_scales(tiny, 1.0))[:, :-1])


def candidates_for(n_rows, n_labels, m, seed):
    rng = np.random.default_rng(seed)
    labels = np.array([rng.permutation(n_labels)[:m] for _ in range(n_rows)], np.int32)
    strengths = rng.uniform(-6, 1, labels.shape).astype(np.float32)
    labels[rng.random(labels.shape) < 0.1] = -1
    strengths[rng.random(labels.shape) < 0.1] = -np.inf
    return labels, strengths


def rerank_in_numpy(rows, centroids, gamma, alpha, candidates, strengths, k):
    labels, scores = np.full((len(rows), k), -1), np.full((len(rows), k), -np.inf)
    for at, row in enumerate(rows):
        found = []
        for label, strength in zip(candidates[at], strengths[at], strict=True):
            if label >= 0 and strength > -np.inf:
                near = 1 / (1 + np.exp(gamma * ((row - centroids[label]) ** 2).sum()))
                found.append((-(np.exp(float(strength)) ** alpha) * near ** (1 - alpha), label))
        for place, (score, label) in enumerate(sorted(found)[:k]):
            labels[at, place], scores[at, place] = label, -score
    return labels, scores


@pytest.mark.parametrize(("gamma", "alpha"), [(30.0, 0.8), (5.0, 0.3), (2.0, 0.0), (30.0, 1.0), (0.0, 0.5)])
@pytest.mark.parametrize("k", [1, 4, 12])
def test_rankings_are_those_of_numpy(gamma, alpha, k):
    X, Y = data(3)
    bias, scales = 1.0, unit_scales(X, 1.0)
    centroids = find(X, Y, bias)
    candidates, strengths = candidates_for(60, 12, 8, seed=k)
    labels, scores = np.full((60, k), -1, np.int32), np.full((60, k), -np.inf, np.float32)
    dense = np.zeros(30, np.float32)

    def run(first, last):
        part = slice(first, last)
        rerank(
            X.indptr, X.indices, X.data, scales, first, last, bias, centroids, gamma, alpha, candidates[part],
            strengths[part], dense, labels[part], scores[part],
        )  # fmt: skip

    run(0, 25)
    assert (labels[25:] == -1).all()
    run(25, 60)
    assert not dense.any()
    rows = np.column_stack([X.toarray(), np.ones(60)]) * scales[:, None]
    expected = rerank_in_numpy(rows, in_numpy(X, Y, bias, scales), gamma, alpha, candidates, strengths, k)
    np.testing.assert_array_equal(labels, expected[0])
    np.testing.assert_allclose(scores, expected[1], rtol=2e-4)


def test_scores_by_hand():
    """A row on the centroid is worth 1/2; at a right angle, the squared distance is 2."""
    X, Y = as_csr(np.eye(2)), as_csr(np.eye(2))
    centroids = find(X, Y, bias=0.0)
    labels, scores = np.full((1, 2), -1, np.int32), np.full((1, 2), -np.inf, np.float32)
    rerank(
        X.indptr, X.indices, X.data, np.ones(2), 0, 1, 0.0, centroids, 3.0, 0.25, np.array([[0, 1]], np.int32),
        np.log(np.array([[0.5, 0.9]], np.float32)), np.zeros(2, np.float32), labels, scores,
    )  # fmt: skip
    np.testing.assert_array_equal(labels, [[0, 1]])
    np.testing.assert_allclose(scores, [[0.5**0.25 * 0.5**0.75, 0.9**0.25 * (1 / (1 + np.exp(6))) ** 0.75]], rtol=1e-5)


def test_equal_scores_go_by_the_lower_label():
    X, Y = as_csr(np.eye(2)), as_csr(np.array([[1, 1, 1], [0, 0, 0]]))
    labels, scores = np.full((1, 3), -1, np.int32), np.full((1, 3), -np.inf, np.float32)
    rerank(
        X.indptr, X.indices, X.data, unit_scales(X, 1.0), 0, 1, 1.0, find(X, Y), 3.0, 0.5,
        np.array([[2, 0, 1]], np.int32), np.zeros((1, 3), np.float32), np.zeros(2, np.float32), labels, scores,
    )  # fmt: skip
    np.testing.assert_array_equal(labels, [[0, 1, 2]])
    np.testing.assert_allclose(scores, np.sqrt(0.5), rtol=1e-5)

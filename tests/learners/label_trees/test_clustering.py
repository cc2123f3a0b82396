import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from longtail.kernels.lanes import LANES, from_bfloat16, to_bfloat16
from longtail.learners.label_trees.clustering import (
    Bisections,
    add_rows,
    bisect_dense,
    bisect_sparse,
    cut_rows,
    mark_largest,
    nearest_centres,
    read_rows,
    sum_panel,
    unit_lanes,
)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def unit(vectors):
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)


def sparse_points(rng, n, features=40, density=0.2):
    return sp.csr_array(sp.random_array((n, features), density=density, rng=rng, dtype=np.float32))


def bisected(points, order, begins, middles, ends, firsts, seconds, stop=0):
    table = [np.array(column, np.int64) for column in (begins, middles, ends, firsts, seconds)]
    order, flag = np.array(order, np.int32), np.array([stop], np.uint8)
    if sp.issparse(points):
        matrix = points.indptr.astype(np.int64), points.indices.astype(np.int32), points.data
        bisect_sparse(*matrix, points.shape[1], order, Bisections(*table), flag)
    else:
        bisect_dense(points, order, Bisections(*table), flag)
    return order.tolist()


def reference_bisection(points, labels, count, first, second):
    """Balanced spherical 2-means with numpy's sort."""
    rows = points[labels].astype(float)
    centres = unit(rows[[first, second]])
    before = -np.inf
    for _ in range(20):
        order = np.argsort(-(rows @ (centres[0] - centres[1])), kind="stable")
        parts = np.sort(order[:count]), np.sort(order[count:])
        centres = unit(np.stack([rows[part].sum(axis=0) for part in parts]))
        mean = sum((rows[part] @ centre).sum() for part, centre in zip(parts, centres, strict=True)) / len(rows)
        if mean - before < 1e-4:
            break
        before = mean
    return [labels[at] for part in parts for at in part]


@pytest.mark.parametrize("half", [False, True])
def test_rows_are_scaled_and_added(rng, half):
    X = sparse_points(rng, 12)
    weights = rng.normal(size=(40, LANES)).astype(np.float32)
    weights = to_bfloat16(weights) if half else weights
    scales = rng.uniform(1, 2, 12)
    out = rng.normal(size=(12, LANES)).astype(np.float32)
    expected = out.copy()
    plain = from_bfloat16(weights) if half else weights
    expected[3:9] += (scales[:, None] * (X @ plain))[3:9]
    add_rows(X.indptr.astype(np.int64), X.indices.astype(np.int32), X.data, scales, 3, 9, weights, out)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=60), st.data())
def test_the_largest_are_marked_and_of_equals_the_first(numbers, data):
    count = data.draw(st.integers(1, len(numbers)))
    scores = np.array(numbers, np.float32)
    marks = np.full(len(numbers), 9, np.uint8)
    mark_largest(scores, count, np.empty_like(scores), marks)
    chosen = sorted(range(len(numbers)), key=lambda at: (-numbers[at], at))[:count]
    assert np.flatnonzero(marks).tolist() == sorted(chosen)
    assert scores.tolist() == numbers
    assert set(marks.tolist()) <= {0, 1}


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_two_directions_by_hand(form):
    # From labels 0 and 1, (1, 0) and (0, 1): the differences x - y are 1, -1, 0.2, -0.2, 0.6.
    points = form(np.array([[1, 0], [0, 1], [0.8, 0.6], [0.6, 0.8], [0.96, 0.28]], np.float32))
    assert bisected(points, [0, 1, 2, 3, 4], [0], [2], [5], [0], [1]) == [0, 4, 1, 2, 3]
    assert bisected(points, [0, 1, 2, 3, 4], [0], [3], [5], [0], [1]) == [0, 2, 4, 1, 3]


@given(st.integers(0, 2**32 - 1), st.integers(2, 40), st.data())
def test_bisections_equal_the_plain_ones(seed, n, data):
    rng = np.random.default_rng(seed)
    count = data.draw(st.integers(1, n - 1))
    first, second = rng.choice(n, 2, replace=False).tolist()
    points = unit(rng.normal(size=(n + 5, 12))).astype(np.float32)
    labels = np.sort(rng.choice(n + 5, n, replace=False)).tolist()
    expected = reference_bisection(points, labels, count, first, second)
    assert bisected(points, labels, [0], [count], [n], [first], [second]) == expected
    assert bisected(sp.csr_array(points), labels, [0], [count], [n], [first], [second]) == expected


@pytest.mark.parametrize("dense", [False, True])
def test_sparse_stretches_of_a_list_one_after_the_other(rng, dense):
    points = sparse_points(rng, 30, density=0.3)
    plain = points.toarray()
    given = plain if dense else points
    order = list(range(30))
    top = reference_bisection(plain, order[4:28], 12, 1, 9)
    left, right = reference_bisection(plain, top[:12], 5, 0, 3), reference_bisection(plain, top[12:], 6, 2, 1)
    result = bisected(given, order, [4, 4, 16], [16, 9, 22], [28, 16, 28], [1, 0, 2], [9, 3, 1])
    assert result == [0, 1, 2, 3, *left, *right, 28, 29]


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_equal_and_empty_points_are_cut_in_order(form):
    for rows in (np.ones((6, 3), np.float32), np.zeros((6, 3), np.float32)):
        assert bisected(form(rows), [5, 4, 3, 2, 1, 0], [0], [2], [6], [0], [4]) == [5, 4, 3, 2, 1, 0]


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_a_stop_leaves_the_list(form):
    points = form(np.eye(4, dtype=np.float32)[[0, 1, 0, 1]])
    assert bisected(points, [0, 1, 2, 3], [0], [2], [4], [0], [1]) == [0, 2, 1, 3]
    assert bisected(points, [0, 1, 2, 3], [0], [2], [4], [0], [1], stop=1) == [0, 1, 2, 3]


@pytest.mark.parametrize("n", [1, 5000, 9000])
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("chosen", [False, True])
def test_blocks_of_rows_are_all_rows(rng, n, dense, chosen):
    X = sparse_points(rng, n, features=80, density=0.02)
    labels = rng.permutation(n)[: max(n // 2, 1)].astype(np.int32) if chosen else None
    expected = X.toarray() if labels is None else X.toarray()[labels]
    points = X.toarray() if dense else X
    parts = cut_rows(points, len(expected))
    assert [at for part in parts for at in range(part.start, part.stop)] == list(range(len(expected)))
    for part in parts:
        indptr, indices, values = read_rows(points, labels, part)
        begin, end = indptr[0], indptr[-1]
        block = sp.csr_array((values[begin:end], indices[begin:end], indptr - begin), shape=(len(indptr) - 1, 80))
        np.testing.assert_array_equal(block.toarray(), expected[part])
    assert n < 5000 or len(cut_rows(X, n)) > 1


def test_panels_hold_the_sums_of_groups(rng):
    X = sparse_points(rng, 50)
    groups = rng.integers(0, 100, 50).astype(np.int32)
    panel = np.zeros((40, LANES), np.float32)
    sum_panel(X.indptr.astype(np.int64), X.indices.astype(np.int32), X.data, groups, 30, panel)
    for lane in range(LANES):
        expected = X.toarray()[groups == 30 + lane].sum(axis=0)
        np.testing.assert_allclose(panel[:, lane], expected, rtol=1e-5, atol=1e-6)
    lengths = np.linalg.norm(panel, axis=0)
    before = panel.copy()
    np.testing.assert_allclose(unit_lanes(panel), lengths, rtol=1e-6)
    np.testing.assert_allclose(panel, unit(before.T).T, rtol=1e-5)
    assert (lengths == 0).any()


def test_nearest_centres_over_two_panels(rng):
    X = sparse_points(rng, 60)
    centres = rng.normal(size=(100, 40)).astype(np.float32)
    centres[77] = centres[12]  # equals: the first wins
    open_ = np.arange(100, dtype=np.int32)
    open_[[3, 70]] = -1
    own = rng.integers(-1, 100, 60).astype(np.int32)
    best, cosines = np.full(60, -1, np.int32), np.full(60, -np.inf, np.float32)
    own_cosines = np.full(60, 9, np.float32)
    for first in (0, LANES):
        panel = np.zeros((40, LANES), np.float32)
        some = centres[first : first + LANES]
        panel[:, : len(some)] = some.T
        rows = X.indptr.astype(np.int64), X.indices.astype(np.int32), X.data
        nearest_centres(*rows, panel, open_[first : first + LANES], own, best, cosines, own_cosines)
    scores = X @ centres.T
    allowed = scores.copy()
    allowed[:, [3, 70, 77]] = -np.inf
    allowed[np.arange(60)[own >= 0], own[own >= 0]] = -np.inf
    twin = own == 12
    allowed[twin, 77] = scores[twin, 77]
    np.testing.assert_array_equal(best, allowed.argmax(axis=1))
    np.testing.assert_allclose(cosines, allowed.max(axis=1), rtol=1e-5, atol=1e-5)
    known = (own >= 0) & ~np.isin(own, [3, 70])
    np.testing.assert_allclose(own_cosines[known], scores[np.arange(60), own][known], rtol=1e-5, atol=1e-5)
    assert (own_cosines[~known] == 9).all()

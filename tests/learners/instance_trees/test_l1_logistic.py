"""The solver of a node against liblinear's, and against the conditions that hold at an optimum."""

from typing import NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from longtail.learners.instance_trees.l1_logistic import L1Limits, L1Memory, L1Problem, release, solve_l1_logistic

EXACT = L1Limits(max_iter=300, max_inner_iter=1000, tol=2e-6)
QUICK = L1Limits(max_iter=10, max_inner_iter=10, tol=0.01)


class Solution(NamedTuple):
    weights: np.ndarray
    bias_weight: float
    margins: np.ndarray
    touched: np.ndarray


def solve(X, sides, costs=(1.0, 1.0), bias=1.0, limits=EXACT, rows=None, seed=0, memory=None):
    """Run the kernel, and take the result out of the memory."""
    n, n_features = X.shape
    rows = np.arange(n) if rows is None else rows
    memory = memory or L1Memory.for_matrix(n, n_features, X.nnz)
    margins = np.full(len(rows), np.nan)
    problem = L1Problem(
        X.indptr.astype(np.int32), X.indices.astype(np.int32), X.data, np.asarray(rows, np.int32),
        np.asarray(sides, np.int8), *costs, bias,
    )  # fmt: skip
    found = solve_l1_logistic(problem, limits, np.array([seed], np.uint64), memory, margins)
    weights = memory.weights.copy()
    touched = memory.touched[:found].copy()
    release(found, memory)
    return Solution(weights[:-1], float(weights[-1]), margins, touched)


def problem(seed, n=40, n_features=12, density=0.4, whole=False):
    rng = np.random.default_rng(seed)
    X = sp.random_array((n, n_features), density=density, rng=rng, format="csr", dtype=np.float32)
    X.data[:] = rng.integers(1, 4, X.nnz) if whole else rng.normal(size=X.nnz)
    sides = (X.toarray() @ rng.normal(size=n_features) + rng.normal(size=n) > 0.3).astype(np.int8)
    return sp.csr_array(X), sides


def objective(X, sides, costs, bias, weights, bias_weight):
    z = (X.toarray().astype(float) @ weights + bias * bias_weight) * np.where(sides, 1, -1)
    each = np.where(sides, costs[1], costs[0])
    return each @ np.logaddexp(0, -z) + np.abs(weights).sum() + abs(bias_weight)


def violation(X, sides, costs, bias, weights, bias_weight):
    """How far from an optimum: slopes must be -1 or 1 against the sign of a weight, and within for weights of 0."""
    dense = np.column_stack([X.toarray().astype(float), np.full(X.shape[0], bias)])
    w = np.append(weights, bias_weight).astype(float)
    signs = np.where(sides, 1.0, -1.0)
    pulls = np.where(sides, costs[1], costs[0]) * signs / (1 + np.exp(signs * (dense @ w)))
    slopes = -dense.T @ pulls
    return np.where(w == 0, np.maximum(np.abs(slopes) - 1, 0), np.abs(slopes + np.sign(w))).max()


def liblinear(X, sides, costs, bias):
    """Its intercept is the weight of a feature with the value `intercept_scaling`, and penalised like any other."""
    solver = LogisticRegression(
        l1_ratio=1.0, solver="liblinear", C=1.0, class_weight={0: costs[0], 1: costs[1]}, intercept_scaling=bias or 1.0,
        fit_intercept=bias > 0, tol=1e-9, max_iter=100_000, random_state=0,
    ).fit(X.toarray().astype(np.float64), sides)  # fmt: skip
    return solver.coef_[0], solver.intercept_[0] / bias if bias else 0.0


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("costs", "bias"), [((1.0, 1.0), 1.0), ((0.7, 3.0), 1.0), ((5.0, 0.4), 0.5), ((20.0, 20.0), 2.0), ((2.0, 1.0), 0.0)]
)
def test_the_optimum_is_liblinears(seed, costs, bias):
    X, sides = problem(seed)
    found = solve(X, sides, costs, bias)
    weights, bias_weight = liblinear(X, sides, costs, bias)
    ours = objective(X, sides, costs, bias, found.weights, found.bias_weight)
    theirs = objective(X, sides, costs, bias, weights, bias_weight)
    assert ours <= theirs * (1 + 1e-6)
    assert violation(X, sides, costs, bias, found.weights, found.bias_weight) < 1e-3 * max(1.0, *costs)
    np.testing.assert_allclose(found.weights, weights, rtol=1e-3, atol=2e-3)
    np.testing.assert_allclose(found.bias_weight, bias_weight, rtol=1e-3, atol=2e-3)
    assert np.count_nonzero(found.weights) > 0
    np.testing.assert_array_equal(found.weights != 0, np.abs(weights) > 1e-6)


def test_wide_and_sparse_problems_too():
    """More features than rows, of which few get a weight."""
    X, sides = problem(5, n=60, n_features=400, density=0.03)
    costs = (3.0, 2.0)
    found = solve(X, sides, costs)
    ours = objective(X, sides, costs, 1.0, found.weights, found.bias_weight)
    theirs = objective(X, sides, costs, 1.0, *liblinear(X, sides, costs, 1.0))
    assert ours <= theirs * (1 + 1e-6)
    assert 0 < np.count_nonzero(found.weights) < 60


def test_the_margins_are_those_of_the_weights():
    for limits in (EXACT, QUICK):
        X, sides = problem(1)
        found = solve(X, sides, (2.0, 3.0), 0.5, limits)
        expected = X.toarray().astype(float) @ found.weights + 0.5 * found.bias_weight
        np.testing.assert_allclose(found.margins, expected, atol=1e-5)


@settings(max_examples=60)
@given(data=st.data())
def test_every_result_meets_the_conditions_of_an_optimum(data):
    n, n_features = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 6))
    cells = data.draw(st.lists(st.integers(-2, 3), min_size=n * n_features, max_size=n * n_features))
    X = sp.csr_array(np.array(cells, np.float32).reshape(n, n_features))
    sides = np.array(data.draw(st.lists(st.integers(0, 1), min_size=n, max_size=n)), np.int8)
    costs = tuple(data.draw(st.sampled_from([0.2, 0.5, 1.0, 3.0, 10.0])) for _ in range(2))
    bias = data.draw(st.sampled_from([0.0, 0.5, 1.0]))
    found = solve(X, sides, costs, bias)
    assert violation(X, sides, costs, bias, found.weights, found.bias_weight) < 1e-3 * max(1.0, *costs)


def test_a_tolerance_below_rounding_errors_does_no_harm():
    """No feature is left out because those that were let in can't be made any better."""
    cells = np.zeros((6, 5), np.float32)
    cells[[1, 2, 3, 3, 4, 4, 5], [4, 4, 3, 4, 2, 3, 4]] = [1, 3, 1, 1, 1, 1, 2]
    X, sides, costs = sp.csr_array(cells), np.array([0, 0, 0, 1, 0, 1], np.int8), (10.0, 10.0)
    for tolerance in (1e-4, 1e-7, 1e-12):
        found = solve(X, sides, costs, 0.0, L1Limits(300, 1000, tolerance))
        assert violation(X, sides, costs, 0.0, found.weights, found.bias_weight) < 1e-3 * max(1.0, *costs)


@pytest.mark.parametrize("seed", range(4))
def test_each_newton_step_lowers_the_objective(seed):
    X, sides = problem(seed, n=60, n_features=30)
    costs = (4.0, 7.0)
    heights = []
    for steps in range(1, 12):
        found = solve(X, sides, costs, limits=L1Limits(steps, 10, 1e-9))
        heights.append(objective(X, sides, costs, 1.0, found.weights, found.bias_weight))
    start = np.where(sides, costs[1], costs[0]).sum() * np.log(2)
    assert heights[0] < start
    assert (np.diff(heights) <= 1e-6 * start).all()
    best = objective(X, sides, costs, 1.0, *liblinear(X, sides, costs, 1.0))
    assert heights[-1] - best < 0.01 * (start - best)


def test_a_tolerance_ends_it_early():
    """The published limits come near the optimum, not to it."""
    X, sides = problem(2, n=60, n_features=30)
    costs = (4.0, 7.0)
    quick, exact = (solve(X, sides, costs, limits=limits) for limits in (QUICK, EXACT))
    heights = [objective(X, sides, costs, 1.0, found.weights, found.bias_weight) for found in (quick, exact)]
    start = np.where(sides, costs[1], costs[0]).sum() * np.log(2)
    assert heights[1] < heights[0] < heights[1] + 0.02 * (start - heights[1])


def test_weak_costs_leave_every_weight_at_zero():
    X, sides = problem(0)
    slopes = X.toarray().T @ np.where(sides, 0.5, -0.5)
    steepest = max(np.abs(slopes).max(), abs(np.where(sides, 0.5, -0.5).sum()))
    below, above = (solve(X, sides, (cost, cost)) for cost in (0.99 / steepest, 1.01 / steepest))
    assert not below.weights.any()
    assert below.bias_weight == 0
    assert not below.margins.any()
    assert np.count_nonzero(above.weights) + (above.bias_weight != 0) == 1


def test_some_of_the_rows_are_a_problem_of_their_own():
    X, sides = problem(3, n=50, whole=True)
    chosen = np.array([40, 3, 17, 22, 5, 8, 31, 49, 0, 12, 26, 35])
    part = sp.csr_array(X[chosen])
    found = solve(X, sides[chosen], (2.0, 2.0), rows=chosen)
    alone = solve(part, sides[chosen], (2.0, 2.0))
    for one, other in zip(found[:3], alone[:3], strict=True):
        np.testing.assert_array_equal(one, other)
    assert set(found.touched) == set(part.indices) | {X.shape[1]}
    assert len(found.touched) == len(set(found.touched))
    assert found.touched[-1] == X.shape[1]


def test_stored_zeros_mean_nothing():
    X, sides = problem(4)
    dense = X.toarray()
    stored = sp.csr_array(
        (dense.ravel(), np.tile(np.arange(12, dtype=np.int32), 40), np.arange(0, 481, 12, dtype=np.int32)),
        shape=X.shape,
    )
    stored = sp.csr_array(sp.hstack([stored, sp.csr_array((np.zeros(40, np.float32), np.zeros(40, int), range(41)))]))
    assert stored.nnz == 40 * 13
    plain, zeros = solve(X, sides, (3.0, 1.0)), solve(stored, sides, (3.0, 1.0))
    np.testing.assert_allclose(zeros.weights[:12], plain.weights, atol=1e-3)
    assert zeros.weights[12] == 0


def test_without_a_bias_feature_it_has_no_weight():
    X, sides = problem(1)
    assert solve(X, sides, (3.0, 1.0), bias=1.0).bias_weight != 0
    found = solve(X, sides, (3.0, 1.0), bias=0.0)
    assert found.bias_weight == 0
    np.testing.assert_allclose(found.margins, X.toarray() @ found.weights, atol=1e-5)


def test_rows_of_one_side_are_fitted_by_the_bias():
    """The optimum by hand: n log(1 + exp(-b)) + b is lowest where n / (1 + exp(b)) = 1."""
    X = sp.csr_array((9, 2), dtype=np.float32)
    found = solve(X, np.ones(9))
    assert found.bias_weight == pytest.approx(np.log(8), abs=1e-3)
    assert solve(X, np.zeros(9)).bias_weight == pytest.approx(-np.log(8), abs=1e-3)
    np.testing.assert_array_equal(found.touched, [2])


def test_the_memory_is_clean_for_the_next_problem():
    X, sides = problem(0)
    other_X, other_sides = problem(9)
    memory = L1Memory.for_matrix(X.shape[0], X.shape[1], max(X.nnz, other_X.nnz))
    expected = solve(other_X, other_sides, (2.0, 5.0))
    for limits in (QUICK, EXACT):
        solve(X, sides, (9.0, 1.0), limits=limits, memory=memory)
        assert not memory.weights.any()
        assert not memory.counts.any()
        assert (memory.columns == -1).all()
        again = solve(other_X, other_sides, (2.0, 5.0), memory=memory)
        for one, other in zip(again, expected, strict=True):
            np.testing.assert_array_equal(one, other)


def test_the_same_state_gives_the_same_bits_and_another_the_same_optimum():
    X, sides = problem(6, n=60, n_features=30)
    one, same, other = (solve(X, sides, (4.0, 7.0), limits=QUICK, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.weights, same.weights)
    np.testing.assert_array_equal(one.margins, same.margins)
    assert (one.weights != other.weights).any()
    one, other = (solve(X, sides, (4.0, 7.0), seed=seed) for seed in (1, 2))
    np.testing.assert_allclose(one.weights, other.weights, atol=2e-3)

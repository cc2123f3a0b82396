import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit
from numba.core.errors import TypingError

from longtail.kernels.lanes import (
    LANES,
    LINE,
    from_bfloat16,
    hinge_lanes,
    lane_add,
    lane_commit,
    lane_dot,
    lane_dot_then,
    lane_scores,
    to_bfloat16,
    widen,
)


@njit
def run_dot(indices, values, start, end, weights, total, first=0, place=0):
    lane_dot(indices, values, start, end, weights, first, total, place)


@njit
def run_add(indices, values, start, end, weights, change, lines):
    lane_add(indices, values, start, end, weights, change, lines)


@njit
def run_scores(indices, values, start, end, weights, scale, bias, bias_weights, scores):
    return lane_scores(indices, values, start, end, weights, scale, bias, bias_weights, scores)


@njit
def run_dot_then(indices, values, start, end, weights, total, then):
    lane_dot_then(indices, values, start, end, weights, 0, total, 0, then)


@njit
def run_hinge(scores, dual, sign, slot, square, diagonal, bound, tolerance, change):
    return hinge_lanes(scores, dual, sign, slot, square, diagonal, bound, tolerance, change)


@njit
def run_commit(dual, sign, slot, bias_weights, bias, change, scale):
    lane_commit(dual, sign, slot, bias_weights, bias, change, scale)


@njit
def run_widen(weight):
    return widen(weight)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def sparse_row(rng, features=50, count=9):
    return rng.choice(features, count, replace=False).astype(np.int32), rng.normal(size=count).astype(np.float32)


@pytest.mark.parametrize(("start", "end"), [(0, 9), (2, 7), (4, 4), (8, 9)])
def test_dot_adds_to_the_total(rng, start, end):
    indices, values = sparse_row(rng)
    weights = rng.normal(size=(50, LANES)).astype(np.float32)
    total = rng.normal(size=LANES).astype(np.float32)
    expected = total + values[start:end] @ weights[indices[start:end]]
    run_dot(indices, values, start, end, weights, total)
    np.testing.assert_allclose(total, expected, rtol=1e-5, atol=1e-6)


def test_dot_of_half_width_weights(rng):
    indices, values = sparse_row(rng)
    weights = to_bfloat16(rng.normal(size=(50, LANES)).astype(np.float32))
    total = np.zeros(LANES, np.float32)
    run_dot(indices, values, 0, 9, weights, total)
    np.testing.assert_allclose(total, values @ from_bfloat16(weights)[indices], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("halve", [False, True])
def test_dot_with_later_rows_into_a_later_place_leaves_the_rest(rng, halve):
    indices, values = sparse_row(rng)
    weights = rng.normal(size=(70, LANES)).astype(np.float32)
    total = np.zeros((2, 3 * LANES), np.float32)
    run_dot(indices, values, 0, 9, to_bfloat16(weights) if halve else weights, total, 20, 4 * LANES)
    if halve:
        weights = from_bfloat16(to_bfloat16(weights))
    np.testing.assert_allclose(total[1, LANES : 2 * LANES], values @ weights[indices + 20], rtol=1e-5, atol=1e-6)
    total[1, LANES : 2 * LANES] = 0
    assert (total == 0).all()


@pytest.mark.parametrize("lines", range(16))
def test_add_changes_only_the_named_rows_and_lines(rng, lines):
    indices, values = sparse_row(rng)
    weights = rng.normal(size=(50, LANES)).astype(np.float32)
    change = rng.normal(size=LANES).astype(np.float32)
    for line in range(LANES // LINE):
        if not (lines >> line) & 1:
            change[line * LINE : (line + 1) * LINE] = 0
    expected = weights.copy()
    expected[indices[1:8]] += values[1:8, None] * change
    run_add(indices, values, 1, 8, weights, change, lines)
    np.testing.assert_allclose(weights, expected, rtol=1e-5, atol=1e-6)


def test_dot_that_fetches_ahead_is_the_same(rng):
    indices, values = sparse_row(rng)
    panels = to_bfloat16(rng.normal(size=(3, 50, LANES)).astype(np.float32))
    for panel in panels:
        plain, ahead = np.zeros((2, LANES), np.float32)
        run_dot(indices, values, 0, 9, panel, plain)
        run_dot_then(indices, values, 0, 9, panel, ahead, 50)
        np.testing.assert_array_equal(plain, ahead)


def test_arrays_of_another_kind_are_not_compiled_for(rng):
    indices, values = sparse_row(rng)
    with pytest.raises(TypingError, match="weights must be a C-contiguous array"):
        run_dot(indices, values, 0, 9, rng.normal(size=(50, LANES)), np.zeros(LANES, np.float32))
    with pytest.raises(TypingError, match="values must be a C-contiguous array"):
        run_dot(
            indices, np.repeat(values, 2)[::2], 0, 9, np.zeros((50, LANES), np.float32), np.zeros(LANES, np.float32)
        )


def test_scores_and_their_largest(rng):
    indices, values = sparse_row(rng)
    weights = rng.normal(size=(50, LANES)).astype(np.float32)
    bias_weights, scores = rng.normal(size=(2, LANES)).astype(np.float32)
    expected = 0.5 * (values[2:] @ weights[indices[2:]]) + 2 * bias_weights
    largest = run_scores(indices, values, 2, 9, weights, np.float32(0.5), np.float32(2), bias_weights, scores)
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-6)
    assert largest == scores.max()


@given(st.integers(0, 2**32 - 1), st.booleans(), st.sampled_from([0.0, 0.5, 1.5]))
def test_hinge_step_is_the_minimum_of_the_dual_coordinate(seed, bounded, tolerance):
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=LANES).astype(np.float32)
    sign = rng.choice([-1, 1], LANES).astype(np.int8)
    cost = rng.uniform(0.1, 5, (2, LANES)).astype(np.float32)
    diagonal = np.zeros_like(cost) if bounded else 1 / (2 * cost)
    bound = cost if bounded else np.full_like(cost, 3e38)
    chosen = (sign > 0).astype(int)
    lanes = np.arange(LANES)
    upper = np.minimum(bound[chosen, lanes], 4)
    dual = (rng.uniform(0, 1, LANES) * upper * rng.choice([0, 0.5, 1], LANES)).astype(np.float32)
    change = np.empty(LANES, np.float32)
    duals, signs = np.stack([dual + 9, dual]), np.stack([-sign, sign])
    square, least = np.float32(1.7), np.float32(tolerance)
    lines, most = run_hinge(scores, duals, signs, 1, square, diagonal, bound, least, change)

    diag = diagonal[chosen, lanes].astype(float)
    gradient = sign * scores.astype(float) - 1 + diag * dual
    new = np.clip(dual - gradient / (1.7 + diag), 0, bound[chosen, lanes])
    clear = np.abs(np.abs(gradient) - tolerance) > 1e-5
    new[np.abs(gradient) <= tolerance] = dual[np.abs(gradient) <= tolerance]
    np.testing.assert_allclose(change[clear], ((new - dual) * sign)[clear], rtol=1e-4, atol=1e-5)
    assert most == pytest.approx((dual + change * sign).max(), rel=1e-5)
    moved = (change != 0).reshape(-1, LINE).any(axis=1)
    assert [bool((lines >> line) & 1) for line in range(LANES // LINE)] == moved.tolist()


def test_commit_takes_the_step(rng):
    dual = rng.normal(size=(3, LANES)).astype(np.float32)
    bias_weights, change = rng.normal(size=(2, LANES)).astype(np.float32)
    sign = rng.choice([-1, 1], (3, LANES)).astype(np.int8)
    expected = dual.copy(), bias_weights + 2 * change, change * np.float32(0.25)
    expected[0][1] += sign[1] * change
    run_commit(dual, sign, 1, bias_weights, np.float32(2), change, np.float32(0.25))
    for result, wanted in zip((dual, bias_weights, change), expected, strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)


@given(st.floats(width=32, min_value=-(2.0**100), max_value=2.0**100))
def test_bfloat16_is_within_half_a_unit_in_the_last_place(number):
    value = np.array([number], np.float32)
    half = to_bfloat16(value)
    back = from_bfloat16(half)
    assert abs(back[0] - value[0]) <= max(abs(value[0]) * 2.0**-8, 1e-38)
    assert run_widen(half[0]) == back[0]
    assert run_widen(value[0]) == value[0]


def test_bfloat16_rounds_ties_to_even():
    exactly_between = np.array([1 + 2.0**-8, 1 + 3 * 2.0**-8], np.float32)
    assert from_bfloat16(to_bfloat16(exactly_between)).tolist() == [1.0, 1 + 2.0**-6]


@pytest.mark.parametrize("first", [0, 20])
def test_dot_of_integers_and_of_float16(rng, first):
    indices, values = sparse_row(rng)
    whole = rng.integers(-128, 128, (70, LANES)).astype(np.int8)
    halves = (rng.normal(size=(70, LANES)) * 10.0 ** rng.integers(-7, 4, (70, LANES))).astype(np.float16)
    for weights, exact in ((whole, whole), (halves.view(np.int16), halves)):
        chosen = exact[indices[1:8] + first].astype(float)
        total = np.full(3 * LANES, 0.5, np.float32)
        run_dot(indices, values, 1, 8, weights, total, first, LANES)
        error = np.abs(total[LANES : 2 * LANES] - 0.5 - values[1:8].astype(float) @ chosen)
        assert (error <= 1e-6 * (1 + np.abs(values[1:8]) @ np.abs(chosen))).all()
        assert (total[:LANES] == 0.5).all()
        assert (total[2 * LANES :] == 0.5).all()


def test_every_finite_float16_is_widened_exactly():
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    halves = np.concatenate([halves[np.isfinite(halves)], np.zeros(-np.isfinite(halves).sum() % LANES, np.float16)])
    rows = np.ascontiguousarray(halves.reshape(-1, LANES)).view(np.int16)
    one = np.ones(1, np.float32)
    for row in range(len(rows)):
        total = np.zeros(LANES, np.float32)
        run_dot(np.array([row], np.int32), one, 0, 1, rows, total)
        np.testing.assert_array_equal(total, halves[row * LANES : (row + 1) * LANES].astype(np.float32))


@given(st.floats(width=16, allow_nan=False, allow_infinity=False), st.integers(-128, 127))
def test_a_narrow_number_is_widened(half, whole):
    assert run_widen(np.float16(half).view(np.int16)) == np.float32(half)
    assert np.signbit(run_widen(np.float16(half).view(np.int16))) == np.signbit(half)
    assert run_widen(np.int8(whole)) == whole

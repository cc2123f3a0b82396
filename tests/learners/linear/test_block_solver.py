import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from longtail.kernels.lanes import LANES
from longtail.kernels.random import next_random, random_below
from longtail.learners.linear.block_solver import logistic_step, shuffle


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.05, 1.0, 8.0, 100.0]))
def test_logistic_step_is_the_minimum_of_the_dual_coordinate(seed, upper):
    rng = np.random.default_rng(seed)
    scores = (4 * rng.normal(size=LANES)).astype(np.float32)
    sign = rng.choice([-1, 1], LANES).astype(np.int8)
    dual = (upper * rng.uniform(0, 1, LANES) * rng.choice([0, 1], LANES)).astype(np.float32)
    bound = np.full((2, LANES), upper, np.float32)
    change = np.empty(LANES, np.float32)
    duals, signs = np.stack([dual + 9, dual]), np.stack([-sign, sign])
    lines, most = logistic_step(scores, duals, signs, 1, np.float32(2.3), bound, np.float32(0), change)

    low, high = np.full(LANES, -500.0), np.full(LANES, 500.0)
    for _ in range(100):  # bisection on what the step solves by Newton's method
        t = (low + high) / 2
        above = t + 2.3 * (upper / (1 + np.exp(-t)) - dual) + sign * scores > 0
        low, high = np.where(above, low, t), np.where(above, t, high)
    new = upper / (1 + np.exp(-low))
    np.testing.assert_allclose(change, (new - dual) * sign, atol=3e-5 * max(upper, 1))
    assert abs(most - new.max()) < 3e-5 * max(upper, 1)
    assert lines == 15


@given(st.integers(0, 400), st.booleans(), st.integers(0, 2**63))
def test_shuffle_is_a_permutation_of_the_first_numbers(count, finely, seed):
    order = np.arange(450, dtype=np.int32)
    shuffle(order, count, finely, np.array([seed], np.uint64))
    assert sorted(order[:count].tolist()) == list(range(count))
    assert order[count:].tolist() == list(range(count, 450))


def test_random_numbers_are_those_of_splitmix64():
    state = np.array([1234567], np.uint64)
    assert [int(next_random(state)) for _ in range(3)] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]
    draws = [random_below(10, state) for _ in range(1000)]
    assert set(draws) == set(range(10))

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from longtail.errors import InputError, ParameterError
from longtail.metrics import adjust, compare, evaluate
from longtail.metrics.comparison import _p_value

WEIGHTS = np.array([1.0, 2.0, 3.0, 5.0, 8.0, 13.0])


def rankings(n: int, seed: int, places: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """True labels and two rankings that come from the same distribution, independently in each row."""
    rng = np.random.default_rng(seed)
    Y = rng.random((n, 6)) < 0.3
    a, b = (np.argsort(-(Y * rng.random((n, 6)) + rng.random((n, 6))), axis=1)[:, :places] for _ in range(2))
    return a, b, Y


def test_p_values_by_full_enumeration() -> None:
    """Seven rows make 128 sets of swaps: the p-value of every metric is counted with `evaluate` alone."""
    a, b, Y = rankings(7, 4)
    b[2] = a[2]  # a row where they don't differ
    compared = compare(a, b, Y, inverse_propensity=WEIGHTS, ks=[1, 3], resamples=10, permutations=128)
    options = {"inverse_propensity": WEIGHTS, "ks": [1, 3]}
    observed = {name: item.difference for name, item in compared.items()}
    as_large = dict.fromkeys(compared, 0)
    for swaps in product([False, True], repeat=7):
        swap = np.array(swaps)[:, None]
        first, second = (evaluate(np.where(swap, *pair), Y, **options) for pair in ((b, a), (a, b)))
        for name in as_large:
            as_large[name] += abs(second[name] - first[name]) >= abs(observed[name]) - 1e-9
    assert {name: item.p_value for name, item in compared.items()} == {name: n / 128 for name, n in as_large.items()}
    assert compared.exact
    assert compared.permutations == 2**6
    assert len(set(as_large.values())) > 4


def test_by_hand() -> None:
    """Six rows; a hits in none, b in all: only the two sets of swaps that keep all rows together are as extreme."""
    Y, a, b = np.tile([1, 0], (6, 1)), np.ones((6, 1), int), np.zeros((6, 1), int)
    item = compare(a, b, Y, ks=[1], permutations=64)["P@1"]
    assert (item.a, item.b, item.difference) == (0, 100, 100)
    assert (item.low, item.high) == (100, 100)
    assert item.p_value == 2 / 64


def test_random_swaps_come_close_to_the_exact_p_value() -> None:
    a, b, Y = rankings(13, 1)
    b[:4] = np.argsort(~Y[:4], axis=1, kind="stable")[:, :3]
    exact = compare(a, b, Y, inverse_propensity=WEIGHTS, resamples=10, permutations=2**13)
    drawn = compare(a, b, Y, inverse_propensity=WEIGHTS, resamples=10, permutations=2**13 - 1)
    assert (exact.exact, drawn.exact) == (True, False)
    for name, item in exact.items():
        error = np.sqrt(item.p_value * (1 - item.p_value) / 2**13)
        assert drawn[name].p_value == pytest.approx(item.p_value, abs=4 * error + 1e-3), name


def test_antisymmetric() -> None:
    a, b, Y = rankings(60, 2)
    there, back = (compare(*pair, Y, inverse_propensity=WEIGHTS, resamples=200, permutations=500, random_state=3)
                   for pair in ((a, b), (b, a)))  # fmt: skip
    for name, item in there.items():
        other = back[name]
        assert (other.a, other.b, other.difference) == (item.b, item.a, -item.difference)
        assert (other.low, other.high) == pytest.approx((-item.high, -item.low), abs=1e-9)
        assert (other.p_value, other.adjusted) == (item.p_value, item.adjusted)


def test_threads_change_nothing_and_values_are_those_of_evaluate() -> None:
    a, b, Y = rankings(80, 5)
    one, two = (compare(a, b, Y, resamples=200, permutations=300, n_jobs=threads) for threads in (1, 2))
    assert dict(one) == dict(two)
    assert {name: item.a for name, item in one.items()} == dict(evaluate(a, Y))
    assert {name: item.b for name, item in one.items()} == dict(evaluate(b, Y))


def test_errors_of_the_first_kind() -> None:
    """200 pairs of rankings without a true difference: at most 5 % of the p-values are 0.05 or less, but for chance."""
    names = ("P@1", "nDCG@3", "PSP@3", "microF1@3", "C@1", "macroF1@3", "Hamming@3")
    found = []
    for seed in range(200):
        a, b, Y = rankings(40, seed)
        a[::7, 1:] = -1  # so that the denominators of microF1 differ
        compared = compare(a, b, Y, inverse_propensity=WEIGHTS, ks=[1, 3], resamples=1, permutations=199, n_jobs=1)
        found.append([compared[name].p_value for name in names])
    p = np.array(found)
    assert ((p <= 0.05).mean(axis=0) <= 0.05 + 2.5 * np.sqrt(0.05 * 0.95 / 200)).all()
    assert p[:, 1:3].mean(axis=0) == pytest.approx([0.5, 0.5], abs=0.06), "p-values of the null are uniform"


def test_denominators_of_micro_f1_change_sides() -> None:
    """Both hit in every row, but b decides for nothing else: no hit changes sides, the decisions do."""
    Y = np.tile([1, 0, 0], (10, 1))
    a, b = np.tile([0, 1], (10, 1)), np.tile([0, -1], (10, 1))
    item = compare(a, b, Y, ks=[2], permutations=1024)["microF1@2"]
    assert (item.a, item.b) == pytest.approx((100 * 20 / 30, 100))
    assert item.p_value == 2 / 1024


def test_a_clear_difference_is_found() -> None:
    a, b, Y = rankings(300, 0)
    better = np.where(np.random.default_rng(1).random((300, 1)) < 0.7, np.argsort(~Y, axis=1, kind="stable")[:, :3], b)
    compared = compare(a, better, Y, inverse_propensity=WEIGHTS, resamples=300, permutations=2000)
    for name in ("P@3", "nDCG@3", "PSP@5", "microF1@3"):
        assert compared[name].low > 0
        assert compared[name].adjusted < 0.05
    assert compared["Hamming@3"].high < 0


def test_tiny_differences_count_and_rounding_does_not() -> None:
    """With a million labels one wrong decision is 1e-9 percent; half of it is smaller, and as much but for rounding is
    as large."""
    swapped = np.array([2e-9, 1e-9, -2e-9 * (1 - 1e-14), 0.0])
    assert _p_value(1e-7, 1.02e-7, swapped, True) == 0.5
    assert _p_value(1e-7, 1.02e-7, swapped, False) == 3 / 5


def test_rankings_that_are_the_same() -> None:
    a, _, Y = rankings(20, 0)
    compared = compare(a, a, Y, resamples=20)
    assert {(item.difference, item.low, item.high, item.p_value, item.adjusted) for item in compared.values()} == {
        (0, 0, 0, 1, 1)
    }
    assert compared.permutations == 1


def test_chosen_metrics_are_corrected_for_alone() -> None:
    a, b, Y = rankings(40, 8)
    every = compare(a, b, Y, resamples=20, permutations=300, correction="none")
    some = compare(a, b, Y, resamples=20, permutations=300, metrics=iter(["R@5", "P@1"]))
    assert list(some) == ["P@1", "R@5"]
    expected = adjust([every["P@1"].p_value, every["R@5"].p_value])
    assert [item.adjusted for item in some.values()] == pytest.approx(expected)
    assert all(item.adjusted == item.p_value for item in every.values())


def test_reads_well() -> None:
    a, b, Y = rankings(40, 8)
    lines = repr(compare(a, b, Y, ks=[1], resamples=20, permutations=20, level=0.9)).splitlines()
    assert lines[0] == "Comparison on 40 rows, in percent: 90 % intervals of b - a, p-values adjusted by holm"
    assert lines[1].split() == ["a", "b", "b", "-", "a", "low", "high", "p", "adjusted"]
    assert [line.split()[0] for line in lines[2:]] == list(evaluate(a, Y, ks=[1]))
    lines = repr(compare(a, b, Y, ks=[1], resamples=20, permutations=20, correction="none")).splitlines()
    assert lines[0].endswith("p-values not adjusted")


class TestAdjust:
    """Of 0.01, 0.02, 0.03, 0.2, 0.9 (in another order): Holm multiplies by 5, 4, 3, 2, 1, and Benjamini-Hochberg by 5/1
    to 5/5; a larger p-value never gets the smaller adjusted one."""

    p = (0.03, 0.9, 0.01, 0.2, 0.02)

    def test_holm(self) -> None:
        assert adjust(self.p, "holm") == pytest.approx([0.09, 0.9, 0.05, 0.4, 0.08])

    def test_benjamini_hochberg(self) -> None:
        assert adjust(self.p, "benjamini-hochberg") == pytest.approx([0.05, 0.9, 0.05, 0.25, 0.05])

    def test_none(self) -> None:
        assert adjust(self.p, "none").tolist() == list(self.p)

    def test_order_and_limits(self) -> None:
        assert adjust([0.5, 0.6]).tolist() == [1.0, 1.0]
        assert adjust([0.04, 0.03]).tolist() == [0.06, 0.06]
        assert adjust([]).tolist() == []

    @pytest.mark.parametrize("method", ["holm", "benjamini-hochberg"])
    def test_error_rates(self, method) -> None:
        """10,000 families of 5 without a difference: at most 5 % of the families have anything below 0.05."""
        p = np.random.default_rng(0).random((10_000, 5))
        any_below = np.mean([(adjust(family, method) <= 0.05).any() for family in p])
        assert any_below == pytest.approx(0.05, abs=0.008)

    @pytest.mark.parametrize("p", [[0.5, 1.5], [-0.1], [np.nan], 0.5])
    def test_refused(self, p) -> None:
        with pytest.raises(InputError, match="between 0 and 1"):
            adjust(p)
        with pytest.raises(ParameterError, match="bonferroni"):
            adjust([0.5], "bonferroni")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"permutations": 0}, "permutations"),
        ({"correction": "sidak"}, "correction"),
        ({"metrics": ["P@2"]}, "metrics must hold.* got 'P@2'"),
        ({"metrics": []}, "metrics"),
        ({"metrics": "P@1"}, "metrics"),
        ({"resamples": 0}, "resamples"),
        ({"ks": 5}, "ks"),
    ],
)
def test_refused(options, message: str) -> None:
    a, b, Y = rankings(5, 0)
    with pytest.raises(ParameterError, match=message):
        compare(a, b, Y, **options)


def test_other_rows_are_refused() -> None:
    a, b, Y = rankings(5, 0)
    with pytest.raises(InputError, match="4 rows"):
        compare(a, b[:4], Y)

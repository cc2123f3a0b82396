from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from longtail.errors import InputError, ParameterError
from longtail.metrics import bootstrap, bootstrap_by_frequency, by_frequency, compare, evaluate


def sample(n: int, n_labels: int, seed: int) -> tuple[np.ndarray, sp.csr_array]:
    """One true label per row from a power law, and one prediction that hits frequent labels more often."""
    rng = np.random.default_rng(seed)
    frequency = 1 / np.arange(1, n_labels + 1)
    true, other = rng.choice(n_labels, (2, n), p=frequency / frequency.sum())
    found = rng.random(n) < np.linspace(0.8, 0.3, n_labels)[true]
    Y = sp.csr_array((np.ones(n, np.float32), true, np.arange(n + 1)), shape=(n, n_labels))
    return np.where(found, true, other)[:, None], Y


@pytest.fixture(scope="module")
def case() -> tuple[np.ndarray, sp.csr_array, np.ndarray]:
    rng = np.random.default_rng(0)
    Y = rng.random((400, 30)) < np.linspace(0.3, 0.01, 30)
    top = np.array([rng.permutation(30)[:5] for _ in range(400)])
    return top, sp.csr_array(Y.astype(np.float32)), 1 + 9 * np.linspace(0, 1, 30)


def test_values_are_those_of_evaluate(case) -> None:
    top, Y, weights = case
    found = bootstrap(top, Y, inverse_propensity=weights, resamples=50)
    scores = evaluate(top, Y, inverse_propensity=weights)
    assert {name: interval.value for name, interval in found.items()} == dict(scores)
    assert list(found) == list(scores)
    assert all(interval.low <= interval.value <= interval.high for interval in found.values())
    assert all(interval.low < interval.high for interval in found.values())


def test_the_number_of_threads_changes_nothing(case) -> None:
    top, Y, weights = case
    one, two = (bootstrap(top, Y, inverse_propensity=weights, resamples=300, n_jobs=threads) for threads in (1, 2))
    assert one == two
    assert bootstrap(top, Y, inverse_propensity=weights, resamples=300, random_state=1) != one


def test_width_of_a_mean_and_of_a_ratio(case) -> None:
    """For large n the interval is the normal one: 1.96 standard errors of the mean, or of the linearised ratio."""
    top, Y, weights = case
    found = bootstrap(top, Y, inverse_propensity=weights, ks=[1, 5], resamples=4000, level=0.95)
    truth = Y.toarray() > 0
    hit = np.take_along_axis(truth, top, axis=1)
    gains = (hit * weights[top]).sum(axis=1)
    best = np.sort(truth * weights, axis=1)[:, -5:].sum(axis=1)
    ratio = gains.sum() / best.sum()
    errors = {
        "P@1": hit[:, 0].std() / 20,
        "P@5": hit.mean(axis=1).std() / 20,
        "PSP@5": (gains - ratio * best).std() / best.mean() / 20,
    }
    for name, error in errors.items():
        interval = found[name]
        assert (interval.high - interval.low) / 2 == pytest.approx(100 * 1.96 * error, rel=0.06), name


def test_interval_width_follows_the_level(case) -> None:
    top, Y, _ = case
    narrow, wide = (bootstrap(top, Y, ks=[1], resamples=2000, level=level)["P@1"] for level in (0.5, 0.99))
    width = (narrow.high - narrow.low) / (wide.high - wide.low)
    assert width == pytest.approx(0.674 / 2.576, rel=0.15)


def test_intervals_of_coverage_and_macro_f1_fit_how_far_samples_differ() -> None:
    """Over 150 test sets: spread of the values, and how often the intervals contain the overall mean."""
    names, values, intervals = ("C@1", "macroF1@1"), [], []
    for seed in range(150):
        found = bootstrap(*sample(500, 200, seed), ks=[1], resamples=128, n_jobs=1)
        values.append([found[name].value for name in names])
        intervals.append([(found[name].low, found[name].high) for name in names])
    target, ends = np.mean(values, axis=0), np.array(intervals)
    inside = ((ends[:, :, 0] <= target) & (target <= ends[:, :, 1])).mean(axis=0)
    assert (inside >= 0.9).all(), inside
    widths = (ends[:, :, 1] - ends[:, :, 0]).mean(axis=0) / (2 * 1.96 * np.std(values, axis=0))
    assert widths == pytest.approx([1, 1], abs=0.2)


@pytest.mark.parametrize("bins", ["head-torso-tail", "deciles", [20, 60]])
def test_by_frequency_has_the_values_of_by_frequency(case, bins) -> None:
    top, Y, weights = case
    counts = np.asarray(Y.sum(axis=0)).astype(int)
    found = bootstrap_by_frequency(top, Y, counts, inverse_propensity=weights, bins=bins, resamples=64)
    table = by_frequency(top, Y, counts, inverse_propensity=weights, bins=bins)
    assert list(found) == [item.name for item in table]
    for item in table:
        values = {name: interval.value for name, interval in found[item.name].items()}
        np.testing.assert_equal(values, dict(item.scores))
        for interval in found[item.name].values():
            assert np.isnan(interval.value) or interval.low <= interval.value <= interval.high


def test_by_frequency_in_one_bin_is_the_whole(case) -> None:
    """One bin holds every label: P and PSP are those of all labels, with the same resamples."""
    top, Y, weights = case
    whole = bootstrap(top, Y, inverse_propensity=weights, resamples=100)
    found = bootstrap_by_frequency(top, Y, np.ones(30, int), inverse_propensity=weights, bins=[1], resamples=100)
    for name in ("P@1", "P@5", "PSP@3", "C@3"):
        assert vars(found["1 or more"][name]) == pytest.approx(vars(whole[name]))


def test_an_empty_bin_has_no_recall(case) -> None:
    top, Y, _ = case
    found = bootstrap_by_frequency(top, Y, np.ones(30, int), bins=[1], resamples=10, n_jobs=1)["0"]
    assert np.isnan(list(vars(found["recall@5"]).values())).all()
    assert vars(found["P@5"]) == {"value": 0, "low": 0, "high": 0}


def test_one_row_says_nothing_of_others() -> None:
    found = bootstrap([[0]], [[1, 1]], ks=[1], resamples=20)
    assert vars(found["P@1"]) == {"value": 100, "low": 0, "high": 100}
    apart = compare([[0]], [[1]], [[1, 0]], ks=[1], resamples=20)["P@1"]
    assert (apart.difference, apart.low, apart.high) == (-100, -100, 100)


def test_refused(case) -> None:
    top, Y, _ = case
    for options in ({"resamples": 0}, {"level": 1.0}, {"random_state": -1}, {"n_jobs": 0}, {"ks": []}):
        with pytest.raises(ParameterError):
            bootstrap(top, Y, **options)
    with pytest.raises(InputError, match="no rows"):
        bootstrap(top[:0], Y[:0])
    with pytest.raises(InputError, match="for each label"):
        bootstrap_by_frequency(top, Y, [1, 2])

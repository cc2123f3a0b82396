"""Resampling of rows: kernels against plain numpy, and metrics of resamples against `evaluate`."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.config import config_context
from longtail.errors import ParameterError
from longtail.metrics import Evaluator, evaluate, per_label
from longtail.metrics import resample_kernels as kernels
from longtail.metrics.ranking import with_labels
from longtail.metrics.resample_kernels import LANES
from longtail.metrics.resampling import Resampler, check_resampling, interval, random_states, resample
from longtail.metrics.swapping import Swapper
from tests.metrics.reference import cases, indicator, padded

KS = (1, 2, 4)


def splitmix64(state: int, count: int) -> list[int]:
    """The published generator (Steele, Lea, Flood 2014) in Python integers."""
    mask, numbers = 2**64 - 1, []
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) & mask
        z = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        numbers.append(z ^ (z >> 31))
    return numbers


def test_samples_follow_the_published_generator() -> None:
    states = np.array([1234567, 2**64 - 5], np.uint64)
    assert splitmix64(1234567, 2) == [6457827717110365317, 3203168211198807973]
    drawn, parts, swaps = (np.empty((70, 2), np.uint8) for _ in range(3))
    kernels.draw_rows(states, drawn)
    kernels.draw_masks(states, 2, parts)
    kernels.draw_masks(states, 1, swaps)
    for lane, state in enumerate(states.tolist()):
        numbers = splitmix64(state, 70)
        rows = [int((number >> 11) * 2.0**-53 * 70) for number in numbers]
        assert drawn[:, lane].tolist() == np.bincount(rows, minlength=70).tolist()
        bits = [number >> place & 1 for number in numbers for place in range(64)]
        assert swaps[:, lane].tolist() == bits[:70]
        assert parts[:, lane].tolist() == [bits[2 * row] | bits[2 * row + 1] for row in range(70)]


def test_samples_have_the_right_shares() -> None:
    weights = np.empty((5000, LANES), np.uint8)
    (states,) = random_states(LANES, 3, stream=0)
    kernels.draw_rows(states, weights)
    assert (weights.sum(axis=0, dtype=int) == 5000).all()
    assert weights.var() == pytest.approx(1 - 1 / 5000, rel=0.02)
    kernels.draw_masks(states, 2, weights)
    assert weights.mean() == pytest.approx(0.75, abs=0.004)
    kernels.draw_masks(states, 1, weights)
    assert weights.mean() == pytest.approx(0.5, abs=0.005)


@pytest.mark.parametrize("n", [0, 1, 4, 11])
def test_weighted_sums(n: int) -> None:
    rng = np.random.default_rng(n)
    values, weights = rng.normal(size=(n, 7)), rng.integers(0, 9, (n, LANES)).astype(np.uint8)
    sums = np.full((7, LANES), np.nan)
    kernels.weighted_sums(values, weights, sums)
    np.testing.assert_allclose(sums, values.T @ weights, atol=1e-12)


def test_sort_by_label() -> None:
    labels = np.array([[2, 0], [0, 2], [2, -1]], np.int32)
    hits = np.array([[1, 0, 0], [0, 1, 0]], np.uint8)
    starts = np.array([0, 2, 2, 5])
    rows, spans, hit = np.empty(5, np.int32), np.empty(5, np.int32), np.empty(5, np.uint8)
    kernels.sort_by_label(labels, hits, np.array([0, 7], np.int32), starts, rows, spans, hit)
    assert rows.tolist() == [1, 0, 0, 2, 1]
    assert spans.tolist() == [0, 7, 0, 0, 7]
    assert hit.tolist() == [0, 0, 1, 0, 1]


def resampler(top, Y, weights=None, ks=KS) -> Resampler:
    truth = with_labels(Y)
    return Resampler(top, truth, Evaluator(truth.shape[1], inverse_propensity=weights, ks=ks).update(top, truth))


@given(cases(), st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_metrics_are_those_of_the_resampled_rows(
    case: tuple[list[list[int]], list[set[int]], list[float]], seed
) -> None:
    ranking, truth, weights = case
    top, Y = padded(ranking, 6), indicator(truth, len(weights))
    found = resampler(top, Y, weights)
    drawn, parts = np.empty((len(top), LANES), np.uint8), np.empty((len(top), LANES), np.uint8)
    (states,) = random_states(LANES, seed, stream=0)
    kernels.draw_rows(states, drawn)
    kernels.draw_masks(states, 2, parts)
    metrics = found.metrics(drawn, parts)
    for lane in (0, 1, LANES - 1):
        for weight, names in ((drawn, lambda name: name[0] not in "Cm" or "micro" in name), (parts, lambda name: True)):
            rows = np.repeat(np.arange(len(top)), weight[:, lane])
            if not len(rows):
                continue
            expected = evaluate(top[rows], Y[rows], inverse_propensity=weights, ks=KS)
            over_labels = weight is parts
            for key, value in zip(found.keys, metrics[:, lane], strict=True):
                if (key.startswith(("C@", "macro"))) == over_labels and names(key):
                    assert value == pytest.approx(expected[key], abs=1e-9), key


@given(cases(), st.data())
@settings(max_examples=40, deadline=None)
def test_differences_are_those_of_the_swapped_rows(
    case: tuple[list[list[int]], list[set[int]], list[float]], data
) -> None:
    ranking, truth, weights = case
    first, Y = padded(ranking, 6), indicator(truth, len(weights))
    order = data.draw(st.permutations(range(6)))
    second = np.where(np.array(data.draw(st.lists(st.booleans(), min_size=len(first), max_size=len(first))))[:, None],
                      first[:, order], first)  # fmt: skip
    second[second >= 0] = (second[second >= 0] + data.draw(st.integers(0, 1))) % (len(weights) + 2)
    swapper = Swapper(resampler(first, Y, weights), resampler(second, Y, weights))
    differs = np.flatnonzero((swapper.a.labels != swapper.b.labels).any(axis=1))
    swaps = np.random.default_rng(0).integers(0, 2, (len(differs), LANES)).astype(np.uint8)
    found = swapper.differences(swaps)
    for lane in (0, 1, 2):
        swapped = np.zeros((len(first), 1), bool)
        swapped[differs, 0] = swaps[:, lane]
        a = evaluate(np.where(swapped, second, first), Y, inverse_propensity=weights, ks=KS)
        b = evaluate(np.where(swapped, first, second), Y, inverse_propensity=weights, ks=KS)
        expected = {key: b[key] - a[key] for key in swapper.a.keys}
        assert dict(zip(swapper.a.keys, found[:, lane], strict=True)) == pytest.approx(expected, abs=1e-9)


@given(cases(), st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_sums_over_labels_in_bins(case: tuple[list[list[int]], list[set[int]], list[float]], seed) -> None:
    """Counts of each label from `per_label` on the resampled rows, summed by bin."""
    ranking, truth, weights = case
    top, Y, worth = padded(ranking, 6), indicator(truth, len(weights)), np.array(weights)
    found = resampler(top, Y, weights)
    rng = np.random.default_rng(seed)
    bins, drawn = rng.integers(0, 3, len(weights)), rng.integers(0, 4, (len(top), LANES)).astype(np.uint8)
    true, hits, gains = found.label_hits(drawn, bins, 3)
    possible, covered, judged, f1 = found.label_means(drawn, bins, 3)
    for lane in (0, LANES - 1):
        rows = np.repeat(np.arange(len(top)), drawn[:, lane])
        for index, k in enumerate(KS):
            scores = per_label(top[rows], Y[rows], k)
            for g in range(3):
                inside = bins == g
                assert true[g, lane] == scores.true[inside].sum()
                assert hits[g, index, lane] == scores.hits[inside].sum()
                assert gains[g, index, lane] == pytest.approx((scores.hits * worth)[inside].sum())
                assert possible[g, lane] == (scores.true[inside] > 0).sum()
                assert covered[g, index, lane] == (scores.hits[inside] > 0).sum()
                assert judged[g, index, lane] == (~np.isnan(scores.f1[inside])).sum()
                assert f1[g, index, lane] == pytest.approx(np.nansum(scores.f1[inside]) / 100)


def test_more_rows_than_one_block() -> None:
    """Blocks of 16,384 rows are judged one after the other; the last one here has a single row."""
    rng = np.random.default_rng(1)
    n = 16385
    top, Y = rng.integers(0, 9, (n, 1)), rng.random((n, 9)) < 0.2
    once = np.ones((n, LANES), np.uint8)
    found = resampler(top, Y, 1 + rng.random(9), ks=[1])
    expected = evaluate(top, Y, inverse_propensity=found.evaluator.inverse_propensity, ks=[1])
    assert dict(zip(found.keys, found.metrics(once, once)[:, 0], strict=True)) == pytest.approx(dict(expected))


def test_more_resamples_leave_the_first_unchanged() -> None:
    def total(weights, parts):
        return np.stack([np.arange(30) @ weights, np.arange(30) @ parts]).astype(float)

    with config_context(n_jobs=1):
        few = resample(total, 30, 70, seed=1)
    with config_context(n_jobs=2):
        many = resample(total, 30, 200, seed=1)
    assert few.shape == (2, 70)
    assert (many[:, :70] == few).all()
    assert (resample(total, 30, 70, seed=2) != few).mean() > 0.9


def test_ends() -> None:
    drawn = np.arange(101.0)
    assert interval("P@1", 50.0, drawn, 0.9) == pytest.approx((5, 95))
    assert interval("C@1", 40.0, drawn, 0.9) == pytest.approx((40 - 45 * 3**0.5, 40 + 45 * 3**0.5))
    assert interval("P@1", 50.0, np.append(drawn, np.nan), 0.9) == pytest.approx((5, 95))
    assert np.isnan(interval("P@1", np.nan, drawn, 0.9)).all()
    assert np.isnan(interval("P@1", 50.0, np.full(3, np.nan), 0.9)).all()


@pytest.mark.parametrize(
    ("arguments", "name"),
    [((0, 0.95, 0), "resamples"), ((True, 0.95, 0), "resamples"), ((10, 1, 0), "level"), ((10, 95, 0), "level"),
     ((10, 0.9, -1), "random_state"), ((10, 0.9, 0.5), "random_state")],
)  # fmt: skip
def test_refused(arguments, name: str) -> None:
    with pytest.raises(ParameterError, match=name):
        check_resampling(*arguments)

"""Labels into bins of similar frequency."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail.errors import InputError, ParameterError
from longtail.propensity import JainPropensity, PropensityPoints

CASES = st.lists(
    st.tuples(st.integers(0, 50), st.integers(0, 20), st.integers(0, 20)).map(lambda x: (x[0], min(x[1:]), max(x[1:]))),
    min_size=1,
    max_size=60,
)


def test_by_hand():
    """Counts 1, 4 | 9, 100; the label without support and the one that was never recorded are left out."""
    cases = {"hits": [3, 1, 2, 0, 5, 0], "support": [4, 2, 10, 4, 0, 7], "n_rows": 200, "labels_per_bin": 2}
    labels = PropensityPoints.from_labels([9, 4, 100, 1, 7, 0], **cases)
    np.testing.assert_allclose(labels.counts, [2, 30])
    np.testing.assert_allclose(labels.propensities, [(0 + 1 / 2) / 2, (3 / 4 + 2 / 10) / 2])
    rows = PropensityPoints.from_labels([9, 4, 100, 1, 7, 0], **cases, average="rows")
    np.testing.assert_allclose(rows.counts, [4 ** (2 / 6), 9 ** (4 / 14) * 100 ** (10 / 14)])
    np.testing.assert_allclose(rows.propensities, [1 / 6, 5 / 14])
    for points in (labels, rows):
        np.testing.assert_array_equal(points.n_labels, [2, 2])
        np.testing.assert_array_equal(points.support, [6, 14])
        assert (len(points), points.n_rows) == (2, 200)


@pytest.mark.parametrize("count", [3, 7, 30, 1_000_003])
def test_bins_of_one_count_have_that_count(count):
    """Not one that rounding has raised above the rows, or made another for bins of other sizes."""
    for size in range(1, 12):
        points = PropensityPoints.from_labels([count] * size, hits=[1] * size, support=range(2, size + 2), n_rows=count)
        assert points.counts.tolist() == [count]
        pooled = PropensityPoints.from_labels(
            [count] * size, hits=[1] * size, support=range(2, size + 2), n_rows=count, average="rows"
        )
        assert pooled.counts.tolist() == [count]


def test_what_is_left_over_is_spread_over_the_bins():
    points = PropensityPoints.from_labels(range(1, 48), hits=[1] * 47, support=[2] * 47, n_rows=50)
    np.testing.assert_array_equal(points.n_labels, [24, 23])
    assert len(PropensityPoints.from_labels([5, 6], hits=[1, 1], support=[2, 2], n_rows=50)) == 1


@given(CASES, st.integers(1, 8), st.sampled_from(["labels", "rows"]))
def test_bins_hold_every_usable_label_once(cases, labels_per_bin, average):
    counts, hits, support = map(np.array, zip(*cases, strict=True))
    usable = (counts > 0) & (support > 0)
    options = {"n_rows": 50, "labels_per_bin": labels_per_bin, "average": average}
    if not usable.any():
        with pytest.raises(InputError, match="No recorded label"):
            PropensityPoints.from_labels(counts, hits=hits, support=support, **options)
        return
    points = PropensityPoints.from_labels(counts, hits=hits, support=support, **options)
    assert points.n_labels.sum() == usable.sum()
    assert points.support.sum() == support[usable].sum()
    assert np.ptp(points.n_labels) <= 1
    assert points.n_labels.min() >= min(labels_per_bin, usable.sum())
    assert (np.diff(points.counts) >= -1e-9).all()
    assert ((points.propensities >= 0) & (points.propensities <= 1 + 1e-12)).all()
    weights = points.n_labels if average == "labels" else points.support
    mean = (hits / np.maximum(support, 1))[usable].mean() if average == "labels" else hits[usable].sum() / weights.sum()
    assert (weights * points.propensities).sum() / weights.sum() == pytest.approx(mean)


def test_fit_is_that_of_the_points():
    counts = [2, 5, 20, 100, 800]
    p = JainPropensity(a=0.6, b=2.6).propensities(counts, 5000)
    ones = np.ones(5, np.int64)
    points = PropensityPoints(np.array(counts, float), p, ones, ones, 5000)
    fitted = points.fit(level=0.5, resamples=10, random_state=4)
    assert (fitted.a, fitted.b) == (pytest.approx(0.6, rel=1e-4), pytest.approx(2.6, rel=1e-3))
    assert fitted.points_ is points
    assert fitted.level_ == 0.5


def test_what_counts_within_bins_counts_between_them():
    cases = {"hits": [1, 1, 3, 9, 2], "support": [9, 5, 8, 12, 40], "n_rows": 99, "labels_per_bin": 1}
    for average in ("labels", "rows"):
        points = PropensityPoints.from_labels([2, 5, 9, 30, 70], **cases, average=average)
        expected = [1] * 5 if average == "labels" else cases["support"]
        np.testing.assert_array_equal(points.weights, expected)
        np.testing.assert_array_equal(points.fit(resamples=1).weights_, expected)
        np.testing.assert_array_equal(points.fit(weights=[1, 2, 3, 4, 5], resamples=1).weights_, [1, 2, 3, 4, 5])


def test_wrong_parameters():
    with pytest.raises(ParameterError, match="average"):
        PropensityPoints.from_labels([1], hits=[1], support=[1], n_rows=5, average="mean")
    with pytest.raises(ParameterError, match="labels_per_bin"):
        PropensityPoints.from_labels([1], hits=[1], support=[1], n_rows=5, labels_per_bin=0)
    with pytest.raises(ParameterError, match="label_counts of label 0 must be a number from 0 to 5, got 6"):
        PropensityPoints.from_labels([6], hits=[1], support=[1], n_rows=5)

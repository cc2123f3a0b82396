"""Propensities from substitutable items: cases by hand, sets, recovery of known constants."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from longtail.errors import InputError
from longtail.propensity import JainPropensity, estimate_from_substitutes
from tests.propensity.simulation import kept_counts, masking_rates


def test_by_hand():
    """Label 0 was bought with items 0 and 1. Item 0 was viewed with 2, item 1 with 2 and 3: 2 of 4 possible."""
    viewed = [[0, 0, 1, 0], [0, 0, 1, 1], [1, 0, 0, 0], [1, 0, 0, 0]]
    Y = [[1, 0], [1, 0], [0, 1], [0, 0]]
    points = estimate_from_substitutes(Y, viewed, labels_per_bin=1)
    np.testing.assert_array_equal(points.support, [2, 4])  # label 1: item 2 and item 0
    np.testing.assert_allclose(points.propensities, [1 / 2, 2 / 4])
    np.testing.assert_allclose(points.counts, [1, 2])


def test_items_that_are_not_the_rows():
    """Counts come from Y, propensities from what was bought together."""
    Y = [[1, 1], [1, 0], [1, 0], [0, 0], [1, 0]]
    bought, viewed = [[0, 1, 1], [1, 0, 0]], [[0, 1, 0], [1, 0, 0], [1, 0, 0]]
    points = estimate_from_substitutes(Y, viewed, bought, labels_per_bin=1, n_rows=8)
    np.testing.assert_allclose(points.counts, [1, 4])
    np.testing.assert_allclose(points.propensities, [1 / 2, 2 / 3])
    assert points.n_rows == 8


def test_a_label_with_an_unknown_item_is_left_out():
    viewed = [[0, 1, 0], [1, 0, 0], [0, 0, 0]]
    points = estimate_from_substitutes([[1, 1], [0, 1], [1, 0]], viewed, labels_per_bin=1)
    np.testing.assert_array_equal(points.n_labels, [1])
    np.testing.assert_allclose(points.propensities, [2 / 2])
    with pytest.raises(InputError, match="No label has views of all items"):
        estimate_from_substitutes([[0], [0], [1]], viewed)


def test_other_columns_than_the_items():
    """Without common ids an item does not stand for itself, unless its row says so."""
    points = estimate_from_substitutes([[1], [1]], [[1, 1, 0], [0, 1, 1]])
    np.testing.assert_allclose(points.propensities, [2 / 3])
    points = estimate_from_substitutes([[1], [1]], [[0, 1, 0], [0, 1, 0]])
    np.testing.assert_allclose(points.propensities, [1])  # never above 1


@given(st.integers(0, 10_000))
def test_sets_count_the_same(seed):
    rng = np.random.default_rng(seed)
    n_labels, n_items = rng.integers(1, 8, 2)
    Y = (rng.random((n_items, n_labels)) < 0.4).astype(float)
    viewed = (rng.random((n_items, n_items)) < 0.3).astype(float)
    expected = []
    for label in range(n_labels):
        with_it = set(np.flatnonzero(Y[:, label]))
        if with_it and all(viewed[item].any() for item in with_it):
            possible = with_it | {other for item in with_it for other in np.flatnonzero(viewed[item])}
            expected.append((len(with_it), len(with_it) / len(possible), len(possible)))
    if not expected:
        with pytest.raises(InputError):
            estimate_from_substitutes(Y, viewed)
        return
    points = estimate_from_substitutes(Y, viewed, labels_per_bin=1)
    found = zip(points.counts.round(9), points.propensities, points.support, strict=True)
    assert sorted(found) == [pytest.approx(row) for row in sorted(expected)]


def shop(known, *, exact):
    """Y and also_viewed of a shop: each label goes with one group of substitutable items.

    It was bought with some of them. What was viewed along with an item is the first of its group and, for the first
    item that the label was bought with, the whole group.
    """
    rng, n_labels = np.random.default_rng(0), 1200
    sizes = np.minimum(120 * (1 - rng.random(n_labels)) ** -0.8, 3000).astype(int)
    n_items, starts = int(sizes.sum()), np.cumsum(sizes) - sizes
    rates = masking_rates(sizes, known, n_items)
    bought = kept_counts(sizes, rates, rng) if exact else rng.binomial(sizes, rates)
    chosen = [start + rng.permutation(size)[:n] for start, size, n in zip(starts, sizes, bought, strict=True)]
    pairs = np.concatenate(chosen), np.repeat(np.arange(n_labels), bought)
    Y = sp.csr_array((np.ones(len(pairs[0])), pairs), shape=(n_items, n_labels))
    first = np.repeat(starts, sizes)
    whole = [
        (np.full(size, some[0]), np.arange(size) + start)
        for some, start, size in zip(chosen, starts, sizes, strict=True)
    ]
    rows, columns = (np.concatenate(parts) for parts in zip((np.arange(n_items), first), *whole, strict=True))
    return Y, sp.csr_array((np.ones(len(rows)), (rows, columns)), shape=(n_items, n_items)), sizes


@pytest.mark.parametrize(("a", "b"), [(0.55, 1.5), (0.6, 2.6)])
def test_known_constants_are_recovered(a, b):
    Y, also_viewed, sizes = shop(JainPropensity(a=a, b=b), exact=True)
    points = estimate_from_substitutes(Y, also_viewed)
    assert points.support.sum() == sizes.sum()
    fitted = points.fit(resamples=50)
    assert fitted.a == pytest.approx(a, rel=0.1)
    assert fitted.b == pytest.approx(b, rel=0.1)


@pytest.mark.parametrize(("a", "b"), [(0.55, 1.5), (0.5, 0.4)])
def test_the_curve_is_recovered_where_counts_are_noisy(a, b):
    known = JainPropensity(a=a, b=b)
    Y, also_viewed, _ = shop(known, exact=False)
    fitted = estimate_from_substitutes(Y, also_viewed).fit(resamples=1)
    assert fitted.a == pytest.approx(a, rel=0.1)
    counts, n_rows = [2, 5, 20, 100, 1000], Y.shape[0]
    truth = known.propensities(counts, n_rows)
    np.testing.assert_allclose(fitted.propensities(counts, n_rows), truth, rtol=0.05)


def test_shapes_must_fit():
    with pytest.raises(InputError, match="a row for each row of Y"):
        estimate_from_substitutes(np.ones((3, 2)), np.ones((2, 2)))
    with pytest.raises(InputError, match="a row for each column of also_bought"):
        estimate_from_substitutes(np.ones((3, 2)), np.ones((3, 3)), np.ones((2, 2)))
    with pytest.raises(InputError, match="a row for each label"):
        estimate_from_substitutes(np.ones((3, 2)), np.ones((3, 3)), np.ones((1, 3)))

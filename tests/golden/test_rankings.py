"""Every recipe ranks as it did when the reference rankings were written."""

from itertools import pairwise

import numpy as np
import pytest

from longtail.recipes import recipes
from tests.golden import rankings


@pytest.fixture(scope="module")
def kept():
    with np.load(rankings.FILE) as file:
        return dict(file)


def test_no_recipe_is_left_out(kept):
    assert {name.rpartition("/")[0] for name in kept} - {""} == {known.name for known in recipes()}


def assert_same_ranking(labels, scores, expected_labels, expected_scores, tolerance=2e-3):
    """Compare scores within a tolerance, and labels wherever no other candidate's score is as close as that.

    Labels with nearly tied scores may be ranked in any order. Those tied with the last score are not compared, since
    labels below rank k may be tied with it too.
    """
    np.testing.assert_allclose(scores, expected_scores, rtol=tolerance, atol=tolerance)
    for found, expected, row in zip(labels, expected_labels, expected_scores, strict=True):
        real = expected >= 0
        np.testing.assert_array_equal(found >= 0, real)
        gaps = row[real][:-1] - row[real][1:]
        ends = np.flatnonzero(gaps > 2 * tolerance * (1 + np.abs(row[real]).max(initial=0))) + 1
        if not real.all():  # no other label has a score
            ends = np.append(ends, real.sum())
        for start, end in pairwise([0, *ends.tolist()]):
            assert set(found[start:end].tolist()) == set(expected[start:end].tolist())


def test_comparison_of_rankings_allows_near_ties_only():
    labels, scores = np.array([[3, 1, 2, 7, 8]]), np.array([[5.0, 3.001, 3.0, 1.0, 0.5]])
    for same in ([3, 2, 1, 7, 8], [3, 1, 2, 7, 9]):  # near ties; the last label, which the next may overtake
        assert_same_ranking(np.array([same]), scores, labels, scores)
    for other in ([1, 3, 2, 7, 8], [3, 1, 2, 8, 7], [3, 1, 4, 7, 8], [3, 1, 2, 7, -1]):
        with pytest.raises(AssertionError):
            assert_same_ranking(np.array([other]), scores, labels, scores)


@pytest.mark.parametrize("name", [known.name for known in recipes()])
def test_same_ranking_as_before(name, kept):
    """Bit for bit on processors like the one where the rankings were written; elsewhere up to rounding of sums."""
    top = rankings.ranked(name)
    labels, scores = kept[f"{name}/labels"], kept[f"{name}/scores"]
    if rankings.is_exact(str(kept["machine"]), with_torch=rankings.trains_with_torch(name)):
        np.testing.assert_array_equal(top.labels, labels)
        np.testing.assert_array_equal(top.scores, scores)
    else:
        assert_same_ranking(top.labels, top.scores, labels, scores)

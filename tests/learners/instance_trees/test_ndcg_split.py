"""The split of a node against plain numpy, from the same random start."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.learners.instance_trees.ndcg_split import Relevance, ideal_gains, partition_rows

SECOND = 1 / np.log2(3)  # what a label in the second place is worth


def labels_of(lists, n_labels):
    indptr = np.cumsum([0, *map(len, lists)]).astype(np.int32)
    indices = np.array([label for labels in lists for label in labels], np.int32)
    return sp.csr_array((np.ones(len(indices), np.float32), indices, indptr), shape=(len(lists), n_labels))


def relevance_of(Y, gains=None, ideal=True):
    indptr, indices = Y.indptr.astype(np.int32), Y.indices.astype(np.int32)
    gains = np.ones(Y.shape[1], np.float32) if gains is None else np.asarray(gains, np.float32)
    inverse = np.ones(Y.shape[0], np.float32)
    if ideal:
        ideal_gains(indptr, indices, gains, inverse)
    return Relevance(indptr, indices, gains, inverse)


def part(relevance, rows, seed):
    slots = np.full(len(relevance.gains), -1, np.int32)
    sides = np.full(len(rows), 9, np.int8)
    positive, gain = partition_rows(relevance, np.asarray(rows, np.int32), np.array([seed], np.uint64), slots, sides)
    assert (slots == -1).all()
    assert set(sides) <= {0, 1}
    assert positive == sides.sum()
    return sides, gain


def splitmix(state):
    """The random numbers of the kernels, in Python integers."""
    mask = 2**64 - 1
    while True:
        state = (state + 0x9E3779B97F4A7C15) & mask
        bits = state
        bits = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) & mask
        bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & mask
        yield bits ^ (bits >> 31)


def random_sides(n, seed):
    numbers = splitmix(seed)
    return np.array([next(numbers) >> 63 for _ in range(n)])


def part_in_numpy(relevance, rows, seed):
    """Rank each side by what it gains, send each row to the side that gains it more, and so on; with all gains."""
    indptr, indices, gains, inverse = relevance
    own = [indices[indptr[row] : indptr[row + 1]] for row in rows]
    present = list(dict.fromkeys(label for labels in own for label in labels))  # as they come
    sides = random_sides(len(rows), seed)
    rounds = [-np.inf]
    while True:
        gained = np.zeros((2, len(gains)))
        for labels, row, side in zip(own, rows, sides, strict=True):
            gained[side, labels] += gains[labels] * inverse[row]
        worth = np.zeros((2, len(gains)), np.float32)  # as the kernel rounds it, so that ties are the same
        for side in range(2):
            ranked = sorted(present, key=lambda label: -gained[side, label])  # ties as they come
            worth[side, ranked] = gains[ranked] / np.log2(2 + np.arange(len(ranked)))
        left, right = (np.array([sum(worth[side, labels].tolist()) for labels in own]) for side in range(2))
        sides = np.where(left == right, sides, right > left)
        rounds.append(np.mean(np.maximum(left, right) * inverse[rows]))
        if rounds[-1] - rounds[-2] < 1e-6:
            return sides, rounds[1:]


def random_labels(n_rows, n_labels, a_row, seed):
    """Labels of rows, few of them frequent."""
    rng = np.random.default_rng(seed)
    shares = 1 / np.arange(1, n_labels + 1)
    return labels_of(
        [
            sorted(rng.choice(n_labels, rng.integers(0, a_row + 1), replace=False, p=shares / shares.sum()))
            for _ in range(n_rows)
        ],
        n_labels,
    )


@pytest.mark.parametrize("ideal", [True, False])
@pytest.mark.parametrize(
    ("n_rows", "n_labels", "a_row", "gained"),
    [(12, 5, 3, False), (40, 12, 4, True), (90, 200, 6, True), (150, 60, 9, False)],
)
def test_sides_and_gain_are_those_of_plain_numpy(n_rows, n_labels, a_row, gained, ideal):
    Y = random_labels(n_rows, n_labels, a_row, seed=n_rows)
    gains = np.random.default_rng(1).uniform(0.5, 6, n_labels) if gained else None
    relevance = relevance_of(Y, gains, ideal)
    rng = np.random.default_rng(2)
    for seed in range(6):
        rows = rng.permutation(n_rows)[: n_rows - 2 * seed]
        sides, gain = part(relevance, rows, seed)
        expected, rounds = part_in_numpy(relevance, rows, seed)
        np.testing.assert_array_equal(sides, expected)
        assert gain == pytest.approx(max(rounds), abs=1e-6)
        assert (np.diff(rounds) >= -1e-6).all(), "the gain fell"


@settings(max_examples=60)
@given(
    lists=st.lists(st.lists(st.integers(0, 7), unique=True, max_size=5).map(sorted), min_size=1, max_size=20),
    seed=st.integers(0, 2**64 - 1),
    ideal=st.booleans(),
)
def test_no_start_is_worse_than_numpy_says(lists, seed, ideal):
    relevance = relevance_of(labels_of(lists, 8), np.arange(1, 9) / 4, ideal)
    rows = np.arange(len(lists))
    sides, gain = part(relevance, rows, seed)
    expected, rounds = part_in_numpy(relevance, rows, seed)
    np.testing.assert_array_equal(sides, expected)
    assert gain == pytest.approx(max(rounds), abs=1e-6)
    assert gain >= rounds[0] - 1e-6
    if ideal:
        assert gain <= 1 + 1e-6


def test_two_kinds_of_rows_are_separated():
    """Each side has its own label first, unless both sides began with more rows of the same label."""
    relevance = relevance_of(labels_of([[0]] * 5 + [[1]] * 5, 2))
    apart = 0
    for seed in range(20):
        start = random_sides(10, seed)
        sides, gain = part(relevance, range(10), seed)
        more_of_label_0 = [(start[:5] == side).sum() - (start[5:] == side).sum() for side in range(2)]
        if min(more_of_label_0) < 0 < max(more_of_label_0):
            apart += 1
            np.testing.assert_array_equal(sides, [np.argmax(more_of_label_0)] * 5 + [np.argmin(more_of_label_0)] * 5)
            assert gain == pytest.approx(1)
    assert apart > 10


def test_rows_with_equal_gain_keep_their_side():
    start = random_sides(12, 3)
    assert 0 < start.sum() < 12
    for lists in ([[0]] * 12, [[]] * 12, [[0, 1]] * 12):
        sides, _ = part(relevance_of(labels_of(lists, 2)), range(12), 3)
        np.testing.assert_array_equal(sides, start)


def test_gains_by_hand():
    both = labels_of([[0, 1]] * 4, 2)
    gains = [1.0, 3.0]
    assert part(relevance_of(both, gains), range(4), 0)[1] == pytest.approx(1)  # the ideal: label 1, then label 0
    assert part(relevance_of(both, gains, ideal=False), range(4), 0)[1] == pytest.approx(3 + SECOND)
    assert part(relevance_of(both, ideal=False), range(4), 0)[1] == pytest.approx(1 + SECOND)


def test_a_gain_can_outweigh_a_count():
    """With all rows on one side, two rows of label 0 rank it first; a gain of 3 lifts the one row of label 1."""
    lists = [[0], [0], [1]]
    seed = next(seed for seed in range(100) if not random_sides(3, seed).any())
    sides, gain = part(relevance_of(labels_of(lists, 2), ideal=False), range(3), seed)
    assert not sides.any()
    assert gain == pytest.approx((2 + SECOND) / 3)
    sides, gain = part(relevance_of(labels_of(lists, 2), [1.0, 3.0], ideal=False), range(3), seed)
    # Side 0 ranks label 1 first. Side 1 has no rows, so its labels stand as they came: label 0 first.
    np.testing.assert_array_equal(sides, [1, 1, 0])
    assert gain == pytest.approx((1 + 1 + 3) / 3)


def test_only_the_given_rows_count():
    relevance = relevance_of(labels_of([[0], [2], [0], [2], [1], [1], [0]], 3))
    sides, _ = part(relevance, [6, 0, 4], 5)
    alone, _ = part(relevance_of(labels_of([[0], [0], [1]], 3)), [0, 1, 2], 5)
    np.testing.assert_array_equal(sides, alone)


def test_what_the_ideal_gains_by_hand():
    Y = labels_of([[0, 1, 2], [3], [], [0, 3]], 4)
    out = np.full(4, np.nan, np.float32)
    ideal_gains(Y.indptr, Y.indices, np.ones(4, np.float32), out)
    np.testing.assert_allclose(out, [1 / (1 + SECOND + 0.5), 1, 0, 1 / (1 + SECOND)], rtol=1e-6)
    ideal_gains(Y.indptr, Y.indices, np.array([1, 4, 2, 8], np.float32), out)
    np.testing.assert_allclose(out, [1 / (4 + 2 * SECOND + 0.5), 1 / 8, 0, 1 / (8 + SECOND)], rtol=1e-6)

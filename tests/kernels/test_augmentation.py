"""Augmented copies of rows against plain Python: the same numbers, the right probabilities, in any thread."""

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.kernels.augmentation import (
    Augmentation,
    CopyBuffers,
    copied_positives,
    copy_rows,
    labelled_rows,
    with_copies,
)
from longtail.kernels.rows import CSRRows

WORD = 2**64 - 1


class SplitMix:
    """The generator in Python integers."""

    def __init__(self, seed, row, copy):
        self.state = seed
        self.state = self.next() ^ row
        self.state = self.next() ^ copy

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & WORD
        bits = self.state
        bits = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) & WORD
        bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & WORD
        return bits ^ (bits >> 31)

    def below(self, limit):
        return ((self.next() >> 32) * limit) >> 32


def plain_copy(columns, values, row, copy, augmentation):
    """One copy of a row as lists, in plain Python."""
    random = SplitMix(augmentation.random_state, row, copy)
    present = [(column, value) for column, value in zip(columns, values, strict=True) if value != 0]
    kept = [pair for pair in present if (random.next() >> 11) / 2**53 < 1 - augmentation.input_dropout]
    if present and not kept:
        kept = [present[random.below(len(present))]]
    numbers = [value for _, value in kept]
    for _ in range(augmentation.swaps if len(kept) > 1 else 0):
        one, other = random.below(len(kept)), random.below(len(kept) - 1)
        other += other >= one
        numbers[one], numbers[other] = numbers[other], numbers[one]
    return [column for column, _ in kept], numbers


def random_rows(seed, n_rows=9, n_features=30, density=0.3):
    rng = np.random.default_rng(seed)
    X = sp.random_array((n_rows, n_features), density=density, rng=rng, format="csr", dtype=np.float32)
    X.data[rng.random(X.nnz) < 0.1] = 0  # stored zeros
    return X


def copies_of(X, places, names, first, last, augmentation):
    """Copies as a list of (columns, values)."""
    room = (last - first) * int(np.diff(X.indptr)[places].sum())
    starts = np.zeros(len(places) * (last - first) + 1, np.int64)
    indices, values = np.empty(room, np.int32), np.empty(room, np.float32)
    places, names = np.asarray(places, np.int64), np.asarray(names, np.int64)
    copy_rows(X.indptr, X.indices, X.data, places, names, first, last, augmentation, starts, indices, values)
    return [(indices[begin:end].tolist(), values[begin:end].tolist()) for begin, end in pairwise(starts)]


augmentations = st.builds(
    Augmentation, st.integers(1, 4), st.floats(0.0, 0.99), st.integers(0, 6), st.integers(0, 2**32 - 1)
)


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), augmentations)
def test_copies_are_those_of_plain_python(seed, augmentation):
    X = random_rows(seed)
    places, names = [4, 0, 7, 4], [4, 100_000, 7, 5]
    found = copies_of(X, places, names, 0, augmentation.copies, augmentation)
    wanted = [
        plain_copy(*(part[X.indptr[row] : X.indptr[row + 1]].tolist() for part in (X.indices, X.data)), name, copy,
                   augmentation)
        for row, name in zip(places, names, strict=True)
        for copy in range(augmentation.copies)
    ]  # fmt: skip
    assert found == wanted


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), augmentations)
def test_a_copy_has_some_columns_and_values_of_its_row_in_order(seed, augmentation):
    X = random_rows(seed)
    every = list(range(X.shape[0]))
    found = copies_of(X, every, every, 0, augmentation.copies, augmentation)
    dense = X.toarray()
    for at, (columns, values) in enumerate(found):
        row = dense[at // augmentation.copies]
        assert columns == sorted(set(columns))
        assert (row[columns] != 0).all()
        assert len(columns) >= min(1, np.count_nonzero(row))
        if augmentation.swaps == 0:
            assert values == row[columns].tolist()
        if augmentation.input_dropout == 0:
            assert sorted(values) == sorted(row[row != 0].tolist())


def test_a_copy_depends_on_seed_row_and_number_alone():
    X = random_rows(1, n_rows=40, density=0.5)
    augmentation = Augmentation(3, 0.4, 2, 11)
    everything = copies_of(X, range(40), range(40), 0, 3, augmentation)
    for rows in ([5], [39, 5, 0], range(5, 20)):
        some = copies_of(X, rows, rows, 0, 3, augmentation)
        assert some == [everything[3 * row + copy] for row in rows for copy in range(3)]
    second = copies_of(X, range(40), range(40), 1, 2, augmentation)
    assert second == everything[1::3]
    one_row = everything[15:18]
    assert len({tuple(columns) for columns, _ in one_row}) == 3  # fifteen values: chance of a repeat below 1e-3
    assert copies_of(X, range(40), range(40), 0, 3, augmentation._replace(random_state=12)) != everything
    assert copies_of(X, [5], [6], 0, 3, augmentation) != one_row


@pytest.mark.parametrize("keep", [0.2, 0.5, 0.9])
def test_values_stay_with_their_chance_and_independently(keep):
    n = 20_000
    X = sp.csr_array(np.array([[1, 2, 3, 4, 5]], np.float32))
    found = copies_of(X, [0], [0], 0, n, Augmentation(n, 1 - keep, 0, 3))
    stays = np.zeros((n, 5))
    for at, (columns, _) in enumerate(found):
        stays[at, columns] = 1
    lone = (1 - keep) ** 5 / 5  # where none would stay, one of the five does
    np.testing.assert_allclose(stays.mean(axis=0), keep + lone, atol=4 * np.sqrt(keep * (1 - keep) / n))
    both = keep**2  # a lone one is never with another
    np.testing.assert_allclose((stays[:, 0] * stays[:, 3]).mean(), both, atol=4 * np.sqrt(both * (1 - both) / n))


def test_one_swap_takes_every_pair_equally_often():
    n = 12_000
    X = sp.csr_array(np.array([[1, 2, 3, 4]], np.float32))
    found = copies_of(X, [0], [0], 0, n, Augmentation(n, 0.0, 1, 5))
    moved = [tuple(np.flatnonzero(np.array(values) != [1, 2, 3, 4])) for _, values in found]
    pairs, counts = np.unique(moved, axis=0, return_counts=True)
    assert len(pairs) == 6
    np.testing.assert_allclose(counts / n, 1 / 6, atol=4 * np.sqrt(1 / 6 * 5 / 6 / n))


def test_many_swaps_bring_every_value_everywhere():
    n = 4000
    X = sp.csr_array(np.array([[1, 2, 3, 4]], np.float32))
    found = copies_of(X, [0], [0], 0, n, Augmentation(n, 0.0, 25, 5))
    values = np.array([values for _, values in found])
    for value in (1, 2, 3, 4):
        np.testing.assert_allclose((values == value).mean(axis=0), 0.25, atol=4 * np.sqrt(0.25 * 0.75 / n))


def test_rows_with_one_value_or_none():
    X = sp.csr_array(np.array([[0, 0, 0], [0, 7, 0]], np.float32))
    found = copies_of(X, [0, 1], [0, 1], 0, 2, Augmentation(2, 0.99, 3, 0))
    assert found == [([], []), ([], []), ([1], [7]), ([1], [7])]


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(1, 3))
def test_copies_have_the_labels_of_their_rows(seed, copies):
    rng = np.random.default_rng(seed)
    n, lanes = 12, 5
    truth = rng.random((n, lanes)) < 0.25
    rows = np.flatnonzero(truth.any(axis=1))
    copied = np.flatnonzero(rng.random(n) < 0.5)  # some have labels of the block, some don't
    offsets = np.concatenate([[0], np.cumsum(truth[rows].sum(axis=1))])
    found = copied_positives((rows, offsets, np.nonzero(truth)[1].astype(np.int32)), copied, n, copies)
    got = np.zeros((n + len(copied) * copies, lanes), bool)
    for at, row in enumerate(found[0]):
        got[row, found[2][found[1][at] : found[1][at + 1]]] = True
    np.testing.assert_array_equal(got, np.vstack([truth, np.repeat(truth[copied], copies, axis=0)]))
    assert (np.diff(found[0]) > 0).all()
    assert len(found[2]) == got.sum()
    assert [part.dtype for part in found] == [np.int64, np.int64, np.int32]


def solver_rows(X, scales, bias):
    squares = np.asarray((X * X).sum(axis=1)).ravel() * scales**2 + bias**2
    return CSRRows(X.indptr.astype(np.int64), X.indices, X.data, scales, squares.astype(np.float32), np.float32(bias))


@pytest.mark.parametrize("normalise", [True, False])
def test_copies_behind_their_rows_with_lengths_of_their_own(normalise):
    X = random_rows(4)
    augmentation, scales = Augmentation(3, 0.5, 2, 8), np.full(9, 0.25)
    rows, places, names = solver_rows(X, scales, 2.0), np.array([0, 3, 8]), np.array([10, 3, 20])
    room = CopyBuffers()
    found = room.append(rows, places, names, augmentation, normalise=normalise, same=True)
    assert len(found.indptr) == 9 + 9 + 1
    assert found.bias == 2
    got = sp.csr_array(
        (found.values[: found.indptr[-1]], found.indices[: found.indptr[-1]], found.indptr), shape=(18, 30)
    ).toarray()
    np.testing.assert_array_equal(got[:9], X.toarray())
    np.testing.assert_array_equal(found.scales[:9], scales)
    np.testing.assert_array_equal(found.squares[:9], rows.squares)
    for at, (columns, values) in enumerate(copies_of(X, places, names, 0, 3, augmentation)):
        wanted = np.zeros(30, np.float32)
        wanted[columns] = values
        np.testing.assert_array_equal(got[9 + at], wanted)
        length = np.linalg.norm(wanted.astype(float))
        scale = 1 / length if normalise and length else 1.0
        assert found.scales[9 + at] == pytest.approx(scale)
        assert found.squares[9 + at] == pytest.approx((length * scale) ** 2 + 4, rel=1e-6)


def test_memory_is_used_again():
    """Fewer copies, then more, of the same rows and of others: always what fresh memory would give."""
    augmentation, room = Augmentation(2, 0.5, 1, 0), CopyBuffers()
    one, other = (solver_rows(random_rows(seed), np.ones(9), 1.0) for seed in (1, 2))
    for rows, places, same in ((one, [2], True), (one, [0, 1, 2, 3, 8], True), (one, [5], True), (other, [4, 6], False),
                               (other, [1], False), (one, [7], True)):  # fmt: skip
        chosen = np.array(places)
        found = room.append(rows, chosen, chosen, augmentation, normalise=True, same=same)
        fresh = CopyBuffers().append(rows, chosen, chosen, augmentation, normalise=True, same=False)
        size = fresh.indptr[-1]
        for name in ("indptr", "scales", "squares"):
            np.testing.assert_array_equal(getattr(found, name), getattr(fresh, name))
        for name in ("indices", "values"):
            np.testing.assert_array_equal(getattr(found, name)[:size], getattr(fresh, name)[:size])


def test_all_copies_at_once():
    X, augmentation = random_rows(6), Augmentation(2, 0.5, 1, 3)
    Y = sp.csr_array(np.eye(9, 3, -2, dtype=np.float32))  # rows 2, 3 and 4 have a label
    np.testing.assert_array_equal(labelled_rows(Y), [2, 3, 4])
    rows, labels = with_copies(X, Y, augmentation)
    assert rows.shape == (15, 30)
    assert rows.indices.dtype == rows.indptr.dtype == np.int32
    np.testing.assert_array_equal(rows[:9].toarray(), X.toarray())
    np.testing.assert_array_equal(labels.toarray()[:9], Y.toarray())
    np.testing.assert_array_equal(labels.toarray()[9:], np.repeat(np.eye(3), 2, axis=0))
    for at, (columns, values) in enumerate(copies_of(X, [2, 3, 4], [2, 3, 4], 0, 2, augmentation)):
        part = slice(rows.indptr[9 + at], rows.indptr[10 + at])
        assert rows.indices[part].tolist() == columns
        assert rows.data[part].tolist() == values


def test_nothing_to_copy():
    X, Y = random_rows(6), sp.csr_array((9, 3), dtype=np.float32)
    rows, labels = with_copies(X, Y, Augmentation(2, 0.5, 1, 3))
    assert rows.shape == X.shape
    assert labels.shape == Y.shape

"""Splits: nothing lost, the same for the same seed, and rare labels on both sides of the iterative one."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.data import Dataset, iterative_split, random_split
from longtail.errors import InputError, ParameterError

SPLITS = [random_split, iterative_split]


def long_tailed(n_rows=4000, n_labels=1500, seed=0):
    """Rows numbered by their one feature, labels with power-law counts, some rows without any."""
    rng = np.random.default_rng(seed)
    counts = np.maximum(n_rows / 4 / np.arange(1, n_labels + 1), 1.7).astype(int)
    rows = np.concatenate([rng.choice(n_rows - 50, count, replace=False) for count in counts])
    Y = sp.csr_array((np.ones(len(rows)), (rows, np.repeat(np.arange(n_labels), counts))), shape=(n_rows, n_labels))
    return Dataset(np.arange(1, n_rows + 1)[:, None], Y)


def ids(dataset):
    return dataset.X.data.astype(int) - 1


@pytest.mark.parametrize("split", SPLITS)
@settings(max_examples=25, deadline=None)
@given(
    labels=st.lists(st.sets(st.integers(0, 5)), min_size=2, max_size=30),
    test_size=st.floats(0.01, 0.99),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_split_is_a_partition(split, labels, test_size, seed):
    Y = np.array([[label in row for label in range(6)] for row in labels])
    dataset = Dataset(np.arange(1, len(labels) + 1)[:, None], Y, texts=[str(row) for row in range(len(labels))])
    train, test = split(dataset, test_size=test_size, random_state=seed)
    assert sorted([*ids(train), *ids(test)]) == list(range(len(labels)))
    assert test.n_rows == min(max(round(test_size * len(labels)), 1), len(labels) - 1)
    for part in (train, test):
        assert (np.diff(ids(part)) > 0).all()
        np.testing.assert_array_equal(part.Y.toarray(), Y[ids(part)])
        assert part.texts == [str(row) for row in ids(part)]


@pytest.mark.parametrize("split", SPLITS)
def test_seed_decides(split):
    dataset = long_tailed(500, 100)
    assert [*ids(split(dataset, random_state=3)[1])] == [*ids(split(dataset, random_state=3)[1])]
    assert [*ids(split(dataset, random_state=3)[1])] != [*ids(split(dataset, random_state=4)[1])]


def both_sides(parts, at_least, below):
    train, test = (part.label_counts for part in parts)
    of_interest = (train + test >= at_least) & (train + test < below)
    return ((train > 0) & (test > 0))[of_interest].mean()


def test_rare_labels_reach_both_sides():
    dataset = long_tailed()
    at_random, iterative = random_split(dataset), iterative_split(dataset)
    assert both_sides(iterative, 2, 5) > 0.9 > 0.6 > both_sides(at_random, 2, 5)
    assert both_sides(iterative, 5, 10**9) > 0.99


def test_frequent_labels_keep_their_share():
    dataset = long_tailed()
    counts = dataset.label_counts
    share = iterative_split(dataset, test_size=0.3)[1].label_counts / counts
    assert np.abs(share[counts >= 50] - 0.3).max() < 0.05


def test_few_labels_are_split_exactly():
    Y = np.repeat(np.eye(4), [2, 3, 10, 100], axis=0)
    _, test = iterative_split(Dataset(Y, Y), test_size=0.2)
    assert test.label_counts.tolist() == [1, 1, 2, 19]


def test_rows_without_labels_are_distributed_too():
    train, test = iterative_split(Dataset(np.ones((10, 1)), np.zeros((10, 3))), test_size=0.3)
    assert (train.n_rows, test.n_rows) == (7, 3)


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize(
    "changes", [{"test_size": 0}, {"test_size": 1}, {"test_size": "x"}, {"random_state": -1}, {"random_state": 0.5}]
)
def test_parameters(split, changes):
    with pytest.raises(ParameterError, match=f"{next(iter(changes))} must be"):
        split(long_tailed(100, 3), **changes)


@pytest.mark.parametrize("split", SPLITS)
def test_one_row_is_too_few(split):
    with pytest.raises(InputError, match="can't be split"):
        split(Dataset([[1]], [[1]]))

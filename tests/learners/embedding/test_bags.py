"""Embedding bags and their steps of Adam against plain numpy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from longtail.learners.embedding.bags import (
    Bags,
    ByFeature,
    adjacency_among,
    count_occurring,
    sample_entries,
    sort_by_feature,
    step_features,
    step_units,
    sum_bags,
)
from longtail.learners.training.row_adam import AdamTable, StepSize, adam_table


def some_rows(n=23, features=31, density=0.3, seed=0):
    return sp.csr_array(
        sp.random_array((n, features), density=density, rng=np.random.default_rng(seed), dtype=np.float32)
    )


def drawn(X, rows, keep_probability=1.0, seed=7):
    begin = np.empty(len(rows) + 1, np.int64)
    indices, values = np.empty(X.nnz * 2, np.int32), np.empty(X.nnz * 2, np.float32)
    count = sample_entries(
        X.indptr.astype(np.int64),
        X.indices,
        X.data,
        np.asarray(rows),
        keep_probability,
        np.array([seed], np.uint64),
        begin,
        indices,
        values,
    )
    return Bags(begin, indices[:count], values[:count])


def by_feature(bags, counts):
    found = count_occurring(bags, counts)
    out = ByFeature(
        np.empty(found, np.int32),
        np.empty(found + 1, np.int64),
        np.empty(len(bags.indices), np.int32),
        np.empty(len(bags.indices), np.float32),
    )
    sort_by_feature(bags, counts, out)
    return out


def adam(values, means, squares, gradient, rate, turn):
    """Adam as published: Kingma and Ba, algorithm 1."""
    means = 0.9 * means + 0.1 * gradient
    squares = 0.999 * squares + 0.001 * gradient**2
    mean, square = means / (1 - 0.9**turn), squares / (1 - 0.999**turn)
    return values - rate * mean / (np.sqrt(square) + 1e-8), means, squares


def trained_table(rows, width, seed=1):
    rng = np.random.default_rng(seed)
    return AdamTable(
        rng.normal(size=(rows, width)).astype(np.float32),
        rng.normal(scale=0.1, size=(rows, width)).astype(np.float32),
        rng.random((rows, width)).astype(np.float32),
    )


def test_all_entries_are_sampled_without_dropout():
    X, rows = some_rows(), [4, 4, 0, 22]
    bags = drawn(X, rows)
    copied = sp.csr_array((bags.values, bags.indices, bags.indptr), shape=(4, X.shape[1]))
    np.testing.assert_array_equal(copied.toarray(), X[rows].toarray())


def test_dropout_keeps_each_entry_with_its_probability():
    X = some_rows(400, 200, 0.5)
    bags = drawn(X, np.arange(400), keep_probability=0.8)
    assert len(bags.indices) / X.nnz == pytest.approx(0.8, abs=4 * np.sqrt(0.8 * 0.2 / X.nnz))
    kept = sp.csr_array((bags.values, bags.indices, bags.indptr), shape=X.shape)
    assert ((kept != 0) > (X != 0)).nnz == 0
    assert (abs(kept - X.multiply(kept != 0)) > 0).nnz == 0
    again, other = (
        drawn(X, np.arange(400), keep_probability=0.8),
        drawn(X, np.arange(400), keep_probability=0.8, seed=8),
    )
    np.testing.assert_array_equal(again.indices, bags.indices)
    assert len(other.indices) != len(bags.indices) or (other.indices != bags.indices).any()


def test_entries_by_feature_are_the_transpose():
    X = some_rows()
    counts = np.zeros(X.shape[1], np.int64)
    entries = by_feature(drawn(X, np.arange(23)), counts)
    assert (counts == 0).all()
    assert sorted(entries.features) == sorted(set(X.indices))
    transposed = np.zeros((X.shape[1], X.shape[0]), np.float32)
    for place, feature in enumerate(entries.features):
        part = slice(entries.begin[place], entries.begin[place + 1])
        transposed[feature, entries.rows[part]] = entries.values[part]
    np.testing.assert_array_equal(transposed, X.T.toarray())


def test_bags_are_a_matrix_product():
    X, table = some_rows(), np.random.default_rng(3).normal(size=(31, 9)).astype(np.float32)
    out = np.full((10, 9), np.nan, np.float32)
    sum_bags(X.indptr, X.indices, X.data, table, 5, 15, out)
    np.testing.assert_allclose(out, X[5:15].toarray() @ table, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("turn", [1, 17])
def test_features_take_a_step_of_adam_with_the_gradient_of_the_bags(turn):
    X, width = some_rows(), 6
    slopes = np.random.default_rng(4).normal(size=(23, width)).astype(np.float32)
    table = trained_table(31, width)
    gradient = X.T.toarray().astype(np.float64) @ slopes
    used = np.unique(X.indices)
    expected = adam(*(part.astype(np.float64) for part in table), gradient, 0.01, turn)
    before = [part.copy() for part in table]
    entries, change = by_feature(drawn(X, np.arange(23)), np.zeros(31, np.int64)), np.zeros(width)
    half = len(entries.features) // 2
    total = step_features(entries, slopes, table, StepSize.of(0.01, turn - 1), 0, half, change)
    total += step_features(entries, slopes, table, StepSize.of(0.01, turn - 1), half, len(entries.features), change)
    for now, then, wanted in zip(table, before, expected, strict=True):
        np.testing.assert_allclose(now[used], wanted[used], rtol=2e-4, atol=2e-5)
        unused = np.setdiff1d(np.arange(31), used)
        np.testing.assert_array_equal(now[unused], then[unused])
    assert total == pytest.approx((gradient**2).sum(), rel=1e-4)
    grown = (table.values.astype(np.float64) ** 2).sum(axis=0) - (before[0].astype(np.float64) ** 2).sum(axis=0)
    np.testing.assert_allclose(change, grown, rtol=1e-3, atol=1e-4)


def test_units_take_a_step_with_the_gradient_of_what_is_scaled_to_length_1():
    """By numeric differences of a function of the unit vectors."""
    rng, width = np.random.default_rng(5), 7
    table, rows = trained_table(12, width), np.array([3, 0, 11], np.int32)
    slopes = rng.normal(size=(3, width)).astype(np.float32)
    values = table.values.astype(np.float64)

    def linear(values):
        units = values[rows] / np.linalg.norm(values[rows], axis=1, keepdims=True)
        return float((units * slopes).sum())

    gradient = np.zeros_like(values)
    for row in rows:
        for column in range(width):
            nudged = [values.copy(), values.copy()]
            nudged[0][row, column] += 1e-6
            nudged[1][row, column] -= 1e-6
            gradient[row, column] = (linear(nudged[0]) - linear(nudged[1])) / 2e-6
    expected = adam(values, *(part.astype(np.float64) for part in table[1:]), gradient, 0.02, 5)
    total = step_units(rows, slopes, table, StepSize.of(0.02, 4), 0, 3)
    for now, wanted in zip(table, expected, strict=True):
        np.testing.assert_allclose(now[rows], wanted[rows], rtol=1e-3, atol=1e-4)
    assert total == pytest.approx((gradient**2).sum(), rel=1e-3)


def test_a_whole_table_takes_a_step():
    table, gradient = trained_table(5, 3), np.random.default_rng(2).normal(size=(5, 3)).astype(np.float32)
    expected = adam(*(part.astype(np.float64) for part in table), gradient, 0.03, 4)
    adam_table(table, gradient, StepSize.of(0.03, 3))
    for now, wanted in zip(table, expected, strict=True):
        np.testing.assert_allclose(now, wanted, rtol=1e-5, atol=1e-6)


def test_plain_steps_go_against_the_gradient():
    X, width = some_rows(), 6
    slopes = np.random.default_rng(4).normal(size=(23, width)).astype(np.float32)
    table, pace = trained_table(31, width), StepSize.of(0.1, 3, adam=False)
    before = [part.copy() for part in table]
    entries = by_feature(drawn(X, np.arange(23)), np.zeros(31, np.int64))
    step_features(entries, slopes, table, pace, 0, len(entries.features), np.zeros(width))
    np.testing.assert_allclose(table.values, before[0] - 0.1 * X.T.toarray() @ slopes, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(table.first_moment, before[1])
    np.testing.assert_array_equal(table.second_moment, before[2])
    adam_table(table, table.values.copy(), StepSize.of(1.0, 1, adam=False))
    np.testing.assert_array_equal(table.values, 0)


def test_adjacency_among_some_labels_is_a_part_of_the_matrix():
    matrix = sp.csr_array(sp.random_array((40, 40), density=0.2, rng=np.random.default_rng(6), dtype=np.float32))
    labels, places = np.array([7, 39, 0, 12], np.int32), np.full(40, -1, np.int32)
    out = np.zeros((4, 4), np.float32)
    adjacency_among(matrix.indptr, matrix.indices, matrix.data, labels, places, out)
    np.testing.assert_array_equal(out, matrix.toarray()[np.ix_(labels, labels)])
    assert (places == -1).all()

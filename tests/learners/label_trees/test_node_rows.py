"""Rows of a node: copied, renumbered and joined with their members, against plain numpy."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.learners.label_trees.node_rows import gather_positives, gather_rows, size_of_rows


def random_rows(rng, n_rows, n_features, density):
    X = sp.random_array((n_rows, n_features), density=density, rng=rng, format="csr", dtype=np.float32)
    return X.indptr.astype(np.int64), X.indices.astype(np.int32), X.data, X.toarray()


# Of 4,000 features a few rows have fewer than a 32nd, which are sorted; of 10 they have more, which are looked for.
@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.integers(0, 12), st.sampled_from([(1, 1.0), (10, 0.4), (4000, 0.002), (300, 0.0)]))
def test_chosen_rows_with_renumbered_features(seed, count, shape):
    rng = np.random.default_rng(seed)
    indptr, indices, values, dense = random_rows(rng, 15, *shape)
    scales = rng.uniform(0.1, 3, 15)
    chosen = np.sort(rng.choice(15, count, replace=False)).astype(np.int32)
    size = size_of_rows(indptr, chosen)
    assert size == np.count_nonzero(dense[chosen])
    place, features = np.full(shape[0], -1, np.int32), np.empty(shape[0], np.int32)
    out_indptr, out_indices = np.empty(count + 1, np.int64), np.full(size + 1, 99, np.int32)
    out_values = np.full(size + 1, 99, np.float32)
    found = gather_rows(indptr, indices, values, scales, chosen, place, features, out_indptr, out_indices, out_values)
    wanted = np.flatnonzero((dense[chosen] != 0).any(axis=0))
    np.testing.assert_array_equal(features[:found], wanted)
    small = sp.csr_array((out_values[:size], out_indices[:size], out_indptr), shape=(count, found)).toarray()
    np.testing.assert_array_equal(small, dense[chosen][:, wanted] * scales[chosen, None].astype(np.float32))
    assert (place == -1).all()
    assert (out_indices[size], out_values[size]) == (99, 99)


@pytest.mark.parametrize("distinct", [3, 4, 5])
def test_sorted_and_searched_features_agree_at_the_threshold(distinct):
    """128 features, a 32nd of which are 4."""
    ids = np.array([90, 3, 127, 0, 64][:distinct], np.int32)
    place, features = np.full(128, -1, np.int32), np.empty(distinct, np.int32)
    indices, values = np.empty(distinct, np.int32), np.empty(distinct, np.float32)
    if distinct >= 4:
        features = np.empty(128, np.int32)
    starts = np.array([0, distinct], np.int64)
    found = gather_rows(
        starts, ids, np.arange(distinct, dtype=np.float32), np.ones(1), np.zeros(1, np.int32), place, features,
        starts.copy(), indices, values,
    )  # fmt: skip
    assert features[:found].tolist() == sorted(ids.tolist())
    assert features[indices].tolist() == ids.tolist()
    assert values.tolist() == list(range(distinct))


def test_the_largest_feature_and_a_feature_that_a_row_has_twice():
    indptr, indices = np.array([0, 3, 4], np.int64), np.array([9, 2, 9, 0], np.int32)
    place, features = np.full(10, -1, np.int32), np.empty(10, np.int32)
    out_indptr, out_indices, out_values = np.empty(2, np.int64), np.empty(3, np.int32), np.empty(3, np.float32)
    found = gather_rows(
        indptr, indices, np.array([1, 2, 4, 8], np.float32), np.array([0.5, 1]), np.array([0], np.int32), place,
        features, out_indptr, out_indices, out_values,
    )  # fmt: skip
    assert features[:found].tolist() == [2, 9]
    assert (out_indptr.tolist(), out_indices.tolist(), out_values.tolist()) == ([0, 3], [1, 0, 1], [0.5, 1, 2])


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.integers(1, 64), st.sampled_from([0.0, 0.05, 0.5, 1.0]))
def test_rows_with_members_and_their_lanes(seed, members, density):
    rng = np.random.default_rng(seed)
    chosen = np.sort(rng.choice(40, rng.integers(0, 30), replace=False)).astype(np.int32)
    has = np.zeros((40, 100), bool)
    has[chosen] = rng.random((len(chosen), 100)) < density
    by_column = sp.csc_array(has)
    columns = rng.choice(100, members, replace=False)
    size = int(has[:, columns].sum())
    rows_out, offsets = np.full(len(chosen), -9, np.int64), np.full(len(chosen) + 1, -9, np.int64)
    lanes, local = np.empty(size, np.int32), rng.integers(-50, 50, 40).astype(np.int32)
    found = gather_positives(
        by_column.indptr.astype(np.int64), by_column.indices.astype(np.int32), columns, chosen, local, rows_out,
        offsets, lanes,
    )  # fmt: skip
    wanted = has[chosen][:, columns]
    np.testing.assert_array_equal(rows_out[:found], np.flatnonzero(wanted.any(axis=1)))
    assert offsets[0] == 0
    assert offsets[found] == size
    for at, row in enumerate(rows_out[:found]):
        np.testing.assert_array_equal(lanes[offsets[at] : offsets[at + 1]], np.flatnonzero(wanted[row]))

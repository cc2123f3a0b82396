"""scipy's constructors may share arrays with their input; nothing changes these in place."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from longtail.data import Dataset, iterative_split, mask_by_curve, mask_labels, random_split, save
from longtail.data.label_index import LabelIndex
from longtail.data.sparse import as_indicator, as_rows, chosen_rows, for_kernels, some_rows, with_columns
from longtail.propensity import estimate_from_hierarchy, estimate_from_sample, estimate_from_substitutes


def parts(matrix):
    return matrix.data, matrix.indices, matrix.indptr


def matrix(kind, values, indices, *, rows=4, per_row=3, columns=3):
    """Rows with all columns in falling order."""
    data = np.arange(1, rows * per_row + 1).astype(values)
    ids = np.tile(np.arange(per_row)[::-1], rows).astype(indices)
    return kind((data, ids, (per_row * np.arange(rows + 1)).astype(indices)), shape=(rows, columns))


def unchanged(work, *matrices):
    before = [[part.copy() for part in parts(one)] for one in matrices]
    work(*matrices)
    for one, old in zip(matrices, before, strict=True):
        for new, part in zip(parts(one), old, strict=True):
            np.testing.assert_array_equal(new, part)


@pytest.mark.parametrize("kind", [sp.csr_array, sp.csr_matrix, sp.csc_array])
@pytest.mark.parametrize("values", [np.float32, np.float64, np.int64, bool])
@pytest.mark.parametrize("indices", [np.int32, np.int64])
@pytest.mark.parametrize("check", [as_rows, as_indicator])
def test_checks(kind, values, indices, check):
    """Columns in falling order are sorted in a copy."""
    given = matrix(kind, values, indices, rows=3)
    unchanged(check, given)
    np.testing.assert_array_equal(check(given).toarray() > 0, given.toarray() > 0)
    padded = matrix(kind, values, indices, rows=3)
    padded.data, padded.indices = np.append(padded.data, padded.data[:1]), np.append(padded.indices, padded.indices[:1])
    unchanged(check, padded)


@pytest.mark.parametrize("values", [np.float32, np.float64])
@pytest.mark.parametrize(
    "work",
    [
        lambda Y: Dataset(Y, Y).take([2, 0]),
        lambda Y: random_split(Dataset(Y, Y)),
        lambda Y: iterative_split(Dataset(Y, Y), test_size=0.5),
        lambda Y: mask_labels(Y, 0.5),
        lambda Y: mask_by_curve(Y),
        lambda Y: estimate_from_hierarchy(Y, [(0, 1), (1, 2), (0, 1)], min_descendants=1),
        lambda Y: estimate_from_sample(Y, Y),
        lambda Y: estimate_from_substitutes(Y, Y.T @ Y, Y.T @ Y),
    ],
)
def test_labels_in_falling_order(values, work):
    unchanged(work, matrix(sp.csr_array, values, np.int32))


@pytest.mark.parametrize(
    "work",
    [
        lambda Y: with_columns(Y, 7).sum_duplicates(),
        lambda Y: for_kernels(Y),
        lambda Y: some_rows(Y, 1, 3).sort_indices(),
        lambda Y: chosen_rows(Y, np.array([2, 0])).sort_indices(),
        lambda Y: LabelIndex(["a", "b", "c"]).align(Y, ["c", "a", "a"]),
        lambda Y: LabelIndex(["a", "b"]).align(Y, ["c", "b", "a"], extend=True),
    ],
)
def test_canonical_labels(work):
    unchanged(work, as_indicator(matrix(sp.csr_array, np.float32, np.int32)))


def test_writers(tmp_path):
    given = matrix(sp.csr_array, np.float64, np.int32)
    for name in ("a.txt", "a.npz", "a"):
        unchanged(lambda Y, name=name: save(Dataset(Y, Y), tmp_path / name), given)

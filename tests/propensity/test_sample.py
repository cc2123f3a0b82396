"""Propensities from rows that were annotated twice."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from longtail.errors import InputError, ParameterError
from longtail.propensity import JainPropensity, estimate_from_sample
from tests.propensity.simulation import masking_rates


def test_by_hand():
    """Label 0: 2 of 3 were recorded. Label 1: none of 1. Label 2 is true nowhere. Labels 0 and 1 pooled: 2 of 4."""
    observed = [[1, 0, 1], [1, 0, 0], [0, 0, 1]]
    complete = [[1, 0, 0], [1, 1, 0], [1, 0, 0]]
    points = estimate_from_sample(observed, complete, label_counts=[16, 2, 5], n_rows=30)
    np.testing.assert_allclose(points.propensities, [0.5])
    np.testing.assert_allclose(points.counts, [16 ** (3 / 4) * 2 ** (1 / 4)])
    np.testing.assert_array_equal((points.support, points.n_labels), ([4], [2]))
    alike = estimate_from_sample(observed, complete, label_counts=[16, 2, 5], n_rows=30, average="labels")
    np.testing.assert_allclose(alike.propensities, [(2 / 3 + 0) / 2])


def test_all_rows_annotated_twice():
    points = estimate_from_sample([[1, 0], [0, 1], [1, 0]], [[1, 1], [1, 1], [1, 0]], labels_per_bin=1)
    np.testing.assert_allclose(points.counts, [1, 2])
    np.testing.assert_allclose(points.propensities, [1 / 2, 2 / 3])
    assert points.n_rows == 3


@pytest.mark.parametrize(("a", "b"), [(0.55, 1.5), (0.6, 2.6)])
def test_known_constants_are_recovered(a, b):
    """4,000 labels; counts from 60,000 training rows, and 15,000 other rows with their labels completed.

    Bins that count the same, whatever their cases, would give a B that is 6 to 8 % too low on average.
    """
    rng, known = np.random.default_rng(1), JainPropensity(a=a, b=b)
    n_rows, sample = 60_000, 15_000
    complete_counts = np.minimum(80 * (1 - rng.random(4000)) ** -1.0, n_rows / 2).astype(int)
    rates = masking_rates(complete_counts, known, n_rows)
    label_counts = rng.binomial(complete_counts, rates)
    true = rng.binomial(sample, complete_counts / n_rows)
    rows = np.concatenate([rng.choice(sample, size=n, replace=False) for n in true])
    labels = np.repeat(np.arange(4000), true)
    complete = sp.csr_array((np.ones(len(rows)), (rows, labels)), shape=(sample, 4000))
    kept = rng.random(len(rows)) < rates[labels]
    observed = sp.csr_array((np.ones(kept.sum()), (rows[kept], labels[kept])), shape=(sample, 4000))
    fitted = estimate_from_sample(observed, complete, label_counts=label_counts, n_rows=n_rows).fit(resamples=100)
    assert fitted.a == pytest.approx(a, rel=0.1)
    assert fitted.b == pytest.approx(b, rel=0.1)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"Y_complete": np.eye(4)}, "the same rows"),
        ({"label_counts": [1, 2, 3]}, "go together"),
        ({"n_rows": 10}, "go together"),
        ({"label_counts": [1, 2], "n_rows": 10}, r"number of labels \(3\), got 2"),
        ({"label_counts": [1, 2, 13], "n_rows": 10}, "label_counts of label 2"),
        ({"label_counts": [0, 0, 0], "n_rows": 10}, "No recorded label"),
    ],
)
def test_mistakes(options, told):
    with pytest.raises((InputError, ParameterError), match=told):
        estimate_from_sample(**{"Y_observed": np.eye(3), "Y_complete": np.ones((3, 3))} | options)

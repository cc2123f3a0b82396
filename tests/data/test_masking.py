"""Hidden labels: kept with the right probabilities and nothing else changed."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.data import mask_by_curve, mask_labels
from longtail.data.sparse import as_indicator
from longtail.errors import InputError, ParameterError
from longtail.propensity import GivenPropensity, JainPropensity


def long_tailed(n_rows=20_000, n_labels=300, seed=0):
    rng = np.random.default_rng(seed)
    counts = np.maximum(n_rows / 2 / np.arange(1, n_labels + 1), 1).astype(int)
    rows = np.concatenate([rng.choice(n_rows, count, replace=False) for count in counts])
    labels = np.repeat(np.arange(n_labels), counts)
    return sp.csr_array((np.ones(len(rows), np.float32), (rows, labels)), shape=(n_rows, n_labels))


def label_counts(Y):
    return np.bincount(Y.indices, minlength=Y.shape[1])


def entries(Y):
    return set(zip(*(part.tolist() for part in sp.coo_array(Y).coords), strict=True))


class TestMaskLabels:
    def test_each_label_is_kept_with_its_probability(self):
        p = np.array([0.02, 0.3, 0.5, 0.9, 1.0])
        masked = mask_labels(np.ones((20_000, 5)), p)
        kept = label_counts(masked.observed)
        deviation = np.sqrt(20_000 * p * (1 - p))
        assert (np.abs(kept - 20_000 * p) <= 4 * deviation).all()
        assert kept[4] == 20_000
        np.testing.assert_array_equal(masked.propensities, p)

    def test_rows_and_labels_are_independent(self):
        kept = mask_labels(np.ones((20_000, 3)), [0.3, 0.5, 0.7]).observed.toarray()
        between_labels = np.corrcoef(kept.T)[np.triu_indices(3, 1)]
        between_rows = [np.corrcoef(kept[:-1, label], kept[1:, label])[0, 1] for label in range(3)]
        assert np.abs([*between_labels, *between_rows]).max() < 4 / np.sqrt(20_000)

    def test_the_inverse_propensity_makes_up_for_what_is_hidden(self):
        Y, p = long_tailed(), np.linspace(0.2, 0.9, 300)
        masked = mask_labels(Y, p)
        estimate = (1 / p)[masked.observed.indices].sum()
        deviation = np.sqrt((label_counts(Y) * (1 - p) / p).sum())
        assert abs(estimate - Y.nnz) < 4 * deviation
        assert masked.observed.nnz < 0.6 * Y.nnz
        inverse = GivenPropensity(values=masked.propensities).inverse(label_counts(masked.observed), Y.shape[0])
        np.testing.assert_allclose(inverse, 1 / p)

    @settings(max_examples=40)
    @given(
        rows=st.lists(st.sets(st.integers(0, 4)), max_size=12),
        p=st.lists(st.floats(0.01, 1), min_size=5, max_size=5),
        raised=st.floats(1, 3),
        seed=st.integers(0, 2**32 - 1),
    )
    def test_a_part_of_the_complete_labels(self, rows, p, raised, seed):
        Y = np.array([[label in row for label in range(5)] for row in rows], dtype=float).reshape(len(rows), 5)
        masked = mask_labels(Y, p, random_state=seed)
        np.testing.assert_array_equal(masked.complete.toarray(), Y)
        assert masked.observed.shape == Y.shape
        assert entries(masked.observed) <= entries(masked.complete)
        assert (masked.observed.data == 1).all()
        more = mask_labels(Y, np.minimum(np.array(p) * raised, 1), random_state=seed)
        assert entries(masked.observed) <= entries(more.observed)

    def test_the_form_that_everything_else_takes(self):
        observed = mask_labels(long_tailed(500, 40), 0.5).observed
        assert as_indicator(observed) is observed
        assert observed.dtype == np.float32
        assert observed.indices.dtype == observed.indptr.dtype == np.int32

    def test_seed_decides_and_the_form_of_the_matrix_does_not(self):
        Y = long_tailed(500, 40)
        first = mask_labels(Y, 0.5, random_state=3).observed
        twice = Y.tocoo()
        unsummed = sp.coo_array(
            (np.append(twice.data, twice.data), tuple(np.append(part, part)[::-1] for part in twice.coords)), Y.shape
        )
        for form in (Y, Y.toarray(), Y.tocsc(), sp.csr_matrix(Y), unsummed, (7 * Y).astype(np.int64), Y.toarray() > 0):
            assert (mask_labels(form, np.full(40, 0.5), random_state=3).observed != first).nnz == 0
        assert (mask_labels(Y, 0.5, random_state=4).observed != first).nnz > 0

    def test_the_input_stays_as_it_is(self):
        Y, p = long_tailed(500, 40), np.full(40, 0.5)
        before = Y.copy()
        masked = mask_labels(Y, p)
        masked.propensities[:] = 0
        assert (before != Y).nnz == 0
        assert (p == 0.5).all()

    def test_never_dense(self):
        """A dense matrix of this shape would take a terabyte."""
        Y = sp.csr_array((np.ones(1000), (np.arange(1000) * 997, np.arange(1000) * 501)), shape=(10**6, 10**6))
        masked = mask_labels(Y, 0.5)
        assert 400 < masked.observed.nnz < 600

    @pytest.mark.parametrize("shape", [(0, 3), (3, 0), (4, 2)])
    def test_nothing_to_hide(self, shape):
        masked = mask_labels(np.zeros(shape), np.full(shape[1], 0.5))
        assert masked.observed.shape == shape
        assert masked.observed.nnz == 0

    @pytest.mark.parametrize(
        ("propensity", "message"),
        [
            ([0.5], r"len\(propensity\) must equal the number of labels \(2\), got 1"),
            ([0.5, 0.0], r"propensity of label 1 must be a number above 0 and at most 1, got 0.0"),
            ([1.1, 0.5], "propensity of label 0 must be"),
            ([np.nan, 0.5], "propensity of label 0 must be"),
            (2, "propensity must be a number above 0 and at most 1, got 2.0"),
            ([[0.5, 0.5]], "flat array"),
            ("half", "number or a flat array"),
            (None, "number or a flat array"),
        ],
    )
    def test_wrong_propensities(self, propensity, message):
        with pytest.raises(ParameterError, match=message):
            mask_labels(np.ones((3, 2)), propensity)

    @pytest.mark.parametrize("mask", [lambda Y, **rest: mask_labels(Y, 0.5, **rest), mask_by_curve])
    def test_other_mistakes(self, mask):
        for seed in (-1, 0.5, None, True):
            with pytest.raises(ParameterError, match="random_state must be"):
                mask(np.ones((3, 2)), random_state=seed)
        with pytest.raises(InputError, match="rows and columns"):
            mask(np.ones(3))


class TestMaskByCurve:
    Y = long_tailed()

    @pytest.mark.parametrize(("a", "b"), [(0.55, 1.5), (0.5, 0.4), (0.6, 2.6), (0.0, 1.0)])
    def test_complete_counts_give_the_curve_itself(self, a, b):
        masked = mask_by_curve(self.Y, a, b)
        expected = JainPropensity(a=a, b=b).propensities(label_counts(self.Y), self.Y.shape[0])
        np.testing.assert_allclose(masked.propensities, expected, rtol=1e-12)
        again = mask_labels(self.Y, expected)
        assert (masked.observed != again.observed).nnz == 0

    def test_golden_value(self):
        """N = 50, n = 1, A = 0.55, B = 1.5: the value of a published unit test."""
        assert mask_by_curve(np.eye(50, 1)).propensities[0] == pytest.approx(0.25562221863533147)

    @pytest.mark.parametrize(("a", "b"), [(0.55, 1.5), (0.5, 0.4), (0.6, 2.6), (0.0, 1.0), (2.0, 1.5)])
    def test_observed_counts_solve_the_equation(self, a, b):
        used = mask_by_curve(self.Y, a, b, counts="observed").propensities
        expected_counts = used * label_counts(self.Y)
        np.testing.assert_allclose(JainPropensity(a=a, b=b).propensities(expected_counts, self.Y.shape[0]), used)

    def test_golden_value_by_hand(self):
        """A = 1, B = 1, n = 10, and N such that C = 8: p = (10 p + 1) / (10 p + 9), so 10 p^2 - p - 1 = 0."""
        rows = round(np.exp(5))
        C = 2 * (np.log(rows) - 1)
        Y = np.zeros((rows, 1))
        Y[:10] = 1
        by_hand = (10 - 1 - C + np.sqrt((10 - 1 - C) ** 2 + 40)) / 20
        assert mask_by_curve(Y, 1.0, 1.0, counts="observed").propensities[0] == pytest.approx(by_hand, rel=1e-12)
        assert by_hand == pytest.approx((1 + np.sqrt(41)) / 20, rel=1e-3)

    def test_whoever_looks_at_the_observed_labels_finds_the_propensities_of_the_one_and_not_of_the_other(self):
        torso = (label_counts(self.Y) > 50) & (label_counts(self.Y) < 2000)
        ratio = {}
        for counts in ("complete", "observed"):
            masked = mask_by_curve(self.Y, counts=counts, random_state=1)
            found = JainPropensity().propensities(label_counts(masked.observed), self.Y.shape[0])
            ratio[counts] = (found / masked.propensities)[torso].mean()
        assert ratio["observed"] == pytest.approx(1, abs=0.02)
        assert ratio["complete"] < 0.9

    def test_rare_labels_go_missing_more_often(self):
        for counts in ("complete", "observed"):
            masked = mask_by_curve(self.Y, counts=counts)
            by_frequency = masked.propensities[np.argsort(label_counts(self.Y), kind="stable")]
            assert (np.diff(by_frequency) >= 0).all()
            share = label_counts(masked.observed) / label_counts(self.Y)
            assert share[:10].mean() > 0.7 > 0.4 > share[100:].mean()

    def test_labels_that_no_row_has(self):
        Y = np.zeros((100, 2))
        Y[:5, 0] = 1
        expected = JainPropensity().propensities([0], 100)[0]
        for counts in ("complete", "observed"):
            assert mask_by_curve(Y, counts=counts).propensities[1] == pytest.approx(expected)

    def test_other_rows(self):
        Y = np.eye(60, 2)
        masked = mask_by_curve(Y, n_rows=10_000)
        np.testing.assert_allclose(masked.propensities, JainPropensity().propensities([1, 1], 10_000))

    @pytest.mark.parametrize("shape", [(0, 3), (2, 2)])
    def test_too_few_rows_hide_nothing(self, shape):
        for counts in ("complete", "observed"):
            masked = mask_by_curve(np.ones(shape), counts=counts)
            assert masked.observed.nnz == masked.complete.nnz
            assert (masked.propensities == 1).all()

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"a": -0.1}, "a must be a number of at least 0"),
            ({"a": "x"}, "a must be"),
            ({"b": 0}, "b must be a number above 0"),
            ({"b": np.nan}, "b must be"),
            ({"a": 1e5}, "a is too large with b = 1.5"),
            ({"counts": "true"}, "counts must be one of complete, observed"),
            ({"n_rows": 0}, "n_rows must be an integer"),
            ({"n_rows": 9.5}, "n_rows must be an integer"),
            ({"n_rows": 3}, "n_rows must be at least 5, the rows of the most frequent label"),
        ],
    )
    def test_mistakes(self, changes, message):
        Y = np.zeros((100, 2))
        Y[:5, 0] = 1
        with pytest.raises(ParameterError, match=message):
            mask_by_curve(Y, **changes)

"""Estimates from recorded labels against metrics on complete ones: labels are hidden many times over."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from longtail.errors import InputError, ParameterError
from longtail.metrics import ESTIMATORS, concentration_bound, evaluate, unbiased_estimate, unbiased_rows
from longtail.topk import TopK
from tests.metrics.reference import padded

N, N_LABELS, K, MASKS = 60, 20, 4, 1500
WITHOUT_N_TRUE = ("P", "DCG", "Hamming", "MRR")
D = 1 / np.log2(np.arange(2, K + 2))


def by_rows(name: str, ranking: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """The metrics on complete labels, written out; percent for each row."""
    values = []
    for row, true in zip(ranking, Y, strict=True):
        hits = np.array([label >= 0 and true[label] for label in row], float)
        decided, m = (row >= 0).sum(), max(true.sum(), 1)
        first = np.flatnonzero(hits)
        values.append(
            {
                "P": hits.sum() / K,
                "DCG": hits @ D / D.sum(),
                "nDCG": hits @ D / D[: min(m, K)].sum(),
                "R": hits.sum() / m,
                "ADG": hits @ D / m,
                "ARR": hits @ (1 / np.arange(1, K + 1)) / m,
                "MRR": 1 / (first[0] + 1) if len(first) else 0.0,
                "F1": 2 * hits.sum() / (m + decided),
                "Hamming": (decided + true.sum() - 2 * hits.sum()) / N_LABELS,
            }[name]
        )
    return 100 * np.array(values)


@pytest.fixture(scope="module")
def complete() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A ranking that is often right and likes labels that are often recorded, complete labels, of which row 0 has none,
    and propensities."""
    rng = np.random.default_rng(0)
    Y, p = rng.random((N, N_LABELS)) < 0.25, rng.uniform(0.3, 1.0, N_LABELS)
    Y[0] = False
    ranking = np.argsort(-(Y * rng.random((N, N_LABELS)) + rng.random((N, N_LABELS)) + p), axis=1)[:, :K]
    ranking[::9, 2:] = -1
    return ranking, Y, p


def recorded(Y: np.ndarray, p: np.ndarray, *, together: bool = False) -> sp.csr_array:
    """Hide labels MASKS times, copies one below the other; together: one number decides over the labels of a row."""
    rng = np.random.default_rng(1)
    chance = rng.random((MASKS, N, 1 if together else N_LABELS))
    return sp.csr_array(((chance < p) & Y).reshape(MASKS * N, N_LABELS).astype(np.float32))


def estimates(name: str, ranking: np.ndarray, observed: sp.csr_array, inverse, n_true=None, **options) -> np.ndarray:
    """The estimate under each mask."""
    many = None if n_true is None else np.tile(n_true, MASKS)
    rows = unbiased_rows(name, np.tile(ranking, (MASKS, 1)), observed, inverse, K, many, **options)
    return rows.reshape(MASKS, N).mean(axis=1)


def distance(values: np.ndarray, target: float) -> float:
    """From the target, in standard errors of the mean."""
    return abs(values.mean() - target) / (values.std() / np.sqrt(len(values)))


@pytest.mark.parametrize("name", ESTIMATORS)
def test_unbiased_when_labels_go_missing_independently(name: str, complete) -> None:
    ranking, Y, p = complete
    found = estimates(name, ranking, recorded(Y, p), 1 / p, None if name in WITHOUT_N_TRUE else Y.sum(axis=1))
    assert distance(found, by_rows(name, ranking, Y).mean()) < 2


@pytest.mark.parametrize("name", ESTIMATORS)
def test_labels_that_go_missing_together(name: str, complete) -> None:
    """Only the probability of each label matters, except for the rank of the first hit."""
    ranking, Y, p = complete
    observed = recorded(Y, p, together=True)
    found = estimates(name, ranking, observed, 1 / p, None if name in WITHOUT_N_TRUE else Y.sum(axis=1))
    away = distance(found, by_rows(name, ranking, Y).mean())
    assert away > 5 if name == "MRR" else away < 2


@pytest.mark.parametrize("name", ESTIMATORS)
def test_recorded_labels_taken_for_complete_ones_mislead(name: str, complete) -> None:
    ranking, Y, p = complete
    observed = recorded(Y, p)
    counts = np.diff(observed.indptr)
    rows = unbiased_rows(name, np.tile(ranking, (MASKS, 1)), observed, np.ones(N_LABELS), K, counts)
    assert distance(rows.reshape(MASKS, N).mean(axis=1), by_rows(name, ranking, Y).mean()) > 10


def test_dividing_by_the_recorded_number_misleads(complete) -> None:
    """With propensities but the number of recorded labels instead of the true one, recall is far too high."""
    ranking, Y, p = complete
    observed = recorded(Y, p)
    rows = unbiased_rows("R", np.tile(ranking, (MASKS, 1)), observed, 1 / p, K, np.diff(observed.indptr))
    assert rows.mean() > 1.2 * by_rows("R", ranking, Y).mean()


@pytest.mark.parametrize("name", ["R", "ADG", "ARR"])
def test_corollary_4_2_1(name: str, complete) -> None:
    """Chances of g over the number of true labels, which therefore needn't be known."""
    ranking, Y, _ = complete
    g = np.random.default_rng(2).uniform(0.4, 1.0, N_LABELS)
    n_true = np.maximum(Y.sum(axis=1), 1)
    found = estimates(name, ranking, recorded(Y, g / n_true[:, None]), None, g=g)
    assert distance(found, by_rows(name, ranking, Y).mean()) < 2


@pytest.mark.parametrize("name", ["P", "nDCG", "R", "MRR", "ADG", "Hamming"])
def test_complete_labels_give_what_evaluate_gives(name: str, complete) -> None:
    ranking, Y, _ = complete
    found = unbiased_estimate(name, ranking, Y, np.ones(N_LABELS), K, None if name in WITHOUT_N_TRUE else Y.sum(axis=1))
    assert found == pytest.approx(evaluate(ranking, Y, ks=[K])[f"{name}@{K}"])


def test_one_row_by_hand() -> None:
    """Labels 3 and 1 are recorded, with 1/p = 2 and 4, at ranks 1 and 3; the row truly has 5 labels of 6."""
    arguments = ([[3, 0, 1, -1]], [[0, 1, 0, 1, 0, 0]], [1.0, 4.0, 1.0, 2.0, 1.0, 1.0], 4)
    d3, mass = 0.5, 1 + 1 / np.log2(3) + 0.5 + 1 / np.log2(5)
    expected = {"P": 6 / 4, "DCG": (2 + 4 * d3) / mass, "nDCG": (2 + 4 * d3) / mass, "R": 6 / 5}
    expected |= {"ADG": (2 + 4 * d3) / 5, "ARR": (2 + 4 / 3) / 5, "F1": 2 * 6 / (5 + 3)}
    expected |= {"MRR": 2 + (1 - 2) * 4 / 3, "Hamming": (6 - 2 * 6 + 3) / 6}
    assert {name: unbiased_estimate(name, *arguments, [5]) for name in ESTIMATORS} == pytest.approx(
        {name: 100 * value for name, value in expected.items()}
    )
    assert unbiased_rows("P", *arguments).tolist() == [150]
    assert unbiased_estimate("R", *arguments[:2], None, 4, g=[1, 0.5, 1, 0.25, 1, 1]) == pytest.approx(100 * (2 + 4))


def test_rankings_of_every_form(complete) -> None:
    ranking, Y, p = complete
    top = TopK(ranking.astype(np.int32), np.zeros(ranking.shape, np.float32))
    as_lists = unbiased_estimate("P", ranking.tolist(), Y, 1 / p, 2)
    assert unbiased_estimate("P", top, sp.csr_array(Y), 1 / p, 2) == as_lists
    short = unbiased_estimate("P", ranking[:, :2], Y, 1 / p, 4)
    assert short == pytest.approx(unbiased_estimate("P", padded(ranking[:, :2].tolist(), 4), Y, 1 / p, 4))


class TestBound:
    def test_by_hand(self) -> None:
        """sqrt(ln(2/0.05) / (2 * 100)) = 0.13581; at most 3 of 5 ranks and 1/p of at most 4."""
        assert concentration_bound("P", [1, 4], [3] * 100) == pytest.approx(100 * 4 * 3 / 5 * 0.135810, rel=1e-5)
        assert concentration_bound("P", [1, 4], [9] * 100) == pytest.approx(100 * 4 * 0.135810, rel=1e-5)
        mixed = concentration_bound("P", [1, 4], [3] * 50 + [0] * 50)
        assert mixed == pytest.approx(100 * 4 * 3 / 5 * 0.135810 / np.sqrt(2), rel=1e-5)

    @pytest.mark.parametrize("name", [name for name in ESTIMATORS if name != "MRR"])
    def test_halves_with_four_times_the_rows(self, name: str) -> None:
        rows = np.random.default_rng(0).integers(0, 9, 50)
        once, four = (concentration_bound(name, [1, 3], np.tile(rows, times)) for times in (1, 4))
        assert once == pytest.approx(2 * four)
        assert once > 0

    def test_covers_and_is_not_far_too_wide(self) -> None:
        """A label that is always true and recorded every other time: a bound half as wide would fail."""
        n, masks = 400, 2000
        Y = sp.csr_array((np.random.default_rng(0).random((masks * n, 1)) < 0.5).astype(np.float32))
        found = unbiased_rows("P", np.zeros((masks * n, 1), int), Y, [2.0], 1).reshape(masks, n).mean(axis=1)
        bound = concentration_bound("P", [2.0], [1] * n, 1)
        assert (abs(found - 100) <= bound).mean() >= 0.95
        assert (abs(found - 100) <= bound / 2).mean() < 0.95

    @pytest.mark.parametrize("name", [name for name in ESTIMATORS if name != "MRR"])
    def test_covers_every_estimate(self, name: str, complete) -> None:
        ranking, Y, p = complete
        n_true = Y.sum(axis=1)
        observed = recorded(Y, p, together=True)
        found = estimates(name, ranking, observed, 1 / p, None if name in WITHOUT_N_TRUE else n_true)
        bound = concentration_bound(name, 1 / p, n_true, K, level=0.6)
        assert (abs(found - by_rows(name, ranking, Y).mean()) <= bound).mean() >= 0.6

    @pytest.mark.parametrize("name", [name for name in ESTIMATORS if name != "MRR"])
    @pytest.mark.parametrize("m", range(7))
    def test_no_row_has_a_wider_range(self, name: str, m: int) -> None:
        """The m true labels stand first, and all, or any part of them, are recorded; 1/p is 3."""
        ranking, n_labels = np.arange(4)[None, :], 8
        parts = np.array([[part >> label & 1 for label in range(n_labels)] for part in range(2**m)])
        values = [unbiased_estimate(name, ranking, row[None, :], [3.0] * n_labels, 4, [m]) for row in parts]
        one_row = concentration_bound(name, [3.0] * n_labels, [m], 4, level=1 - 2 * np.exp(-2))
        assert max(values) - min(values) <= one_row * (1 + 1e-9)  # here the bound is the range itself

    def test_refused(self) -> None:
        with pytest.raises(ParameterError, match="name must be one of P, DCG"):
            concentration_bound("MRR", [1.0], [1])
        with pytest.raises(ParameterError, match="level"):
            concentration_bound("P", [1.0], [1], level=95)
        for wrong in ([], [[1]], [0.5], [-1], 3):
            with pytest.raises(InputError, match="max_true"):
                concentration_bound("P", [1.0], wrong)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("PSP", {}, "name must be one of P, DCG"),
        ("R", {}, "needs n_true or g"),
        ("nDCG", {}, "needs n_true,"),
        ("P", {"k": 0}, "k must be"),
        ("P", {"inverse_propensity": [0.5, 1.0]}, "give 1/p, not p"),
        ("P", {"inverse_propensity": [1.0]}, r"number of labels \(2\), got 1"),
        ("P", {"inverse_propensity": None}, "inverse_propensity must hold"),
        ("R", {"n_true": [0]}, "row 0, which has 1 recorded"),
        ("R", {"n_true": [1.5]}, "n_true must be one integer"),
        ("R", {"n_true": [1, 2]}, "n_true must be one integer"),
        ("R", {"g": [0.5, 1.0]}, "leave them out"),
        ("F1", {"g": [0.5, 1.0]}, "g is for R, ADG, ARR"),
        ("R", {"g": [0.0, 1.0], "inverse_propensity": None}, "g of label 0 must be a number above 0"),
        ("P", {"top": [[0], [1]]}, "2 rows and Y has 1"),
    ],
)
def test_refused(name: str, options, message: str) -> None:
    arguments = {"top": [[0]], "Y": [[1, 0]], "inverse_propensity": [1.0, 2.0], "k": 1} | options
    with pytest.raises((InputError, ParameterError), match=message):
        unbiased_estimate(name, **arguments)

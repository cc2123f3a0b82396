from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import f1_score, hamming_loss

from longtail.errors import InputError, ParameterError
from longtail.metrics import Evaluator, evaluate, per_label, top_k_from_sparse
from longtail.topk import TopK
from tests.metrics.reference import cases, indicator, metrics, padded

# Four rows, six labels of which label 5 was never seen in training and so has the largest 1/p.
TRUTH = [{0, 3}, {2}, set(), {1, 4, 5}]
RANKING = np.array([[3, 1, 0], [2, -1, -1], [0, 1, 2], [0, 5, 2]])
WEIGHTS = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
D2, D3 = 1 / np.log2(3), 1 / np.log2(4)  # 0.63093 and 0.5: what places 2 and 3 are worth
MASS2, MASS3 = 1 + D2, 1 + D2 + D3


@pytest.fixture(scope="module")
def by_hand() -> dict[str, float]:
    return dict(evaluate(RANKING, indicator(TRUTH, 6), inverse_propensity=WEIGHTS, ks=(1, 3)))


def test_precision(by_hand: dict[str, float]) -> None:
    """Hits at 1: yes, yes, no, no. At 3: 2, 1, 0, 1 of three ranks each, though row 1 has one prediction only."""
    assert by_hand["P@1"] == pytest.approx(100 * 2 / 4)
    assert by_hand["P@3"] == pytest.approx(100 * (2 + 1 + 0 + 1) / (3 * 4))


def test_ndcg(by_hand: dict[str, float]) -> None:
    """Row 0 hits ranks 1 and 3 of 2 possible, row 1 its only one, row 2 has none and scores 0, row 3 rank 2 of 3."""
    assert by_hand["nDCG@1"] == pytest.approx(100 * 2 / 4)
    assert by_hand["nDCG@3"] == pytest.approx(100 * ((1 + D3) / MASS2 + 1 + 0 + D2 / MASS3) / 4)


def test_psp(by_hand: dict[str, float]) -> None:
    """Gains at 1: 4, 3, 0, 0 of the best 4, 3, 0, 6. At 3: 4+1, 3, 0, 6 of the best 4+1, 3, 0, 6+5+2."""
    assert by_hand["PSP@1"] == pytest.approx(100 * 7 / 13)
    assert by_hand["PSP@3"] == pytest.approx(100 * 14 / 21)


def test_the_two_definitions_of_psndcg_differ(by_hand: dict[str, float]) -> None:
    gains = [4 + 1 * D3, 3, 0, 6 * D2]
    best = [4 + 1 * D2, 3, 0, 6 + 5 * D2 + 2 * D3]
    mass = [MASS2, 1, 1, MASS3]
    assert by_hand["PSnDCG_ratio@3"] == pytest.approx(100 * sum(gains) / sum(best))
    assert by_hand["PSnDCG@3"] == pytest.approx(100 * sum(np.divide(gains, mass)) / sum(np.divide(best, mass)))
    assert by_hand["PSnDCG_ratio@3"] == pytest.approx(63.45, abs=0.005)
    assert by_hand["PSnDCG@3"] == pytest.approx(71.06, abs=0.005)
    assert by_hand["PSnDCG@1"] == by_hand["PSnDCG_ratio@1"] == by_hand["PSP@1"]


def test_recall(by_hand: dict[str, float]) -> None:
    """Shares at 3: 2 of 2, 1 of 1, 0 of none, 1 of 3."""
    assert by_hand["R@1"] == pytest.approx(100 * (1 / 2 + 1 + 0 + 0) / 4)
    assert by_hand["R@3"] == pytest.approx(100 * (1 + 1 + 0 + 1 / 3) / 4)


def test_coverage_counts_labels_that_are_hit(by_hand: dict[str, float]) -> None:
    """Labels hit at 1: 3 and 2; at 3 also 0 and 5 (1 is predicted, but wrongly). All 6 labels are true somewhere."""
    assert by_hand["C@1"] == pytest.approx(100 * 2 / 6)
    assert by_hand["C@3"] == pytest.approx(100 * 4 / 6)


def test_psr(by_hand: dict[str, float]) -> None:
    """The two sides of PSP, each row's divided by its 2, 1, (0) and 3 true labels."""
    assert by_hand["PSR@1"] == pytest.approx(100 * (4 / 2 + 3 / 1 + 0 + 0) / (4 / 2 + 3 / 1 + 0 + 6 / 3))
    assert by_hand["PSR@3"] == pytest.approx(100 * (5 / 2 + 3 / 1 + 0 + 6 / 3) / (5 / 2 + 3 / 1 + 0 + 13 / 3))


def test_mrr(by_hand: dict[str, float]) -> None:
    """First hits at ranks 1, 1, none and 2."""
    assert by_hand["MRR@1"] == pytest.approx(100 * 2 / 4)
    assert by_hand["MRR@3"] == pytest.approx(100 * (1 + 1 + 0 + 1 / 2) / 4)


def test_adg(by_hand: dict[str, float]) -> None:
    """Discounted hits over 2, 1, (0) and 3 true labels; PSADG has their inverse propensities over the best ones."""
    assert by_hand["ADG@1"] == pytest.approx(100 * (1 / 2 + 1 + 0 + 0) / 4)
    assert by_hand["ADG@3"] == pytest.approx(100 * ((1 + D3) / 2 + 1 + 0 + D2 / 3) / 4)
    gains = (4 + 1 * D3) / 2 + 3 + 6 * D2 / 3
    assert by_hand["PSADG@3"] == pytest.approx(100 * gains / ((4 + D2) / 2 + 3 + (6 + 5 * D2 + 2 * D3) / 3))


def test_f1(by_hand: dict[str, float]) -> None:
    """At 3 there are 4 hits, 3 + 1 + 3 + 3 decided and 6 true labels.

    Labels 0 to 5 are predicted 3, 2, 3, 1, 0 and 1 times, hit 1, 0, 1, 1, 0 and 1 times, and true once each.
    """
    assert by_hand["microF1@3"] == pytest.approx(100 * 2 * 4 / (10 + 6))
    assert by_hand["macroF1@3"] == pytest.approx(100 * (2 / 4 + 0 / 3 + 2 / 4 + 2 / 2 + 0 / 1 + 2 / 2) / 6)


def test_hamming(by_hand: dict[str, float]) -> None:
    """Wrong decisions at 3, of 6 labels: {1} of row 0, none, {0, 1, 2}, and {0, 2} beside the missed {1, 4}."""
    assert by_hand["Hamming@3"] == pytest.approx(100 * (1 + 0 + 3 + 4) / (4 * 6))


@pytest.mark.parametrize("k", [1, 3, 5])
def test_f1_and_hamming_as_in_scikit_learn(k: int) -> None:
    rng = np.random.default_rng(5)
    Y = (rng.random((60, 12)) < 0.2).astype(int)
    Y[:, 11] = 0  # true nowhere
    ranking = np.array([rng.permutation(11)[:5] for _ in range(60)])
    decided = np.zeros_like(Y)
    np.put_along_axis(decided, ranking[:, :k], 1, axis=1)
    scores = evaluate(ranking, Y, ks=[k])
    assert scores[f"microF1@{k}"] == pytest.approx(100 * f1_score(Y, decided, average="micro"))
    assert scores[f"macroF1@{k}"] == pytest.approx(100 * f1_score(Y[:, :11], decided[:, :11], average="macro"))
    assert scores[f"Hamming@{k}"] == pytest.approx(100 * hamming_loss(Y, decided))
    assert scores[f"macroF1@{k}"] == pytest.approx(np.nanmean(per_label(ranking, Y, k).f1))


def test_psp_is_a_ratio_of_sums_and_not_a_mean_of_ratios() -> None:
    """Gains 1 of 1 and 0 of 9: the ratio of sums is 10 %, the mean of ratios would be 50 %."""
    scores = evaluate([[0], [0]], [[1, 0], [0, 1]], inverse_propensity=[1, 9], ks=[1])
    assert scores["PSP@1"] == pytest.approx(10)


def test_missing_ranks_are_misses() -> None:
    """One label is ranked; at 3 the hit counts for a third of the ranks and for one of two true labels."""
    scores = evaluate([[0]], [[1, 1]], ks=[1, 3])
    at_3 = {"P@3": 100 / 3, "nDCG@3": 100 / MASS2, "R@3": 50, "C@3": 50, "MRR@3": 100, "ADG@3": 50}
    at_3 |= {"microF1@3": 100 * 2 / 3, "macroF1@3": 50, "Hamming@3": 50}
    assert {key: scores[key] for key in at_3} == pytest.approx(at_3)
    assert {key for key in scores if key.endswith("@3")} == set(at_3)
    assert scores["P@1"] == scores["nDCG@1"] == 100


def test_no_place_at_all() -> None:
    scores = evaluate(np.empty((2, 0), int), np.eye(2), ks=[5])
    assert {key for key, value in scores.items() if value} == {"Hamming@5"}
    assert scores["Hamming@5"] == 50  # the one label of each row is missed, of two


def test_only_empty_rows_score_zero() -> None:
    scores = evaluate([[0, 1]], [[0, 0]], inverse_propensity=[1, 2], ks=[1, 2])
    assert {key: value for key, value in scores.items() if value} == {"Hamming@1": 50, "Hamming@2": 100}


def test_perfect_ranking_of_rows_with_labels() -> None:
    """Label ids in falling order of weight make exactly 100, but for P@3 (row 1 has one label), what misses labels at
    1, and ADG@3, where the later labels of a row are worth less."""
    scores = evaluate([[2, 1, 0], [0, -1, -1]], [[1, 1, 1], [1, 0, 0]], inverse_propensity=[1, 2, 3], ks=[1, 3])
    assert {key: value for key, value in scores.items() if value not in (0, 100)} == pytest.approx(
        {"P@3": 100 * 4 / 6, "R@1": 100 * (1 / 3 + 1) / 2, "C@1": 100 * 2 / 3, "ADG@1": 100 * (1 / 3 + 1) / 2}
        | {"ADG@3": 100 * (MASS3 / 3 + 1) / 2, "microF1@1": 100 * 4 / 6, "Hamming@1": 100 * 2 / 6}
        | {"macroF1@1": 100 * (2 / 3 + 0 + 1) / 3}
    )
    assert scores["Hamming@3"] == 0


def test_equal_scores_go_by_label_id() -> None:
    """Labels 1 and 2 tie: 1 comes first and hits."""
    top = top_k_from_sparse(sp.csr_array([[0, 0.5, 0.5, 0.1]]), 1)
    assert evaluate(top, [[0, 1, 0, 0]], ks=[1])["P@1"] == 100
    assert evaluate(top, [[0, 0, 1, 0]], ks=[1])["P@1"] == 0


def test_explicit_zeros_and_other_values_in_the_truth() -> None:
    """A stored zero is no label; any other number is one."""
    stored = sp.csr_array(([0.0, 3.0], [0, 1], [0, 2]), shape=(1, 2))
    assert evaluate([[0, 1]], stored, ks=[1, 2])["P@2"] == 50
    assert evaluate([[0, 1]], stored, ks=[1, 2])["R@1"] == 0


def test_ids_outside_the_columns_are_misses() -> None:
    scores = evaluate(np.array([[7, -3, 1, 2**40]]), [[0, 1]], ks=[3, 4])
    assert scores["P@3"] == pytest.approx(100 / 3)
    assert scores["P@4"] == 25


def test_propensity_scored_metrics_are_left_out_without_propensities() -> None:
    assert not [key for key in evaluate([[0]], [[1]]) if key.startswith("PS")]


def test_propensities_of_one_make_the_propensity_scored_metrics_plain() -> None:
    """With 1/p = 1 and every row holding at least k labels, PSP is P and PSnDCG is nDCG."""
    rng = np.random.default_rng(0)
    Y = np.zeros((50, 20))
    Y[:, :5] = 1
    ranking = np.array([rng.permutation(20)[:5] for _ in range(50)])
    scores = evaluate(ranking, Y, inverse_propensity=np.ones(20))
    for k in (1, 3, 5):
        assert scores[f"PSP@{k}"] == pytest.approx(scores[f"P@{k}"])
        assert scores[f"PSnDCG@{k}"] == pytest.approx(scores[f"nDCG@{k}"])


@given(cases(), st.sets(st.integers(1, 8), min_size=1, max_size=4))
@settings(max_examples=150, deadline=None)
def test_equal_to_the_reference(case: tuple[list[list[int]], list[set[int]], list[float]], ks: set[int]) -> None:
    ranking, truth, weights = case
    scores = evaluate(padded(ranking, 6), indicator(truth, len(weights)), inverse_propensity=weights, ks=ks)
    expected = {key: value for k in ks for key, value in metrics(ranking, truth, weights, k).items()}
    assert dict(scores) == pytest.approx(expected, abs=1e-9)


@given(cases(), st.randoms(use_true_random=False))
@settings(max_examples=50, deadline=None)
def test_order_of_rows_does_not_matter(case: tuple[list[list[int]], list[set[int]], list[float]], random) -> None:
    ranking, truth, weights = case
    order = list(range(len(truth)))
    random.shuffle(order)
    Y, top = indicator(truth, len(weights)), padded(ranking, 6)
    assert dict(evaluate(top, Y, inverse_propensity=weights)) == dict(
        evaluate(top[order], Y[order], inverse_propensity=weights)
    )


def test_a_topk_and_its_labels_score_the_same() -> None:
    top = TopK(RANKING.astype(np.int32), np.zeros(RANKING.shape, np.float32))
    Y = sp.csr_array(indicator(TRUTH, 6))
    assert dict(evaluate(top, Y)) == dict(evaluate(RANKING, Y)) == dict(evaluate(RANKING.tolist(), Y.toarray()))


def test_input_is_not_changed() -> None:
    ranking, Y = RANKING.copy(), sp.csr_array(indicator(TRUTH, 6))
    before = Y.copy()
    evaluate(ranking, Y, inverse_propensity=WEIGHTS)
    assert (ranking == RANKING).all()
    assert (Y.data == before.data).all()
    assert (Y.indices == before.indices).all()


class TestRerank:
    """Scores of labels 0 to 2 are above 0, those of 3 and 4 are not: the order becomes 2, 1, 0, 3, 4 and then 5."""

    top = TopK(np.array([[0, 1, 2, 3, 4, 5]], np.int32), np.array([[3, 2, 1, 0, -1, 4]], np.float32))
    Y = np.array([[0, 0, 1, 1, 0, 1]])

    def test_only_the_propensity_scored_metrics_change(self) -> None:
        """The best at 1 is label 5's 6; at 3 it is 6+4+3; the re-ordered list gains 3 at 1 and at 3, 3+4 at 5."""
        plain = evaluate(self.top, self.Y, inverse_propensity=WEIGHTS)
        ranked = evaluate(self.top, self.Y, inverse_propensity=WEIGHTS, rerank="inv_propensity_top5")
        assert plain["PSP@1"] == 0
        assert ranked["PSP@1"] == pytest.approx(100 * 3 / 6)
        assert ranked["PSP@3"] == plain["PSP@3"] == pytest.approx(100 * 3 / 13)
        assert ranked["PSP@5"] == plain["PSP@5"] == pytest.approx(100 * 7 / 13)
        assert ranked["PSnDCG@3"] == pytest.approx(100 * 3 / (6 + 4 * D2 + 3 * D3))
        assert plain["PSnDCG@3"] == pytest.approx(100 * 3 * D3 / (6 + 4 * D2 + 3 * D3))
        assert {k: v for k, v in ranked.items() if not k.startswith("PS")} == {
            k: v for k, v in plain.items() if not k.startswith("PS")
        }
        assert ranked.rerank == "inv_propensity_top5"

    def test_the_first_five_are_ordered_whatever_the_ks(self) -> None:
        scores = evaluate(self.top, self.Y, inverse_propensity=WEIGHTS, ks=[1], rerank="inv_propensity_top5")
        assert scores["PSP@1"] == pytest.approx(50)

    def test_bins_add_up_to_the_reranked_psp(self) -> None:
        evaluator = Evaluator(6, inverse_propensity=WEIGHTS, rerank="inv_propensity_top5").update(self.top, self.Y)
        bins = evaluator.by_frequency([60, 50, 40, 3, 2, 0])
        assert sum(item.scores["PSP@1"] for item in bins) == pytest.approx(50)

    def test_padding_and_fewer_than_five_labels(self) -> None:
        top = TopK(np.array([[0, 1, -1]], np.int32), np.array([[2, 1, -np.inf]], np.float32))
        scores = evaluate(top, [[0, 1]], inverse_propensity=[1, 2], ks=[1], rerank="inv_propensity_top5")
        assert scores["PSP@1"] == 100

    def test_needs_scores_and_propensities(self) -> None:
        with pytest.raises(InputError, match="give a TopK"):
            evaluate([[0]], [[1]], inverse_propensity=[1], rerank="inv_propensity_top5")
        with pytest.raises(ParameterError, match="inverse_propensity"):
            evaluate([[0]], [[1]], rerank="inv_propensity_top5")
        with pytest.raises(ParameterError, match="rerank"):
            evaluate([[0]], [[1]], rerank="top5")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("top", "Y", "options", "message"),
    [
        ([[0, 1, 0]], [[1, 0]], {}, "row 0 holds a label twice"),
        ([[0]], [[1, 0], [0, 1]], {}, "1 rows and Y has 2"),
        ([[0.5]], [[1, 0]], {}, "integers"),
        ([0], [[1, 0]], {}, "1 dimension"),
        ([[0], [0, 1]], [[1, 0], [1, 0]], {}, "different lengths"),
        (sp.csr_array([[0.5, 0.1]]), [[1, 0]], {}, "top_k_from_sparse"),
        ([[0]], [[1, 0]], {"inverse_propensity": [1.0]}, r"number of labels \(2\), got 1"),
        ([[0]], [[1, 0]], {"inverse_propensity": [1.0, np.nan]}, "of label 1 must be a number"),
        ([[0]], [[1, 0]], {"inverse_propensity": [1.0, 0.0]}, "above 0"),
        ([[0]], [[1, 0]], {"ks": []}, "ks must be one or more positive integers"),
        ([[0]], [[1, 0]], {"ks": [0, 1]}, "ks must be one or more positive integers"),
        ([[0]], [[1, 0]], {"ks": 5}, "ks must be one or more positive integers"),
        (np.empty((0, 5), int), np.empty((0, 3)), {}, "no rows"),
        ([[0]], np.empty((1, 0)), {}, "no columns"),
    ],
)
def test_refused(top, Y, options, message: str) -> None:
    with pytest.raises((InputError, ParameterError), match=message):
        evaluate(top, Y, **options)

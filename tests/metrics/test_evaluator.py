from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.errors import InputError, ParameterError
from longtail.metrics import Evaluator, evaluate, per_label
from tests.metrics.reference import cases, indicator, padded


@given(cases(), st.data())
@settings(max_examples=60, deadline=None)
def test_any_split_gives_the_same_scores(case: tuple[list[list[int]], list[set[int]], list[float]], data) -> None:
    ranking, truth, weights = case
    Y, top = indicator(truth, len(weights)), padded(ranking, 6)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(truth)), max_size=4)))
    pieces = list(zip([0, *cuts], [*cuts, len(truth)], strict=True))
    whole = Evaluator(len(weights), inverse_propensity=weights).update(top, Y)

    chunked = Evaluator(len(weights), inverse_propensity=weights)
    merged = Evaluator(len(weights), inverse_propensity=weights)
    for start, end in pieces:
        chunked.update(top[start:end], Y[start:end])
    for start, end in reversed(pieces):
        part = Evaluator(len(weights), inverse_propensity=weights)
        merged.merge(part.update(top[start:end], Y[start:end]))

    counts = np.arange(len(weights))
    for other in (chunked, merged):
        assert dict(other.scores()) == dict(whole.scores())
        assert other.scores().n_rows == len(truth)
        assert repr(other.by_frequency(counts)) == repr(whole.by_frequency(counts))
        assert (other.per_label(5).hits == whole.per_label(5).hits).all()


def test_many_rows_in_chunks_to_the_last_digit() -> None:
    """More rows than one internal block holds, in an order and chunks of their own."""
    rng = np.random.default_rng(3)
    n, n_labels = 40_000, 30
    ranking = np.argsort(rng.random((n, n_labels)), axis=1)[:, :5]
    Y = rng.random((n, n_labels)) < 0.1
    weights = 1 + 20 * rng.random(n_labels)
    whole = evaluate(ranking, Y, inverse_propensity=weights)
    evaluator = Evaluator(n_labels, inverse_propensity=weights)
    for rows in np.array_split(rng.permutation(n), 7):
        evaluator.update(ranking[rows], Y[rows])
    assert dict(evaluator.scores()) == dict(whole)
    assert whole["P@1"] == pytest.approx(100 * Y[np.arange(n), ranking[:, 0]].mean())


def test_a_refused_chunk_leaves_nothing_behind() -> None:
    evaluator = Evaluator(2, ks=[1, 2]).update([[0, 1]], [[1, 0]])
    before = dict(evaluator.scores())
    with pytest.raises(InputError, match="twice"):
        evaluator.update([[0, 1], [1, 1]], [[1, 0], [0, 1]])
    assert dict(evaluator.scores()) == before


def test_merging_with_itself_doubles_every_row() -> None:
    evaluator = Evaluator(2, inverse_propensity=[1, 2]).update([[0], [0]], [[1, 0], [0, 1]])
    before = dict(evaluator.scores())
    assert dict(evaluator.merge(evaluator).scores()) == before
    assert evaluator.scores().n_rows == 4


def test_empty_chunk() -> None:
    evaluator = Evaluator(2).update([[0]], [[1, 0]])
    before = dict(evaluator.scores())
    assert dict(evaluator.update(np.empty((0, 1), int), np.empty((0, 2))).scores()) == before


def test_chunks_with_different_numbers_of_ranks() -> None:
    scores = Evaluator(2, ks=[2]).update([[0]], [[1, 1]]).update([[0, 1, -1]], [[1, 1]]).scores()
    assert scores["P@2"] == 75


@pytest.mark.parametrize(
    "other",
    [
        Evaluator(3),
        Evaluator(2, ks=[1]),
        Evaluator(2, inverse_propensity=[1, 2]),
        Evaluator(2, inverse_propensity=[1, 3], rerank="inv_propensity_top5"),
    ],
)
def test_only_evaluators_of_one_kind_merge(other: Evaluator) -> None:
    for evaluator in (Evaluator(2), Evaluator(2, inverse_propensity=[1, 3])):
        with pytest.raises(InputError, match="merged"):
            evaluator.merge(other)


def test_refuses_other_columns_and_scores_without_rows() -> None:
    with pytest.raises(InputError, match="3 labels where 2"):
        Evaluator(2).update([[0]], [[1, 0, 0]])
    with pytest.raises(InputError, match="no rows"):
        Evaluator(2).scores()
    with pytest.raises(ParameterError, match="n_labels"):
        Evaluator(0)


def test_per_label_by_hand() -> None:
    """Three rows, k = 2. Label 0: true 2, predicted 2, hit once. Label 1: true 1, hit at rank 3, which is too late.
    Label 2: predicted once, never true. Label 3: neither."""
    Y = [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0]]
    ranking = [[0, 2, -1], [3, 9, 1], [0, -1, -1]]
    scores = per_label(ranking, np.array(Y)[:, :3], k=2)
    assert scores.true.tolist() == [2, 1, 0]
    assert scores.predicted.tolist() == [2, 0, 1]
    assert scores.hits.tolist() == [1, 0, 0]
    np.testing.assert_array_equal(scores.precision, [50, np.nan, 0])
    np.testing.assert_array_equal(scores.recall, [50, 0, np.nan])
    np.testing.assert_array_equal(scores.f1, [50, 0, 0])
    np.testing.assert_array_equal(per_label(ranking, Y, k=2).f1, [50, 0, 0, 0])
    assert np.isnan(per_label(ranking, np.pad(Y, ((0, 0), (0, 1))), k=2).f1[4])


@given(cases(), st.integers(1, 7))
@settings(max_examples=50, deadline=None)
def test_per_label_counts(case: tuple[list[list[int]], list[set[int]], list[float]], k: int) -> None:
    ranking, truth, weights = case
    scores = per_label(padded(ranking, 6), indicator(truth, len(weights)), k)
    for label in range(len(weights)):
        chosen = [label in row[:k] for row in ranking]
        true = [label in row for row in truth]
        assert (scores.true[label], scores.predicted[label]) == (sum(true), sum(chosen))
        assert scores.hits[label] == sum(a and b for a, b in zip(chosen, true, strict=True))


def test_per_label_at_a_k_that_was_not_collected() -> None:
    with pytest.raises(ParameterError, match="one of 1, 3, 5"):
        Evaluator(2).update([[0]], [[1, 0]]).per_label(2)

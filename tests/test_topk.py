import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.kernels.lanes import LANES
from longtail.kernels.selection import select_lanes, select_weighted_lanes
from longtail.topk import TopK


def reference(lane_scores, lane_labels, allowed, k):
    pairs = [
        (-score, label)
        for score, label in zip(lane_scores.tolist(), lane_labels.tolist(), strict=True)
        if label >= 0 and (len(allowed) == 0 or allowed[label])
    ]
    best = sorted(pairs)[:k]
    labels = [label for _, label in best] + [-1] * (k - len(best))
    scores = [-score for score, _ in best] + [-np.inf] * (k - len(best))
    return labels, scores


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.booleans())
def test_selection_equals_sorting(seed, k, restricted):
    rng = np.random.default_rng(seed)
    lanes = LANES * rng.integers(1, 4)
    lane_labels = rng.permutation(lanes + 20)[:lanes].astype(np.int32)
    lane_labels[rng.random(lanes) < 0.3] = -1
    lane_scores = rng.integers(-3, 4, lanes).astype(np.float32)  # many ties
    allowed = rng.random(lanes + 20) < 0.5 if restricted else np.empty(0, np.bool_)
    labels, scores = np.full(k, -1, np.int32), np.full(k, -np.inf, np.float32)
    select_lanes(lane_scores, lane_labels, allowed, labels, scores)
    wanted_labels, wanted_scores = reference(lane_scores, lane_labels, allowed, k)
    assert labels.tolist() == wanted_labels
    assert scores.tolist() == wanted_scores


def weighted_scores(lane_scores, factors, slope):
    """Factor times 1 / (1 + exp(-slope * score)), to single precision."""
    with np.errstate(over="ignore"):
        return (factors / (1 + np.exp(-(slope * lane_scores).astype(np.float64)))).astype(np.float32)


@settings(max_examples=150)
@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.booleans(), st.sampled_from([1, 3]), st.sampled_from([1, 30]))
def test_weighted_selection_equals_sorting(seed, k, restricted, slope, spread):
    rng = np.random.default_rng(seed)
    lanes = LANES * rng.integers(1, 5)
    lane_labels = rng.permutation(lanes + 20)[:lanes].astype(np.int32)
    lane_labels[rng.random(lanes) < 0.3] = -1
    lane_scores = (spread * rng.normal(size=lanes)).astype(np.float32)
    again = rng.integers(0, lanes, lanes // 2)
    lane_scores[: len(again)] = lane_scores[again]  # ties
    factors = rng.choice(np.array([1, 1.5, 8, 20], np.float32), lanes)
    allowed = rng.random(lanes + 20) < 0.5 if restricted else np.empty(0, np.bool_)
    labels, scores = np.full(k, -1, np.int32), np.full(k, -np.inf, np.float32)
    select_weighted_lanes(
        lane_scores, lane_labels, allowed, np.float32(slope), factors, np.log(factors), labels, scores
    )
    exact = weighted_scores(lane_scores, factors, np.float32(slope))
    _, wanted_scores = reference(exact, lane_labels, allowed, k)
    np.testing.assert_allclose(scores, wanted_scores, rtol=3e-7)
    of_label = {label: score for label, score in zip(lane_labels.tolist(), exact, strict=True) if label >= 0}
    ranked = labels[labels >= 0].tolist()
    np.testing.assert_allclose(scores[: len(ranked)], [of_label[label] for label in ranked], rtol=3e-7)
    assert len(set(ranked)) == len(ranked)
    assert not restricted or allowed[labels[labels >= 0]].all()
    places = list(zip((-scores[: len(ranked)]).tolist(), ranked, strict=True))
    assert places == sorted(places)


def test_weighted_selection_by_hand():
    """1/2 times 8 beats nearly 1 times 1; equal products go by the lower label."""
    lane_scores = np.full(LANES, -50, np.float32)
    lane_scores[[3, 7, 9, 11]] = [0, 10, 0, 0]
    lane_labels = np.arange(LANES, dtype=np.int32)[::-1].copy()
    factors = np.ones(LANES, np.float32)
    factors[[3, 9, 11]] = [8, 8, 4]
    labels, scores = np.full(4, -1, np.int32), np.full(4, -np.inf, np.float32)
    everything = np.empty(0, np.bool_)
    select_weighted_lanes(lane_scores, lane_labels, everything, np.float32(3), factors, np.log(factors), labels, scores)
    assert labels.tolist() == [54, 60, 52, 56]
    assert scores == pytest.approx([4, 4, 2, 1], abs=1e-6)


@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.integers(1, 9))
def test_ranking_by_other_scores_equals_sorting(seed, places, k):
    rng = np.random.default_rng(seed)
    labels = np.array([rng.permutation(20)[:places] for _ in range(4)], np.int32)
    for row, filled in enumerate(rng.integers(0, places + 1, 4)):
        labels[row, filled:] = -1
    before = TopK(labels, np.where(labels >= 0, np.float32(1), -np.float32(np.inf)))
    others = rng.integers(-2, 3, labels.shape).astype(np.float32)  # ties, and numbers where there is padding
    after = before.ranked_by(others, k)
    assert (after.labels.dtype, after.scores.dtype) == (np.int32, np.float32)
    for row in range(4):
        wanted = reference(others[row], labels[row], (), k)
        assert (after.labels[row].tolist(), after.scores[row].tolist()) == wanted
    assert before.scores.max(initial=1) == 1


def test_indicator_and_threshold():
    top = TopK(np.array([[2, 0], [1, -1]], np.int32), np.array([[0.5, -0.5], [0.1, -np.inf]], np.float32))
    assert top.indicator(3).toarray().tolist() == [[1, 0, 1], [0, 1, 0]]
    assert top.at_least(0.1).indicator(3).toarray().tolist() == [[0, 0, 1], [0, 1, 0]]
    assert (top.k, len(top)) == (2, 2)

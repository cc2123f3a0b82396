import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from longtail.engine.lanes import LANES
from longtail.engine.topk import TopK
from longtail.engine.topk_kernels import select_lanes


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


def test_indicator_and_threshold():
    top = TopK(np.array([[2, 0], [1, -1]], np.int32), np.array([[0.5, -0.5], [0.1, -np.inf]], np.float32))
    assert top.indicator(3).toarray().tolist() == [[1, 0, 1], [0, 1, 0]]
    assert top.at_least(0.1).indicator(3).toarray().tolist() == [[0, 0, 1], [0, 1, 0]]
    assert (top.k, len(top)) == (2, 2)

"""The contract of rankings, and reference rankings in plain numpy."""

from __future__ import annotations

import numpy as np

from longtail import TopK


def assert_ranked(top: TopK, n_rows: int, k: int) -> None:
    """Shape, types, order, ties and padding of a ranking."""
    assert isinstance(top, TopK)
    assert top.labels.shape == top.scores.shape == (n_rows, k)
    assert top.labels.dtype == np.int32
    assert top.scores.dtype == np.float32
    assert not np.isnan(top.scores).any()
    empty = top.labels < 0
    assert (top.labels[empty] == -1).all()
    assert (top.scores[empty] == -np.inf).all()
    assert np.isfinite(top.scores[~empty]).all()
    assert (np.diff(empty.astype(int), axis=1) >= 0).all(), "padding stands before labels"
    left, right, filled = top.scores[:, :-1], top.scores[:, 1:], ~empty[:, 1:]
    assert (left >= right)[filled].all(), "scores rise"
    ordered = top.labels[:, :-1] < top.labels[:, 1:]
    assert ordered[filled & (left == right)].all(), "a tie went to the higher label id"
    for row in top.labels:
        assert len(set(row[row >= 0])) == (row >= 0).sum(), "a label stands twice"


def assert_best(top: TopK, scores: list[dict[int, float]]) -> None:
    """Each row holds its best labels by these scores, best first; labels tied within rounding may be in any order."""
    assert_ranked(top, len(scores), top.k)
    for labels, found, wanted in zip(top.labels, top.scores, scores, strict=True):
        best = sorted(wanted.values(), reverse=True)[: top.k]
        ranked = labels[labels >= 0].tolist()
        assert len(ranked) == len(best)
        np.testing.assert_allclose([wanted[label] for label in ranked], best, rtol=2e-5, atol=1e-30)
        np.testing.assert_allclose(found[: len(ranked)], best, rtol=2e-5, atol=1e-30)


def dialled(learner, plain: TopK, inverse: np.ndarray, tail: float) -> list[dict[int, float]]:
    """What a learner's plain ranking of all labels becomes with the tail dial, in plain numpy."""
    strengths = np.exp(np.asarray(learner._log_scores(plain.scores.astype(np.float64))))
    return [
        {int(label): strength * inverse[label] ** tail for label, strength in zip(*row, strict=True) if label >= 0}
        for row in zip(plain.labels, strengths, strict=True)
    ]


def filtered(top: TopK, keep: set[int], k: int) -> TopK:
    labels = np.full((len(top), k), -1, np.int32)
    scores = np.full((len(top), k), -np.inf, np.float32)
    for row in range(len(top)):
        places = [place for place, label in enumerate(top.labels[row]) if label in keep][:k]
        labels[row, : len(places)] = top.labels[row, places]
        scores[row, : len(places)] = top.scores[row, places]
    return TopK(labels, scores)

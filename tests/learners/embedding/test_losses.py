"""Losses of embeddings by their formulas, and their gradients by numeric differences."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the embeddings are trained with torch")

from longtail.learners.embedding.losses import EmbeddingScores, embedding_loss  # noqa: E402
from longtail.losses import TORCH_LOSSES  # noqa: E402

TRUTH = np.array([[1, 0, 1, 0, 0], [0, 1, 0, 0, 0], [0, 0, 0, 0, 0]], np.float64)
CHOSEN = np.array([2, 1, -1])
COSTS = np.array([1.0, 2.0, 0.5, 3.0, 1.5])
SCALE, SHIFT, MARGIN, MINED = 4.0, 1.0, 0.3, 2


@pytest.fixture
def scores():
    return np.random.default_rng(0).uniform(-1, 1, (3, 5))


def loss_of(name, scores, costs=COSTS, scale=SCALE, shift=SHIFT):
    tensors = [torch.as_tensor(part) for part in (scores, TRUTH, CHOSEN, costs, np.array([scale]), np.array([shift]))]
    return embedding_loss(name, EmbeddingScores(*tensors, MARGIN, MINED)).sum()


def logistic(scores):
    chances = 1 / (1 + np.exp(-(SCALE * scores - SHIFT)))
    return -(TRUTH * COSTS * np.log(chances) + (1 - TRUTH) * np.log(1 - chances)).sum()


def softmax(scores):
    shares = np.exp(SCALE * scores)
    shares /= shares.sum(axis=1, keepdims=True)
    total = 0.0
    for row in range(3):
        for label in np.flatnonzero(TRUTH[row]):
            total -= COSTS[label] * np.log(shares[row, label]) / TRUTH[row].sum()
    return total


def violations(scores, row):
    others = np.flatnonzero(TRUTH[row] == 0)
    return np.maximum(scores[row, others] - scores[row, CHOSEN[row]] + MARGIN, 0)


def margin(scores):
    return sum(COSTS[CHOSEN[row]] * violations(scores, row).sum() for row in (0, 1))


def negative_mining(scores):
    return sum(COSTS[CHOSEN[row]] * np.sort(violations(scores, row))[-MINED:].sum() for row in (0, 1))


def grank(scores):
    above = (TRUTH * COSTS * np.exp(-SCALE * scores)).sum(axis=1)
    return np.log1p(((1 - TRUTH) * np.exp(SCALE * scores)).sum(axis=1) * above).sum()


FORMULAS = {
    "logistic": logistic,
    "grank": grank,
    "softmax": softmax,
    "margin": margin,
    "negative-mining": negative_mining,
}


@pytest.mark.parametrize("name", TORCH_LOSSES)
def test_values(name, scores):
    assert float(loss_of(name, scores)) == pytest.approx(FORMULAS[name](scores))


@pytest.mark.parametrize("name", TORCH_LOSSES)
def test_gradients(name, scores):
    leaf = torch.as_tensor(scores).requires_grad_()
    loss_of(name, leaf).backward()
    for place in np.ndindex(scores.shape):
        nudged = [scores.copy(), scores.copy()]
        nudged[0][place] += 1e-6
        nudged[1][place] -= 1e-6
        slope = (FORMULAS[name](nudged[0]) - FORMULAS[name](nudged[1])) / 2e-6
        assert float(leaf.grad[place]) == pytest.approx(slope, abs=1e-5)


@pytest.mark.parametrize("name", TORCH_LOSSES)
def test_a_row_without_labels_has_no_positive_part(name, scores):
    other = scores.copy()
    other[2] += 0.1
    changed = float(loss_of(name, other)) != float(loss_of(name, scores))
    assert changed == (name == "logistic")

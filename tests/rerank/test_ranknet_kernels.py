"""Kernels of RankNet: loss and gradients against differences, ranking against plain numpy."""

import numpy as np
import pytest

from longtail.rerank.ranknet_kernels import (
    LINEAR,
    SIGMOID,
    TANH,
    PopulationLoss,
    ResidualBlocks,
    population_loss,
    rescore,
    train_rows,
)

ACTIVATIONS = {LINEAR: lambda z: z, SIGMOID: lambda z: 1 / (1 + np.exp(-z)), TANH: np.tanh}
GO_ON = np.zeros(1, np.uint8)


def make_blocks(n_blocks=2, n_labels=9, width=3, seed=0):
    rng = np.random.default_rng(seed)
    shapes = (n_blocks, n_labels), (n_blocks, n_labels, width), (n_blocks, width), (n_blocks, n_labels, width)
    return ResidualBlocks(*(rng.normal(scale=0.4, size=shape).astype(np.float32) for shape in shapes))


def forward(labels, scores, blocks, activation):
    """The blocks in plain numpy, for one row."""
    values = np.asarray(scores, np.float64)
    for log_gains, into, bias, out in zip(*blocks, strict=True):
        hidden = ACTIVATIONS[activation](bias + values @ into[labels])
        values = np.exp(log_gains[labels]) * values + out[labels] @ hidden
    return values


def loss_in_numpy(values, labels, truth, loss):
    total = 0.0
    for one in np.flatnonzero(truth):
        for other in range(len(labels)):
            a, b = loss.counts[labels[one]], loss.counts[labels[other]]
            if truth[other]:
                total += max(0.0, (a - b) / (a + b) * (values[one] - values[other])) / 2
            else:
                total += loss.weight * max(0.0, values[other] - values[one] + loss.margin)
    return total


def make_row(seed=0, n=6, n_labels=9):
    rng = np.random.default_rng(seed)
    labels = rng.choice(n_labels, n, replace=False).astype(np.int32)
    truth = np.array([1, 0, 1, 1, 0, 0][:n], np.uint8)
    return labels, rng.random(n).astype(np.float32), truth


def make_loss(seed=0, n_labels=9, n_negatives=0):
    counts = np.random.default_rng(seed).integers(1, 100, n_labels).astype(np.float64)
    return PopulationLoss(counts, 0.7, 0.3, n_negatives)


def gradient_of(values, labels, truth, loss, seed=0):
    gradient = np.full(len(labels), np.nan)
    state = np.array([seed], np.uint64)
    return population_loss(values, labels, truth, len(labels), loss, state, gradient), gradient


def test_the_loss_by_hand():
    """Counts 30 and 10: half of the difference; then 2 * (0.4 - 0.9 + 0.8) and 2 * (0.4 - 0.5 + 0.8)."""
    loss = PopulationLoss(np.array([30.0, 10.0, 5.0]), 2.0, 0.8, 0)
    values, labels = np.array([0.9, 0.5, 0.4]), np.arange(3, dtype=np.int32)
    value, gradient = gradient_of(values, labels, np.array([1, 1, 0], np.uint8), loss)
    assert value == pytest.approx(0.5 * 0.4 + 2 * 0.3 + 2 * 0.7)
    np.testing.assert_allclose(gradient, [0.5 - 2, -0.5 - 2, 4])


@pytest.mark.parametrize("seed", range(5))
def test_loss_and_gradient_are_those_of_numpy(seed):
    labels, _, truth = make_row(seed)
    values, loss = np.random.default_rng(seed + 50).normal(size=len(labels)), make_loss(seed)
    value, gradient = gradient_of(values, labels, truth, loss)
    assert value == pytest.approx(loss_in_numpy(values, labels, truth, loss))
    for at in range(len(labels)):
        step = np.zeros(len(labels))
        step[at] = 1e-6
        above, below = (loss_in_numpy(values + way * step, labels, truth, loss) for way in (1, -1))
        assert gradient[at] == pytest.approx((above - below) / 2e-6, abs=1e-5)


def test_sampled_negatives_mean_all_of_them():
    labels, _, truth = make_row(1)
    values = np.random.default_rng(3).normal(size=len(labels))
    whole = gradient_of(values, labels, truth, make_loss(1))
    drawn = [gradient_of(values, labels, truth, make_loss(1, n_negatives=2), seed) for seed in range(4000)]
    assert np.mean([value for value, _ in drawn]) == pytest.approx(whole[0], rel=0.03)
    np.testing.assert_allclose(np.mean([gradient for _, gradient in drawn], axis=0), whole[1], atol=0.06)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("n_blocks", [1, 2, 3])
def test_steps_go_against_the_gradient(n_blocks, activation):
    """With huge sums of squares a step of Adagrad is the gradient itself; compared with differences of the loss."""
    blocks, (labels, scores, truth), loss = make_blocks(n_blocks), make_row(2), make_loss(2)
    before = ResidualBlocks(*(part.astype(np.float64) for part in blocks))
    squares = ResidualBlocks(*(np.full_like(part, 1e12) for part in blocks))
    rows = (array[None] for array in (labels, scores, truth))
    state = np.zeros(1, np.uint64)
    train_rows(np.zeros(1, np.int64), *rows, blocks, squares, activation, loss, 1e6, 1e6, state, GO_ON)
    for name in ResidualBlocks._fields:
        moved = getattr(before, name) - getattr(blocks, name)
        assert np.abs(moved).max() > 0.01
        for at in np.ndindex(moved.shape):
            differences = []
            for way in (1e-5, -1e-5):
                changed = getattr(before, name).copy()
                changed[at] += way
                values = forward(labels, scores, before._replace(**{name: changed}), activation)
                differences.append(loss_in_numpy(values, labels, truth, loss))
            assert moved[at] == pytest.approx((differences[0] - differences[1]) / 2e-5, abs=2e-4), (name, at)


def test_rows_without_a_true_candidate_change_nothing():
    blocks, (labels, scores, _) = make_blocks(), make_row()
    before = [part.copy() for part in blocks]
    squares = ResidualBlocks(*(np.ones_like(part) for part in blocks))
    truth = np.zeros((1, len(labels)), np.uint8)
    value = train_rows(
        np.zeros(1, np.int64), labels[None], scores[None], truth, blocks, squares, TANH, make_loss(), 0.1, 0.1,
        np.zeros(1, np.uint64), GO_ON,
    )  # fmt: skip
    assert value == 0
    for now, then in zip(blocks, before, strict=True):
        np.testing.assert_array_equal(now, then)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("k", [2, 6, 8])
def test_rankings_are_those_of_numpy(k, activation):
    blocks = make_blocks(2)
    labels, scores = (np.stack([make_row(seed)[part] for seed in range(20)]) for part in (0, 1))
    labels[3, 4:], labels[7, :] = -1, -1
    best = np.full((20, k), -1, np.int32), np.full((20, k), -np.inf, np.float32)
    rescore(labels, scores, labels, scores, blocks, activation, *best)
    for row in range(20):
        n = int((labels[row] >= 0).sum())
        values = forward(labels[row, :n], scores[row, :n], blocks, activation)
        order = np.argsort(-values)[:k]
        np.testing.assert_array_equal(best[0][row, : len(order)], labels[row, order])
        np.testing.assert_allclose(best[1][row, : len(order)], values[order], rtol=1e-5, atol=1e-6)
        assert (best[0][row, len(order) :] == -1).all()


def test_other_labels_are_ranked_by_what_the_blocks_saw():
    blocks, (labels, scores, _) = make_blocks(2), make_row(4)
    values = forward(labels, scores, blocks, TANH)
    best = np.full((1, 2), -1, np.int32), np.full((1, 2), -np.inf, np.float32)
    rescore(labels[None], scores[None], labels[None, 2:4], scores[None, 2:4], blocks, TANH, *best)
    np.testing.assert_allclose(np.sort(best[1][0]), np.sort(values[2:4]), rtol=1e-5)

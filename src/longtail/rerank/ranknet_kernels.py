"""Kernels of RankNet: residual blocks over the candidates of a row.

A block maps the scores y of the candidates to

    F(y)_l = gain_l y_l + out_l . sigma(bias + sum over candidates j of y_j into_j)

where `into` and `out` have `width` numbers per label: a low-rank form of the labels-by-labels matrix of the paper.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from longtail.kernels.jit import kernel
from longtail.kernels.random import next_random
from longtail.kernels.selection import insert
from longtail.kernels.types import Float32, Float64, Int32, Int64, UInt8, UInt64

LINEAR, SIGMOID, TANH = 0, 1, 2
"""Codes of the activations."""

_EPSILON = 1e-8


class ResidualBlocks(NamedTuple):
    """Parameters of all blocks: of shape (blocks, labels), (blocks, labels, width), (blocks, width) and as `into`."""

    log_gains: Float32
    into: Float32
    bias: Float32
    out: Float32


class PopulationLoss(NamedTuple):
    """Parameters of the loss: label counts; weight, margin and number of sampled negatives of the second term."""

    counts: Float64
    weight: float
    margin: float
    n_negatives: int


@kernel
def population_loss(
    scores: Float64, labels: Int32, truth: UInt8, n: int, loss: PopulationLoss, state: UInt64, gradient: Float64
) -> Any:
    """Return the loss of one row with n candidates, and fill in its gradient with respect to their scores.

    Of two true labels the more frequent one should not score higher: counts a > b add
    ``(a - b) / (a + b) * max(F_a - F_b, 0)``. A true label should score higher than a false one by `margin`: this adds
    ``weight * max(F_false - F_true + margin, 0)`` over all false candidates, or over `n_negatives` sampled ones.
    """
    total, n_false = 0.0, 0
    for at in range(n):
        gradient[at] = 0
        n_false += 1 - truth[at]
    sampled = 0 < loss.n_negatives < n_false
    weight = loss.weight * n_false / loss.n_negatives if sampled else loss.weight  # the sample represents them all
    for positive in range(n):
        if truth[positive] == 0:
            continue
        count = loss.counts[labels[positive]]
        for other in range(n):
            if truth[other] != 0:
                # First term: of two true labels, the more frequent one should not score higher.
                rarer = loss.counts[labels[other]]
                if count > rarer:
                    share = (count - rarer) / (count + rarer)
                    if scores[positive] > scores[other]:
                        total += share * (scores[positive] - scores[other])
                        gradient[positive] += share
                        gradient[other] -= share
            elif not sampled:
                # Second term: hinge loss of the true label against every false one.
                violation = scores[other] - scores[positive] + loss.margin
                if violation > 0:
                    total += weight * violation
                    gradient[other] += weight
                    gradient[positive] -= weight
        # The same with sampled false labels, by rejection.
        for _ in range(loss.n_negatives if sampled else 0):
            other = int(next_random(state) % np.uint64(n))
            while truth[other] != 0:
                other = int(next_random(state) % np.uint64(n))
            violation = scores[other] - scores[positive] + loss.margin
            if violation > 0:
                total += weight * violation
                gradient[other] += weight
                gradient[positive] -= weight
    return total


@kernel
def _activated(value: Any, activation: int) -> Any:
    if activation == SIGMOID:
        return 1 / (1 + np.exp(-value))
    return np.tanh(value) if activation == TANH else value


@kernel
def _slope(activated: Any, activation: int) -> Any:
    if activation == SIGMOID:
        return activated * (1 - activated)
    return 1 - activated * activated if activation == TANH else 1.0


@kernel
def _forward(labels: Int32, n: int, blocks: ResidualBlocks, activation: int, values: Float64, hidden: Float64) -> None:
    """Fill `values`, of shape (blocks + 1, candidates) with the scores in row 0, and `hidden`, (blocks, width)."""
    n_blocks, width = hidden.shape
    for block in range(n_blocks):
        # Hidden units: all candidates are projected to `width` numbers, and activated.
        for unit in range(width):
            hidden[block, unit] = blocks.bias[block, unit]
        for at in range(n):
            for unit in range(width):
                hidden[block, unit] += values[block, at] * blocks.into[block, labels[at], unit]
        for unit in range(width):
            hidden[block, unit] = _activated(hidden[block, unit], activation)
        # Output: the input times the gain of the label, plus the projection back.
        for at in range(n):
            label = labels[at]
            score = np.exp(blocks.log_gains[block, label]) * values[block, at]
            for unit in range(width):
                score += hidden[block, unit] * blocks.out[block, label, unit]
            values[block + 1, at] = score


@kernel
def _step(parameters: Float32, squares: Float32, at: Any, gradient: Any, learning_rate: Any) -> None:
    """Take one step of Adagrad."""
    squares[at] += gradient * gradient
    parameters[at] -= learning_rate * gradient / np.sqrt(squares[at] + _EPSILON)


@kernel
def _backward(
    block: int,
    candidates: Int32,
    n: int,
    blocks: ResidualBlocks,
    squares: ResidualBlocks,
    activation: int,
    inputs: Float64,
    hidden: Float64,
    gradient: Float64,
    learning_rate: float,
    gain_learning_rate: float,
) -> None:
    """Update one block by the gradient of its outputs, and replace that gradient by the one of its inputs."""
    width = len(hidden)
    units, before = np.zeros(width), np.zeros(n)
    # Gradient of the hidden units before the activation, from the outputs.
    for at in range(n):
        if gradient[at] != 0:
            for unit in range(width):
                units[unit] += gradient[at] * blocks.out[block, candidates[at], unit]
    for unit in range(width):
        units[unit] *= _slope(hidden[unit], activation)
    for at in range(n):
        label = candidates[at]
        gain = np.exp(blocks.log_gains[block, label])
        # Gradient of the inputs, with the parameters before their update.
        before[at] = gradient[at] * gain
        for unit in range(width):
            before[at] += units[unit] * blocks.into[block, label, unit]
        # Step of the label's own gain and output weights; candidates without a gradient have none.
        if gradient[at] != 0:
            own = gradient[at] * gain * inputs[at]
            _step(blocks.log_gains[block], squares.log_gains[block], label, own, gain_learning_rate)
            for unit in range(width):
                own = gradient[at] * hidden[unit]
                _step(blocks.out[block, label], squares.out[block, label], unit, own, learning_rate)
    # Step of the input weights and of the bias.
    for at in range(n):
        label = candidates[at]
        for unit in range(width):
            _step(blocks.into[block, label], squares.into[block, label], unit, units[unit] * inputs[at], learning_rate)
    for unit in range(width):
        _step(blocks.bias[block], squares.bias[block], unit, units[unit], learning_rate)
    gradient[:n] = before


@kernel
def train_rows(
    order: Int64,
    labels: Int32,
    scores: Float32,
    truth: UInt8,
    blocks: ResidualBlocks,
    squares: ResidualBlocks,
    activation: int,
    loss: PopulationLoss,
    learning_rate: float,
    gain_learning_rate: float,
    state: UInt64,
    stop: UInt8,
) -> Any:
    """Train for one epoch, with a step after each row that has a true label among its candidates.

    Parameters
    ----------
    order : ndarray of int64
        Rows in the order of training.
    labels, scores, truth : int32, float32 and uint8 arrays, shape (rows, candidates)
        Candidates, the first -1 ends a row; their scores; which of them are true.
    blocks, squares : ResidualBlocks
        Parameters and sums of squared gradients, changed in place.
    activation : int
    loss : PopulationLoss
    learning_rate, gain_learning_rate : float
        Step size, and that of the gains.
    state : ndarray of uint64, shape (1,)
        Random state.
    stop : ndarray of uint8, shape (1,)
        Ends the training when it is not 0.

    Returns
    -------
    The mean loss of the rows.
    """
    n_blocks, width = blocks.bias.shape
    most = labels.shape[1]
    values, hidden, gradient = np.zeros((n_blocks + 1, most)), np.zeros((n_blocks, width)), np.zeros(most)
    total, trained = 0.0, 0
    for row in order:
        if stop[0]:
            break
        # The scores of the candidates are the input of the first block.
        n, n_true = 0, 0
        while n < most and labels[row, n] >= 0:
            values[0, n] = scores[row, n]
            n_true += truth[row, n]
            n += 1
        if n_true == 0:
            continue
        _forward(labels[row], n, blocks, activation, values, hidden)
        total += population_loss(values[n_blocks], labels[row], truth[row], n, loss, state, gradient)
        trained += 1
        # Backpropagation: the gradient of the outputs of a block becomes that of its inputs.
        for block in range(n_blocks - 1, -1, -1):
            _backward(
                block, labels[row], n, blocks, squares, activation, values[block], hidden[block], gradient,
                learning_rate, gain_learning_rate,
            )  # fmt: skip
    return total / max(trained, 1)


@kernel
def rescore(
    seen_labels: Int32,
    seen_scores: Float32,
    labels: Int32,
    scores: Float32,
    blocks: ResidualBlocks,
    activation: int,
    best_labels: Int32,
    best_scores: Float32,
) -> None:
    """Rank candidates by their scores after the blocks.

    Parameters
    ----------
    seen_labels, seen_scores
        Input of the blocks.
    labels, scores
        Candidates to rank: the same, or others.
    blocks, activation
        As for `train_rows`.
    best_labels, best_scores : int32 and float32 arrays, shape (rows, k)
        Output; must be filled with -1 and -inf.
    """
    n_blocks, width = blocks.bias.shape
    values, hidden = np.zeros((n_blocks + 1, seen_labels.shape[1])), np.zeros((n_blocks, width))
    for row in range(labels.shape[0]):
        # Hidden units of all blocks, from the candidates that the blocks see.
        n = 0
        while n < seen_labels.shape[1] and seen_labels[row, n] >= 0:
            values[0, n] = seen_scores[row, n]
            n += 1
        _forward(seen_labels[row], n, blocks, activation, values, hidden)
        # Output of all blocks for each candidate to rank: it needs no other candidates.
        for at in range(labels.shape[1]):
            label = labels[row, at]
            if label < 0:
                break
            score = np.float64(scores[row, at])
            for block in range(n_blocks):
                score *= np.exp(blocks.log_gains[block, label])
                for unit in range(width):
                    score += hidden[block, unit] * blocks.out[block, label, unit]
            insert(best_labels[row], best_scores[row], label, np.float32(score))

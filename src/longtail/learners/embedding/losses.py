"""Losses of embeddings by name, each the sum over the rows of a step, on inner products of rows and labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, NamedTuple

from longtail.losses.logistic import binary_cross_entropy
from longtail.losses.ranking_margin import margin_loss
from longtail.losses.softmax import softmax_loss

if TYPE_CHECKING:
    from torch import Tensor

LossName = Literal["logistic", "softmax", "margin", "negative-mining"]


class EmbeddingScores(NamedTuple):
    """Scores of a step, and all that losses need.

    `scores` and `truth` have the shape (rows, labels), and `truth` is 1 for the labels of a row. `sampled` is the
    column of one true label per row, -1 for a row without labels, which then counts 0. `costs` are those of true
    labels, and `scale` and `shift` turn inner products into log-odds.
    """

    scores: Tensor
    truth: Tensor
    sampled: Tensor
    costs: Tensor
    scale: Tensor
    shift: Tensor
    margin: float
    n_hard_negatives: int


def _margin(step: EmbeddingScores, hardest: int | None = None) -> Tensor:
    places = step.sampled.clamp(min=0)
    weights = step.costs[places] * (step.sampled >= 0)
    return margin_loss(step.scores, places[:, None], weights[:, None], 1 - step.truth, step.margin, hardest).sum()


EMBEDDING_LOSSES: dict[str, Callable[[EmbeddingScores], Tensor]] = {
    "logistic": lambda step: binary_cross_entropy(step.scores * step.scale - step.shift, step.truth, step.costs).sum(),
    "softmax": lambda step: softmax_loss(step.scores * step.scale, step.truth, step.costs),
    "margin": _margin,
    "negative-mining": lambda step: _margin(step, step.n_hard_negatives),
}

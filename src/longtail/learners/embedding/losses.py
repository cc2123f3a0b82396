"""Losses of embeddings, of the inner products of the rows and labels of a step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from longtail.losses import TORCH_LOSSES, TorchLossName

if TYPE_CHECKING:
    from torch import Tensor


class EmbeddingScores(NamedTuple):
    """Scores of a step, and all that losses need.

    `scores` and `truth` have the shape (rows, labels), and `truth` is 1 for the labels of a row. `sampled` is the
    column of one true label per row, -1 for a row without labels. `costs` are those of true labels, and `scale` and
    `shift` turn inner products into log-odds.
    """

    scores: Tensor
    truth: Tensor
    sampled: Tensor
    costs: Tensor
    scale: Tensor
    shift: Tensor
    margin: float
    n_hard_negatives: int


def embedding_loss(name: TorchLossName, step: EmbeddingScores) -> Tensor:
    """Return the loss of each row of a step.

    The margin losses take inner products and one sampled true label per row, as the paper; the others take scaled
    inner products and all true labels. The logistic loss is summed over the labels of the step.
    """
    loss = TORCH_LOSSES[name]
    if name == "logistic":
        log_odds = step.scores * step.scale - step.shift
        return loss(log_odds, step.truth, None, step.costs, reduction="sum")
    if name not in ("margin", "negative-mining"):
        return loss(step.scores * step.scale, step.truth, None, step.costs)
    options: dict[str, Any] = {"margin": step.margin}
    if name == "negative-mining":
        options["n_hard_negatives"] = step.n_hard_negatives
    sampled = step.sampled[:, None]
    truth = step.truth.new_zeros(step.truth.shape).scatter_(1, sampled.clamp(min=0), (sampled >= 0).to(step.truth))
    return loss(step.scores, truth, (step.truth == 0) | (truth > 0), step.costs, **options)

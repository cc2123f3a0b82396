"""Losses of networks by name, each with one value per row.

All take `scores` and `truth`, of shape (rows, labels), `truth` 1 for the labels of a row; `counted`, true for entries
that count, or None for all; and `costs` of true labels, which broadcast against the scores, or None for 1. A row
without true labels costs nothing with the losses that rank.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from longtail.losses.grank import grank_loss
from longtail.losses.logistic import binary_cross_entropy
from longtail.losses.ranking_margin import margin_loss, true_labels

NetworkLoss = Callable[[Tensor, Tensor, Tensor | None, Tensor | None], Tensor]

MARGIN, N_HARD_NEGATIVES = 1.0, 10


def bce(scores: Tensor, truth: Tensor, counted: Tensor | None, costs: Tensor | None) -> Tensor:
    """Binary cross-entropy, the mean over labels."""
    each = binary_cross_entropy(scores, truth, 1.0 if costs is None else costs)
    if counted is None:
        return each.mean(dim=1)
    return (each * counted).sum(dim=1) / counted.sum(dim=1).clamp(min=1)


def margin(
    scores: Tensor, truth: Tensor, counted: Tensor | None, costs: Tensor | None, hardest: int | None = None
) -> Tensor:
    """The margin loss, the mean over the labels of a row."""
    places, is_own = true_labels(truth)
    weights = is_own if costs is None else is_own * costs.expand_as(truth).gather(1, places)
    others = (1 - truth) if counted is None else (1 - truth) * counted
    return margin_loss(scores, places, weights / is_own.sum(dim=1, keepdim=True).clamp(min=1), others, MARGIN, hardest)


NETWORK_LOSSES: dict[str, NetworkLoss] = {
    "bce": bce,
    "grank": grank_loss,
    "margin": margin,
    "negative-mining": partial(margin, hardest=N_HARD_NEGATIVES),
}


def dense_truth(indptr: Tensor, labels: Tensor, n_labels: int) -> Tensor:
    """Return the labels of rows, given as CSR arrays, as a matrix of 0 and 1."""
    n = len(indptr) - 1
    rows = torch.repeat_interleave(torch.arange(n, device=labels.device), indptr.diff())
    found = torch.zeros((n, n_labels), device=labels.device)
    found[rows, labels] = 1
    return found

"""Losses of scores against labels, by name; each gives one number a row.

All take the same arguments: `scores` and `truth`, of shape (rows, labels), `truth` 1 where a label is a row's own;
`counted`, true where a label takes part at all, or None for everywhere; and `costs`, what a true label costs, of a
shape that goes with the scores, or None for 1. A row without true labels costs nothing with the losses that rank.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import softplus

Loss = Callable[[Tensor, Tensor, Tensor | None, Tensor | None], Tensor]

_NOTHING = -1e30  # adds nothing to a sum of exponentials
MARGIN = 1.0


def bce(scores: Tensor, truth: Tensor, counted: Tensor | None, costs: Tensor | None) -> Tensor:
    """Binary cross-entropy, the mean over labels: -cost log p for the true ones, -log(1 - p) for the others."""
    plain = softplus(scores)
    own = truth * ((plain - scores) * (1 if costs is None else costs) - plain)
    each = plain + own
    if counted is None:
        return each.mean(dim=1)
    return (each * counted).sum(dim=1) / counted.sum(dim=1).clamp(min=1)


def grank(scores: Tensor, truth: Tensor, counted: Tensor | None, costs: Tensor | None) -> Tensor:
    """Equation (4) of the X-GRank paper, group against group: log(1 + sum exp(negative) sum cost exp(-positive)).

    The sums are kept as logarithms, so that no exponential overflows, and the time is linear in the labels.
    """
    is_own = truth > 0
    others = ~is_own if counted is None else counted & ~is_own
    positives = -scores if costs is None else costs.log() - scores
    below = scores.masked_fill(~others, _NOTHING).logsumexp(dim=1)
    above = positives.masked_fill(~is_own, _NOTHING).logsumexp(dim=1)
    return softplus(below + above)


def margin(scores: Tensor, truth: Tensor, counted: Tensor | None, costs: Tensor | None) -> Tensor:
    """The margin loss (1) of the GLaS paper, the mean over a row's labels: no other should come within the margin."""
    violations, weights = _violations(scores, truth, counted, costs)
    return (violations.sum(dim=2) * weights).sum(dim=1)


def negative_mining(scores: Tensor, truth: Tensor, counted: Tensor | None, costs: Tensor | None) -> Tensor:
    """As `margin`, but of each label's violations the ten worst alone count (Reddi et al., AISTATS 2019)."""
    violations, weights = _violations(scores, truth, counted, costs)
    worst = violations.topk(min(10, violations.shape[2]), dim=2).values
    return (worst.sum(dim=2) * weights).sum(dim=1)


def _violations(scores: Tensor, truth: Tensor, counted: Tensor | None, costs: Tensor | None) -> tuple[Tensor, Tensor]:
    """Violations, of shape (rows, own labels, labels), and the weight of each own label."""
    most = max(int(truth.sum(dim=1).max()) if truth.numel() else 0, 1)
    is_own, places = truth.topk(min(most, truth.shape[1]), dim=1)
    own = scores.gather(1, places)
    others = (1 - truth) if counted is None else (1 - truth) * counted
    violations = (scores[:, None] - own[:, :, None] + MARGIN).relu() * others[:, None]
    weights = is_own if costs is None else is_own * costs.expand_as(truth).gather(1, places)
    return violations, weights / is_own.sum(dim=1, keepdim=True).clamp(min=1)


LOSSES: dict[str, Loss] = {"bce": bce, "grank": grank, "margin": margin, "negative-mining": negative_mining}


def dense_truth(indptr: Tensor, labels: Tensor, n_labels: int) -> Tensor:
    """Rows of true labels as a matrix of 0 and 1."""
    n = len(indptr) - 1
    rows = torch.repeat_interleave(torch.arange(n, device=labels.device), indptr.diff())
    found = torch.zeros((n, n_labels), device=labels.device)
    found[rows, labels] = 1
    return found

"""The margin loss of a ranking, over all negatives or the hard ones, in torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def margin_loss(
    scores: Tensor, truth: Tensor, counted: Tensor | None = None, costs: Tensor | None = None, *, margin: float = 1.0
) -> Tensor:
    """Margin loss of each row: the mean over its true labels i of c_i times the sum of violations v_ij.

    The violation of a true label i by another label j is v_ij = max(0, s_j - s_i + margin): equation 1 of Guo et al.,
    Breaking the Glass Ceiling for Embedding-Based Classifiers for Large Output Spaces, NeurIPS 2019.

    Parameters
    ----------
    scores, truth, counted, costs
        As of every loss in `TORCH_LOSSES`.
    margin : float
        A true label costs nothing if its score exceeds all others by this much.

    Examples
    --------
    >>> import torch
    >>> margin_loss(torch.tensor([[2.0, 1.5, 1.25]]), torch.tensor([[1.0, 0.0, 0.0]]))
    tensor([0.7500])
    """
    return _mean_violation(scores, truth, counted, costs, margin, None)


def negative_mining_loss(
    scores: Tensor,
    truth: Tensor,
    counted: Tensor | None = None,
    costs: Tensor | None = None,
    *,
    margin: float = 1.0,
    n_hard_negatives: int = 10,
) -> Tensor:
    """`margin_loss` over hard negatives: only the largest violations of each true label are summed.

    The negative mining of Reddi et al., Stochastic Negative Mining for Learning with Large Output Spaces, AISTATS 2019.

    Parameters
    ----------
    scores, truth, counted, costs
        As of every loss in `TORCH_LOSSES`.
    margin : float
        A true label costs nothing if its score exceeds all others by this much.
    n_hard_negatives : int
        Number of violations summed per true label.

    Examples
    --------
    >>> import torch
    >>> scores, truth = torch.tensor([[2.0, 1.5, 1.25]]), torch.tensor([[1.0, 0.0, 0.0]])
    >>> negative_mining_loss(scores, truth, n_hard_negatives=1)
    tensor([0.5000])
    """
    return _mean_violation(scores, truth, counted, costs, margin, n_hard_negatives)


def _mean_violation(
    scores: Tensor,
    truth: Tensor,
    counted: Tensor | None,
    costs: Tensor | None,
    margin: float,
    n_hard_negatives: int | None,
) -> Tensor:
    # Columns of the true labels of each row, padded to the same number; `is_own` is 0 for the padding.
    most = max(int(truth.sum(dim=1).max()) if truth.numel() else 0, 1)
    is_own, places = truth.topk(min(most, truth.shape[1]), dim=1)
    weights = is_own if costs is None else is_own * costs.expand_as(truth).gather(1, places)
    weights = weights / is_own.sum(dim=1, keepdim=True).clamp(min=1)
    # Violations of each true label by each of the others, of shape (rows, true labels, labels).
    others = (1 - truth) if counted is None else (1 - truth) * counted
    violations = (scores[:, None] - scores.gather(1, places)[:, :, None] + margin).relu() * others[:, None]
    if n_hard_negatives is not None:
        violations = violations.topk(min(n_hard_negatives, violations.shape[2]), dim=2).values
    return (violations.sum(dim=2) * weights).sum(dim=1)

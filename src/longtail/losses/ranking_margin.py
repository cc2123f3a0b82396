"""The margin loss of a ranking, in torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def true_labels(truth: Tensor) -> tuple[Tensor, Tensor]:
    """Return the columns of the true labels of each row, padded to the same number, and 0 for the padding."""
    most = max(int(truth.sum(dim=1).max()) if truth.numel() else 0, 1)
    is_own, places = truth.topk(min(most, truth.shape[1]), dim=1)
    return places, is_own


def margin_loss(
    scores: Tensor, places: Tensor, weights: Tensor, others: Tensor, margin: float, hardest: int | None = None
) -> Tensor:
    """Per row, the sum over true labels i of weight_i times the sum over others j of max(0, s_j - s_i + margin).

    Equation 1 of Guo et al., Breaking the Glass Ceiling for Embedding-Based Classifiers for Large Output Spaces,
    NeurIPS 2019; with `hardest`, the negative mining of Reddi et al., Stochastic Negative Mining for Learning with
    Large Output Spaces, AISTATS 2019.

    Parameters
    ----------
    scores : Tensor, shape (rows, labels)
    places, weights : Tensor, shape (rows, true labels)
        Columns of true labels, and their weights.
    others : Tensor, shape (rows, labels)
        1 for labels that are not true, 0 for all that are left out.
    margin : float
    hardest : int, optional
        Number of hard negatives: only the largest violations of each true label are summed; all by default.

    Examples
    --------
    >>> import torch
    >>> scores, places = torch.tensor([[2.0, 1.5, 0.0]]), torch.tensor([[0]])
    >>> margin_loss(scores, places, torch.ones(1, 1), torch.tensor([[0.0, 1.0, 1.0]]), margin=1.0)
    tensor([0.5000])
    """
    own = scores.gather(1, places)
    violations = (scores[:, None] - own[:, :, None] + margin).relu() * others[:, None]
    if hardest is not None:
        violations = violations.topk(min(hardest, violations.shape[2]), dim=2).values
    return (violations.sum(dim=2) * weights).sum(dim=1)

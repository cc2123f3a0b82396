"""The softmax loss, in torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def softmax_loss(scores: Tensor, truth: Tensor, costs: Tensor) -> Tensor:
    """Sum over rows and their n true labels i of -cost_i / n times log(e^s_i / sum over all labels j of e^s_j).

    This is the cross-entropy if the true labels of a row are equally likely.

    Parameters
    ----------
    scores, truth : Tensor, shape (rows, labels)
        `truth` is 1 for the labels of a row and 0 for the others.
    costs : Tensor, shape (labels,)
        Cost of each label where it is true.

    Examples
    --------
    >>> import torch
    >>> softmax_loss(torch.zeros(1, 4), torch.tensor([[1.0, 0.0, 0.0, 0.0]]), torch.ones(4))
    tensor(1.3863)
    """
    own = truth / truth.sum(dim=1, keepdim=True).clamp(min=1)
    return -(scores.log_softmax(dim=1) * own * costs).sum()

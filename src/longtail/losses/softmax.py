"""The softmax loss, in torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

_EMPTY = -1e30  # adds nothing to a sum of exponentials


def softmax_loss(scores: Tensor, truth: Tensor, counted: Tensor | None = None, costs: Tensor | None = None) -> Tensor:
    """Softmax loss of each row: the mean over its true labels i of -c_i log(e^s_i / sum over labels j of e^s_j).

    This is the cross-entropy if the true labels of a row are equally likely.

    Parameters
    ----------
    scores, truth, counted, costs
        As of every loss in `TORCH_LOSSES`.

    Examples
    --------
    >>> import torch
    >>> softmax_loss(torch.zeros(1, 4), torch.tensor([[1.0, 0.0, 0.0, 0.0]]))
    tensor([1.3863])
    """
    own = truth / truth.sum(dim=1, keepdim=True).clamp(min=1)
    if counted is not None:
        scores = scores.masked_fill(~counted, _EMPTY)
    terms = scores.log_softmax(dim=1) * own
    return -(terms if costs is None else terms * costs).sum(dim=1)

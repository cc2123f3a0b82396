"""Group-wise ranking: the true labels of a row as one group against the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator

from longtail.losses.base import Floats

if TYPE_CHECKING:
    from torch import Tensor

_EMPTY = -1e30  # adds nothing to a sum of exponentials


class GRank(BaseEstimator):
    """The group-wise ranking loss, ln(1 + sum over negatives of e^s times sum over positives of c e^-s).

    Equation 4 of the paper. Unlike the other losses it depends on all labels of a row together: the smallest true score
    should exceed the largest of the others, with soft maxima. The gradients of the two groups have the same sum but for
    the sign, so many negatives weigh no more than few positives.

    Examples
    --------
    >>> value, gradient = GRank().value_and_gradient([[2.0, 0.0, 0.0]], [[1, 0, 0]])
    >>> value.round(4), gradient.round(4)
    (array([0.2395]), array([[-0.213 ,  0.1065,  0.1065]]))
    """

    name: ClassVar[str] = "grank"
    citation: ClassVar[str] = (
        "Xiong, Li, Duan, Du: Towards Extreme Multi-label Text Classification Through Group-wise Label Ranking. "
        "Equations 4 and 6."
    )

    def value_and_gradient(
        self, scores: npt.ArrayLike, truth: npt.ArrayLike, costs: npt.ArrayLike = 1.0
    ) -> tuple[Floats, Floats]:
        """Loss of each row, and its derivatives by the scores.

        Parameters
        ----------
        scores, truth : array-like, shape (rows, labels)
            `truth` is 1 for the labels of a row and 0 for the others.
        costs : array-like
            Of each label where it is true.
        """
        s, is_own = np.asarray(scores, np.float64), np.asarray(truth) > 0
        c = np.broadcast_to(np.asarray(costs, np.float64), s.shape)
        with np.errstate(divide="ignore"):
            below = np.where(is_own, -np.inf, s)
            above = np.where(is_own, np.log(c) - s, -np.inf)
        log_product = _log_sum(below) + _log_sum(above)
        value = np.logaddexp(0.0, log_product)
        pull = np.exp(log_product - value)[:, None]
        gradient = pull * (_shares(below) - _shares(above))
        return value, gradient


def grank_loss(scores: Tensor, truth: Tensor, counted: Tensor | None = None, costs: Tensor | None = None) -> Tensor:
    """Group-wise ranking loss of each row, ln(1 + sum over negatives of e^s times sum over positives of c e^-s).

    `GRank` in torch; sums stay logarithms, so that no exponential overflows.

    Parameters
    ----------
    scores, truth, counted, costs
        As of every loss in `TORCH_LOSSES`.

    Examples
    --------
    >>> import torch
    >>> grank_loss(torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.0]]))
    tensor([0.2395])
    """
    from torch.nn.functional import softplus

    is_own = truth > 0
    others = ~is_own if counted is None else counted & ~is_own
    positives = -scores if costs is None else costs.log() - scores
    below = scores.masked_fill(~others, _EMPTY).logsumexp(dim=1)
    above = positives.masked_fill(~is_own, _EMPTY).logsumexp(dim=1)
    return softplus(below + above)


def _log_sum(values: Floats) -> Floats:
    top = values.max(axis=1, initial=-np.inf, keepdims=True)
    with np.errstate(divide="ignore"):
        total = np.log(np.exp(values - np.where(np.isfinite(top), top, 0)).sum(axis=1))
    return np.asarray(total + np.where(np.isfinite(top), top, 0)[:, 0])


def _shares(values: Floats) -> Floats:
    """Softmax of each row; 0 in a row without any."""
    total = _log_sum(values)[:, None]
    return np.where(np.isfinite(values), np.exp(values - np.where(np.isfinite(total), total, 0)), 0.0)

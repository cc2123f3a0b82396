"""The logistic loss, or binary cross-entropy: `Logistic` in numpy, the functions in torch."""

from __future__ import annotations

from math import inf, log
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from longtail.losses.base import WWW_2021, Floats, MarginLoss, floats

if TYPE_CHECKING:
    from torch import Tensor

Reduction = Literal["mean", "sum", "none"]


class Logistic(MarginLoss):
    """The logistic loss, ln(1 + e^-z): binary cross-entropy of the probability sigma(score).

    The last line of table 1 and equation 17 of Qaraei et al. 2021; with a positive cost it is equation 23. The paper
    divides the logistic loss by ln 2 where it uses it as an upper bound of the 0-1 loss (`surrogate_scale`); here it
    is not divided, as in equation 23 and every solver: the factor would only change the regularisation.

    Examples
    --------
    >>> Logistic().value([-2.0, 0.0, 2.0]).round(4)
    array([2.1269, 0.6931, 0.1269])
    >>> Logistic().gradient([-2.0, 0.0, 2.0]).round(4)
    array([-0.8808, -0.5   , -0.1192])
    """

    name = "logistic"
    citation = f"{WWW_2021}, table 1 and equations 17, 23."
    equations = "table 1, 17"
    linear_difference = True  # ln(1 + e^-s) - ln(1 + e^s) is -s
    lipschitz: ClassVar[float] = 1.0
    smoothness: ClassVar[float] = 0.25
    zero_margin: ClassVar[float] = inf
    dual_bound: ClassVar[float] = 1.0
    surrogate_scale: ClassVar[float] = 1.0 / log(2.0)

    def value(self, margin: npt.ArrayLike) -> Floats:
        """ln(1 + e^-z)."""
        return np.logaddexp(0.0, -floats(margin))

    def gradient(self, margin: npt.ArrayLike) -> Floats:
        """-sigma(-z)."""
        return -_sigmoid(-floats(margin))

    def curvature(self, margin: npt.ArrayLike) -> Floats:
        """sigma(z) sigma(-z)."""
        z = floats(margin)
        return _sigmoid(z) * _sigmoid(-z)

    def conjugate(self, dual: npt.ArrayLike) -> Floats:
        """dual ln(dual) + (1 - dual) ln(1 - dual) for dual from 0 to 1, both ends 0."""
        a = floats(dual)
        inside = np.clip(a, 0.0, 1.0)
        return np.where(inside == a, _x_ln_x(inside) + _x_ln_x(1.0 - inside), inf)


def logistic_loss(
    scores: Tensor,
    truth: Tensor,
    counted: Tensor | None = None,
    costs: Tensor | None = None,
    *,
    reduction: Reduction = "mean",
) -> Tensor:
    """Logistic loss of each row, or binary cross-entropy, in torch.

    A true label costs c ln(1 + e^-s), any other ln(1 + e^s); their mean over the labels of the row that count.

    Parameters
    ----------
    scores, truth, counted, costs
        As of every loss in `TORCH_LOSSES`.
    reduction : {"mean", "sum", "none"}
        Over the labels of a row; "none" returns the loss of each entry, of shape (rows, labels).

    Examples
    --------
    >>> import torch
    >>> scores, truth = torch.tensor([[0.0, 2.0]]), torch.tensor([[1.0, 0.0]])
    >>> logistic_loss(scores, truth)
    tensor([1.4100])
    >>> logistic_loss(scores, truth, costs=torch.tensor([3.0, 1.0]), reduction="none")
    tensor([[2.0794, 2.1269]])
    """
    from torch.nn.functional import softplus

    others = softplus(scores)
    own = others - scores if costs is None else (others - scores) * costs
    return _reduced(others + truth * (own - others), counted, reduction)


def gated_logistic_loss(
    gates: Tensor, scores: Tensor, truth: Tensor, counted: Tensor | None = None, costs: Tensor | None = None
) -> Tensor:
    """Mean logistic loss of each row where the probability of a label is a product, that of its gate times its own.

    Both are given as log-odds and multiplied in log space, so that no small probability is lost.

    Parameters
    ----------
    gates : Tensor, shape (rows, 1)
        Log-odds of the gate that the labels share.
    scores, truth, counted, costs
        As of every loss in `TORCH_LOSSES`.

    Examples
    --------
    >>> import torch
    >>> gate, score = torch.tensor([[0.0]]), torch.tensor([[0.0]])  # 1/2 times 1/2
    >>> gated_logistic_loss(gate, score, torch.tensor([[1.0]])).exp()
    tensor([4.])
    """
    import torch
    from torch.nn.functional import softplus

    own = softplus(-gates) + softplus(-scores)  # -log p
    wide = gates.expand_as(scores)
    others = own - torch.stack([-wide, -scores, -wide - scores]).logsumexp(dim=0)  # -log(1 - p)
    return _reduced(others + truth * ((own if costs is None else own * costs) - others), counted, "mean")


def _reduced(each: Tensor, counted: Tensor | None, reduction: Reduction) -> Tensor:
    """Mean or sum over the labels that count of each row."""
    if reduction == "none":
        return each if counted is None else each * counted
    total = (each if counted is None else each * counted).sum(dim=1)
    if reduction == "sum":
        return total
    return total / (each.shape[1] if counted is None else counted.sum(dim=1).clamp(min=1))


def _sigmoid(x: Floats) -> Floats:
    return np.exp(-np.logaddexp(0.0, -x))


def _x_ln_x(x: Floats) -> Floats:
    return x * np.log(np.where(x > 0.0, x, 1.0))

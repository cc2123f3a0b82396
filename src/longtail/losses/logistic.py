"""The logistic loss, or binary cross-entropy: `Logistic` in numpy, the functions in torch."""

from __future__ import annotations

from math import inf, log
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt

from longtail.losses.base import WWW_2021, Floats, MarginLoss, floats

if TYPE_CHECKING:
    from torch import Tensor


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


def binary_cross_entropy(scores: Tensor, truth: Tensor, costs: Tensor | float = 1.0) -> Tensor:
    """Logistic loss of each entry, in torch: -cost log p for true labels and -log(1 - p) for the others.

    Parameters
    ----------
    scores, truth : Tensor, shape (rows, labels)
        Log-odds, and 1 for the labels of a row, 0 for the others.
    costs : Tensor or float
        Cost of each label where it is true.

    Examples
    --------
    >>> import torch
    >>> binary_cross_entropy(torch.tensor([[0.0, 2.0]]), torch.tensor([[1.0, 0.0]]), costs=3.0)
    tensor([[2.0794, 2.1269]])
    """
    from torch.nn.functional import softplus

    plain = softplus(scores)
    return plain + truth * ((plain - scores) * costs - plain)


def product_cross_entropy(gate: Tensor, inside: Tensor, truth: Tensor, costs: Tensor | float = 1.0) -> Tensor:
    """Binary cross-entropy of a product of two probabilities, given by log-odds, computed in log space.

    Examples
    --------
    >>> import torch
    >>> gate, inside = torch.tensor([[0.0]]), torch.tensor([[0.0]])  # 1/2 times 1/2
    >>> product_cross_entropy(gate, inside, torch.tensor([[1.0]])).exp()
    tensor([[4.]])
    """
    import torch
    from torch.nn.functional import softplus

    missed = softplus(-gate) + softplus(-inside)  # -log p
    wide = gate.expand_as(inside)
    none = missed - torch.stack([-wide, -inside, -wide - inside]).logsumexp(dim=0)  # -log(1 - p)
    return none + truth * (missed * costs - none)


def _sigmoid(x: Floats) -> Floats:
    return np.exp(-np.logaddexp(0.0, -x))


def _x_ln_x(x: Floats) -> Floats:
    return x * np.log(np.where(x > 0.0, x, 1.0))

"""Regularisers that pull label embeddings together or apart, by name; each is a mean over pairs of unit vectors.

In all of them, g is the matrix of inner products between the embeddings of two labels, and u their adjacency.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor

Regulariser = Literal["glas", "spread-out", "laplacian", "gravity"]
Sampling = Literal["even", "rows"]


def glas(g: Tensor, u: Tensor, weights: Tensor) -> Tensor:
    """Equation (3): the inner product of two labels should be their adjacency."""
    return _mean((g - u).square(), weights)


def spread_out(g: Tensor, u: Tensor, weights: Tensor) -> Tensor:
    """Equation (2): labels should be orthogonal."""
    return _mean(g.square(), weights)


def laplacian(g: Tensor, u: Tensor, weights: Tensor) -> Tensor:
    """Equation (4): adjacent labels should be near each other; |v - w|^2 is 2 - 2 v.w for unit vectors."""
    return _mean((2 - 2 * g) * u, weights)


def gravity(scores: Tensor, weights: Tensor) -> Tensor:
    """Inner products of rows and labels, of shape (rows, labels), should be 0: the sum over rows of the mean square.

    The regulariser of Krichene et al.: Efficient Training on Very Large Corpora via Gramian Estimation. ICLR 2019.
    """
    return (scores.square() * weights).sum() / weights.sum()


BETWEEN_LABELS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "glas": glas,
    "spread-out": spread_out,
    "laplacian": laplacian,
}


def _mean(values: Tensor, weights: Tensor) -> Tensor:
    """Weighted mean over pairs of labels."""
    return (values * weights[:, None] * weights).sum() / weights.sum().square()

"""Losses as solvers need them: a margin loss and a cost for recorded labels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from longtail.errors import ParameterError
from longtail.losses.base import Floats, Loss, MarginLoss, floats
from longtail.losses.corrected import Corrected, UnbiasedRebalanced
from longtail.losses.registry import get_loss


class MarginForm(NamedTuple):
    """A margin loss and the cost of recorded labels.

    Attributes
    ----------
    loss : MarginLoss
        The margin loss; labels that are not recorded cost 1 times it.
    positive_cost : ndarray of float64
        One number (without axes) or one per label.
    """

    loss: MarginLoss
    positive_cost: Floats

    def costs(self, n_labels: int) -> Floats:
        """Return the cost of each label; a ParameterError if the loss is for another number of labels."""
        if self.positive_cost.ndim and len(self.positive_cost) != n_labels:
            raise ParameterError("number of labels of the loss", len(self.positive_cost), f"must be {n_labels}")
        return np.broadcast_to(self.positive_cost, n_labels)


def margin_form(loss: str | Loss) -> MarginForm:
    """Return a loss as a margin loss and a cost; for any other, raise an error that names an alternative.

    `Surrogate` and `Rebalanced` of a margin loss have this form; unbiased losses have it only where p = 1.

    Examples
    --------
    >>> from longtail.losses import Hinge, Surrogate, Unbiased
    >>> margin_form(Surrogate(Hinge(), propensity=[0.1, 0.5])).positive_cost
    array([19.,  3.])
    >>> margin_form(Unbiased(Hinge(), propensity=0.5))  # doctest: +NORMALIZE_WHITESPACE
    Traceback (most recent call last):
    ...
    longtail.errors.ParameterError: loss must be convex and bounded below, and this one is neither: use
    Surrogate(Hinge(), propensity=...), got Unbiased(base=Hinge(), propensity=0.5).
    """
    found = get_loss(loss)
    if isinstance(found, MarginLoss):
        return MarginForm(found, np.ones(()))
    plain = found.plain if isinstance(found, Corrected) else found
    if not isinstance(found, Corrected) or not isinstance(plain, MarginLoss):
        lacks = "a margin loss" if plain.convex else "convex, and this one is not"
        raise ParameterError("loss", loss, f"must be {lacks}: use squared-hinge, hinge or logistic in its place")
    factors = found.factors
    if factors.negative.any():
        lacks = "not bounded below" if found.convex else "neither"
        instead = "Surrogate({}, propensity=...)"
        if isinstance(found, UnbiasedRebalanced):
            instead = "Rebalanced({}, propensity=..., factor=...)"
        requirement = f"must be convex and bounded below, and this one is {lacks}: use {instead.format(plain)}"
        raise ParameterError("loss", loss, requirement)
    return MarginForm(plain, floats(factors.positive))

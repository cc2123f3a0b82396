"""The losses of a single score, by name."""

from __future__ import annotations

from longtail.errors import ParameterError
from longtail.losses.base import Loss
from longtail.losses.hinge import Hinge
from longtail.losses.logistic import Logistic
from longtail.losses.squared_hinge import SquaredHinge
from longtail.losses.zero_one import ZeroOne

LOSSES: dict[str, type[Loss]] = {loss.name: loss for loss in (SquaredHinge, Hinge, Logistic, ZeroOne)}
"""Losses of a single score; those of networks and embeddings are listed with these learners."""


def get_loss(loss: str | Loss) -> Loss:
    """Return the loss with that name, or the loss itself.

    Examples
    --------
    >>> get_loss("squared-hinge")
    SquaredHinge()
    """
    if isinstance(loss, Loss):
        return loss
    found = LOSSES.get(loss.lower().replace("_", "-")) if isinstance(loss, str) else None
    if found is None:
        raise ParameterError("loss", loss, f"must be a Loss or one of {', '.join(LOSSES)}")
    return found()

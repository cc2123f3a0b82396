"""The losses of table 1 by name."""

from __future__ import annotations

from longtail.errors import ParameterError
from longtail.losses.base import Loss
from longtail.losses.hinge import Hinge
from longtail.losses.logistic import Logistic
from longtail.losses.squared_hinge import SquaredHinge
from longtail.losses.zero_one import ZeroOne

LOSSES: dict[str, type[Loss]] = {loss.name: loss for loss in (SquaredHinge, Hinge, Logistic, ZeroOne)}
"""The losses by name."""


def get_loss(loss: str | Loss) -> Loss:
    """Return the loss with that name, or the loss itself.

    Examples
    --------
    >>> get_loss("squared-hinge")
    SquaredHinge()
    >>> get_loss(Logistic())
    Logistic()
    """
    if isinstance(loss, Loss):
        return loss
    found = LOSSES.get(loss.lower().replace("_", "-")) if isinstance(loss, str) else None
    if found is None:
        raise ParameterError("loss", loss, f"must be a Loss or one of {', '.join(LOSSES)}")
    return found()

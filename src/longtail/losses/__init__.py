"""What is minimised: one file per loss, each with its value, its gradient and its equation."""

from longtail.errors import ParameterError
from longtail.losses.base import Loss, MarginLoss
from longtail.losses.hinge import Hinge
from longtail.losses.logistic import Logistic
from longtail.losses.squared_hinge import SquaredHinge

__all__ = ["LOSSES", "Hinge", "Logistic", "Loss", "MarginLoss", "SquaredHinge", "get_loss"]

LOSSES: dict[str, type[MarginLoss]] = {loss.name: loss for loss in (SquaredHinge, Hinge, Logistic)}
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

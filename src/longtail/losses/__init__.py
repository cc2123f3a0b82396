"""What is minimised: one file per loss, each with its value, its gradient and its equation."""

from longtail.losses.base import Loss, MarginLoss
from longtail.losses.corrected import Corrected, Factors
from longtail.losses.grank import GRank
from longtail.losses.hinge import Hinge
from longtail.losses.logistic import Logistic
from longtail.losses.margin_form import MarginForm, margin_form
from longtail.losses.names import LOSSES, get_loss
from longtail.losses.rebalanced import ORDERS, Order, Rebalanced, UnbiasedRebalanced
from longtail.losses.squared_hinge import SquaredHinge
from longtail.losses.surrogate import Surrogate
from longtail.losses.unbiased import Unbiased
from longtail.losses.zero_one import ZeroOne

__all__ = [
    "LOSSES",
    "ORDERS",
    "Corrected",
    "Factors",
    "GRank",
    "Hinge",
    "Logistic",
    "Loss",
    "MarginForm",
    "MarginLoss",
    "Order",
    "Rebalanced",
    "SquaredHinge",
    "Surrogate",
    "Unbiased",
    "UnbiasedRebalanced",
    "ZeroOne",
    "get_loss",
    "margin_form",
]

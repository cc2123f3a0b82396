"""Losses, with value, gradient and the equation that defines them."""

from longtail.losses.base import Loss, MarginLoss
from longtail.losses.corrected import (
    CORRECTION_ORDERS,
    Corrected,
    CorrectionOrder,
    LossFactors,
    Rebalanced,
    Surrogate,
    Unbiased,
    UnbiasedRebalanced,
)
from longtail.losses.grank import GRank, grank_loss
from longtail.losses.hinge import Hinge
from longtail.losses.logistic import Logistic, gated_logistic_loss, logistic_loss
from longtail.losses.margin_form import MarginForm, margin_form
from longtail.losses.ranking_margin import margin_loss, negative_mining_loss
from longtail.losses.registry import LOSSES, TORCH_LOSSES, TorchLoss, TorchLossName, get_loss
from longtail.losses.softmax import softmax_loss
from longtail.losses.squared_hinge import SquaredHinge
from longtail.losses.zero_one import ZeroOne

__all__ = [
    "CORRECTION_ORDERS",
    "LOSSES",
    "TORCH_LOSSES",
    "Corrected",
    "CorrectionOrder",
    "GRank",
    "Hinge",
    "Logistic",
    "Loss",
    "LossFactors",
    "MarginForm",
    "MarginLoss",
    "Rebalanced",
    "SquaredHinge",
    "Surrogate",
    "TorchLoss",
    "TorchLossName",
    "Unbiased",
    "UnbiasedRebalanced",
    "ZeroOne",
    "gated_logistic_loss",
    "get_loss",
    "grank_loss",
    "logistic_loss",
    "margin_form",
    "margin_loss",
    "negative_mining_loss",
    "softmax_loss",
]

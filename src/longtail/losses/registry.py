"""All losses by name: `LOSSES` of single scores, in numpy, and `TORCH_LOSSES` of rows, in torch.

Kernels have their losses built in: the dual steps of `learners/linear/block_solver.py` (squared hinge, hinge,
logistic), `learners/instance_trees/l1_logistic.py` (logistic), and `rerank/ranknet_kernels.py` (logistic, of
differences of scores).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, TypeAlias

from longtail.losses.base import Loss
from longtail.losses.grank import grank_loss
from longtail.losses.hinge import Hinge
from longtail.losses.logistic import Logistic, logistic_loss
from longtail.losses.ranking_margin import margin_loss, negative_mining_loss
from longtail.losses.softmax import softmax_loss
from longtail.losses.squared_hinge import SquaredHinge
from longtail.losses.zero_one import ZeroOne
from longtail.validation import named

if TYPE_CHECKING:
    from torch import Tensor

LOSSES: dict[str, type[Loss]] = {loss.name: loss for loss in (SquaredHinge, Hinge, Logistic, ZeroOne)}
"""Losses of a single score, for linear learners and label trees."""

TorchLoss: TypeAlias = "Callable[..., Tensor]"
TorchLossName = Literal["logistic", "grank", "softmax", "margin", "negative-mining"]

TORCH_LOSSES: dict[TorchLossName, TorchLoss] = {
    "logistic": logistic_loss,
    "grank": grank_loss,
    "softmax": softmax_loss,
    "margin": margin_loss,
    "negative-mining": negative_mining_loss,
}
"""Losses of a row of scores, for `NeuralClassifier` and `EmbeddingClassifier`: ``loss(scores, truth, counted, costs)``.

`scores` and `truth` have the shape (rows, labels), and `truth` is 1. for the labels of a row, else 0. `counted` is True
for entries that count; all do by default. `costs` are those of true labels, 1 by default; they broadcast against the
scores. The result has one value per row. A row without true labels costs nothing with the losses that rank: all but
"logistic".
"""


def get_loss(loss: str | Loss) -> Loss:
    """Return the loss with that name, or the loss itself.

    Examples
    --------
    >>> get_loss("squared-hinge")
    SquaredHinge()
    """
    return named("loss", loss, LOSSES, Loss)

"""Losses of a row's cosines with the labels of a step, by name; each the sum over rows.

All take the same arguments. `scores` has the inner products of rows and labels, of shape (rows, labels), and `truth`
1 where a label is a row's own. `chosen` is the place of one true label of each row, drawn at random; a row without
labels has -1 there and counts for nothing. `costs` multiplies what a true label costs, and `scale` and `shift` turn
inner products into log-odds where a loss needs them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from longtail.errors import ParameterError

if TYPE_CHECKING:
    from torch import Tensor

LossName = Literal["logistic", "softmax", "margin", "negative-mining"]


class Step(NamedTuple):
    """What a loss is worked out from; see the module."""

    scores: Tensor
    truth: Tensor
    chosen: Tensor
    costs: Tensor
    scale: Tensor
    shift: Tensor
    margin: float
    mined: int


def logistic(step: Step) -> Tensor:
    """Each label on its own: -cost log p for those of the row, -log(1 - p) for the others."""
    from torch.nn.functional import softplus

    odds = step.scores * step.scale - step.shift
    # The cost of a true label is softplus(-odds), which is softplus(odds) - odds.
    plain = softplus(odds)
    extra = step.truth * (step.costs - 1) * (plain - odds)
    return (plain - step.truth * odds + extra).sum()


def softmax(step: Step) -> Tensor:
    """Cross-entropy between the row's labels, each as likely as the other, and all labels of the step."""
    shares = (step.scores * step.scale).log_softmax(dim=1)
    own = step.truth / step.truth.sum(dim=1, keepdim=True).clamp(min=1)
    return -(shares * own * step.costs).sum()


def margin(step: Step) -> Tensor:
    """Equation (1) for one true label a row: no other label should come within the margin."""
    return _violations(step).sum(dim=1) @ _cost_of_chosen(step)


def negative_mining(step: Step) -> Tensor:
    """As `margin`, but only the labels that violate it most count (Reddi et al., AISTATS 2019)."""
    violations = _violations(step)
    return violations.topk(min(step.mined, violations.shape[1]), dim=1).values.sum(dim=1) @ _cost_of_chosen(step)


def _violations(step: Step) -> Tensor:
    own = step.scores.gather(1, step.chosen.clamp(min=0)[:, None])
    return (step.scores - own + step.margin).relu() * (1 - step.truth)


def _cost_of_chosen(step: Step) -> Tensor:
    return step.costs[step.chosen.clamp(min=0)] * (step.chosen >= 0)


LOSSES: dict[str, Callable[[Step], Tensor]] = {
    "logistic": logistic,
    "softmax": softmax,
    "margin": margin,
    "negative-mining": negative_mining,
}


def check_loss(loss: object) -> None:
    """Refuse what is no name of a loss."""
    if loss not in get_args(LossName):
        raise ParameterError("loss", loss, f"must be one of {', '.join(get_args(LossName))}")

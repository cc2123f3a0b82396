"""The optimiser: AdamW with learning rates by layer, warmup and linear decay, and clipped gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer, SparseAdam

from longtail.learners.neural.modules.network import Network
from longtail.learners.training.row_adam import AdamTable, StepSize, adam_rows
from longtail.learners.training.schedule import linear_with_warmup

if TYPE_CHECKING:
    from longtail.learners.neural.neural_classifier import NeuralClassifier


class Optimiser:
    """Updates the weights of a network, `steps` times over all epochs, with the settings of a `NeuralClassifier`."""

    def __init__(self, network: Network, learner: NeuralClassifier, steps: int) -> None:
        layers, head = network.groups()
        self.settings, self.steps = learner, max(steps, 1)
        self.parameters = [part for layer in layers for part in layer] + head + network.tables()
        learning_rate, head_learning_rate = float(learner.learning_rate), float(learner.head_learning_rate)
        layer_decay, weight_decay = float(learner.layer_decay), float(learner.weight_decay)
        groups: list[dict[str, Any]] = []
        for depth, layer in enumerate(reversed(layers)):
            groups += _groups(layer, learning_rate * layer_decay**depth, weight_decay)
        groups += _groups(head, head_learning_rate, weight_decay)
        self._all: list[Optimizer] = []
        if groups:
            self._all.append(AdamW(groups))
        word_learning_rate = learning_rate * layer_decay ** (len(layers) - 1)
        sparse = [
            {"params": tables, "lr": highest, "highest": highest}
            for tables, highest in (
                (network.encoder.tables(), word_learning_rate),
                (network.head.tables(), head_learning_rate),
            )
            if tables
        ]
        if sparse:
            self._all.append(RowAdam(sparse) if network.device.type == "cpu" else SparseAdam(sparse))

    def take(self, gradients: Sequence[Tensor | None], step: int) -> float:
        """Take a step, counted from 0, and return the norm of the gradient before clipping."""
        gradients = [part.coalesce() if part is not None and part.is_sparse else part for part in gradients]
        norm = float(_norm(gradients))
        scale = min(1.0, float(self.settings.max_grad_norm) / max(norm, 1e-12))
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = None if gradient is None else gradient * scale if scale < 1 else gradient
        factor = linear_with_warmup(step, self.steps, float(self.settings.warmup_fraction))
        for optimiser in self._all:
            for group in optimiser.param_groups:
                group["lr"] = group["highest"] * factor
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        return norm

    def state(self) -> list[Tensor]:
        """Return the number of steps and both moments of each parameter."""
        found: list[Tensor] = []
        for parameter in self.parameters:
            of = next((o.state[parameter] for o in self._all if parameter in o.state), None)
            steps = torch.zeros(()) if of is None else torch.as_tensor(of["step"], dtype=torch.float32)
            empty = torch.zeros(0)
            found += [steps, empty if of is None else of["exp_avg"], empty if of is None else of["exp_avg_sq"]]
        return found

    def load_state(self, state: Sequence[Tensor]) -> None:
        """Restore what `state` returned."""
        owners = {id(p): o for o in self._all for group in o.param_groups for p in group["params"]}
        for number, parameter in enumerate(self.parameters):
            steps, first, second = state[3 * number : 3 * number + 3]
            if not float(steps):
                continue
            owner = owners[id(parameter)]
            step: Any = steps.clone() if isinstance(owner, AdamW) else int(steps)
            owner.state[parameter] = {"step": step, "exp_avg": first.clone(), "exp_avg_sq": second.clone()}


class RowAdam(Optimizer):
    """Adam for sparse gradients on a CPU: one sweep over the rows with a gradient, where SparseAdam makes a dozen."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 1e-3})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update every table that has a gradient."""
        for group in self.param_groups:
            for table in group["params"]:
                if table.grad is None:
                    continue
                state = self.state[table]
                if not state:
                    state |= {"step": 0, "exp_avg": torch.zeros_like(table), "exp_avg_sq": torch.zeros_like(table)}
                size = StepSize.of(float(group["lr"]), int(state["step"]))
                state["step"] += 1
                gradient = table.grad.coalesce()
                adam_rows(
                    AdamTable(table.detach().numpy(), state["exp_avg"].numpy(), state["exp_avg_sq"].numpy()),
                    gradient.indices()[0].numpy(), gradient.values().numpy(), size,
                )  # fmt: skip


def _groups(parameters: list[nn.Parameter], learning_rate: float, decay: float) -> list[dict[str, Any]]:
    """Parameter groups: matrices with weight decay, vectors without."""
    groups = []
    for is_matrix in (True, False):
        own = [part for part in parameters if (part.ndim > 1) is is_matrix]
        if own:
            rates = {"lr": learning_rate, "highest": learning_rate}
            groups.append({"params": own, **rates, "weight_decay": decay if is_matrix else 0.0})
    return groups


def _norm(gradients: Sequence[Tensor | None]) -> Tensor:
    squares = torch.zeros((), dtype=torch.float64)
    for gradient in gradients:
        if gradient is not None:
            values = gradient.values() if gradient.is_sparse else gradient
            squares = squares + values.double().square().sum().cpu()
    return squares.sqrt()

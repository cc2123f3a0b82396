"""Steps from gradients: AdamW with rates by layer, a warm-up and a fall to 0, and gradients cut to a length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer, SparseAdam

from longtail.engine.row_adam import step_rows
from longtail.learners.neural.modules.network import Network


@dataclass(frozen=True)
class Rates:
    """How long steps are.

    Parameters
    ----------
    encoder, head : float
        Rates at their highest.
    layer_decay : float
        Each layer of the encoder has that of the layer above times this.
    weight_decay : float
    warm_up : float
        Share of the steps over which rates rise from 0; they fall to 0 over the others.
    clip : float
        Longest gradient; longer ones are cut to it.
    """

    encoder: float
    head: float
    layer_decay: float
    weight_decay: float
    warm_up: float
    clip: float


class Optimiser:
    """Takes steps with a network.

    Parameters
    ----------
    network : Network
    rates : Rates
    steps : int
        In all.
    """

    def __init__(self, network: Network, rates: Rates, steps: int) -> None:
        layers, head = network.groups()
        self.rates, self.steps = rates, max(steps, 1)
        self.parameters = [part for layer in layers for part in layer] + head + network.tables()
        groups: list[dict[str, Any]] = []
        for depth, layer in enumerate(reversed(layers)):
            groups += _decayed(layer, rates.encoder * rates.layer_decay**depth, rates.weight_decay)
        groups += _decayed(head, rates.head, rates.weight_decay)
        self._all: list[Optimizer] = []
        if groups:
            self._all.append(AdamW(groups))
        words = rates.encoder * rates.layer_decay ** (len(layers) - 1)
        of_tables = [
            {"params": tables, "lr": rate, "highest": rate}
            for tables, rate in ((network.encoder.tables(), words), (network.head.tables(), rates.head))
            if tables
        ]
        if of_tables:
            self._all.append(RowAdam(of_tables) if network.device.type == "cpu" else SparseAdam(of_tables))

    def take(self, gradients: Sequence[Tensor | None], number: int) -> float:
        """Take step `number`, from 0 on; gives the length of the gradient before it was cut."""
        gradients = [part.coalesce() if part is not None and part.is_sparse else part for part in gradients]
        length = float(_length(gradients))
        scale = min(1.0, self.rates.clip / max(length, 1e-12))
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = None if gradient is None else gradient * scale if scale < 1 else gradient
        share = self._share(number)
        for optimiser in self._all:
            for group in optimiser.param_groups:
                group["lr"] = group["highest"] * share
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        return length

    def _share(self, number: int) -> float:
        rising = max(round(self.rates.warm_up * self.steps), 1)
        if number < rising:
            return (number + 1) / rising
        return max((self.steps - number) / max(self.steps - rising, 1), 0.0)

    def state(self) -> list[Tensor]:
        """Means of gradients and of their squares, and how many steps each has seen, in the order of the parameters."""
        found: list[Tensor] = []
        for parameter in self.parameters:
            of = next((o.state[parameter] for o in self._all if parameter in o.state), None)
            steps = torch.zeros(()) if of is None else torch.as_tensor(of["step"], dtype=torch.float32)
            empty = torch.zeros(0)
            found += [steps, empty if of is None else of["exp_avg"], empty if of is None else of["exp_avg_sq"]]
        return found

    def restore(self, state: Sequence[Tensor]) -> None:
        """Take up what `state` gave."""
        owners = {id(p): o for o in self._all for group in o.param_groups for p in group["params"]}
        for number, parameter in enumerate(self.parameters):
            steps, mean, squares = state[3 * number : 3 * number + 3]
            if not float(steps):
                continue
            owner = owners[id(parameter)]
            step: Any = steps.clone() if isinstance(owner, AdamW) else int(steps)
            owner.state[parameter] = {"step": step, "exp_avg": mean.clone(), "exp_avg_sq": squares.clone()}


class RowAdam(Optimizer):
    """Adam for sparse gradients on a CPU: in one sweep over the rows that have one, where SparseAdam makes a dozen."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 1e-3})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Take a step with every table that has a gradient."""
        for group in self.param_groups:
            for table in group["params"]:
                if table.grad is None:
                    continue
                state = self.state[table]
                if not state:
                    state |= {"step": 0, "exp_avg": torch.zeros_like(table), "exp_avg_sq": torch.zeros_like(table)}
                state["step"] += 1
                gradient = table.grad.coalesce()
                step_rows(
                    table.detach().numpy(), state["exp_avg"].numpy(), state["exp_avg_sq"].numpy(),
                    gradient.indices()[0].numpy(), gradient.values().numpy(), float(group["lr"]), int(state["step"]),
                )  # fmt: skip


def _decayed(parameters: list[nn.Parameter], rate: float, decay: float) -> list[dict[str, Any]]:
    """Groups with weight decay for matrices and without it for vectors."""
    groups = []
    for is_matrix in (True, False):
        own = [part for part in parameters if (part.ndim > 1) is is_matrix]
        if own:
            groups.append({"params": own, "lr": rate, "highest": rate, "weight_decay": decay if is_matrix else 0.0})
    return groups


def _length(gradients: Sequence[Tensor | None]) -> Tensor:
    squares = torch.zeros((), dtype=torch.float64)
    for gradient in gradients:
        if gradient is not None:
            values = gradient.values() if gradient.is_sparse else gradient
            squares = squares + values.double().square().sum().cpu()
    return squares.sqrt()

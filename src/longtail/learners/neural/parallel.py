"""Training in several processes, on one machine or many: what torchrun starts, with gloo on CPUs and nccl on GPUs."""

from __future__ import annotations

import atexit
import os
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, distributed

from longtail.errors import InputError


@dataclass(frozen=True)
class Place:
    """Which of how many processes this is, from 0 on."""

    rank: int = 0
    size: int = 1

    def mean(self, value: float) -> float:
        """Mean of a number over all processes."""
        if self.size == 1:
            return value
        total = torch.tensor([value], dtype=torch.float64)
        distributed.all_reduce(total)
        return float(total[0]) / self.size

    def first(self, values: Sequence[float]) -> list[float]:
        """Some numbers as the first process has them."""
        shared = torch.tensor(list(values), dtype=torch.float64)
        self.take_first(shared)
        return [float(value) for value in shared]

    def take_first(self, tensor: Tensor) -> None:
        """Put into a tensor what the first process has there."""
        if self.size > 1:
            shared = tensor.cpu()
            distributed.broadcast(shared, 0)
            if shared is not tensor:
                tensor.copy_(shared)

    def mean_of_rows(self, table: Tensor) -> Tensor | None:
        """Mean gradient of a table, over all processes; each has one of some rows, or none.

        Rows and values travel padded to the longest part, and are added up in the order of the processes.
        """
        own = None if table.grad is None else table.grad.coalesce()
        n = 0 if own is None else int(own.indices().shape[1])
        counts = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        distributed.all_gather(counts, torch.tensor([n]))
        most = max(int(count) for count in counts)
        if not most:
            return None
        rows, values = torch.zeros(most, dtype=torch.int64), torch.zeros(most, table.shape[1])
        if own is not None:
            rows[:n], values[:n] = own.indices()[0].cpu(), own.values().cpu()
        all_rows = [torch.empty_like(rows) for _ in counts]
        all_values = [torch.empty_like(values) for _ in counts]
        distributed.all_gather(all_rows, rows)
        distributed.all_gather(all_values, values)
        indices = torch.cat([part[:count] for part, count in zip(all_rows, counts, strict=True)])
        parts = torch.cat([part[:count] for part, count in zip(all_values, counts, strict=True)]) / self.size
        found = torch.sparse_coo_tensor(indices[None], parts, table.shape).coalesce()
        return found.to(table.device)


def join(device: torch.device) -> Place:
    """Join the processes that the environment speaks of, as torchrun sets it; alone without it.

    They stay together for all that is trained, until the end of the program.
    """
    if distributed.is_available() and distributed.is_initialized():
        return Place(distributed.get_rank(), distributed.get_world_size())
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return Place()
    if not distributed.is_available():
        raise InputError("This torch can't train in several processes: install one with torch.distributed.")
    distributed.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    atexit.register(_leave)
    return Place(distributed.get_rank(), distributed.get_world_size())


def _leave() -> None:
    if distributed.is_initialized():
        distributed.destroy_process_group()


def chosen_device(name: str) -> torch.device:
    """Device by name; "auto" is a GPU where there is one, that of this process among several."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and "LOCAL_RANK" in os.environ:
        name = f"cuda:{os.environ['LOCAL_RANK']}"
    return torch.device(name)

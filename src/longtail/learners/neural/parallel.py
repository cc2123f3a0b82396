"""Training in several processes that torchrun starts, on one machine or many, with gloo on CPUs and nccl on GPUs."""

from __future__ import annotations

import atexit
import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, distributed

from longtail.errors import InputError
from longtail.kernels.types import Array
from longtail.runtime.checkpoint import Checkpoint


@dataclass(frozen=True)
class ProcessGroup:
    """The processes that train together: the rank of this one, from 0, and their number."""

    rank: int = 0
    size: int = 1

    def mean(self, value: float) -> float:
        """Return the mean of a number over all processes."""
        if self.size == 1:
            return value
        total = torch.tensor([value], dtype=torch.float64)
        distributed.all_reduce(total)
        return float(total[0]) / self.size

    def first(self, values: Sequence[float]) -> list[float]:
        """Return some numbers as the first process has them."""
        shared = torch.tensor(list(values), dtype=torch.float64)
        self.broadcast(shared)
        return [float(value) for value in shared]

    def broadcast(self, tensor: Tensor) -> None:
        """Copy a tensor of the first process to all others, in place."""
        if self.size > 1:
            shared = tensor.cpu()
            distributed.broadcast(shared, 0)
            if shared is not tensor:
                tensor.copy_(shared)

    def mean_of_rows(self, table: Tensor) -> Tensor | None:
        """Return the mean of a table's sparse gradients over all processes; some processes may have none.

        Rows and values are sent padded to the longest gradient, and added up in the order of the processes.
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


class GroupCheckpoint(Checkpoint):
    """A checkpoint that the first process of a group writes, and reads for all."""

    def __init__(self, fingerprint: bytes, group: ProcessGroup) -> None:
        super().__init__(fingerprint, own=group.rank)
        self._group = group

    def load(self) -> list[Array] | None:
        """Load in the first process, and broadcast number, shapes, types and values of the arrays."""
        saved = super().load() if self._group.rank == 0 else None
        if self._group.size == 1:
            return saved
        first, found = self._group.first, list[Array]()
        (count,) = first([-1 if saved is None else len(saved)])
        for number in range(int(count)):
            own = np.empty(0, np.float32) if saved is None else np.array(saved[number])
            (dimensions, letter) = first([own.ndim, ord(own.dtype.char)])
            shape = first([*own.shape, *[0] * (8 - own.ndim)])[: int(dimensions)]
            if saved is None:
                own = np.zeros([int(size) for size in shape], chr(int(letter)))
            self._group.broadcast(torch.from_numpy(own))
            found.append(own)
        return found if count >= 0 else None


def join(device: torch.device) -> ProcessGroup:
    """Join the process group that torchrun describes in the environment; a group of one without it.

    The group lasts until the end of the program.
    """
    if distributed.is_available() and distributed.is_initialized():
        return ProcessGroup(distributed.get_rank(), distributed.get_world_size())
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return ProcessGroup()
    if not distributed.is_available():
        raise InputError("This torch can't train in several processes: install one with torch.distributed.")
    distributed.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    atexit.register(_leave)
    return ProcessGroup(distributed.get_rank(), distributed.get_world_size())


def _leave() -> None:
    if distributed.is_initialized():
        distributed.destroy_process_group()


def chosen_device(name: str) -> torch.device:
    """Return a device by name; "auto" is a GPU where there is one, that of this process in a group."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and "LOCAL_RANK" in os.environ:
        name = f"cuda:{os.environ['LOCAL_RANK']}"
    return torch.device(name)

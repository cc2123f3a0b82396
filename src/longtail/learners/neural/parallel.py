"""Training in several processes, on one machine or many: what torchrun starts, with gloo on CPUs and nccl on GPUs."""

from __future__ import annotations

import atexit
import os
from dataclasses import dataclass

import torch
from torch import distributed

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
    distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
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

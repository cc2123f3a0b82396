"""Gradients of a step: shards of its rows on threads, or, among several processes, DistributedDataParallel.

A step's rows are cut into shards of a given size. On a CPU each shard is worked on by one thread, and gradients are
added up in the order of the shards: the result has the same bits for any number of threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from longtail.engine.pool import Crew
from longtail.learners.neural.batches import TokenRows, bucketed
from longtail.learners.neural.frozen import FrozenStates
from longtail.learners.neural.modules.encoder import drawn_from
from longtail.learners.neural.modules.head import Candidates, Truth
from longtail.learners.neural.modules.network import Network
from longtail.learners.neural.optimising import Optimiser, Rates
from longtail.learners.neural.parallel import Place

Int64 = npt.NDArray[np.int64]

_AT_ONCE = 16  # rows, on a CPU


@dataclass(frozen=True)
class Settings:
    """What training depends on besides the data; see `NeuralClassifier`."""

    batch: int
    at_once: int | None
    passes: int
    rates: Rates
    precision: str
    seed: int
    keep_frozen: bool = True


class Proposed(NamedTuple):
    """Labels that the level above proposes for each row, -1 for none, with the logarithms of its probabilities."""

    labels: npt.NDArray[np.int32]
    scores: npt.NDArray[np.float32]


class Progress(NamedTuple):
    """How a step went."""

    loss: float
    gradient_norm: float
    rows: int
    seconds: float


class Trainer:
    """Trains a network step by step.

    Parameters
    ----------
    network : Network
        On the device where it is trained.
    rows : TokenRows
    Y : csr_array
    proposed : Proposed or None
        For a level of a tree below the first.
    settings : Settings
    threads : int
    place : Place
        Of this process among others.
    """

    def __init__(
        self,
        network: Network,
        rows: TokenRows,
        Y: sp.csr_array,
        proposed: Proposed | None,
        settings: Settings,
        threads: int,
        place: Place,
    ) -> None:
        self.network, self.rows, self.Y, self.settings, self.place = network, rows, Y, settings, place
        self._proposed = proposed
        self.steps_a_pass = max(1, -(-len(rows) // settings.batch))
        self.steps = self.steps_a_pass * settings.passes
        self.optimiser = Optimiser(network, settings.rates, self.steps)
        self._crew, self._threads = Crew(threads), threads
        self._wrapped = self._shared() if place.size > 1 else None
        self._frozen: FrozenStates | None = None

    def prepare(self) -> None:
        """Run the frozen layers, where what they make is kept."""
        is_alone = self.place.size == 1 and self.network.device.type == "cpu"
        if self.settings.keep_frozen and self.network.encoder.is_parted and is_alone:
            use_half = self.settings.precision == "bfloat16"
            self._frozen = FrozenStates(self.network.encoder, self.rows, self._threads, use_half)

    def run(self, first: int) -> Iterator[Progress]:
        """Take the steps from number `first` on; what is drawn in one depends on the seed and its number alone."""
        for number in range(first // self.steps_a_pass, self.settings.passes):
            rng = np.random.default_rng([self.settings.seed, number])
            for at, rows in enumerate(bucketed(self.rows.lengths, self.settings.batch, rng)):
                step = number * self.steps_a_pass + at
                if step >= first:
                    start = time.perf_counter()
                    loss, gradients = self._gradients(rows, step)
                    norm = self.optimiser.take(gradients, step)
                    yield Progress(loss, norm, len(rows), time.perf_counter() - start)

    def _shared(self) -> DistributedDataParallel:
        """The network as all processes share it; a cluster without a true label in a step has no gradient.

        Tables, whose gradients are sparse, are shared by `Place.mean_of_rows` instead: nccl can't.
        """
        tables = {id(table) for table in self.network.tables()}
        names = [name for name, part in self.network.named_parameters() if id(part) in tables]
        ignore: Any = DistributedDataParallel._set_params_and_buffers_to_ignore_for_model
        ignore(self.network, names)
        for table in self.network.tables():
            self.place.take_first(table.data)
        return DistributedDataParallel(self.network, find_unused_parameters=True)

    def close(self) -> None:
        """Let the threads and what was kept go."""
        self._crew.close()
        if self._frozen is not None:
            self._frozen.close()

    def _gradients(self, rows: Int64, step: int) -> tuple[float, list[Tensor | None]]:
        self.network.train()
        share = (step // self.steps_a_pass + 1) / self.settings.passes
        if self._wrapped is not None:
            return self._distributed(self._wrapped, rows, step, share)
        shards = self._shards(rows)
        tasks: list[Callable[[], tuple[float, Sequence[Tensor | None]]]] = [
            partial(self._shard, shard, len(rows), step, number, share) for number, shard in enumerate(shards)
        ]
        loss = 0.0
        total: list[Tensor | None] = [None] * len(self.optimiser.parameters)
        for first in range(0, len(tasks), self._threads):
            for part, gradients in self._crew.all(tasks[first : first + self._threads]):
                loss += part
                total = [_added(one, other) for one, other in zip(total, gradients, strict=True)]
        return loss, total

    def _shard(
        self, rows: Int64, n: int, step: int, number: int, share: float
    ) -> tuple[float, Sequence[Tensor | None]]:
        if self.network.device.type == "cpu":
            torch.set_num_threads(1)  # of this thread
        with drawn_from(self._generator(step, number)):
            loss = self._loss(self.network, rows, share) / n
        return float(loss.detach()), torch.autograd.grad(loss, self.optimiser.parameters, allow_unused=True)

    def _distributed(
        self, wrapped: DistributedDataParallel, rows: Int64, step: int, share: float
    ) -> tuple[float, list[Tensor | None]]:
        """Gradients of this process's rows, which the processes then share; their mean is that over all rows."""
        own = rows[self.place.rank :: self.place.size]
        if len(rows) < self.place.size:  # some processes would have none: all take them all
            own, weight = rows, 1.0 / len(rows)
        else:
            weight = self.place.size / len(rows)
        total, shards = 0.0, self._shards(own)
        with drawn_from(self._generator(step, self.place.rank)):
            for shard in shards:
                with nullcontext() if shard is shards[-1] else wrapped.no_sync():
                    loss = self._loss(wrapped, shard, share) * weight
                    loss.backward()  # type: ignore[no-untyped-call]
                total += float(loss.detach())
        tables = {id(table) for table in self.network.tables()}
        gradients = [
            self.place.mean_of_rows(parameter) if id(parameter) in tables else parameter.grad
            for parameter in self.optimiser.parameters
        ]
        return self.place.mean(total), gradients

    def _shards(self, rows: Int64) -> list[Int64]:
        """What is worked on at once: 16 rows on a CPU and all on a GPU, unless the settings say something else."""
        size = self.settings.at_once or (_AT_ONCE if self.network.device.type == "cpu" else len(rows))
        return [rows[first : first + size] for first in range(0, len(rows), size)]

    def _loss(self, network: Any, rows: Int64, share: float) -> Tensor:
        device = self.network.device
        tokens, mask = self.rows.batch(rows, self.network.encoder.padding)
        own = self.Y[rows]
        truth = Truth(torch.from_numpy(own.indptr.astype(np.int64)), torch.from_numpy(own.indices.astype(np.int64)))
        truth = Truth(*(part.to(device) for part in truth))
        read = tokens.to(device) if self._frozen is None else self._frozen.batch(rows)
        use_half = self.settings.precision == "bfloat16"
        with torch.autocast(device.type, torch.bfloat16, enabled=use_half):
            found: Tensor = network(read, mask.to(device), truth, share, self.candidates(rows))
        return found.float()

    def candidates(self, rows: Int64) -> Candidates | None:
        """What the level above proposes for some rows."""
        return None if self._proposed is None else candidates_of(self._proposed, rows, self.network.device)

    def _generator(self, step: int, part: int) -> torch.Generator:
        seed = np.random.SeedSequence([self.settings.seed, step, part]).generate_state(1, np.uint64)[0]
        return torch.Generator(self.network.device).manual_seed(int(seed) >> 1)


def candidates_of(proposed: Proposed, rows: Int64, device: torch.device) -> Candidates:
    """Proposals for some rows, as tensors."""
    labels = torch.from_numpy(proposed.labels[rows].astype(np.int64)).to(device)
    return Candidates(labels, torch.from_numpy(proposed.scores[rows]).to(device))


def _added(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    if one is None or other is None:
        return other if one is None else one
    return one + other

"""Gradients of a step: shards of its rows on threads, or, among several processes, DistributedDataParallel.

On a CPU each shard of rows is processed by one thread, and gradients are added up in the order of the shards: the
result has the same bits for any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from longtail.config import thread_count
from longtail.errors import ParameterError
from longtail.kernels.types import Array, Float32, Int32, Int64
from longtail.learners.neural.batches import TokenRows, bucketed
from longtail.learners.neural.frozen import FrozenStates
from longtail.learners.neural.modules.encoder import dropout_generator
from longtail.learners.neural.modules.head import ScoredCandidates, Truth
from longtail.learners.neural.modules.network import Network
from longtail.learners.neural.optimising import Optimiser
from longtail.learners.neural.parallel import ProcessGroup
from longtail.learners.training.averaging import Weights
from longtail.learners.training.fit import TrainingStep
from longtail.runtime.pool import ThreadPool

if TYPE_CHECKING:
    from longtail.learners.neural.neural_classifier import NeuralClassifier


_SHARD = 16  # rows, on a CPU


class Proposed(NamedTuple):
    """Labels that the level above proposes for each row, -1 for none, with their log-probabilities."""

    labels: Int32
    scores: Float32


class TrainableNetwork:
    """A network with the rows and the optimiser that train it.

    The network is on the device where it is trained; `proposed` is None but for a level of a tree below the first. The
    settings are those of `learner`.
    """

    def __init__(
        self,
        network: Network,
        rows: TokenRows,
        Y: sp.csr_array,
        proposed: Proposed | None,
        learner: NeuralClassifier,
        group: ProcessGroup | None = None,
    ) -> None:
        self.network, self.rows, self.Y, self.settings = network, rows, Y, learner
        self.group = group or ProcessGroup()
        self.n_processes = self.group.size
        self.steps_per_epoch = max(1, -(-len(rows) // learner.batch_size))
        self.optimiser = Optimiser(network, learner, self.steps_per_epoch * learner.epochs)
        self._use_half = learner.precision == "bfloat16"
        self._proposed = proposed
        self._pool, self._threads = ThreadPool(), thread_count()
        self._distributed = self._in_group() if self.n_processes > 1 else None
        self._frozen: FrozenStates | None = None
        self._batches: list[Int64] = []

    def start_epoch(self, epoch: int) -> None:
        """Shuffle the rows into batches; the frozen layers run once, before the first epoch."""
        rng = np.random.default_rng([self.settings.random_state, epoch])
        self._batches = bucketed(self.rows.lengths, self.settings.batch_size, rng)
        is_alone = self.n_processes == 1 and self.network.device.type == "cpu"
        if self._frozen is None and is_alone and self.settings.cache_frozen and self.network.encoder.is_split:
            self._frozen = FrozenStates(self.network.encoder, self.rows, self._use_half)

    def training_step(self, step: int) -> TrainingStep:
        """Compute the gradients of a batch and take a step with the optimiser."""
        rows = self._batches[step % self.steps_per_epoch]
        loss, gradients = self._gradients(rows, step)
        return TrainingStep(loss, self.optimiser.take(gradients, step), len(rows))

    def weights(self) -> Weights:
        """Copy the trained parameters."""
        return [np.array(parameter.detach().cpu().numpy()) for parameter in self.optimiser.parameters]

    def load_weights(self, weights: Weights) -> None:
        """Set the trained parameters."""
        with torch.no_grad():
            for parameter, values in zip(self.optimiser.parameters, weights, strict=True):
                parameter.copy_(torch.from_numpy(np.array(values)))

    def state(self) -> list[Array]:
        """Return the trained parameters, then the state of the optimiser."""
        return [*self.weights(), *(np.asarray(tensor.cpu().numpy()) for tensor in self.optimiser.state())]

    def load_state(self, arrays: list[Array]) -> None:
        """Restore what `state` returned."""
        n = len(self.optimiser.parameters)
        self.load_weights(arrays[:n])
        device = self.network.device
        self.optimiser.load_state([torch.from_numpy(np.array(array)).to(device) for array in arrays[n:]])

    def divergence(self) -> ParameterError:
        """Return the error to raise when a loss is not finite."""
        advice = f"or head_learning_rate, {self.settings.head_learning_rate:g}, makes the training diverge: lower it"
        return ParameterError("learning_rate", self.settings.learning_rate, advice)

    def _in_group(self) -> DistributedDataParallel:
        """The network as all processes share it; a cluster without a true label in a step has no gradient.

        Tables, whose gradients are sparse, are shared by `ProcessGroup.mean_of_rows` instead: nccl can't.
        """
        tables = {id(table) for table in self.network.tables()}
        names = [name for name, part in self.network.named_parameters() if id(part) in tables]
        ignore: Any = DistributedDataParallel._set_params_and_buffers_to_ignore_for_model
        ignore(self.network, names)
        for table in self.network.tables():
            self.group.broadcast(table.data)
        return DistributedDataParallel(self.network, find_unused_parameters=True)

    def close(self) -> None:
        """Shut down the threads, and delete the states of the frozen layers."""
        self._pool.close()
        if self._frozen is not None:
            self._frozen.close()

    def _gradients(self, rows: Int64, step: int) -> tuple[float, list[Tensor | None]]:
        self.network.train()
        progress = (step // self.steps_per_epoch + 1) / self.settings.epochs
        if self._distributed is not None:
            return self._group_gradients(self._distributed, rows, step, progress)
        tasks: list[Callable[[], tuple[float, Sequence[Tensor | None]]]] = [
            partial(self._shard, shard, len(rows), step, number, progress)
            for number, shard in enumerate(self._shards(rows))
        ]
        loss = 0.0
        total: list[Tensor | None] = [None] * len(self.optimiser.parameters)
        for first in range(0, len(tasks), self._threads):  # so that no more gradients are held than threads
            for part, gradients in self._pool.all(tasks[first : first + self._threads]):
                loss += part
                total = [_added(one, other) for one, other in zip(total, gradients, strict=True)]
        return loss, total

    def _shard(
        self, rows: Int64, n: int, step: int, number: int, progress: float
    ) -> tuple[float, Sequence[Tensor | None]]:
        if self.network.device.type == "cpu":
            torch.set_num_threads(1)  # of this thread
        with dropout_generator(self._generator(step, number)):
            loss = self._loss(self.network, rows, progress) / n
        return float(loss.detach()), torch.autograd.grad(loss, self.optimiser.parameters, allow_unused=True)

    def _group_gradients(
        self, network: DistributedDataParallel, rows: Int64, step: int, progress: float
    ) -> tuple[float, list[Tensor | None]]:
        """Gradients of this process's rows, averaged over the processes: the mean is that over all rows."""
        own = rows[self.group.rank :: self.group.size]
        if len(rows) < self.group.size:  # some processes would have none: all take them all
            own, weight = rows, 1.0 / len(rows)
        else:
            weight = self.group.size / len(rows)
        total, shards = 0.0, self._shards(own)
        with dropout_generator(self._generator(step, self.group.rank)):
            for shard in shards:
                with nullcontext() if shard is shards[-1] else network.no_sync():
                    loss = self._loss(network, shard, progress) * weight
                    loss.backward()  # type: ignore[no-untyped-call]
                total += float(loss.detach())
        tables = {id(table) for table in self.network.tables()}
        gradients = [
            self.group.mean_of_rows(parameter) if id(parameter) in tables else parameter.grad
            for parameter in self.optimiser.parameters
        ]
        return self.group.mean(total), gradients

    def _shards(self, rows: Int64) -> list[Int64]:
        """Parts of a batch: micro-batches, by default of 16 rows on a CPU and of all rows on a GPU."""
        size = self.settings.micro_batch_size or (_SHARD if self.network.device.type == "cpu" else len(rows))
        return [rows[first : first + size] for first in range(0, len(rows), size)]

    def _loss(self, network: Any, rows: Int64, progress: float) -> Tensor:
        device = self.network.device
        tokens, mask = self.rows.batch(rows, self.network.encoder.padding)
        own = self.Y[rows]
        truth = Truth(torch.from_numpy(own.indptr.astype(np.int64)), torch.from_numpy(own.indices.astype(np.int64)))
        truth = Truth(*(part.to(device) for part in truth))
        read = tokens.to(device) if self._frozen is None else self._frozen.batch(rows)
        with torch.autocast(device.type, torch.bfloat16, enabled=self._use_half):
            candidates = None if self._proposed is None else candidates_of(self._proposed, rows, device)
            found: Tensor = network(read, mask.to(device), truth, progress, candidates)
        return found.float()

    def _generator(self, step: int, part: int) -> torch.Generator:
        seed = np.random.SeedSequence([self.settings.random_state, step, part]).generate_state(1, np.uint64)[0]
        return torch.Generator(self.network.device).manual_seed(int(seed) >> 1)


def candidates_of(proposed: Proposed, rows: Int64, device: torch.device) -> ScoredCandidates:
    """Proposals for some rows, as tensors."""
    labels = torch.from_numpy(proposed.labels[rows].astype(np.int64)).to(device)
    return ScoredCandidates(labels, torch.from_numpy(proposed.scores[rows]).to(device))


def _added(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    if one is None or other is None:
        return other if one is None else one
    return one + other

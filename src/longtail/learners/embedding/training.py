"""Training of embeddings: algorithms 1 and 2 of Guo et al., one batch per step, the same bits for any thread count.

A batch is split into shards of rows. Torch computes the gradients of the shards, one thread each; kernels update the
tables of features and labels.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp

from longtail.errors import ParameterError
from longtail.kernels.arrays import unit_rows
from longtail.kernels.types import Array, Float32, Float64, Int32, Int64
from longtail.learners.embedding.adjacency import LabelGraph
from longtail.learners.embedding.bags import (
    Bags,
    ByFeature,
    count_occurring,
    sample_entries,
    sort_by_feature,
    step_features,
    step_units,
    sum_bags,
)
from longtail.learners.embedding.losses import EmbeddingScores, embedding_loss
from longtail.learners.embedding.network import FIRST_SPREAD, column_squares, embed, first_parameters
from longtail.learners.embedding.regularisers import BETWEEN_LABELS, gravity
from longtail.learners.training.averaging import Weights
from longtail.learners.training.fit import TrainingStep
from longtail.learners.training.row_adam import AdamTable, StepSize, adam_table
from longtail.learners.training.schedule import cosine_with_warmup
from longtail.runtime.checkpoint import as_numbers, from_numbers
from longtail.runtime.pool import ThreadPool

if TYPE_CHECKING:
    from torch import Tensor

    from longtail.learners.embedding.embedding_classifier import EmbeddingClassifier

_SHARD = 256  # rows
_BAGS_AT_ONCE, _FEATURES_AT_ONCE, _LABELS_AT_ONCE = 64, 1024, 512
_REGULARISED_LABELS = 1024  # per step
_WARMUP_STEPS = 20
_FINAL_LEARNING_RATE = 0.02  # as a share of the highest one
_WEIGHT_PER_LABEL = 0.1  # of the regulariser

Optimiser = Literal["adam", "sgd"]


class _Batch(NamedTuple):
    """Rows of a step, and the labels that are scored in it."""

    bags: Bags
    by_feature: ByFeature
    labels: Int32  # ascending
    truth: sp.csr_array  # rows by labels of the step
    sampled: Int64  # place in `labels` of one true label per row, -1 for none
    weights: Float32  # of each label in the regulariser


class _Gradients(NamedTuple):
    """Loss of a shard, and its gradients with respect to bag sums, unit label vectors and layers."""

    loss: float
    regularisation: float
    sums: Float32
    units: Float32
    layers: dict[str, Float32]


class _Regularisation(NamedTuple):
    """Value of the regulariser, and its gradient with respect to the unit vectors of some labels of the step."""

    value: float
    labels: Int64
    units: Float32


class TrainableEmbedding:
    """The tables and layers of an embedding, with the rows and the optimiser that train them.

    `X` has the scaled rows, `costs` the cost of each label where it is true; the settings are those of `learner`.
    """

    n_processes = 1

    def __init__(self, X: sp.csr_array, Y: sp.csr_array, costs: Float32, learner: EmbeddingClassifier) -> None:
        self.X, self.Y, self.costs, self.settings = X, Y, costs, learner
        self.widths = learner._widths()
        self.steps_per_epoch = max(1, round(X.shape[0] / learner.batch_size))
        weight = learner.regulariser_weight
        self.regulariser_weight = float(_WEIGHT_PER_LABEL * Y.shape[1] if weight is None else weight)
        self._seen = np.unique(Y.indices).astype(np.int32)
        has_graph = learner.regulariser in ("glas", "laplacian")
        self._graph = LabelGraph(Y, learner.adjacency) if has_graph else None
        self._counts = np.zeros(X.shape[1], np.int64)
        self._pool = ThreadPool()
        rng = np.random.default_rng(learner.random_state)
        features = rng.standard_normal((X.shape[1], self.widths[0]), np.float32) * np.float32(FIRST_SPREAD)
        labels = rng.standard_normal((Y.shape[1], self.widths[-1]), np.float32) / np.float32(np.sqrt(self.widths[-1]))
        self.features, self.labels = AdamTable.untrained(features), AdamTable.untrained(labels)
        self.layers = first_parameters(X.shape[1], self.widths, rng)
        self._rng, self._batches = rng, list[Int64]()
        self._squares = np.empty(0)  # squared norms of the columns of the feature table

    def start_epoch(self, epoch: int) -> None:
        """Shuffle the rows, and compute the norms that steps update."""
        self._rng = np.random.default_rng([self.settings.random_state, epoch])
        self._batches = np.array_split(self._rng.permutation(self.X.shape[0]), self.steps_per_epoch)
        self._squares = column_squares(self.features.values)

    def training_step(self, step: int) -> TrainingStep:
        """Compute the gradients of a batch, and update the tables and layers."""
        rows = self._batches[step % self.steps_per_epoch]
        return self._step(self._sample_batch(rows, self._rng), step)

    def weights(self) -> Weights:
        """Copy the values; labels as unit vectors, because their norms have no effect and mustn't weigh in a mean."""
        layers = (table.values.copy() for table in self.layers.values())
        return [self.features.values.copy(), unit_rows(self.labels.values), *layers]

    def state(self) -> list[Array]:
        """Return the generator, the norms and all tables with their moments."""
        return [
            as_numbers(self._rng.bit_generator.state),
            self._squares,
            *(a for table in self._tables() for a in table),
        ]

    def load_state(self, arrays: list[Array]) -> None:
        """Restore what `state` returned."""
        self._rng.bit_generator.state = from_numbers(arrays[0])
        self._squares = arrays[1]
        own = (array for table in self._tables() for array in table)
        for array, saved in zip(own, arrays[2:], strict=True):
            array[...] = saved

    def divergence(self) -> ParameterError:
        """Return the error to raise when a loss is not finite."""
        advice = "makes the training diverge: lower it"
        if self.settings.regulariser:
            advice += f", or regulariser_weight, which is {self.regulariser_weight:g}"
        return ParameterError("learning_rate", self.settings.learning_rate, advice)

    def close(self) -> None:
        """Shut down the threads."""
        self._pool.close()

    def _tables(self) -> list[AdamTable]:
        return [self.features, self.labels, *self.layers.values()]

    def _step_size(self, learning_rate: float, step: int) -> StepSize:
        steps = self.settings.epochs * self.steps_per_epoch
        factor = cosine_with_warmup(step, steps, _WARMUP_STEPS, _FINAL_LEARNING_RATE)
        return StepSize.of(learning_rate * factor, step, self.settings.optimiser == "adam")

    def _sample_batch(self, rows: Int64, rng: np.random.Generator) -> _Batch:
        """Sample a true label per row, further labels of the step, and the features that dropout keeps."""
        own = self.Y[rows]
        counts = np.diff(own.indptr)
        chosen = own.indptr[:-1] + (rng.random(len(rows)) * counts).astype(np.int64)
        # Labels of the step: those of its rows, and a uniform sample of all.
        n_negatives = min(self.settings.n_negatives, len(self._seen))
        negatives = self._seen[rng.permutation(len(self._seen))[:n_negatives]]
        labels = np.unique(np.concatenate([own.indices.astype(np.int32), negatives]))
        uniform = negatives if n_negatives else rng.permutation(labels)
        places = np.searchsorted(labels, own.indices).astype(np.int64)
        padded = np.append(places, -1)  # for rows without labels at the end
        sampled = np.where(counts > 0, padded[np.minimum(chosen, own.nnz)], -1)
        # How often each label counts in the regulariser.
        if self.settings.sampling == "rows":
            weights = np.bincount(sampled[sampled >= 0], minlength=len(labels)).astype(np.float32)
        else:
            weights = np.zeros(len(labels), np.float32)
            weights[np.searchsorted(labels, uniform[:_REGULARISED_LABELS])] = 1
        truth = sp.csr_array((np.ones(own.nnz, np.float32), places, own.indptr), shape=(len(rows), len(labels)))
        return _Batch(*self._bags(rows, rng), labels, truth, sampled, weights)

    def _bags(self, rows: Int64, rng: np.random.Generator) -> tuple[Bags, ByFeature]:
        """Rows after dropout, by row and by feature."""
        X = self.X
        room = int((X.indptr[rows + 1] - X.indptr[rows]).sum())
        begin = np.empty(len(rows) + 1, np.int64)
        indices, values = np.empty(room, np.int32), np.empty(room, np.float32)
        state, keep = rng.integers(2**64, size=1, dtype=np.uint64), 1 - float(self.settings.input_dropout)
        count = sample_entries(X.indptr, X.indices, X.data, rows, keep, state, begin, indices, values)
        bags = Bags(begin, indices[:count], values[:count])
        found = count_occurring(bags, self._counts)
        by_feature = ByFeature(
            np.empty(found, np.int32), np.empty(found + 1, np.int64), np.empty(count, np.int32),
            np.empty(count, np.float32),
        )  # fmt: skip
        sort_by_feature(bags, self._counts, by_feature)
        return bags, by_feature

    def _step(self, batch: _Batch, step: int) -> TrainingStep:
        import torch

        n = len(batch.sampled)
        sums = np.empty((n, self.widths[0]), np.float32)
        self._pool.each(
            lambda first, last: sum_bags(*batch.bags, self.features.values, first, last, sums[first:last]),
            n,
            _BAGS_AT_ONCE,
        )
        rows = self.labels.values[batch.labels]
        units = torch.from_numpy(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-15))
        norms = torch.from_numpy(np.sqrt(np.maximum(self._squares, 1e-30)).astype(np.float32))
        shards, regulariser = self._gradients(batch, sums, units, norms)
        # Gradients are added up in the order of the shards, whichever thread computed them.
        unit_gradients = np.sum([shard.units for shard in shards], axis=0)
        unit_gradients[regulariser.labels] += regulariser.units
        sum_gradients = np.concatenate([shard.sums for shard in shards])
        size = self._step_size(self.settings.learning_rate, step)
        total = self._update_tables(batch, sum_gradients, unit_gradients, size, step)
        for name, table in self.layers.items():
            gradient = np.sum([shard.layers[name] for shard in shards], axis=0)
            total += float(np.square(gradient).sum())
            adam_table(table, gradient, size)
        return TrainingStep(
            sum(shard.loss for shard in shards),
            total**0.5,
            n,
            regulariser.value + sum(shard.regularisation for shard in shards),
        )

    def _gradients(
        self, batch: _Batch, sums: Float32, units: Tensor, norms: Tensor
    ) -> tuple[list[_Gradients], _Regularisation]:
        """Gradients of all shards of a batch, and of the regulariser between labels, computed in parallel."""
        n = len(batch.sampled)
        tasks: list[Callable[[], Any]] = [partial(self._regularise, batch, units)]
        for first in range(0, n, _SHARD):
            tasks.append(partial(self._shard, batch, sums, units, norms, slice(first, min(first + _SHARD, n))))
        regularised, *shards = self._pool.all(tasks)
        return shards, regularised

    def _shard(self, batch: _Batch, sums: Float32, units: Tensor, norms: Tensor, part: slice) -> _Gradients:
        """Loss and gradients of some rows of a batch."""
        import torch

        torch.set_num_threads(1)
        settings, n = self.settings, len(batch.sampled)
        if not len(batch.labels):  # rows without labels, and none sampled
            none = {name: np.zeros_like(table.values) for name, table in self.layers.items()}
            return _Gradients(0.0, 0.0, np.zeros_like(sums[part]), np.zeros(tuple(units.shape), np.float32), none)
        leaf = torch.from_numpy(sums[part]).requires_grad_()
        layers = {name: torch.from_numpy(table.values).requires_grad_() for name, table in self.layers.items()}
        labels = units.detach().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=settings.precision == "bfloat16"):
            scores = embed(leaf, norms, layers, len(self.widths), settings.activation) @ labels.T
        scored = EmbeddingScores(
            scores.float(),
            torch.from_numpy(batch.truth[part].toarray()),
            torch.from_numpy(batch.sampled[part]),
            torch.from_numpy(self.costs[batch.labels]),
            layers["scale"].exp(),
            layers["shift"],
            float(settings.margin),
            settings.n_hard_negatives,
        )
        loss = embedding_loss(settings.loss, scored).sum() / n
        regularisation = torch.zeros(())
        if settings.regulariser == "gravity" and batch.weights.any():
            regularisation = gravity(scored.scores, torch.from_numpy(batch.weights)) / n
        (loss + self.regulariser_weight * regularisation).backward()  # type: ignore[no-untyped-call]
        return _Gradients(
            float(loss.detach()),
            float(regularisation.detach()),
            _gradient(leaf),
            _gradient(labels),
            {name: _gradient(tensor) for name, tensor in layers.items()},
        )

    def _regularise(self, batch: _Batch, units: Tensor) -> _Regularisation:
        """Value and gradient of a regulariser between labels."""
        import torch

        torch.set_num_threads(1)
        name, labels = self.settings.regulariser, np.flatnonzero(batch.weights)
        if name not in BETWEEN_LABELS or not self.regulariser_weight or not len(labels):
            return _Regularisation(0.0, labels[:0], np.empty((0, units.shape[1]), np.float32))
        leaf = units[torch.from_numpy(labels)].requires_grad_()
        near = torch.from_numpy(self._graph.among(batch.labels[labels])) if self._graph else torch.zeros(())
        value = BETWEEN_LABELS[name](leaf @ leaf.T, near, torch.from_numpy(batch.weights[labels]))
        (self.regulariser_weight * value).backward()  # type: ignore[no-untyped-call]
        return _Regularisation(float(value.detach()), labels, _gradient(leaf))

    def _update_tables(
        self, batch: _Batch, sum_gradients: Float32, unit_gradients: Float32, size: StepSize, step: int
    ) -> float:
        """Update the rows of both tables that the batch uses, and return their squared gradient norm."""
        own = self.settings.label_learning_rate
        label_size = self._step_size(self.settings.learning_rate if own is None else own, step)

        def features(first: int, last: int) -> tuple[float, Float64]:
            change = np.zeros(sum_gradients.shape[1])
            return step_features(batch.by_feature, sum_gradients, self.features, size, first, last, change), change

        def labels(first: int, last: int) -> float:
            total: float = step_units(batch.labels, unit_gradients, self.labels, label_size, first, last)
            return total

        done = self._pool.each(features, len(batch.by_feature.features), _FEATURES_AT_ONCE)
        for _, change in done:
            self._squares += change
        return sum(total for total, _ in done) + sum(self._pool.each(labels, len(batch.labels), _LABELS_AT_ONCE))


def _gradient(tensor: Tensor) -> Float32:
    """Gradient of a leaf; 0 where the loss doesn't depend on it."""
    if tensor.grad is None:
        return np.zeros(tuple(tensor.shape), np.float32)
    found: Any = tensor.grad.numpy()
    return np.asarray(found, np.float32)

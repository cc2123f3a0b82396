"""Training of embeddings: algorithms 1 and 2 of the paper, a batch at a time, with the same bits for any thread count.

A batch is cut into shards of rows; torch works on the shards, each with one thread, and kernels on the two tables.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from longtail.engine.bags import (
    Bags,
    ByFeature,
    Pace,
    Table,
    count_occurring,
    draw_entries,
    sort_by_feature,
    step_all,
    step_features,
    step_units,
    sum_bags,
)
from longtail.engine.pool import Crew
from longtail.learners.embedding.adjacency import Adjacency, LabelGraph
from longtail.learners.embedding.losses import LOSSES, LossName, Step
from longtail.learners.embedding.network import (
    FIRST_SPREAD,
    Activation,
    Parameters,
    column_squares,
    embed,
    first_parameters,
)
from longtail.learners.embedding.regularisers import BETWEEN_LABELS, Regulariser, Sampling, gravity

if TYPE_CHECKING:
    from torch import Tensor

_SHARD = 256  # rows
_BAGS_AT_ONCE, _FEATURES_AT_ONCE, _LABELS_AT_ONCE = 64, 1024, 512
_REGULARISED = 1024  # labels that the regulariser looks at
_WARM_UP, _LEAST = 20, 0.02  # steps to the full rate, and the share of it that is left at the end


Optimiser = Literal["adam", "sgd"]


@dataclass(frozen=True)
class Settings:
    """What training depends on besides the data; see `EmbeddingClassifier`."""

    widths: tuple[int, ...]
    activation: Activation
    loss: LossName
    margin: float
    mined: int
    negatives: int
    regulariser: Regulariser | None
    strength: float
    sampling: Sampling
    adjacency: Adjacency
    keep: float
    batch: int
    passes: int
    optimiser: Optimiser
    rate: float
    label_rate: float
    precision: str
    seed: int


class State(NamedTuple):
    """Everything that training changes."""

    features: Table
    labels: Table
    parameters: Parameters

    def tables(self) -> Iterator[Table]:
        """All tables, in a fixed order."""
        yield from (self.features, self.labels, *self.parameters.values())


class Progress(NamedTuple):
    """How training went, over some steps."""

    loss: float
    regularisation: float
    gradient_norm: float
    rows_per_second: float


@dataclass
class Within:
    """Where a pass is: steps that are done, the state of what is drawn next, and what was worked out at its start."""

    done: int = 0
    drawn: Any = None
    squares: npt.NDArray[np.float64] = field(default_factory=lambda: np.empty(0))


class _Batch(NamedTuple):
    """Rows of a step, and the labels that are scored in it."""

    bags: Bags
    by_feature: ByFeature
    labels: npt.NDArray[np.int32]  # of the step
    truth: sp.csr_array  # rows by labels of the step
    chosen: npt.NDArray[np.int64]  # place of one label of each row, -1 for none
    weights: npt.NDArray[np.float32]  # of each label in the regulariser


class Trainer:
    """Trains embeddings of rows and labels pass by pass.

    Parameters
    ----------
    X, Y : csr_array
        Rows, scaled as they should be, and labels.
    costs : ndarray of float32
        Of each label where it is true.
    settings : Settings
    threads : int
    """

    def __init__(
        self, X: sp.csr_array, Y: sp.csr_array, costs: npt.NDArray[np.float32], settings: Settings, threads: int
    ) -> None:
        self.settings = settings
        self.X, self.Y, self.costs = X, Y, costs
        self._seen = np.unique(Y.indices).astype(np.int32)
        self._graph = LabelGraph(Y, settings.adjacency) if settings.regulariser in ("glas", "laplacian") else None
        self._counts = np.zeros(X.shape[1], np.int64)
        self._crew = Crew(threads)
        self.batches = max(1, round(X.shape[0] / settings.batch))

    def begin(self) -> State:
        """State before the first pass."""
        rng = np.random.default_rng(self.settings.seed)
        widths = self.settings.widths
        features = rng.standard_normal((self.X.shape[1], widths[0]), np.float32) * np.float32(FIRST_SPREAD)
        labels = rng.standard_normal((self.Y.shape[1], widths[-1]), np.float32) / np.float32(np.sqrt(widths[-1]))
        return State(Table.begin(features), Table.begin(labels), first_parameters(self.X.shape[1], widths, rng))

    def steps(self, state: State, number: int, within: Within | None = None) -> Iterator[Progress]:
        """Go over all rows once, changing the state; `number` is that of the pass, from 0 on.

        What is drawn depends on the seed and that number alone. `within`, if it is given, tells where in the pass to
        go on, and always tells where the pass is.
        """
        rng = np.random.default_rng([self.settings.seed, number])
        within = within or Within()
        order = rng.permutation(self.X.shape[0])
        if within.done:
            rng.bit_generator.state = within.drawn
        else:
            within.squares = column_squares(state.features.values)
        for place, rows in enumerate(np.array_split(order, self.batches)):
            if place < within.done:
                continue
            start = time.perf_counter()
            turn = number * self.batches + place + 1
            loss, regularisation, total = self._step(state, self._drawn(rows, rng), within.squares, turn)
            within.done, within.drawn = place + 1, rng.bit_generator.state
            yield Progress(loss, regularisation, total**0.5, len(rows) / (time.perf_counter() - start))

    def close(self) -> None:
        """Let the threads go."""
        self._crew.close()

    def _pace(self, rate: float, turn: int) -> Pace:
        """Length of a step: it rises over the first steps, and falls to almost nothing as half a cosine."""
        total = self.settings.passes * self.batches
        falling = 0.5 * (1 + np.cos(np.pi * turn / (total + 1)))
        share = max(falling, _LEAST) * min(1.0, turn / min(_WARM_UP, total))
        return Pace.of(rate * share, turn, self.settings.optimiser == "adam")

    def _drawn(self, rows: npt.NDArray[np.int64], rng: np.random.Generator) -> _Batch:
        own = self.Y[rows]
        counts = np.diff(own.indptr)
        drawn = own.indptr[:-1] + (rng.random(len(rows)) * counts).astype(np.int64)
        labels, even = self._labels_of(own, rng)
        places = np.searchsorted(labels, own.indices).astype(np.int64)
        padded = np.append(places, -1)  # for rows without labels at the end
        chosen = np.where(counts > 0, padded[np.minimum(drawn, own.nnz)], -1)
        return _Batch(
            *self._bags(rows, rng),
            labels,
            sp.csr_array((np.ones(own.nnz, np.float32), places, own.indptr), shape=(len(rows), len(labels))),
            chosen,
            self._regularised(chosen, labels, even),
        )

    def _regularised(
        self, chosen: npt.NDArray[np.int64], labels: npt.NDArray[np.int32], even: npt.NDArray[np.int32]
    ) -> npt.NDArray[np.float32]:
        """How often each label of a step counts in the regulariser."""
        if self.settings.sampling == "rows":
            return np.bincount(chosen[chosen >= 0], minlength=len(labels)).astype(np.float32)
        weights = np.zeros(len(labels), np.float32)
        weights[np.searchsorted(labels, even[:_REGULARISED])] = 1
        return weights

    def _labels_of(
        self, own: sp.csr_array, rng: np.random.Generator
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Labels of a step, rising: those of its rows, and others drawn at random; and those drawn, in random order.

        Where none are drawn, the labels of the rows stand for them.
        """
        seen, wanted = self._seen, min(self.settings.negatives, len(self._seen))
        drawn = seen[rng.permutation(len(seen))[:wanted]]
        labels = np.unique(np.concatenate([own.indices.astype(np.int32), drawn]))
        return labels, drawn if wanted else rng.permutation(labels)

    def _bags(self, rows: npt.NDArray[np.int64], rng: np.random.Generator) -> tuple[Bags, ByFeature]:
        X = self.X
        room = int((X.indptr[rows + 1] - X.indptr[rows]).sum())
        begin = np.empty(len(rows) + 1, np.int64)
        indices, values = np.empty(room, np.int32), np.empty(room, np.float32)
        seed = rng.integers(1, 2**63, dtype=np.uint64)
        count = draw_entries(X.indptr, X.indices, X.data, rows, self.settings.keep, seed, begin, indices, values)
        bags = Bags(begin, indices[:count], values[:count])
        found = count_occurring(bags, self._counts)
        sorted_ = ByFeature(
            np.empty(found, np.int32), np.empty(found + 1, np.int64), np.empty(count, np.int32),
            np.empty(count, np.float32),
        )  # fmt: skip
        sort_by_feature(bags, self._counts, sorted_)
        return bags, sorted_

    def _step(
        self, state: State, batch: _Batch, squares: npt.NDArray[np.float64], turn: int
    ) -> tuple[float, float, float]:
        import torch

        n, (features, labels, parameters) = len(batch.chosen), state
        sums = np.empty((n, features.values.shape[1]), np.float32)
        self._crew.each(
            lambda first, last: sum_bags(*batch.bags, features.values, first, last, sums[first:last]), n, _BAGS_AT_ONCE
        )
        rows = labels.values[batch.labels]
        units = torch.from_numpy(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-15))
        lengths = torch.from_numpy(np.sqrt(np.maximum(squares, 1e-30)).astype(np.float32))
        shards, regulariser = self._gradients(parameters, batch, sums, units, lengths)
        loss = sum(shard.loss for shard in shards)
        regularisation = regulariser.value + sum(shard.regularisation for shard in shards)
        by_units = np.sum([shard.by_units for shard in shards], axis=0)
        by_units[regulariser.places] += regulariser.by_units
        slopes = np.concatenate([shard.by_sums for shard in shards])
        pace, label_pace = (self._pace(rate, turn) for rate in (self.settings.rate, self.settings.label_rate))
        total = self._update(state, batch, slopes, by_units, squares, pace, label_pace)
        for name, table in parameters.items():
            gradient = np.sum([shard.by_parameters[name] for shard in shards], axis=0)
            total += float(np.square(gradient).sum())
            step_all(table, gradient, pace)
        return loss, regularisation, total

    def _gradients(
        self,
        parameters: Parameters,
        batch: _Batch,
        sums: npt.NDArray[np.float32],
        units: Tensor,
        lengths: Tensor,
    ) -> tuple[list[_Gradients], _Regularised]:
        """Gradients of each shard of a batch, and of the regulariser, which is worked out beside them."""
        n = len(batch.chosen)
        tasks: list[Callable[[], Any]] = [partial(self._regularise, batch, units)]
        for first in range(0, n, _SHARD):
            last = min(first + _SHARD, n)
            tasks.append(partial(self._shard, parameters, batch, sums, units, lengths, first, last))
        regularised, *shards = self._crew.all(tasks)
        return shards, regularised

    def _shard(
        self,
        parameters: Parameters,
        batch: _Batch,
        sums: npt.NDArray[np.float32],
        units: Tensor,
        lengths: Tensor,
        first: int,
        last: int,
    ) -> _Gradients:
        """Loss and gradients of some rows of a batch."""
        import torch

        torch.set_num_threads(1)
        settings, n = self.settings, len(batch.chosen)
        if not len(batch.labels):  # rows without labels, and none drawn
            none = {name: np.zeros_like(table.values) for name, table in parameters.items()}
            return _Gradients(0.0, 0.0, np.zeros_like(sums[first:last]), np.zeros(tuple(units.shape), np.float32), none)
        leaf = torch.from_numpy(sums[first:last]).requires_grad_()
        own = {name: torch.from_numpy(table.values).requires_grad_() for name, table in parameters.items()}
        labels = units.detach().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=settings.precision == "bfloat16"):
            scores = embed(leaf, lengths, own, len(settings.widths), settings.activation) @ labels.T
        step = Step(
            scores.float(),
            torch.from_numpy(batch.truth[first:last].toarray()),
            torch.from_numpy(batch.chosen[first:last]),
            torch.from_numpy(self.costs[batch.labels]),
            own["scale"].exp(),
            own["shift"],
            settings.margin,
            settings.mined,
        )
        loss = LOSSES[settings.loss](step) / n
        regularisation = torch.zeros(())
        if settings.regulariser == "gravity" and batch.weights.any():
            regularisation = gravity(step.scores, torch.from_numpy(batch.weights)) / n
        (loss + settings.strength * regularisation).backward()  # type: ignore[no-untyped-call]
        return _Gradients(
            float(loss.detach()),
            float(regularisation.detach()),
            _gradient(leaf),
            _gradient(labels),
            {name: _gradient(tensor) for name, tensor in own.items()},
        )

    def _regularise(self, batch: _Batch, units: Tensor) -> _Regularised:
        """Value of the regulariser, and its gradient by the unit vectors of the labels that were drawn."""
        import torch

        torch.set_num_threads(1)
        settings, drawn = self.settings, np.flatnonzero(batch.weights)
        if settings.regulariser not in BETWEEN_LABELS or not settings.strength or not len(drawn):
            return _Regularised(0.0, drawn[:0], np.empty((0, units.shape[1]), np.float32))
        leaf = units[torch.from_numpy(drawn)].requires_grad_()
        near = torch.from_numpy(self._graph.among(batch.labels[drawn])) if self._graph else torch.zeros(())
        value = BETWEEN_LABELS[settings.regulariser](leaf @ leaf.T, near, torch.from_numpy(batch.weights[drawn]))
        (settings.strength * value).backward()  # type: ignore[no-untyped-call]
        return _Regularised(float(value.detach()), drawn, _gradient(leaf))

    def _update(
        self,
        state: State,
        batch: _Batch,
        slopes: npt.NDArray[np.float32],
        by_units: npt.NDArray[np.float32],
        squares: npt.NDArray[np.float64],
        pace: Pace,
        label_pace: Pace,
    ) -> float:
        """Take the step with both tables; the squared length of their gradients."""

        def features(first: int, last: int) -> tuple[float, npt.NDArray[np.float64]]:
            change = np.zeros(slopes.shape[1])
            return step_features(batch.by_feature, slopes, state.features, pace, first, last, change), change

        def labels(first: int, last: int) -> float:
            total: float = step_units(batch.labels, by_units, state.labels, label_pace, first, last)
            return total

        done = self._crew.each(features, len(batch.by_feature.features), _FEATURES_AT_ONCE)
        for _, change in done:
            squares += change
        return sum(total for total, _ in done) + sum(self._crew.each(labels, len(batch.labels), _LABELS_AT_ONCE))


class _Gradients(NamedTuple):
    loss: float
    regularisation: float
    by_sums: npt.NDArray[np.float32]
    by_units: npt.NDArray[np.float32]
    by_parameters: dict[str, npt.NDArray[np.float32]]


class _Regularised(NamedTuple):
    value: float
    places: npt.NDArray[np.int64]
    by_units: npt.NDArray[np.float32]


def _gradient(tensor: Tensor) -> npt.NDArray[np.float32]:
    """Gradient of a leaf; 0 where the loss doesn't depend on it."""
    if tensor.grad is None:
        return np.zeros(tuple(tensor.shape), np.float32)
    found: Any = tensor.grad.numpy()
    return np.asarray(found, np.float32)

"""Averages of a model's weights over several evaluations (stochastic weight averaging)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, Self

import numpy as np

from longtail.kernels.types import Array

Weights = list[Array]


class WeightAverage(Protocol):
    """An immutable average of weights, extended at each evaluation."""

    @property
    def count(self) -> int:
        """Number of averaged weights."""

    def after(self, weights: Weights, epoch: int) -> Self:
        """Return the average that includes the weights of an evaluation in an epoch."""

    def mean(self) -> Weights | None:
        """Return the averaged weights, None before the first ones."""

    def arrays(self) -> Weights:
        """Return all arrays to save in a checkpoint."""

    def restored(self, count: int, arrays: Sequence[Array]) -> Self:
        """Return the average that had this count and these arrays."""


@dataclass(frozen=True)
class WindowAverage:
    """Mean of the weights at the last `size` evaluations."""

    size: int
    window: tuple[Weights, ...] = ()

    @property
    def count(self) -> int:
        """Number of weights in the window."""
        return len(self.window)

    def after(self, weights: Weights, epoch: int) -> WindowAverage:
        """Append weights, and drop the oldest ones where there are more than `size`."""
        return WindowAverage(self.size, (*self.window, weights)[-self.size :])

    def mean(self) -> Weights | None:
        """Return the mean over the window."""
        if len(self.window) < 2:
            return self.window[0] if self.window else None
        return [np.asarray(np.mean(arrays, axis=0, dtype=np.float32)) for arrays in zip(*self.window, strict=True)]

    def arrays(self) -> Weights:
        """Return all weights of the window, one after the other."""
        return [array for weights in self.window for array in weights]

    def restored(self, count: int, arrays: Sequence[Array]) -> WindowAverage:
        """Split the arrays into `count` weights again."""
        n = len(arrays) // max(count, 1)
        return WindowAverage(self.size, tuple(list(arrays[i * n : (i + 1) * n]) for i in range(count)))


@dataclass(frozen=True)
class RunningAverage:
    """Running mean of the weights at all evaluations from epoch `first_epoch` on."""

    first_epoch: int
    count: int = 0
    running: Weights = field(default_factory=list)

    def after(self, weights: Weights, epoch: int) -> RunningAverage:
        """Update the mean with new weights; those of earlier epochs are ignored."""
        if epoch < self.first_epoch:
            return self
        n = self.count + 1
        if n > 1:
            weights = [mean + (new - mean) / n for mean, new in zip(self.running, weights, strict=True)]
        return RunningAverage(self.first_epoch, n, weights)

    def mean(self) -> Weights | None:
        """Return the running mean."""
        return self.running or None

    def arrays(self) -> Weights:
        """Return the running mean."""
        return self.running

    def restored(self, count: int, arrays: Sequence[Array]) -> RunningAverage:
        """Return the average with this mean."""
        return RunningAverage(self.first_epoch, count, list(arrays))

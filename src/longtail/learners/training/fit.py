"""The fit loop: epochs of steps, evaluations on held-out rows, early stopping, averaged weights and resuming."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from longtail.errors import Interrupted, ParameterError
from longtail.kernels.types import Array
from longtail.learners.training.averaging import WeightAverage, Weights
from longtail.runtime.checkpoint import Checkpoint
from longtail.runtime.progress import Advance, progress_bar
from longtail.runtime.signals import HeldSignals, held_signals

HISTORY = ("loss", "regularisation", "gradient_norm", "rows_per_second", "validation")

_SAVE_EVERY = 600.0  # seconds


class TrainingStep(NamedTuple):
    """Measurements of one step."""

    loss: float
    gradient_norm: float
    rows: int
    regularisation: float = 0.0


class Trainable(Protocol):
    """A model that `fit` trains; it holds its weights, its optimiser and its rows."""

    steps_per_epoch: int
    n_processes: int
    """Processes that train the model together."""

    def start_epoch(self, epoch: int) -> None:
        """Shuffle the rows; all randomness depends on the seed and the epoch."""

    def training_step(self, step: int) -> TrainingStep:
        """Take a step, counted from 0 over all epochs."""

    def weights(self) -> Weights:
        """Return a copy of the weights, as they are averaged and evaluated."""

    def state(self) -> list[Array]:
        """Return all that steps change, to save in a checkpoint."""

    def load_state(self, arrays: list[Array]) -> None:
        """Restore what `state` returned; the epoch of the state has been started."""

    def divergence(self) -> ParameterError:
        """Return the error to raise when a loss is not finite."""


@dataclass(frozen=True)
class Schedule:
    """Length of a training: epochs, evaluations per epoch, and evaluations without progress until it stops early."""

    epochs: int
    patience: int
    evals_per_epoch: int = 1


class FitResult(NamedTuple):
    """The best weights on held-out rows, or the last ones without such rows, and the history of all evaluations."""

    weights: Weights
    history: dict[str, list[float]]


def fit(
    model: Trainable,
    schedule: Schedule,
    average: WeightAverage,
    evaluate: Callable[[Weights], float] | None,
    checkpoint: Checkpoint,
    description: str,
) -> FitResult:
    """Train a model to the last epoch, or until the evaluations stop improving.

    Parameters
    ----------
    model : Trainable
    schedule : Schedule
    average : WeightAverage
        Its mean is evaluated and returned instead of the weights of a single step.
    evaluate : callable or None
        Score of weights on held-out rows, higher is better.
    checkpoint : Checkpoint
        Where training is saved after every evaluation, every ten minutes and on Ctrl-C or SIGTERM, and resumed from.
    description : str
        For the progress bar.
    """
    loop = _FitLoop(model, schedule, average, evaluate, checkpoint)
    loop.resume()
    loop.run(description)
    columns = np.array(loop.history).T.tolist() if loop.history else [[] for _ in HISTORY]
    return FitResult(loop.best or loop.average.mean() or model.weights(), dict(zip(HISTORY, columns, strict=True)))


def time_steps(model: Trainable, steps: int) -> list[float]:
    """Take the first steps of a training, and return the seconds per row of each."""
    seconds = []
    for step in range(steps):
        if step % model.steps_per_epoch == 0:
            model.start_epoch(step // model.steps_per_epoch)
        start = time.perf_counter()
        rows = model.training_step(step).rows
        seconds.append((time.perf_counter() - start) / max(rows, 1))
    return seconds


class _FitLoop:
    """A training and where it is: steps done, the step of the last evaluation, and the best evaluation so far."""

    def __init__(
        self,
        model: Trainable,
        schedule: Schedule,
        average: WeightAverage,
        evaluate: Callable[[Weights], float] | None,
        checkpoint: Checkpoint,
    ) -> None:
        self.model, self.schedule, self.average = model, schedule, average
        self.evaluate, self.checkpoint = evaluate, checkpoint
        self.step = self.evaluated_step = 0
        self.best_evaluation, self.best = -1, Weights()
        self.history: list[list[float]] = []
        self.recent: list[list[float]] = []  # loss, regularisation, gradient norm, rows and seconds of steps
        self.total = schedule.epochs * model.steps_per_epoch
        self.saved_at = time.monotonic()

    def run(self, description: str) -> None:
        """Train until the end."""
        with progress_bar(description, self.total, "steps", self.step) as advance:
            try:
                while not self._is_over():
                    # Processes of a group wait for each other, so none of them may hold a signal back.
                    with held_signals(self.checkpoint.is_kept and self.model.n_processes == 1) as signals:
                        self._train_to_evaluation(signals, advance)
                        self._evaluate(signals)
            except KeyboardInterrupt:
                done = f"{self.step:,} of {self.total:,} steps were done"
                raise Interrupted(f"Stopped while {description}: {done}.") from None

    def _is_over(self) -> bool:
        is_stuck = self.best_evaluation >= 0 and (
            len(self.history) - 1 - self.best_evaluation >= self.schedule.patience
        )
        return is_stuck or self.evaluated_step >= self.total

    def _is_evaluation_due(self) -> bool:
        steps = self.model.steps_per_epoch
        every, within = max(1, steps // self.schedule.evals_per_epoch), self.step % steps
        return within == 0 or (within % every == 0 and steps - within >= every)

    def _train_to_evaluation(self, signals: HeldSignals, advance: Advance) -> None:
        """Take steps until the next evaluation; none if a resumed run was stopped right before one."""
        model = self.model
        while self.step == self.evaluated_step or not self._is_evaluation_due():
            if self.step % model.steps_per_epoch == 0:
                model.start_epoch(self.step // model.steps_per_epoch)
            start = time.perf_counter()
            loss, norm, rows, regularisation = model.training_step(self.step)
            seconds = max(time.perf_counter() - start, 1e-9)
            if not np.isfinite([loss, regularisation, norm]).all():
                raise model.divergence()
            self.step += 1
            self.recent.append([loss, regularisation, norm, rows, seconds])
            advance(1, f"loss {loss:.4g}, gradient {norm:.2g}, {rows / seconds:,.0f} rows/s")
            if signals.came:
                signals.hold_on()
                self.save()
                signals.deliver()
            if time.monotonic() - self.saved_at > _SAVE_EVERY:
                self.save()

    def _evaluate(self, signals: HeldSignals) -> None:
        """Evaluate the averaged weights, and keep them if they are the best so far."""
        weights = self.model.weights()
        average = self.average.after(weights, (self.step - 1) // self.model.steps_per_epoch)
        weights, score = average.mean() or weights, float("nan")
        if self.evaluate is not None:
            try:
                score = self.evaluate(weights)
            except KeyboardInterrupt:  # the evaluation took long: it runs again when training resumes
                self.save()
                raise
        signals.hold_on()
        if self.evaluate is not None and (self.best_evaluation < 0 or score > self.history[self.best_evaluation][-1]):
            self.best_evaluation, self.best = len(self.history), weights
        recent = np.array(self.recent)
        speed = recent[:, 3].sum() / recent[:, 4].sum()
        self.history.append([*(float(recent[:, column].mean()) for column in range(3)), float(speed), score])
        self.average, self.recent, self.evaluated_step = average, [], self.step
        self.save()

    def save(self) -> None:
        """Save all that is needed to resume from here."""
        self.saved_at = time.monotonic()
        if not self.checkpoint.is_kept:
            return
        state, averaged = self.model.state(), self.average.arrays()
        numbers = [self.step, self.evaluated_step, self.best_evaluation, self.average.count, len(state), len(averaged)]
        history = np.array(self.history, np.float64).reshape(-1, len(HISTORY))
        recent = np.array(self.recent, np.float64).reshape(-1, len(HISTORY))
        self.checkpoint.save([np.array(numbers, np.int64), history, recent, *state, *averaged, *self.best])

    def resume(self) -> None:
        """Continue from the checkpoint, if there is one."""
        saved = self.checkpoint.load()
        if saved is None:
            return
        numbers, history, recent, *arrays = saved
        self.step, self.evaluated_step, self.best_evaluation, count, n_state, n_averaged = numbers.tolist()
        self.history, self.recent = history.tolist(), recent.tolist()
        if self.step % self.model.steps_per_epoch:
            self.model.start_epoch(self.step // self.model.steps_per_epoch)
        self.model.load_state(arrays[:n_state])
        self.average = self.average.restored(count, arrays[n_state : n_state + n_averaged])
        self.best = arrays[n_state + n_averaged :]

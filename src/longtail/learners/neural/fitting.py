"""From the first step to the last: checks on rows held out, early stopping, mean weights, going on after a kill."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from longtail.engine.checkpoint import Checkpoint
from longtail.engine.progress import progress_bar
from longtail.engine.signals import held_signals
from longtail.errors import Interrupted, ParameterError
from longtail.learners.neural.training import Progress, Trainer

HISTORY = ("loss", "gradient_norm", "rows_per_second", "held_out")
Values = list[Tensor]

_SAVED_EVERY = 600  # seconds, and after every check


class Plan(NamedTuple):
    """When to look, and what to take.

    Parameters
    ----------
    checks : int
        Looks at the rows held out in a pass.
    patience : int
        Checks without progress after which training ends.
    average_from : int
        Pass from which on the weights at all checks are averaged, counted from 0; the number of passes for never.
    """

    checks: int
    patience: int
    average_from: int


class _State:
    """All that changes besides the network and its optimiser."""

    def __init__(self) -> None:
        self.step, self.best_at, self.averaged = 0, -1, 0
        self.mean: Values = []
        self.best: Values = []
        self.history: list[list[float]] = []
        self.since: list[Progress] = []


def fit_network(
    trainer: Trainer, measure: Callable[[], float] | None, checkpoint: Checkpoint, plan: Plan, description: str
) -> dict[str, list[float]]:
    """Train a network and leave the best weights in it; gives what each check was like.

    Parameters
    ----------
    trainer : Trainer
    measure : callable or None
        How good the network is on rows held out, the higher the better; without it the last weights are taken.
    checkpoint : Checkpoint
        Where everything is kept after each check, every ten minutes and when Ctrl-C or SIGTERM comes, and looked for
        first.
    plan : Plan
    description : str
        Of the progress bar.
    """
    state = _State()
    _restore(state, trainer, _taken_up(checkpoint, trainer))
    if state.step < trainer.steps:
        trainer.prepare()
    every = max(1, trainer.steps_a_pass // plan.checks)
    last_saved = time.monotonic()
    all_rows = trainer.settings.passes * len(trainer.rows)
    done = min(state.step * trainer.settings.batch, all_rows)
    with progress_bar(description, all_rows, "rows", done) as advance:
        try:
            if trainer.Y.nnz and not _is_over(state, plan, trainer.steps):
                with closing(_kept_when_stopped(trainer.run(state.step), checkpoint, state, trainer)) as steps:
                    for progress in steps:
                        _note(state, progress, trainer, advance)
                        within = state.step % trainer.steps_a_pass
                        is_check = (within % every == 0 and trainer.steps_a_pass - within >= every) or within == 0
                        if is_check:
                            _check(state, trainer, measure, plan)
                        is_due = is_check or time.monotonic() - last_saved > _SAVED_EVERY
                        if is_due and checkpoint.is_kept:
                            checkpoint.save(_saved(state, trainer))
                            last_saved = time.monotonic()
                        if _is_over(state, plan, trainer.steps):
                            break
        except KeyboardInterrupt:
            raise Interrupted(
                f"Stopped while {description}: {state.step:,} of {trainer.steps:,} steps were done."
            ) from None
    if state.best:
        _put(trainer, state.best)
    elif state.mean:
        _put(trainer, state.mean)
    columns = np.array(state.history).T.tolist() if state.history else [[] for _ in HISTORY]
    return dict(zip(HISTORY, columns, strict=True))


def _kept_when_stopped(
    steps: Iterator[Progress], checkpoint: Checkpoint, state: _State, trainer: Trainer
) -> Generator[Progress]:
    """Take steps; when Ctrl-C or SIGTERM comes in one, it is ended and the state is kept first.

    Processes that train together would wait for each other, so among several nothing is held back.
    """
    with held_signals(checkpoint.is_kept and trainer.place.size == 1) as signals:
        for progress in steps:
            yield progress
            if signals.came:
                signals.hold_on()
                checkpoint.save(_saved(state, trainer))
                signals.deliver()


def _is_over(state: _State, plan: Plan, steps: int) -> bool:
    return state.step >= steps or (state.best_at >= 0 and len(state.history) - 1 - state.best_at >= plan.patience)


def _note(state: _State, progress: Progress, trainer: Trainer, advance: Any) -> None:
    if not np.isfinite([progress.loss, progress.gradient_norm]).all():
        rates = trainer.settings.rates
        raise ParameterError(
            "rate", rates.encoder, f"or head_rate, {rates.head:g}, makes the training diverge: lower it"
        )
    state.step += 1
    state.since.append(progress)
    speed = progress.rows / max(progress.seconds, 1e-9)
    advance(progress.rows, f"loss {progress.loss:.4g}, gradient {progress.gradient_norm:.2g}, {speed:,.0f} rows/s")


def _check(state: _State, trainer: Trainer, measure: Callable[[], float] | None, plan: Plan) -> None:
    """Look at the rows held out, with the averaged weights where there are some."""
    since = np.array([(p.loss, p.gradient_norm, p.rows, p.seconds) for p in state.since])
    state.since = []
    passed = (state.step - 1) // trainer.steps_a_pass
    if passed >= plan.average_from:
        state.averaged += 1
        now = _values(trainer)
        state.mean = now if state.averaged == 1 else [
            mean + (value - mean) / state.averaged for mean, value in zip(state.mean, now, strict=True)
        ]  # fmt: skip
    found = float("nan")
    if measure is not None:
        now = _values(trainer)
        if state.averaged:
            _put(trainer, state.mean)
        (found,) = trainer.place.first([measure()])
        if state.best_at < 0 or found > state.history[state.best_at][-1]:
            state.best_at, state.best = len(state.history), _values(trainer)
        _put(trainer, now)
    speed = since[:, 2].sum() / max(since[:, 3].sum(), 1e-9)
    state.history.append([float(since[:, 0].mean()), float(since[:, 1].mean()), float(speed), found])


def _values(trainer: Trainer) -> Values:
    return [parameter.detach().clone() for parameter in trainer.optimiser.parameters]


def _put(trainer: Trainer, values: Sequence[Tensor]) -> None:
    with torch.no_grad():
        for parameter, value in zip(trainer.optimiser.parameters, values, strict=True):
            parameter.copy_(value)


def _saved(state: _State, trainer: Trainer) -> list[npt.NDArray[Any]]:
    numbers = np.array([state.step, state.best_at, state.averaged, len(state.mean), len(state.best)], np.int64)
    since = np.array([tuple(progress) for progress in state.since], np.float64).reshape(-1, 4)
    tensors = [*_values(trainer), *trainer.optimiser.state(), *state.mean, *state.best]
    arrays = [np.asarray(tensor.cpu().numpy()) for tensor in tensors]
    return [numbers, np.array(state.history, np.float64).reshape(-1, len(HISTORY)), since, *arrays]


def _taken_up(checkpoint: Checkpoint, trainer: Trainer) -> list[npt.NDArray[Any]] | None:
    """What an earlier run left; of several processes the first one reads it and tells the others."""
    place = trainer.place
    saved = checkpoint.load() if place.rank == 0 else None
    if place.size == 1:
        return saved
    shapes = [] if saved is None else [(array.shape, array.dtype) for array in saved]
    (count,) = place.first([len(shapes)])
    if not count:
        return None
    found = []
    for number in range(int(count)):
        shape, kind = shapes[number] if shapes else ((), np.dtype(np.float32))
        (dimensions, letter) = place.first([len(shape), ord(kind.char)])
        sizes = place.first([*shape, *[0] * (8 - len(shape))])[: int(dimensions)]
        own = np.zeros([int(size) for size in sizes], chr(int(letter))) if saved is None else np.array(saved[number])
        place.take_first(torch.from_numpy(own))
        found.append(own)
    return found


def _restore(state: _State, trainer: Trainer, saved: list[npt.NDArray[Any]] | None) -> None:
    if saved is None:
        return
    numbers, history, since, *arrays = saved
    state.step, state.best_at, state.averaged, n_mean, n_best = (int(number) for number in numbers)
    state.history = history.tolist()
    state.since = [Progress(float(loss), float(norm), int(rows), float(took)) for loss, norm, rows, took in since]
    device = trainer.network.device
    tensors = [torch.from_numpy(np.array(array)).to(device) for array in arrays]
    n = len(trainer.optimiser.parameters)
    _put(trainer, tensors[:n])
    trainer.optimiser.restore(tensors[n : 4 * n])
    state.mean, state.best = tensors[4 * n : 4 * n + n_mean], tensors[4 * n + n_mean : 4 * n + n_mean + n_best]

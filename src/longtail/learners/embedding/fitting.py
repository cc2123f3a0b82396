"""From the first pass to the last: early stopping, the mean of the last states, and going on after a kill."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from longtail.engine.bags import Table
from longtail.engine.checkpoint import Checkpoint, as_numbers, from_numbers
from longtail.engine.progress import progress_bar
from longtail.engine.signals import HeldSignals, held_signals
from longtail.errors import Interrupted, ParameterError
from longtail.learners.embedding.mapping import unit_rows
from longtail.learners.embedding.training import Progress, State, Trainer, Within

_SAVED_EVERY = 600  # seconds
HISTORY = ("loss", "regularisation", "gradient_norm", "rows_per_second", "held_out")


class Snapshot(NamedTuple):
    """Trained values: the two tables, and all other parameters by name."""

    features: npt.NDArray[np.float32]
    labels: npt.NDArray[np.float32]
    parameters: dict[str, npt.NDArray[np.float32]]

    def arrays(self) -> list[npt.NDArray[np.float32]]:
        """All of them, in a fixed order."""
        return [self.features, self.labels, *self.parameters.values()]

    @classmethod
    def of(cls, arrays: Sequence[npt.NDArray[np.float32]], names: Sequence[str]) -> Snapshot:
        """Put together what `arrays` gave."""
        return cls(arrays[0], arrays[1], dict(zip(names, arrays[2:], strict=True)))


class _Begun:
    """A pass that has begun: where it is, and how its steps went."""

    def __init__(self) -> None:
        self.within = Within()
        self.measured: list[Progress] = []

    def arrays(self) -> list[npt.NDArray[Any]]:
        """All of it as three arrays."""
        numbers = [self.within.done, *as_numbers(self.within.drawn)] if self.within.done else [0]
        measured = np.array(self.measured, np.float64).reshape(-1, len(Progress._fields))
        return [np.array(numbers, np.uint64), self.within.squares, measured]

    @classmethod
    def of(
        cls, numbers: npt.NDArray[np.uint64], squares: npt.NDArray[np.float64], measured: npt.NDArray[np.float64]
    ) -> _Begun:
        """Put together what `arrays` gave."""
        begun = cls()
        begun.measured = [Progress(*steps) for steps in measured.tolist()]
        if numbers[0]:
            begun.within = Within(int(numbers[0]), from_numbers(numbers[1:]), squares)
        return begun


class Fitted(NamedTuple):
    """The values that did best on the rows held out, and what each pass was like."""

    best: Snapshot
    history: dict[str, list[float]]


def run(
    trainer: Trainer,
    measure: Callable[[Snapshot], float] | None,
    checkpoint: Checkpoint,
    *,
    average: int,
    patience: int,
) -> Fitted:
    """Train pass after pass, until the last one or until the rows held out stop getting better.

    Parameters
    ----------
    trainer : Trainer
    measure : callable or None
        How good some values are on rows held out; without it the last ones are taken.
    checkpoint : Checkpoint
        Where the state is kept after every pass, every ten minutes and when Ctrl-C or SIGTERM comes, and where it is
        looked for first.
    average : int
        The values measured and taken are the mean after so many passes, the newest ones.
    patience : int
        Passes without progress after which training ends.
    """
    state, passes = trainer.begin(), trainer.settings.passes if trainer.Y.nnz else 0
    names = list(state.parameters)
    history: list[list[float]] = []
    window: deque[Snapshot] = deque(maxlen=average)
    best, best_at = None, -1
    saved, begun = checkpoint.load(), _Begun()
    if saved is not None:
        state, window, best, best_at, history, begun = _restored(saved, names, average)

    def keep() -> None:
        checkpoint.save(_saved(state, window, best, best_at, history, begun))

    done = len(history) * trainer.batches + begun.within.done
    with progress_bar("training", passes * trainer.batches, "steps", done) as advance:
        try:
            while len(history) < passes and not (best is not None and len(history) - 1 - best_at >= patience):
                with held_signals(checkpoint.is_kept) as signals:
                    _end_pass(trainer, state, len(history), begun, advance, keep, signals)
                    progress = [float(value) for value in np.mean(begun.measured, axis=0)]
                    now, found = _copy_of(state), np.nan
                    if measure is not None:
                        try:
                            mean = _mean([*window, now][-average:])
                            found = measure(mean)
                        except KeyboardInterrupt:  # after long: it is measured when training goes on
                            keep()
                            raise
                    signals.hold_on()
                    window.append(now)
                    history.append([*progress, found])
                    if measure is not None and (best_at < 0 or found > history[best_at][-1]):
                        best, best_at = mean, len(history) - 1
                    begun = _Begun()
                    keep()
        except KeyboardInterrupt:
            raise Interrupted(
                f"Stopped while training embeddings: {len(history):,} of {passes:,} passes were done."
            ) from None
    columns = np.array(history).T.tolist() if history else [[] for _ in HISTORY]
    return Fitted(best or _mean(window or [_copy_of(state)]), dict(zip(HISTORY, columns, strict=True)))


def _end_pass(
    trainer: Trainer,
    state: State,
    number: int,
    begun: _Begun,
    advance: Any,
    keep: Callable[[], None],
    signals: HeldSignals,
) -> None:
    """Take the steps of a pass that are left, keeping the state every ten minutes and when a signal comes."""
    last_kept = time.monotonic()
    for progress in trainer.steps(state, number, begun.within):
        if not np.isfinite(progress[:3]).all():
            raise ParameterError(
                "rate", trainer.settings.rate, f"makes the training diverge: lower it{_or_strength(trainer)}"
            )
        begun.measured.append(progress)
        remark = f"loss {progress.loss:.2f}, gradient {progress.gradient_norm:.2g}"
        advance(1, f"{remark}, {progress.rows_per_second:,.0f} rows/s")
        if signals.came:
            signals.hold_on()
            keep()
            signals.deliver()
        if time.monotonic() - last_kept > _SAVED_EVERY:
            keep()
            last_kept = time.monotonic()


def _or_strength(trainer: Trainer) -> str:
    settings = trainer.settings
    return f", or strength, which is {settings.strength:g}" if settings.regulariser else ""


def _copy_of(state: State) -> Snapshot:
    """Copy of the values; labels as unit vectors, because their lengths say nothing and must not weigh in a mean."""
    parameters = {name: table.values.copy() for name, table in state.parameters.items()}
    return Snapshot(state.features.values.copy(), unit_rows(state.labels.values), parameters)


def _mean(window: Sequence[Snapshot]) -> Snapshot:
    if len(window) == 1:
        return window[0]
    parts = zip(*(snapshot.arrays() for snapshot in window), strict=True)
    return Snapshot.of([np.mean(part, axis=0, dtype=np.float32) for part in parts], list(window[0].parameters))


def _saved(
    state: State,
    window: Sequence[Snapshot],
    best: Snapshot | None,
    best_at: int,
    history: list[list[float]],
    begun: _Begun,
) -> list[npt.NDArray[Any]]:
    tables = [array for table in state.tables() for array in table]
    kept = [array for snapshot in (*window, *([best] if best else [])) for array in snapshot.arrays()]
    numbers = np.array([len(window), best_at], np.int64)
    return [numbers, np.array(history, np.float64), *begun.arrays(), *tables, *kept]


def _restored(
    saved: list[npt.NDArray[Any]], names: list[str], average: int
) -> tuple[State, deque[Snapshot], Snapshot | None, int, list[list[float]], _Begun]:
    (n_window, best_at), history = (int(value) for value in saved[0]), saved[1].tolist()
    begun, rest = _Begun.of(*saved[2:5]), saved[5:]
    each = 2 + len(names)
    tables = [Table(*rest[3 * number : 3 + 3 * number]) for number in range(each)]
    state = State(tables[0], tables[1], dict(zip(names, tables[2:], strict=True)))
    rest = rest[3 * each :]
    snapshots = [Snapshot.of(rest[first : first + each], names) for first in range(0, len(rest), each)]
    best = snapshots[n_window] if best_at >= 0 else None
    return state, deque(snapshots[:n_window], average), best, best_at, history, begun

"""Progress bars on standard error: off in the library unless asked for, safe to nest.

Where standard error is not a terminal, a line is written every minute instead.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Protocol

from longtail.config import temporarily

_visible: ContextVar[bool] = ContextVar("longtail_progress_visible", default=False)

_LINE_EVERY = 60.0  # seconds


class Advance(Protocol):
    """Advances a bar by some steps; a remark is shown behind it until the next one."""

    def __call__(self, steps: int, remark: str = "") -> None:
        """Advance the bar."""


def show_progress(visible: bool = True) -> AbstractContextManager[None]:
    """Show progress bars on standard error for everything that runs inside.

    Examples
    --------
    >>> with show_progress():
    ...     pass  # learner.fit(X, Y) draws a bar here
    """
    return temporarily(_visible, visible)


@contextmanager
def progress_bar(description: str, total: int, unit: str = "", done: int = 0) -> Iterator[Advance]:
    """Yield a function that advances a bar by a number of steps; it does nothing while bars are off.

    Parameters
    ----------
    description : str
        What is being done.
    total : int
        Number of steps.
    unit : str
        Name of the steps, in the plural.
    done : int
        Steps done by an earlier run; they don't count for the remaining time.
    """
    if not _visible.get() or total == 0:
        yield lambda steps, remark="": None
        return
    if not sys.stderr.isatty():
        yield _Lines(description, total, unit, done)
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[remark]}"),
    )
    with Progress(*columns, console=Console(stderr=True), expand=False) as bar:
        task = bar.add_task(description, total=total, completed=done, remark="")

        def advance(steps: int, remark: str = "") -> None:
            bar.advance(task, steps)
            if remark:
                bar.update(task, remark=remark)

        yield advance


class _Lines:
    """Writes a line every minute."""

    def __init__(self, description: str, total: int, unit: str, done: int = 0) -> None:
        self._description, self._total, self._unit = description, total, unit
        self._done = self._first = done
        self._begin = self._last = time.monotonic()

    def __call__(self, steps: int, remark: str = "") -> None:
        now = time.monotonic()
        self._done += steps
        if now - self._last < _LINE_EVERY:
            return
        self._last = now
        left = (self._total - self._done) * (now - self._begin) / max(self._done - self._first, 1)
        about = f"{left / 60:,.0f} min left" if left >= 90 else f"{left:.0f} s left"
        parts = [f"{self._done:,} of {self._total:,} {self._unit}".strip(), about, *([remark] if remark else [])]
        sys.stderr.write(f"{self._description}: {', '.join(parts)}\n")
        sys.stderr.flush()

"""A stop that one thread asks of what others are doing: Ctrl-C and SIGTERM come to the first thread alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np

StopFlag = np.ndarray[tuple[int], np.dtype[np.uint8]]


class Stopping:
    """Whether what is done inside is to stop.

    Examples
    --------
    >>> stopping = Stopping()
    >>> with inside_of(stopping):
    ...     stopping.ask()
    ...     is_stopping()
    True
    """

    def __init__(self) -> None:
        self.is_asked = False
        self._flags: dict[int, StopFlag] = {}
        self._lock = threading.Lock()

    def ask(self) -> None:
        """Stop all that is done inside; each thread raises a KeyboardInterrupt as soon as it sees it."""
        with self._lock:
            self.is_asked = True
            for flag in self._flags.values():
                flag[0] = 1

    @contextmanager
    def _watching(self, flag: StopFlag) -> Iterator[None]:
        with self._lock:
            self._flags[id(flag)] = flag
            flag[0] = self.is_asked
        try:
            yield
        finally:
            with self._lock:
                del self._flags[id(flag)]


_stopping: ContextVar[Stopping | None] = ContextVar("longtail_stopping", default=None)


def current_stopping() -> Stopping | None:
    """What may be asked to stop here; None where only a signal stops."""
    return _stopping.get()


def is_stopping() -> bool:
    """Whether what is done here has been asked to stop."""
    stopping = _stopping.get()
    return stopping is not None and stopping.is_asked


@contextmanager
def inside_of(stopping: Stopping | None) -> Iterator[None]:
    """Let what is done inside be stopped from another thread."""
    token = _stopping.set(stopping)
    try:
        yield
    finally:
        _stopping.reset(token)


@contextmanager
def stop_flag() -> Iterator[StopFlag]:
    """An array of one byte for kernels, which turns 1 when what is done here is asked to stop.

    Examples
    --------
    >>> with stop_flag() as stop:
    ...     int(stop[0])
    0
    """
    stop: StopFlag = np.zeros(1, np.uint8)
    stopping = _stopping.get()
    if stopping is None:
        yield stop
        return
    with stopping._watching(stop):
        yield stop

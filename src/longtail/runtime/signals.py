"""Stop requests of other threads, and Ctrl-C and SIGTERM delayed until a training has saved its state."""

from __future__ import annotations

import _thread
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import Any, NoReturn

import numpy as np

from longtail.config import temporarily

StopFlag = np.ndarray[tuple[int], np.dtype[np.uint8]]

_LONGEST = 5.0  # seconds that a signal is delayed


class Stopping:
    """A stop request for all threads; signals reach the main thread only.

    Examples
    --------
    >>> stopping = Stopping()
    >>> with stoppable_by(stopping):
    ...     stopping.ask()
    ...     is_stopping()
    True
    """

    def __init__(self) -> None:
        self.is_asked = False
        self._flags: dict[int, StopFlag] = {}
        self._lock = threading.Lock()

    def ask(self) -> None:
        """Stop everything that runs inside; each thread raises a KeyboardInterrupt as soon as it sees the request."""
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
    """Return the stop request that this thread checks; None where only a signal stops it."""
    return _stopping.get()


def is_stopping() -> bool:
    """Return whether this thread has been asked to stop."""
    stopping = _stopping.get()
    return stopping is not None and stopping.is_asked


def stoppable_by(stopping: Stopping | None) -> AbstractContextManager[None]:
    """Return a context whose work other threads can stop by `stopping`."""
    return temporarily(_stopping, stopping)


@contextmanager
def stop_flag() -> Iterator[StopFlag]:
    """Yield an array of one byte for kernels, which turns 1 when this thread is asked to stop.

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


class HeldSignals:
    """A delayed signal, and its delivery to its original handler."""

    def __init__(self) -> None:
        self._came: int | None = None
        self._before: dict[int, Callable[[int, FrameType | None], Any]] = {}
        self._timer: threading.Timer | None = None
        self._longest: float | None = _LONGEST
        self._is_over = False

    @property
    def came(self) -> bool:
        """Whether to save the state and stop: a signal came, or another thread asks for a stop."""
        return self._came is not None or is_stopping()

    def deliver(self) -> NoReturn:
        """Do what the signal would have done when it came, which is to raise a KeyboardInterrupt."""
        self._restore()
        self._pass_on()
        raise KeyboardInterrupt

    def _pass_on(self) -> None:
        """Call the handler of a signal that came; it may delay the signal too."""
        number, self._came = self._came, None
        if number is not None:
            self._before[number](number, None)

    def hold_on(self) -> None:
        """Delay signals without a time limit from now on, because the state is being written."""
        self._longest = None
        if self._timer is not None:
            self._timer.cancel()

    def _hold(self, number: int, frame: FrameType | None) -> None:
        if self._came is not None:  # a second signal, or the timer
            self._came = None
            self._restore()
            self._before[number](number, frame)
            return
        self._came = number
        if self._longest is not None:
            self._timer = threading.Timer(self._longest, _thread.interrupt_main, (number,))
            self._timer.daemon = True
            self._timer.start()

    def _restore(self) -> None:
        """Restore the handlers, once: what one of them sets when it is called is kept."""
        if self._timer is not None:
            self._timer.cancel()
        if not self._is_over:
            self._is_over = True
            for number, handler in self._before.items():
                signal.signal(number, handler)


@contextmanager
def held_signals(hold: bool = True) -> Iterator[HeldSignals]:
    """Delay Ctrl-C and SIGTERM while the block runs, which checks `came` and then calls `deliver`.

    A signal is delivered after five seconds, unless `hold_on` was called, and when it comes a second time. Signals
    without a handler, and blocks in threads other than the main one, are left alone.

    Parameters
    ----------
    hold : bool
        Whether to delay them at all.

    Examples
    --------
    >>> with held_signals() as signals:
    ...     for step in range(3):
    ...         if signals.came:
    ...             signals.deliver()
    """
    held = HeldSignals()
    if not hold or threading.current_thread() is not threading.main_thread():
        yield held
        return
    for number in (signal.SIGINT, signal.SIGTERM):
        handler = signal.getsignal(number)
        if callable(handler):
            held._before[number] = handler
            signal.signal(number, held._hold)
    try:
        yield held
    finally:
        held._restore()
        held._pass_on()  # however the block ended: a signal is never lost

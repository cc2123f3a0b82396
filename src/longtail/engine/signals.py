"""Ctrl-C and SIGTERM held back for a moment, so that a training can keep what it has done before it stops."""

from __future__ import annotations

import _thread
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

from longtail.engine.stopping import is_stopping

_LONGEST = 5.0  # seconds that a signal is held back


class HeldSignals:
    """Whether a signal came, and its delivery to whom it was meant for."""

    def __init__(self) -> None:
        self._came: int | None = None
        self._before: dict[int, Callable[[int, FrameType | None], Any]] = {}
        self._timer: threading.Timer | None = None
        self._longest: float | None = _LONGEST
        self._is_over = False

    @property
    def came(self) -> bool:
        """Whether to keep what is done and stop: a signal came, or another thread asks for it."""
        return self._came is not None or is_stopping()

    def deliver(self) -> NoReturn:
        """Do what the signal would have done when it came, which is to raise a KeyboardInterrupt."""
        self._let_go()
        self._pass_on()
        raise KeyboardInterrupt

    def _pass_on(self) -> None:
        """Give a signal that came to whoever it was meant for, who may hold it back too."""
        number, self._came = self._came, None
        if number is not None:
            self._before[number](number, None)

    def hold_on(self) -> None:
        """Hold signals back for as long as it takes from now on: what is done is being written."""
        self._longest = None
        if self._timer is not None:
            self._timer.cancel()

    def _hold(self, number: int, frame: FrameType | None) -> None:
        if self._came is not None:  # again, or too long ago
            self._came = None
            self._let_go()
            self._before[number](number, frame)
            return
        self._came = number
        if self._longest is not None:
            self._timer = threading.Timer(self._longest, _thread.interrupt_main, (number,))
            self._timer.daemon = True
            self._timer.start()

    def _let_go(self) -> None:
        """Put the handlers back, once: what one of them sets when it is called stays."""
        if self._timer is not None:
            self._timer.cancel()
        if not self._is_over:
            self._is_over = True
            for number, handler in self._before.items():
                signal.signal(number, handler)


@contextmanager
def held_signals(hold: bool = True) -> Iterator[HeldSignals]:
    """Hold Ctrl-C and SIGTERM back while the block runs: it looks at `came` at times, and then calls `deliver`.

    After five seconds, unless it is told to hold on, or when it comes again, a signal is delivered whatever the block
    does. Signals that nobody
    handles, and those that other threads than the first see, are left alone.

    Parameters
    ----------
    hold : bool
        Whether to hold them back at all.

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
        held._let_go()
        held._pass_on()  # however the block ended: a signal is never lost

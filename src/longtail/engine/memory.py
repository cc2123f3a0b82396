"""How much memory there is, is used and may be used."""

from __future__ import annotations

import os
import re
import sys
import threading
from types import TracebackType
from typing import Self

from longtail.errors import ParameterError

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


def parse_memory(limit: int | float | str, name: str = "memory_limit") -> int:
    """Read an amount of memory in bytes, or text such as ``"800 MB"`` or ``"1.5GB"`` (powers of ten).

    Examples
    --------
    >>> parse_memory("1.5 GB")
    1500000000
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)b?\s*", str(limit).lower())
    if isinstance(limit, bool) or found is None or float(found[1]) == 0:
        raise ParameterError(name, limit, "must be a number of bytes above 0, or text such as 800MB or 1.5GB")
    return int(float(found[1]) * _UNITS[found[2]])


def resident_memory() -> int:
    """Bytes that this process holds in memory now; its highest so far where the system doesn't tell."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return peak_memory()


def peak_memory() -> int:
    """Most bytes that this process has held in memory so far; 0 where the system doesn't tell."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


class MemoryWatch:
    """Watches the memory of this process while a ``with`` block runs; `peak` is the most that was seen, in bytes."""

    def __init__(self, interval: float = 0.005) -> None:
        self.peak = 0
        self._interval = interval
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="longtail-memory", daemon=True)

    def __enter__(self) -> Self:
        self.peak = resident_memory()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()
        self.peak = max(self.peak, resident_memory())

    def _watch(self) -> None:
        while not self._ended.wait(self._interval):
            self.peak = max(self.peak, resident_memory())

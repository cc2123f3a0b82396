"""Memory of the machine and of this process, and the memory limit."""

from __future__ import annotations

import ctypes
import math
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from longtail.config import get_config, memory_limit, thread_count
from longtail.errors import InputError, ParameterError
from longtail.runtime.disk import shown_size
from longtail.runtime.task import current_engine

_SPARE = 20_000_000  # bytes added, besides a tenth, to the limit that an error message recommends: runs differ


_file_bytes: int | None = None  # shared memory of programs and libraries, before anything was mapped


def resident_memory() -> int:
    """Return the bytes that this process holds in memory now; the peak where the system doesn't report it.

    Pages of mapped data and of temporary files don't count: the system reclaims them when it needs memory.
    """
    found = _resident_and_shared()
    if found is None:
        return peak_memory()
    return found[0] if _file_bytes is None else found[0] - max(0, found[1] - _file_bytes)


def _resident_and_shared() -> tuple[int, int] | None:
    try:
        with open("/proc/self/statm", "rb") as file:
            _, resident, shared, *_ = (int(count) * os.sysconf("SC_PAGE_SIZE") for count in file.read().split())
    except (OSError, ValueError):
        return None
    return resident, shared


def note_files() -> None:
    """Record the memory of programs and libraries, before data are mapped for the first time."""
    global _file_bytes
    found = _resident_and_shared()
    if _file_bytes is None and found is not None:
        _file_bytes = found[1]


def memory_in_use() -> int:
    """Return the bytes that this process holds, after glibc's allocator has returned its freed memory."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)
    return resident_memory()


def affordable_threads(each: int, work: str, *, besides: int = 0, fewer: str = "rows") -> int:
    """Return the number of threads that the memory limit leaves room for, at most `thread_count`.

    Parameters
    ----------
    each : int
        Bytes per thread.
    work : str
        What takes the memory, for the error message.
    besides : int
        Bytes that are needed later, for the limit that the error message recommends.
    fewer : str
        What to train with fewer of, for the error message.

    Examples
    --------
    >>> from longtail import config_context
    >>> with config_context(n_jobs=4):
    ...     affordable_threads(10**6, "a block")
    4
    """
    limit, threads = memory_limit(), thread_count()
    if limit is None:
        return threads
    engine = current_engine()
    if engine is not None and engine.is_own:
        raise limit_of_a_cluster("memory_limit", get_config().memory_limit)
    _check_before(limit)
    used = memory_in_use()
    affordable = min(threads, (limit - used) // each)
    if affordable < 1:
        raise not_enough_memory(used, f"{work} takes {shown_size(each)}", used + each + besides, fewer)
    return int(affordable)


def limit_of_a_cluster(name: str, limit: int | str | None) -> ParameterError:
    """Return the error for a limit with a local Ray cluster, where it would apply to one process of many."""
    return ParameterError(
        name,
        limit,
        "must be left out with a local Ray cluster, because it doesn't cover the object store and the processes of "
        "the cluster: train on threads instead",
    )


def not_enough_memory(used: int, need: str, enough: int, fewer: str) -> ParameterError:
    """Return the error for a memory limit that is too low, with one that is enough."""
    return ParameterError(
        "memory_limit",
        get_config().memory_limit,
        f"leaves no room: {shown_size(used)} are in use, and {need}; raise it to at least "
        f"{_advised(enough)}, or train with fewer {fewer}",
    )


def _advised(enough: int) -> str:
    """Return a limit that is enough for the work to come, and for the peak of the command so far."""
    most = max(enough, 0 if _command is None else _command.peak)
    return f"{math.ceil((1.1 * most + _SPARE) / 1e7) * 10}MB"


def _check_before(limit: int) -> None:
    """Raise an error where the command has exceeded its limit before training."""
    if _command is not None and not _command.is_checked:
        _command.is_checked = True
        if _command.peak > limit:
            raise ParameterError(
                "memory_limit",
                get_config().memory_limit,
                f"was exceeded before training: reading and preparing the rows took {shown_size(_command.peak)}; "
                f"raise it to at least {_advised(0)}, or give fewer rows; rows of features can stay on disk "
                "(longtail data convert)",
            )


def check_memory(need: int, what: str, fewer: str) -> None:
    """Raise an error if work takes more memory than the limit leaves or, without a limit, than the machine has.

    Parameters
    ----------
    need : int
        Bytes on top of those in use.
    what : str
        What takes them, for the error message.
    fewer : str
        What to use fewer of, for the error message.
    """
    used, limit = memory_in_use(), memory_limit()
    if limit is not None:
        _check_before(limit)
        if used + need > limit:
            raise not_enough_memory(used, f"{what} takes {shown_size(need)}", used + need, fewer)
        return
    has = machine_memory()
    if has and used + need > has:
        start = f"{what[0].upper()}{what[1:]} takes {shown_size(need)}"
        raise InputError(f"{start}, and the machine has {shown_size(has)}: use fewer {fewer}.")


def machine_memory() -> int:
    """Return the bytes of memory of the machine; 0 where the system doesn't report it."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 0


def peak_memory() -> int:
    """Return the peak memory of this process in bytes; 0 where the system doesn't report it."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


class MemoryWatch:
    """Samples the memory of this process while a ``with`` block runs; `peak` is the maximum in bytes."""

    def __init__(self, interval: float = 0.005) -> None:
        self.peak = 0
        self.is_checked = False  # whether the peak was compared with the limit when training began
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


_command: MemoryWatch | None = None  # of the running command


@contextmanager
def watched_command() -> Iterator[MemoryWatch]:
    """Watch the memory of a command: training refuses a limit that reading and preparing the rows has exceeded."""
    global _command
    with MemoryWatch(0.02) as watch:
        _command = watch
        try:
            yield watch
        finally:
            _command = None

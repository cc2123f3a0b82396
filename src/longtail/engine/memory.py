"""How much memory there is, is used and may be used."""

from __future__ import annotations

import ctypes
import math
import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from longtail.engine.portable import current_engine
from longtail.errors import InputError, ParameterError

_SPARE = 20_000_000  # bytes of room in an advice, besides what is counted
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


_file_bytes: int | None = None  # of programs and libraries, in memory before anything was mapped


def resident_memory() -> int:
    """Bytes that this process holds in memory now; its highest so far where the system doesn't tell.

    Pages of mapped data and of what was spilled don't count: the system takes them back when it needs them.
    """
    try:
        with open("/proc/self/statm", "rb") as file:
            _, resident, shared, *_ = (int(count) * os.sysconf("SC_PAGE_SIZE") for count in file.read().split())
    except (OSError, ValueError):
        return peak_memory()
    return resident if _file_bytes is None else resident - max(0, shared - _file_bytes)


def note_files() -> None:
    """Remember how much of the memory belongs to programs and libraries, before data are mapped for the first time."""
    global _file_bytes
    if _file_bytes is None:
        try:
            with open("/proc/self/statm", "rb") as file:
                _file_bytes = int(file.read().split()[2]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, ValueError, IndexError):
            return


def memory_in_use() -> int:
    """Bytes that the process holds, after what it has freed was given back to the system.

    The allocator of glibc keeps some tens of MB of freed memory, which is no reason to refuse work.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)
    return resident_memory()


def affordable_threads(
    threads: int, each: int, memory_limit: int | str | None, work: str, *, besides: int = 0, fewer: str = "rows"
) -> int:
    """Threads that a memory limit leaves room for, at most `threads`.

    Parameters
    ----------
    threads : int
    each : int
        Bytes that each of them takes.
    memory_limit : int, str or None
    work : str
        What takes the memory, for the refusal where not even one thread fits.
    besides : int
        Bytes that will be needed later: the refusal's advice leaves room for them.
    fewer : str
        What to train with fewer of.

    Examples
    --------
    >>> affordable_threads(4, 10**6, None, "a block")
    4
    """
    if memory_limit is None:
        return threads
    engine = current_engine()
    if engine is not None and engine.is_own:
        raise limit_of_a_cluster("memory_limit", memory_limit)
    _check_before(memory_limit)
    used = memory_in_use()
    affordable = min(threads, (parse_memory(memory_limit) - used) // each)
    if affordable < 1:
        raise no_room(memory_limit, used, f"{work} takes {each / 1e6:,.1f} MB", used + each + besides, fewer)
    return int(affordable)


def limit_of_a_cluster(name: str, memory_limit: int | str) -> ParameterError:
    """Refusal of a limit for a Ray that is started on this machine: it would hold for one process of many."""
    return ParameterError(
        name,
        memory_limit,
        "must be left out with a Ray of its own on this machine, whose store and processes it can't hold: train on "
        "threads, which it does",
    )


def no_room(memory_limit: int | str, used: int, need: str, enough: int, fewer: str) -> ParameterError:
    """Refusal to work within a memory limit, with a limit that would be enough."""
    return ParameterError(
        "memory_limit",
        memory_limit,
        f"leaves no room: {used / 1e6:,.0f} MB are in use, and {need}; raise it to at least "
        f"{_advised(enough)}, or train with fewer {fewer}",
    )


def _advised(enough: int) -> str:
    """A limit that is enough for what is to come, and for what a command has held already."""
    most = max(enough, 0 if _command is None else _command.peak)
    return f"{math.ceil((most + _SPARE) / 1e7) * 10}MB"


def _check_before(memory_limit: int | str) -> None:
    """Refuse to begin with training where the command has passed its limit by then."""
    if _command is not None and not _command.is_checked:
        _command.is_checked = True
        if _command.peak > parse_memory(memory_limit):
            raise ParameterError(
                "memory_limit",
                memory_limit,
                f"was passed before training began: reading and preparing the rows took {_command.peak / 1e6:,.0f} MB; "
                f"raise it to at least {_advised(0)}, or give fewer rows; rows of features can stay on disk (longtail "
                "data convert)",
            )


def check_room(memory_limit: int | str | None, need: int, what: str, fewer: str) -> None:
    """Refuse what takes more memory than the limit leaves, or, without a limit, more than the machine has.

    Parameters
    ----------
    memory_limit : int, str or None
    need : int
        Bytes besides those in use.
    what : str
        What takes them, as the beginning of a sentence.
    fewer : str
        What to have less of.
    """
    used = memory_in_use()
    if memory_limit is not None:
        _check_before(memory_limit)
        if used + need > parse_memory(memory_limit):
            raise no_room(memory_limit, used, f"{what} takes {need / 1e6:,.0f} MB", used + need, fewer)
        return
    has = machine_memory()
    if has and used + need > has:
        start = f"{what[0].upper()}{what[1:]} takes {need / 1e9:,.0f} GB"
        raise InputError(f"{start}, and the machine has {has / 1e9:,.0f} GB: use fewer {fewer}.")


def machine_memory() -> int:
    """Bytes of memory that the machine has; 0 where the system doesn't tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 0


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
        self.is_checked = False  # against a limit, when the first work that has one began
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


_command: MemoryWatch | None = None  # that of the command which runs


@contextmanager
def watched_command() -> Iterator[MemoryWatch]:
    """Watch a command from its beginning: a limit that reading and preparing rows has passed is refused later."""
    global _command
    with MemoryWatch(0.02) as watch:
        _command = watch
        try:
            yield watch
        finally:
            _command = None

"""Work that may be done in another process, perhaps on another machine, and the engine that takes it there."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from longtail.engine.stopping import current_stopping, inside_of

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Portable:
    """Work that may travel: a method of an object whose state is arrays and plain settings.

    Where an engine is current (see `longtail.use_engine`) the object is sent there once, and then a block at a time;
    else it is called like any other work, as ``work(block, stop)``.

    Parameters
    ----------
    owner : object
        Whose method it is. It isn't changed while it is used.
    method : str
        Called as ``method(*shared, block, stop)``.
    shared : tuple
        What all blocks of this run need besides.
    pack : callable, optional
        Makes what travels of a block, just before it does.
    cpus : int
        Cores that a block is worked on with.

    Examples
    --------
    >>> Portable([3, 1, 2], "index", pack=lambda block: block + 1)(1, 0)
    2
    """

    owner: Any
    method: str
    shared: tuple[Any, ...] = ()
    pack: Callable[[Any], Any] | None = None
    cpus: int = 1

    def __call__(self, block: Any, stop: Any) -> Any:
        """Work on a block here."""
        packed = block if self.pack is None else self.pack(block)
        return getattr(self.owner, self.method)(*self.shared, packed, stop)


class Engine(Protocol):
    """Takes work to where it is done."""

    @property
    def cpus(self) -> int:
        """Cores that it has now."""

    @property
    def is_own(self) -> bool:
        """Whether it was started on this machine for this program alone, whose memory its processes take."""

    def run(
        self, work: Portable, blocks: Sequence[Any], finished: Callable[[int], None]
    ) -> Generator[Any]:  # pragma: no cover
        """Work on all blocks and give the results in their order; `finished` hears of each as it ends."""

    def together(self, owner: Any, method: str, arguments: tuple[Any, ...]) -> Any:
        """Call a method in several processes that train one network together; gives what the first one gives."""

    def interrupt(self) -> None:
        """Stop everything that runs: the user has pressed Ctrl-C."""


_engine: ContextVar[Engine | None] = ContextVar("longtail_engine", default=None)


def current_engine() -> Engine | None:
    """The engine that portable work goes to; None for the threads of this process."""
    return _engine.get()


@contextmanager
def inside(engine: Engine | None) -> Iterator[None]:
    """Let portable work go to an engine; None for the threads of this process."""
    token = _engine.set(engine)
    try:
        yield
    finally:
        _engine.reset(token)


def inheriting(work: Callable[..., Any]) -> Callable[..., Any]:
    """Work that finds the engine of now, and is stopped with this thread's, in whichever thread it is done."""
    engine, stopping = current_engine(), current_stopping()
    if engine is None and stopping is None:
        return work

    def inherited(*arguments: Any) -> Any:
        with inside(engine), inside_of(stopping):
            return work(*arguments)

    return inherited


def with_arrays(value: Any, change: Callable[[Array], Array]) -> Any:
    """Put other arrays in the place of all that an object holds, its parts included; gives the object.

    Objects, lists and dictionaries are changed, tuples are made anew.

    Examples
    --------
    >>> with_arrays(([np.arange(2)], "text"), np.negative)
    ([array([ 0, -1])], 'text')
    """
    return _changed(value, change, {})


def _changed(value: Any, change: Callable[[Array], Array], known: dict[int, tuple[Any, Any]]) -> Any:
    if isinstance(value, str | bytes | int | float | None | type | FunctionType | ModuleType):
        return value
    if id(value) in known:
        return known[id(value)][1]
    if isinstance(value, np.ndarray):
        found: Any = change(value)
    elif isinstance(value, tuple):
        parts = [_changed(part, change, known) for part in value]
        found = type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    else:
        known[id(value)] = value, value  # before its parts, which may hold it
        held: Any = value if isinstance(value, list | dict) else getattr(value, "__dict__", {})
        for name in range(len(held)) if isinstance(held, list) else list(held):
            held[name] = _changed(held[name], change, known)
        return value
    known[id(value)] = value, found  # which keeps the old one, so that its number stays its own
    return found


def plain(array: Array) -> Array:
    """An array without a class of its own, such as one that is mapped from a file; the memory stays the same."""
    return array if type(array) is np.ndarray else np.asarray(array)


def writable(array: Array) -> Array:
    """The same memory as an array that may be written to, as far as numpy and numba know.

    numba compiles kernels anew for arrays that can't be written to. What another process gave us can't be, and kernels
    don't: under another name they are the kernels that all of longtail uses.

    Examples
    --------
    >>> fixed = np.arange(3)
    >>> fixed.flags.writeable = False
    >>> writable(fixed).flags.writeable, np.shares_memory(fixed, writable(fixed))
    (True, True)
    """
    if array.flags.writeable or array.dtype.hasobject:
        return array
    if not array.size or not array.flags.aligned:
        return array.copy()
    return np.asarray(_Memory(array))


class _Memory:
    """What numpy wants to know of memory, and the array that keeps it."""

    def __init__(self, array: Array) -> None:
        self._array = array
        described = dict(array.__array_interface__)
        self.__array_interface__ = described | {"data": (described["data"][0], False)}


def own(value: Any) -> Any:
    """The same with arrays of our own, in the place of those in another's memory."""
    return with_arrays(value, np.array)

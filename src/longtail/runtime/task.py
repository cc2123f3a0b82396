"""Work that may run in another process, perhaps on another machine, and the engine that runs it there."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any, Protocol

import numpy as np

from longtail.config import config_context, get_config, temporarily
from longtail.kernels.types import Array
from longtail.runtime.signals import current_stopping, stoppable_by


@dataclass(frozen=True, eq=False)
class RemoteTask:
    """Work that can be sent elsewhere: a method of an object whose state is arrays and plain settings.

    The current engine (see `longtail.use_engine`), if any, gets the object once and then one block at a time; without
    an engine it is called like any other work, as ``work(block, stop)``.

    Parameters
    ----------
    owner : object
        Must not change while it is in use.
    method : str
        Called as ``method(*shared, block, stop)``.
    shared : tuple
        Arguments that all blocks of this run share.
    pack : callable, optional
        Turns a block into what is sent, just before it is sent.
    cpus : int
        Cores per block.

    Examples
    --------
    >>> RemoteTask([3, 1, 2], "index", pack=lambda block: block + 1)(1, 0)
    2
    """

    owner: Any
    method: str
    shared: tuple[Any, ...] = ()
    pack: Callable[[Any], Any] | None = None
    cpus: int = 1

    def __call__(self, block: Any, stop: Any) -> Any:
        """Run a block in this process."""
        packed = block if self.pack is None else self.pack(block)
        return getattr(self.owner, self.method)(*self.shared, packed, stop)


class Engine(Protocol):
    """Runs work somewhere else."""

    @property
    def cpus(self) -> int:
        """Number of cores now."""

    @property
    def is_own(self) -> bool:
        """Whether it was started on this machine for this program alone, and shares its memory."""

    def run(
        self, work: RemoteTask, blocks: Sequence[Any], finished: Callable[[int], None]
    ) -> Generator[Any]:  # pragma: no cover
        """Run all blocks and yield the results in order; `finished` is called with the index of each finished block."""

    def together(self, owner: Any, method: str, arguments: tuple[Any, ...]) -> Any:
        """Call a method in several processes that train one network together; return the result of the first."""

    def interrupt(self) -> None:
        """Stop everything that runs, after Ctrl-C."""


_engine: ContextVar[Engine | None] = ContextVar("longtail_engine", default=None)


def current_engine() -> Engine | None:
    """Return the engine that remote tasks go to; None for the threads of this process."""
    return _engine.get()


def using_engine(engine: Engine | None) -> AbstractContextManager[None]:
    """Return a context whose remote tasks go to an engine; None for the threads of this process."""
    return temporarily(_engine, engine)


def inheriting(work: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap work so that other threads run it with the engine, the settings and the stop request of this one."""
    engine, stopping, config = current_engine(), current_stopping(), get_config()

    def inherited(*arguments: Any) -> Any:
        with using_engine(engine), stoppable_by(stopping), config_context(**vars(config)):
            return work(*arguments)

    return inherited


def with_arrays(value: Any, change: Callable[[Array], Array]) -> Any:
    """Replace all arrays that an object holds, directly or in its parts, and return it.

    Objects, lists and dictionaries are changed in place, tuples are replaced.

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
        known[id(value)] = value, value  # before its parts, which may refer to it
        held: Any = value if isinstance(value, list | dict) else getattr(value, "__dict__", {})
        for name in range(len(held)) if isinstance(held, list) else list(held):
            held[name] = _changed(held[name], change, known)
        return value
    known[id(value)] = value, found  # keeps the old one alive, so that its id is not reused
    return found


def plain(array: Array) -> Array:
    """Return an array of a subclass, such as memmap, as a plain one on the same memory."""
    return array if type(array) is np.ndarray else np.asarray(array)


def own(value: Any) -> Any:
    """Return the object with copies of its arrays, which may lie in shared memory."""
    return with_arrays(value, np.array)

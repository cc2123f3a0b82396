"""Settings of a run: threads and memory. They never change a result, so they are not parameters of a learner."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import wraps
from numbers import Integral
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from longtail.errors import ParameterError

__all__ = ["Config", "config_context", "get_config", "set_config"]  # the others are for longtail's own packages

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_RUN_SETTINGS = ("n_jobs", "device")  # parameters of learners that don't change a model
_UNSET: Any = object()
T = TypeVar("T")


@dataclass(frozen=True)
class Config:
    """Settings of a run.

    Parameters
    ----------
    n_jobs : int, optional
        Threads; None for every core that the process may use.
    memory_limit : int or str, optional
        Memory that training may hold, in bytes or as text such as "2GB"; None for no limit.
    """

    n_jobs: int | None = None
    memory_limit: int | str | None = None


_default = Config()
_current: ContextVar[Config | None] = ContextVar("longtail_config", default=None)


def get_config() -> Config:
    """Return the settings in force.

    Examples
    --------
    >>> get_config()
    Config(n_jobs=None, memory_limit=None)
    """
    return _current.get() or _default


def set_config(*, n_jobs: int | None = _UNSET, memory_limit: int | str | None = _UNSET) -> None:
    """Change the settings of this process, or, inside a `config_context`, until its end; omitted ones stay.

    Examples
    --------
    >>> set_config(n_jobs=None)
    """
    global _default
    changes, inside = _checked(n_jobs, memory_limit), _current.get()
    if inside is None:
        _default = replace(_default, **changes)
    else:
        _current.set(replace(inside, **changes))


def config_context(
    *, n_jobs: int | None = _UNSET, memory_limit: int | str | None = _UNSET
) -> AbstractContextManager[None]:
    """Change the settings inside a ``with`` block; omitted ones stay.

    They hold for the work that longtail starts in the block. Other threads do not inherit them (`set_config` reaches
    these), nor do other processes, such as those of ``GridSearchCV(n_jobs=2)``.

    Parameters
    ----------
    n_jobs : int, optional
        Threads of learners whose own `n_jobs` is None. None and -1 mean every core, -2 all but one, and so on.
    memory_limit : int or str, optional
        Memory that training may hold: with less room it uses fewer threads and temporary files, or refuses to start.

    Examples
    --------
    >>> with config_context(n_jobs=2, memory_limit="2GB"):
    ...     get_config()
    Config(n_jobs=2, memory_limit='2GB')
    """
    return _changed(_checked(n_jobs, memory_limit))


@contextmanager
def _changed(changes: dict[str, Any]) -> Iterator[None]:
    with temporarily(_current, replace(get_config(), **changes)):
        yield


@contextmanager
def temporarily(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Set a context variable inside a ``with`` block."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def own_jobs(n_jobs: int | None) -> AbstractContextManager[None]:
    """Return the context of a learner or function with an `n_jobs` of its own, which may be None."""
    return nullcontext() if n_jobs is None else config_context(n_jobs=n_jobs)


class WithJobs:
    """A class whose own `n_jobs`, if it has one, applies inside the methods named in `_working`, whoever calls them."""

    _working: ClassVar[frozenset[str]] = frozenset()

    if TYPE_CHECKING:

        def get_params(self, deep: bool = True) -> dict[str, Any]: ...

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in cls._working & vars(cls).keys():
            setattr(cls, name, _with_own_jobs(vars(cls)[name]))

    def _run_settings(self) -> AbstractContextManager[None]:
        return own_jobs(getattr(self, "n_jobs", None))

    def _model_params(self) -> dict[str, Any]:
        """Return the parameters that a model depends on: all but settings of the run, which are not saved with it."""
        return {name: value for name, value in self.get_params(deep=False).items() if name not in _RUN_SETTINGS}


def _with_own_jobs(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def run(self: WithJobs, *args: Any, **kwargs: Any) -> Any:
        with self._run_settings():
            return method(self, *args, **kwargs)

    return run


def thread_count(n_jobs: int | None = None) -> int:
    """Return the number of threads to use: `n_jobs`, else that of the settings, else one per core.

    Examples
    --------
    >>> thread_count(3)
    3
    >>> with config_context(n_jobs=2):
    ...     thread_count()
    2
    """
    wanted = checked_jobs(get_config().n_jobs if n_jobs is None else n_jobs)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    most = min((limit for limit in (_most, _ceiling.get()) if limit is not None), default=None)
    if wanted is None or wanted < 0:
        wanted = max(1, cores + 1 + (-1 if wanted is None else wanted)) if _most is None else _most
    return wanted if most is None else min(wanted, most)


_most: int | None = None  # threads of this process
_ceiling: ContextVar[int | None] = ContextVar("longtail_ceiling", default=None)


def at_most(threads: int) -> AbstractContextManager[None]:
    """Limit the threads inside a ``with`` block, also those of learners with an `n_jobs` of their own.

    Examples
    --------
    >>> with at_most(1):
    ...     thread_count(3)
    1
    """
    return temporarily(_ceiling, min(threads, _ceiling.get() or threads))


def limit_threads(most: int | None) -> None:
    """Limit the threads of this process, whatever its settings, such as a worker of a cluster to its cores."""
    global _most
    _most = most


def memory_limit() -> int | None:
    """Return the memory limit in force, in bytes.

    Examples
    --------
    >>> with config_context(memory_limit="1.5 GB"):
    ...     memory_limit()
    1500000000
    """
    limit = get_config().memory_limit
    return None if limit is None else parse_memory(limit)


def parse_memory(limit: int | float | str, name: str = "memory_limit") -> int:
    """Read an amount of memory: bytes, or text such as ``"800 MB"`` or ``"1.5GB"`` (powers of ten).

    Examples
    --------
    >>> parse_memory("1.5 GB")
    1500000000
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)b?\s*", str(limit).lower())
    if isinstance(limit, bool) or found is None or float(found[1]) == 0:
        raise ParameterError(name, limit, "must be a number of bytes above 0, or text such as 800MB or 1.5GB")
    return int(float(found[1]) * _UNITS[found[2]])


def checked_jobs(n_jobs: Any) -> int | None:
    """Return a number of threads as it is, or raise a ParameterError."""
    if n_jobs is None:
        return None
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, Integral) or n_jobs == 0:
        raise ParameterError(
            "n_jobs", n_jobs, "must be a positive integer, -1 for all cores, -2 for all but one, or None"
        )
    return int(n_jobs)


def _checked(n_jobs: Any, limit: Any) -> dict[str, Any]:
    """Check the settings that are given, and return them by name."""
    changes = {}
    if n_jobs is not _UNSET:
        changes["n_jobs"] = checked_jobs(n_jobs)
    if limit is not _UNSET:
        if limit is not None:
            parse_memory(limit)
        changes["memory_limit"] = limit
    return changes

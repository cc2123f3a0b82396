"""How kernels are compiled: without the interpreter lock, and kept on disk for the next process."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, overload

from numba import njit

Function = TypeVar("Function", bound=Callable[..., Any])


@overload
def kernel(function: Function) -> Function: ...
@overload
def kernel(**options: Any) -> Callable[[Function], Function]: ...
def kernel(function: Any = None, **options: Any) -> Any:
    """Compile a function over arrays with numba; use it as ``@kernel`` or ``@kernel(fastmath=True)``.

    numba keeps compiled code until the file of the function changes, and does not see changes in functions that it
    calls from other files. Here a change in any file of longtail makes the code be compiled again. Where nothing can be
    written, compiled code is kept for the process alone.

    Examples
    --------
    >>> @kernel
    ... def total(values):
    ...     result = 0.0
    ...     for value in values:
    ...         result += value
    ...     return result
    """
    if function is None:
        return lambda function: kernel(function, **options)
    dispatcher = njit(nogil=True, **options)(function)
    try:
        dispatcher.enable_caching()
    except RuntimeError:  # no place to write to, or no file of its own
        return dispatcher
    index: Any = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    if hasattr(index, "_source_stamp"):
        index._source_stamp = (index._source_stamp, _package_stamp())
    return dispatcher


@cache
def _package_stamp() -> tuple[int, int]:
    """Newest change and total size of longtail's source files."""
    files = [file.stat() for file in Path(__file__).resolve().parents[1].rglob("*.py")]
    return max(file.st_mtime_ns for file in files), sum(file.st_size for file in files)

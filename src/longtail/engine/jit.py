"""How kernels are compiled: without the interpreter lock, and kept on disk for the next process."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

from numba import njit

from longtail.engine.compile_once import compile_once

Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(function: Function) -> Function:
    """Compile a function over arrays with numba when it is first called.

    numba keeps compiled code until the file of the function changes, and does not see changes in functions that it
    calls from other files. Here a change in any file of kernels makes the code be compiled again; such files import
    what they compile from each other alone. Where nothing can be written, compiled code is kept for the process alone.

    Examples
    --------
    >>> @kernel
    ... def total(values):
    ...     result = 0.0
    ...     for value in values:
    ...         result += value
    ...     return result
    """
    return _compiled(function)  # type: ignore[no-any-return]


def kernel_with(**options: Any) -> Callable[[Function], Function]:
    """Do what `kernel` does with more of numba's options, as in ``@kernel_with(fastmath=True)``."""
    return partial(_compiled, **options)


def _compiled(function: Any, **options: Any) -> Any:
    dispatcher = njit(nogil=True, **options)(function)
    try:
        dispatcher.enable_caching()
    except RuntimeError:  # no place to write to, or no file of its own
        return dispatcher
    index: Any = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    if hasattr(index, "_source_stamp"):
        index._source_stamp = (index._source_stamp, _package_stamp())
    compile_once(dispatcher)
    return dispatcher


@cache
def _package_stamp() -> str:
    """Digest of longtail's source files that hold compiled code: those that name numba or this module."""
    digest = hashlib.blake2b(digest_size=16)
    for file in sorted(Path(__file__).resolve().parents[1].rglob("*.py")):
        source = file.read_bytes()
        if b"numba" in source or b"engine.jit" in source:
            digest.update(source)
    return digest.hexdigest()

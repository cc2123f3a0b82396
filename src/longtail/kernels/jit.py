"""How kernels are compiled: without the interpreter lock, and cached on disk for other processes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import cache, partial
from pathlib import Path
from typing import IO, Any, TypeVar

from numba import njit

Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(function: Function) -> Function:
    """Compile a function over arrays with numba when it is first called.

    numba caches compiled code until the file of the function changes, and misses changes of functions that it calls
    from other files. Here a change in any file with kernels invalidates the cache; such files import compiled functions
    and constants from each other alone. Where the cache can't be written, the code is kept for this process alone.

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
    """Return a `kernel` decorator with more options of numba, as in ``@kernel_with(fastmath=True)``."""
    return partial(_compiled, **options)


def _compiled(function: Any, **options: Any) -> Any:
    dispatcher = njit(nogil=True, **options)(function)
    try:
        dispatcher.enable_caching()
    except RuntimeError:  # the cache can't be written, or the function has no file
        return dispatcher
    index: Any = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    if hasattr(index, "_version"):  # compared before the index is unpickled, which may name types that are gone
        index._version = f"{index._version} {_package_stamp()}"
    _compile_once(dispatcher)
    return dispatcher


@cache
def _package_stamp() -> str:
    """Return a digest of the source files with compiled code: those that name numba or this module."""
    digest = hashlib.blake2b(digest_size=16)
    for file in sorted(Path(__file__).resolve().parents[1].rglob("*.py")):
        source = file.read_bytes()
        if b"numba" in source or b"kernels.jit" in source:
            digest.update(source)
    return digest.hexdigest()


def _compile_once(dispatcher: Any) -> None:
    """Make a cached dispatcher look on disk once more, under a lock, before it compiles.

    Of several processes that need the same kernel one compiles it, and the others wait and read it from disk. A lock
    ends with its process. Where there are no locks, each process compiles for itself, as numba does.
    """
    cache = getattr(dispatcher, "_cache", None)
    index = getattr(getattr(cache, "_cache_file", None), "_index_path", None)
    if index is not None and hasattr(cache, "load_overload"):
        _LockedCompiler(dispatcher, cache, Path(index).with_suffix(".lock"))


class _LockedCompiler:
    def __init__(self, dispatcher: Any, cache: Any, path: Path) -> None:
        self._compile, self._load = dispatcher.compile, cache.load_overload
        self._path, self._held = path, False
        self._scope = ExitStack()
        dispatcher.compile, cache.load_overload = self.compile, self.load

    def compile(self, signature: Any) -> Any:
        from numba.core.compiler_lock import global_compiler_lock

        with global_compiler_lock:  # excludes the other threads before the file lock excludes other processes
            is_outermost = not self._held
            try:
                return self._compile(signature)
            finally:
                if is_outermost:
                    self._scope.close()
                    self._held = False

    def load(self, signature: Any, context: Any) -> Any:
        """Return the code on disk; where there is none, look again once the lock is held."""
        found = self._load(signature, context)
        if found is not None or self._held:
            return found
        with suppress(OSError, ImportError):
            self._scope.enter_context(_locked(self._path))
            self._held = True
            found = self._load(signature, context)
        return found


def _locked(path: Path) -> IO[bytes]:
    """Open a file and wait for an exclusive lock on it; closing the file releases the lock."""
    import fcntl

    path.parent.mkdir(parents=True, exist_ok=True)
    file = open(path, "ab")  # noqa: SIM115
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
    except BaseException:
        file.close()
        raise
    return file

"""Several processes that want the same numba kernel: one compiles it, the others wait and read it from disk."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any


def compile_once(dispatcher: Any) -> None:
    """Let a dispatcher that keeps its code on disk look there once more, under a lock, before it compiles.

    Without it every worker of a new machine would compile for a minute what the one next to it compiles too. A lock
    ends with its process. Where there are no locks, each process compiles for itself, as numba does.
    """
    cache = getattr(dispatcher, "_cache", None)
    index = getattr(getattr(cache, "_cache_file", None), "_index_path", None)
    if index is None or not hasattr(cache, "load_overload"):
        return
    _Once(dispatcher, cache, Path(index).with_suffix(".lock"))


class _Once:
    def __init__(self, dispatcher: Any, cache: Any, path: Path) -> None:
        self._compile, self._load = dispatcher.compile, cache.load_overload
        self._path, self._held = path, False
        self._scope = ExitStack()
        dispatcher.compile, cache.load_overload = self.compile, self.load

    def compile(self, signature: Any) -> Any:
        from numba.core.compiler_lock import global_compiler_lock

        with global_compiler_lock:  # one thread alone, before any lock of a file
            is_outermost = not self._held
            try:
                return self._compile(signature)
            finally:
                if is_outermost:
                    self._scope.close()
                    self._held = False

    def load(self, signature: Any, context: Any) -> Any:
        """What is on disk; where there is nothing, what is there once nobody else is at it."""
        found = self._load(signature, context)
        if found is not None or self._held:
            return found
        with suppress(OSError, ImportError):
            self._scope.enter_context(_locked(self._path))
            self._held = True
            found = self._load(signature, context)
        return found


def _locked(path: Path) -> IO[bytes]:
    """Open a file and wait until it is ours alone; closing it lets it go."""
    import fcntl

    path.parent.mkdir(parents=True, exist_ok=True)
    file = open(path, "ab")  # noqa: SIM115
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
    except BaseException:
        file.close()
        raise
    return file

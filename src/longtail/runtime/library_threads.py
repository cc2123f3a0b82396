"""One thread for numpy, scipy and torch: longtail has threads of its own, whose number changes no result."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache, partial
from importlib.util import find_spec
from typing import Any

from longtail.errors import MissingExtraError


class _OneThread:
    """A limit of one thread on a library; the last of several users to leave restores its setting."""

    def __init__(self, apply: Callable[[], Callable[[], None]]) -> None:
        self._apply, self._lock, self._users = apply, threading.Lock(), 0
        self._restore: Callable[[], None]

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep the limit inside a ``with`` block."""
        with self._lock:
            if not self._users:
                self._restore = self._apply()
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    self._restore()


def _limit_blas() -> Callable[[], None]:
    stack = ExitStack()
    stack.enter_context(_blas().limit(limits=1))
    return stack.close


def _limit_torch() -> Callable[[], None]:
    import torch

    return partial(torch.set_num_threads, torch.get_num_threads())


_BLAS, _TORCH = _OneThread(_limit_blas), _OneThread(_limit_torch)


def one_blas_thread() -> AbstractContextManager[None]:
    """Run matrix products of numpy and scipy on one thread inside a ``with`` block.

    Examples
    --------
    >>> with one_blas_thread():
    ...     pass
    """
    return _BLAS.held()


@cache
def _blas() -> Any:
    """Return the thread pools of the loaded BLAS libraries; looking for them is slow, so it is done once."""
    from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

    return ThreadpoolController().select(user_api="blas")


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Run torch on one thread inside a ``with`` block."""
    import torch

    with _TORCH.held():
        torch.set_num_threads(1)  # of this thread, too
        yield


def require_torch(what: str) -> None:
    """Raise a MissingExtraError if torch is not installed."""
    if find_spec("torch") is None:
        raise MissingExtraError(what, "neural")

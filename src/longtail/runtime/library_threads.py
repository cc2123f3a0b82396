"""One thread for numpy, scipy and torch: longtail has threads of its own, whose number changes no result."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from typing import Any

from longtail.errors import MissingExtraError

_lock = threading.Lock()
_inside = 0
_before = 1


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Run matrix products of numpy and scipy on one thread inside.

    Examples
    --------
    >>> with one_blas_thread():
    ...     pass
    """
    with _blas().limit(limits=1):
        yield


@cache
def _blas() -> Any:
    """Return the thread pools of the loaded BLAS libraries; looking for them is slow, so it is done once."""
    from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

    return ThreadpoolController().select(user_api="blas")


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Run torch on one thread inside; the last of several threads to leave restores its setting."""
    import torch

    global _inside, _before
    with _lock:
        if not _inside:
            _before = torch.get_num_threads()
        _inside += 1
        torch.set_num_threads(1)
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                torch.set_num_threads(_before)


def require_torch(what: str) -> None:
    """Raise a MissingExtraError if torch is not installed."""
    if find_spec("torch") is None:
        raise MissingExtraError(what, "neural")

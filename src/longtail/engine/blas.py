"""Matrix products on one thread: ours are the threads, and what several would add up depends on their number."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let the matrix products of numpy and scipy work on one thread each.

    Examples
    --------
    >>> with one_blas_thread():
    ...     pass
    """
    with _pools().limit(limits=1):
        yield


@cache
def _pools() -> Any:
    """The thread pools of the libraries that are loaded; looking for them takes a while, so it is done once."""
    from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

    return ThreadpoolController().select(user_api="blas")

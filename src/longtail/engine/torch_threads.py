"""torch with one thread: threads are ours, so that their number changes no result."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_inside = 0
_before = 1


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Let torch work with one thread inside; who leaves last, of several threads, gives it back what it had."""
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

"""Writing to a disk that may be full, slow or gone: one error for all of it, and locks that end with the process."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from longtail.errors import DiskError


@contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn whatever the system says while `path` is written into a `DiskError` that names it.

    Examples
    --------
    >>> with writing("model"):
    ...     open("/no/such/place", "wb")
    Traceback (most recent call last):
    ...
    longtail.errors.DiskError: model: can't be written: No such file or directory.
    """
    try:
        yield
    except DiskError:
        raise
    except OSError as error:
        raise DiskError(error, path=path) from None


def locked(file: int | IO[bytes]) -> bool:
    """Take an open file or directory for this process alone, where the system has locks; False if another holds it.

    The lock ends with the process, however that ends.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:  # a file system without locks is no reason to refuse
        return error.errno not in (errno.EAGAIN, errno.EACCES, errno.EWOULDBLOCK)
    return True

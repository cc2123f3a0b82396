"""A directory that appears whole or not at all: written beside its place, synced, then moved there in one step."""

from __future__ import annotations

import ctypes
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """Give a new directory to write into; it takes the place of `target` once the block ends without an error.

    Whatever happens, `target` is afterwards the old directory or the new one, complete. Files are to be synced by
    whoever writes them.

    Examples
    --------
    >>> import tempfile
    >>> place = Path(tempfile.mkdtemp()) / "letters"
    >>> with replacing(place) as fresh:
    ...     _ = (fresh / "a.txt").write_text("a")
    >>> [file.name for file in place.iterdir()]
    ['a.txt']
    """
    target = target.resolve()
    fresh = target.parent / f".{target.name}.{secrets.token_hex(4)}.tmp"
    fresh.mkdir()
    try:
        yield fresh
        _sync(fresh)
        _move(fresh, target)
        _sync(target.parent)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _move(fresh: Path, target: Path) -> None:
    with suppress(OSError):  # works where target is absent or empty
        fresh.rename(target)
        return
    if _exchange(fresh, target):
        return
    aside = fresh.with_suffix(".old")
    target.rename(aside)
    try:
        fresh.rename(target)
    except BaseException:
        aside.rename(target)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _exchange(one: Path, other: Path) -> bool:
    """Swap two directories in one system call, where the system has it: nobody ever sees the place empty."""
    try:
        renameat2 = ctypes.CDLL(None).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    return bool(renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0)


def _sync(directory: Path) -> None:
    with suppress(OSError):  # some file systems can't sync a directory
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

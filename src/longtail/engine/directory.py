"""A directory that appears whole or not at all: written beside its place, synced, then moved there in one step."""

from __future__ import annotations

import ctypes
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from longtail.engine.disk import locked

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """Give a new directory to write into; it takes the place of `target` once the block ends without an error.

    Whatever happens, `target` is afterwards the old directory or the new one, complete. Files are to be synced by
    whoever writes them. What a process that was killed left unfinished beside `target` is removed.

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
    _clear_up(target)
    fresh, handle = _begun(target)
    try:
        yield fresh
        _sync(fresh)
        _move(fresh, target)
        _sync(target.parent)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        os.close(handle)


def _begun(target: Path) -> tuple[Path, int]:
    """Make a directory and lock it, so that others see that it is in use; nobody else's clearing up gets between."""
    while True:
        fresh = target.parent / f".{target.name}.{secrets.token_hex(4)}.tmp"
        fresh.mkdir()
        with suppress(FileNotFoundError):
            handle = os.open(fresh, os.O_RDONLY)
            if locked(handle) and fresh.exists():
                return fresh, handle
            os.close(handle)


def _clear_up(target: Path) -> None:
    """Remove what killed processes left beside `target`, and put an old directory back that was moved aside last."""
    for left in sorted(target.parent.glob(f".{_escaped(target.name)}.????????.*")):
        if left.suffix == ".old" and not target.exists():
            with suppress(OSError):
                left.rename(target)
                continue
        if left.suffix not in (".tmp", ".old"):
            continue
        with suppress(OSError):
            handle = os.open(left, os.O_RDONLY)
            try:
                if locked(handle):
                    shutil.rmtree(left, ignore_errors=True)
            finally:
                os.close(handle)


def _escaped(name: str) -> str:
    """Take characters of a name for themselves in a pattern."""
    return "".join(f"[{character}]" if character in "*?[" else character for character in name)


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

"""Atomic writes of files and directories, one error for all failed writes, and locks."""

from __future__ import annotations

import ctypes
import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import IO, BinaryIO

from longtail.errors import DiskError, InputError, ParameterError

_UNITS = {"kB": 1e3, "MB": 1e6, "GB": 1e9}
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


@contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn every OSError raised while `path` is written into a `DiskError` that names it.

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


def check_out_file(path: Path, *endings: str, name: str = "path") -> None:
    """Raise an error for a file that can't be written, or whose name has another ending.

    Examples
    --------
    >>> check_out_file(Path("plot.jpg"), ".png", ".svg", name="--plot")
    Traceback (most recent call last):
    ...
    longtail.errors.ParameterError: --plot must end in .png or .svg, got 'plot.jpg'.
    """
    if str(path) == "-":
        raise ParameterError(name, "-", "must be the name of a file, because this can't go to standard output")
    if endings and path.suffix.lower() not in endings:
        *others, last = endings
        listed = f"{', '.join(others)} or {last}" if others else last
        raise ParameterError(name, str(path), f"must end in {listed}")
    if path.is_dir():
        raise InputError("is a directory: give the name of a file.", path=path)
    if not path.resolve().parent.is_dir():
        raise InputError(f"can't be written: {path.resolve().parent} is not a directory.", path=path)


def shown_size(size: float) -> str:
    """Write a number of bytes in the unit that suits it.

    Examples
    --------
    >>> shown_size(12), shown_size(3_400), shown_size(8_700_000), shown_size(1.5e9), shown_size(1e12)
    ('12 bytes', '3.4 kB', '8.7 MB', '1,500 MB', '1,000 GB')
    """
    if size < 1000:
        return "1 byte" if size == 1 else f"{size:.0f} bytes"
    unit = "kB" if size < 1e6 else "MB" if size < 1e10 else "GB"
    number = size / _UNITS[unit]
    return f"{number:,.1f} {unit}" if number < 99.95 else f"{number:,.0f} {unit}"


def directory_size(path: Path) -> int:
    """Return the bytes of the files of a directory, such as a model."""
    return sum(file.stat().st_size for file in path.iterdir())


def locked(file: int | IO[bytes]) -> bool:
    """Lock an open file or directory for this process, where the system has locks; return False if another holds it.

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


@contextmanager
def replacing_file(path: Path) -> Iterator[BinaryIO]:
    """Open a new file that replaces `path` once the block ends without an error.

    A killed process leaves a file ``new-*``.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.txt"
    >>> with replacing_file(path) as file:
    ...     _ = file.write(b"a")
    >>> path.read_text()
    'a'
    """
    new = path.with_name(f"new-{secrets.token_hex(4)}-{path.name}")
    try:
        with open(new, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    except BaseException:
        with suppress(OSError):
            new.unlink()
        raise


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """Yield a new directory that replaces `target` once the block ends without an error.

    Whatever happens, `target` is afterwards the old directory or the complete new one. The caller syncs the files.
    Unfinished directories that killed processes left beside `target` are removed.

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
    fresh, handle = _locked_directory(target)
    try:
        yield fresh
        _sync(fresh)
        _move(fresh, target)
        _sync(target.parent)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        os.close(handle)


def _locked_directory(target: Path) -> tuple[Path, int]:
    """Create a directory beside `target` and lock it, so that no other process removes it."""
    while True:
        fresh = target.parent / f".{target.name}.{secrets.token_hex(4)}.tmp"
        fresh.mkdir()
        with suppress(FileNotFoundError):
            handle = os.open(fresh, os.O_RDONLY)
            if locked(handle) and fresh.exists():
                return fresh, handle
            os.close(handle)


def _clear_up(target: Path) -> None:
    """Remove directories of killed processes beside `target`; restore the old one if it was moved aside last."""
    for left in sorted(target.parent.glob(f".{escape(target.name)}.????????.*")):
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
    """Swap two directories in one system call, where the system has it, so that `target` is never missing."""
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

"""Finished blocks on disk: in a temporary file, or in one that is kept, so that training can be resumed."""

from __future__ import annotations

import os
import struct
import tempfile
import zlib
from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from io import RawIOBase
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

import numpy as np
import numpy.typing as npt

from longtail.config import temporarily
from longtail.errors import InputError
from longtail.runtime.disk import locked, writing

_MAGIC = b"longtail blocks 1"
_DTYPES = tuple(np.dtype(kind) for kind in ("<u1", "<u2", "<i4", "<f4", "<i8", "<f8", "<i1", "<i2", "<u4"))
_SUFFIX = ".blocks"
_MOST_AT_ONCE = 1 << 30  # bytes
_HEAD, _ARRAY = struct.Struct("<IB"), struct.Struct("<Bq")


@dataclass
class _Resumption:
    """The directory for the block files of this run, and the number of files opened so far."""

    directory: Path
    opened: int = 0


_resumption: ContextVar[_Resumption | None] = ContextVar("longtail_resumption", default=None)


@contextmanager
def resumable(path: str | PathLike[str], *, restart: bool = False, discard: bool = True) -> Iterator[None]:
    """Keep the finished blocks of learners trained inside in a directory, and resume from those of an earlier run.

    When the ``with`` block ends without an error, the directory is removed. Other runs can't use it meanwhile.

    Parameters
    ----------
    path : path-like
        Directory for the finished blocks; created if it doesn't exist.
    restart : bool
        Whether to discard the blocks of an earlier run.
    discard : bool
        Whether to remove the directory at the end; of several processes that train together, one does.

    Raises
    ------
    InputError
        When the directory holds blocks of other data, other parameters or another version, or is in use.

    Examples
    --------
    >>> from longtail import OneVsRest
    >>> with resumable(tempfile.mkdtemp() + "/unfinished"):
    ...     learner = OneVsRest().fit([[1, 0], [0, 1]], [[1, 0], [0, 1]])
    """
    directory = Path(path)
    if directory.exists() and not directory.is_dir():
        raise InputError("is a file: give the name of a directory for the finished blocks.", path=directory)
    if not directory.resolve().parent.is_dir():
        raise InputError(f"can't be created: {directory.resolve().parent} is not a directory.", path=directory)
    directory.mkdir(exist_ok=True)
    if not holds_blocks_only(directory):
        raise InputError("holds other files than finished blocks: give another directory.", path=directory)
    held = _held(directory) if discard else None
    try:
        if held is not None or restart:
            _remove_blocks(directory, "*" if restart else "new-*")
        with temporarily(_resumption, _Resumption(directory)):
            yield
        if discard:
            _remove_blocks(directory)
    finally:
        with suppress(OSError):  # it has blocks
            directory.rmdir()
        if held is not None:
            os.close(held)


def _held(directory: Path) -> int | None:
    """Lock a directory for this run until the returned handle is closed; None where there are no locks."""
    try:
        handle = os.open(directory, os.O_RDONLY)
    except OSError:  # Windows
        return None
    if not locked(handle):
        os.close(handle)
        raise InputError("is in use by another run: wait for it to end, or give another directory.", path=directory)
    return handle


def holds_blocks_only(directory: Path) -> bool:
    """Return whether a directory holds nothing but finished blocks."""
    return all(file.suffix == _SUFFIX for file in directory.iterdir())


def _remove_blocks(directory: Path, name: str = "*") -> None:
    for file in directory.glob(f"{name}{_SUFFIX}"):
        file.unlink()


def is_resumable() -> bool:
    """Return whether finished blocks are kept after this run."""
    return _resumption.get() is not None


def place() -> tuple[str, int] | None:
    """Return the directory of finished blocks and the number of files opened there, for other processes."""
    resumption = _resumption.get()
    return None if resumption is None else (str(resumption.directory.resolve()), resumption.opened)


def resumed_at(place: tuple[str, int] | None) -> AbstractContextManager[None]:
    """Return a context that keeps finished blocks in the `place` of another process, if this one has the directory."""
    found = None if place is None or not Path(place[0]).is_dir() else _Resumption(Path(place[0]), place[1])
    return temporarily(_resumption, found)


def opened() -> int:
    """Return the number of block files that this run has opened."""
    return 0 if (resumption := _resumption.get()) is None else resumption.opened


def count_as_opened(number: int) -> None:
    """Set the number of opened files to at least that of another process."""
    if (resumption := _resumption.get()) is not None:
        resumption.opened = max(resumption.opened, number)


def spill_directory() -> Path | None:
    """Return the directory for temporary files of this run, that of its finished blocks; None where none are kept."""
    resumption = _resumption.get()
    return resumption.directory if resumption is not None and resumption.directory.is_dir() else None


def next_file() -> Path | None:
    """Return the path of the next block file, numbered in the order of the calls; None where none are kept."""
    if (resumption := _resumption.get()) is None:
        return None
    resumption.opened += 1
    return resumption.directory / f"{resumption.opened - 1}{_SUFFIX}"


class BlockFile:
    """Arrays of finished blocks, appended one block after the other and read in any order.

    Parameters
    ----------
    fingerprint : bytes, optional
        Identifies the training; only blocks with the same fingerprint are used again. Without it the file is temporary.
    """

    def __init__(self, fingerprint: bytes | None = None) -> None:
        head = _MAGIC + len(fingerprint or b"").to_bytes(1, "little") + (fingerprint or b"")
        self._file: RawIOBase
        self._path = path = None if fingerprint is None else next_file()
        self._starts: list[int] = []
        self._end = 0
        if path is None:
            with writing(spill_directory() or tempfile.gettempdir()):
                self._file = cast(RawIOBase, tempfile.TemporaryFile(buffering=0, dir=spill_directory()))  # noqa: SIM115
            self._write(head)
            return
        with writing(path):
            self._file = open(path, "r+b" if path.exists() else "w+b", buffering=0)  # noqa: SIM115
        try:
            self._resume(head, path)
        except BaseException:
            self._file.close()
            raise

    def _resume(self, head: bytes, path: Path) -> None:
        """Find the blocks of an earlier run in the file."""
        if not locked(self._file.fileno()):
            raise InputError("is in use by another run: wait for it to end, or give another directory.", path=path)
        found = self._read(len(head))
        if found == head:
            self._end = len(head)
            self._find_finished()
        elif len(found) < len(head) and head.startswith(found):
            self._write(head)
        else:
            raise other_training(path)
        with writing(path):
            self._file.truncate(self._end)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if not self._starts and self._path is not None:
            self._path.unlink(missing_ok=True)
        self._file.close()

    def __len__(self) -> int:
        return len(self._starts)

    def append(self, arrays: Sequence[npt.NDArray[Any]]) -> None:
        """Append a block of flat arrays."""
        sizes = b"".join(_ARRAY.pack(_DTYPES.index(array.dtype), len(array)) for array in arrays)
        payload = [np.ascontiguousarray(array).view(np.uint8).data for array in arrays if len(array)]
        checksum = zlib.crc32(sizes)
        for part in payload:
            checksum = zlib.crc32(part, checksum)
        start = self._end
        self._write(_HEAD.pack(checksum, len(arrays)) + sizes, *payload)
        self._starts.append(start)

    def append_all(self, blocks: Generator[Sequence[npt.NDArray[Any]]]) -> None:
        """Append blocks as a generator yields them; a stop during a write is thrown into it, for its message."""
        for block in blocks:
            try:
                self.append(block)
            except KeyboardInterrupt as stop:
                blocks.throw(stop)

    def _write(self, *parts: bytes | memoryview) -> None:
        """Write at the end, whole or not at all: after an error the file is truncated to its old size."""
        try:
            with writing(self._path or tempfile.gettempdir()):
                self._file.seek(self._end)
                for part in parts:
                    left = memoryview(part)
                    while left:
                        left = left[self._file.write(left) or 0 :]
        except BaseException:
            with suppress(OSError):
                self._file.truncate(self._end)
            raise
        self._end += sum(len(part) for part in parts)

    def _read(self, size: int) -> bytes:
        """Read `size` bytes, or fewer at the end of the file."""
        parts = []
        while size and (part := self._file.read(min(size, _MOST_AT_ONCE))):
            parts.append(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _read_head(self, start: int) -> tuple[int, int, bytes]:
        """Read checksum, number of arrays and their packed types and lengths of the block at `start`."""
        self._file.seek(start)
        checksum, count = _HEAD.unpack(self._read(_HEAD.size))
        return checksum, count, self._read(_ARRAY.size * count)

    def read(self, block: int, arrays: int | None = None) -> list[npt.NDArray[Any]]:
        """Read the arrays of a block, or only the first few of them."""
        checksum, count, sizes = self._read_head(self._starts[block])
        described = list(_ARRAY.iter_unpack(sizes))[:arrays]
        payload = self._read(sum(_DTYPES[kind].itemsize * length for kind, length in described))
        if len(described) == count and zlib.crc32(payload, zlib.crc32(sizes)) != checksum:
            raise InputError(
                "was changed while it was in use: start the training again.", path=self._path or "temporary file"
            )
        found, at = [], 0
        for kind, length in described:
            found.append(np.frombuffer(payload, _DTYPES[kind], length, at))
            at += _DTYPES[kind].itemsize * length
        return found

    def lengths(self, block: int) -> list[int]:
        """Return the lengths of the arrays of a block."""
        return [length for _, length in _ARRAY.iter_unpack(self._read_head(self._starts[block])[2])]

    def _find_finished(self) -> None:
        """Find the complete blocks of an earlier run, up to the first incomplete one."""
        size = self._file.seek(0, 2)
        while self._end + _HEAD.size <= size:
            checksum, count, sizes = self._read_head(self._end)
            if not count or len(sizes) < _ARRAY.size * count:  # zeros, as a crashed machine may leave
                return
            described = list(_ARRAY.iter_unpack(sizes))
            if any(kind >= len(_DTYPES) or not 0 <= length <= size for kind, length in described):
                return
            wanted = sum(_DTYPES[kind].itemsize * length for kind, length in described)
            payload = self._read(wanted)
            if len(payload) < wanted or zlib.crc32(payload, zlib.crc32(sizes)) != checksum:
                return
            self._starts.append(self._end)
            self._end = self._file.tell()


def other_training(path: Path) -> InputError:
    """Return the error for blocks or states of another training."""
    return InputError(
        "belongs to another training (other data, parameters or version): train without resuming, or remove it.",
        path=path,
    )

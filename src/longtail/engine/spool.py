"""Finished blocks on disk: in a temporary file, or in one that outlives the run, so that training can be resumed."""

from __future__ import annotations

import os
import struct
import tempfile
import zlib
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from io import RawIOBase
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

import numpy as np
import numpy.typing as npt

from longtail.engine.disk import locked, writing
from longtail.errors import InputError

_MAGIC = b"longtail blocks 1"
_DTYPES = tuple(np.dtype(kind) for kind in ("<u1", "<u2", "<i4", "<f4", "<i8", "<f8", "<i1", "<i2", "<u4"))
_SUFFIX = ".blocks"
_MOST_AT_ONCE = 1 << 30  # bytes
_HEAD, _ARRAY = struct.Struct("<IB"), struct.Struct("<Bq")


class _Resumption:
    """Where the spools of this run are kept, and how many have been opened."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.opened = 0


_resumption: ContextVar[_Resumption | None] = ContextVar("longtail_resumption", default=None)


@contextmanager
def resumable(path: str | PathLike[str], *, anew: bool = False, discard: bool = True) -> Iterator[None]:
    """Keep what learners finish inside in a directory, and go on from what an earlier run left there.

    When the block ends without an error, the directory is removed. Another run can't use it meanwhile.

    Parameters
    ----------
    path : path-like
        Directory for the finished blocks; made if it is not there.
    anew : bool
        Whether to throw away what an earlier run left there.
    discard : bool
        Whether to remove it: among several processes that train together, one does.

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
        raise InputError(f"can't be made: {directory.resolve().parent} is not a directory.", path=directory)
    directory.mkdir(exist_ok=True)
    if not holds_blocks_only(directory):
        raise InputError("holds other files than finished blocks: give another directory.", path=directory)
    held = _held(directory) if discard else None
    token = _resumption.set(_Resumption(directory))
    try:
        if anew:
            _remove_blocks(directory)
        yield
        if discard:
            _remove_blocks(directory)
    finally:
        _resumption.reset(token)
        with suppress(OSError):  # there are blocks in it
            directory.rmdir()
        if held is not None:
            os.close(held)


def _held(directory: Path) -> int | None:
    """Take a directory for this run alone, until the handle that is given is closed; None where that can't be."""
    try:
        handle = os.open(directory, os.O_RDONLY)
    except OSError:  # Windows
        return None
    if not locked(handle):
        os.close(handle)
        raise InputError("is in use by another run: wait for its end, or train elsewhere.", path=directory)
    return handle


def holds_blocks_only(directory: Path) -> bool:
    """Whether a directory holds nothing but finished blocks."""
    return all(file.suffix == _SUFFIX for file in directory.iterdir())


def _remove_blocks(directory: Path) -> None:
    for file in directory.glob(f"*{_SUFFIX}"):
        file.unlink()


def is_resumable() -> bool:
    """Whether finished blocks will outlive this run."""
    return _resumption.get() is not None


def place() -> tuple[str, int] | None:
    """Where finished blocks outlive this run, and how many files have been opened there; for other processes."""
    resumption = _resumption.get()
    return None if resumption is None else (str(resumption.directory.resolve()), resumption.opened)


@contextmanager
def taken_up(place: tuple[str, int] | None) -> Iterator[None]:
    """Keep what is finished inside in the `place` of another process, where this one has the directory too."""
    found = None
    if place is not None and Path(place[0]).is_dir():
        found = _Resumption(Path(place[0]))
        found.opened = place[1]
    token = _resumption.set(found)
    try:
        yield
    finally:
        _resumption.reset(token)


def opened() -> int:
    """How many files have been opened that outlive this run."""
    resumption = _resumption.get()
    return 0 if resumption is None else resumption.opened


def count_as_opened(number: int) -> None:
    """Let so many files count as opened: another process did."""
    resumption = _resumption.get()
    if resumption is not None:
        resumption.opened = max(resumption.opened, number)


def spill_directory() -> Path | None:
    """Directory for temporary files of this run, which lies beside its finished blocks; None where nothing is kept."""
    resumption = _resumption.get()
    return resumption.directory if resumption is not None and resumption.directory.is_dir() else None


def next_file() -> Path | None:
    """Name the file in which what is opened next is kept; None where nothing outlives the run.

    Files are numbered in the order in which learners ask for them.
    """
    resumption = _resumption.get()
    if resumption is None:
        return None
    resumption.opened += 1
    return resumption.directory / f"{resumption.opened - 1}{_SUFFIX}"


class BlockSpool:
    """Arrays of finished blocks, written one block after the other and read back in any order.

    Parameters
    ----------
    fingerprint : bytes, optional
        Says what the blocks belong to; only blocks with the same one are taken up again. Without it the blocks never
        outlive the spool.
    """

    def __init__(self, fingerprint: bytes | None = None) -> None:
        self._places: list[int] = []
        path = None if fingerprint is None else next_file()
        head = _MAGIC + len(fingerprint or b"").to_bytes(1, "little") + (fingerprint or b"")
        self._file: RawIOBase
        self._path = path
        self._end = 0
        if path is None:
            with writing(spill_directory() or tempfile.gettempdir()):
                self._file = cast(RawIOBase, tempfile.TemporaryFile(buffering=0, dir=spill_directory()))  # noqa: SIM115
            self._write(head)
            return
        with writing(path):
            self._file = open(path, "r+b" if path.exists() else "w+b", buffering=0)  # noqa: SIM115
        try:
            self._take_up(head, path)
        except BaseException:
            self._file.close()
            raise

    def _take_up(self, head: bytes, path: Path) -> None:
        """Find the blocks that an earlier run left in the file."""
        if not locked(self._file.fileno()):
            raise InputError("is in use by another run: wait for its end, or train elsewhere.", path=path)
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
        if not self._places and self._path is not None:
            self._path.unlink(missing_ok=True)
        self._file.close()

    def __len__(self) -> int:
        return len(self._places)

    def append(self, arrays: Sequence[npt.NDArray[Any]]) -> None:
        """Write the arrays of one more block, each flat."""
        sizes = b"".join(_ARRAY.pack(_DTYPES.index(array.dtype), len(array)) for array in arrays)
        payload = [np.ascontiguousarray(array).view(np.uint8).data for array in arrays if len(array)]
        checksum = zlib.crc32(sizes)
        for part in payload:
            checksum = zlib.crc32(part, checksum)
        place = self._end
        self._write(_HEAD.pack(checksum, len(arrays)) + sizes, *payload)
        self._places.append(place)

    def append_all(self, blocks: Generator[Sequence[npt.NDArray[Any]]]) -> None:
        """Write blocks as they are made; a stop while one is written goes to their maker, who says what was done."""
        for block in blocks:
            try:
                self.append(block)
            except KeyboardInterrupt as stop:
                blocks.throw(stop)

    def _write(self, *parts: bytes | memoryview) -> None:
        """Write at the end, whole or not at all: what a full disk cut off is taken back."""
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
        """Read so many bytes, fewer at the end of the file."""
        parts = []
        while size and (part := self._file.read(min(size, _MOST_AT_ONCE))):
            parts.append(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read(self, block: int, arrays: int | None = None) -> list[npt.NDArray[Any]]:
        """Read the arrays of a block, or only the first few of them."""
        self._file.seek(self._places[block])
        checksum, count = _HEAD.unpack(self._read(_HEAD.size))
        sizes = self._read(_ARRAY.size * count)
        described = list(_ARRAY.iter_unpack(sizes))[:arrays]
        payload = self._read(sum(_DTYPES[kind].itemsize * length for kind, length in described))
        if len(described) == count and zlib.crc32(payload, zlib.crc32(sizes)) != checksum:
            raise InputError("was changed while it was in use: train again.", path=self._path or "temporary file")
        found, at = [], 0
        for kind, length in described:
            found.append(np.frombuffer(payload, _DTYPES[kind], length, at))
            at += _DTYPES[kind].itemsize * length
        return found

    def lengths(self, block: int) -> list[int]:
        """Lengths of the arrays of a block."""
        self._file.seek(self._places[block])
        _, count = _HEAD.unpack(self._read(_HEAD.size))
        return [length for _, length in _ARRAY.iter_unpack(self._read(_ARRAY.size * count))]

    def _find_finished(self) -> None:
        """Note the whole blocks of an earlier run; one that was cut off ends the list."""
        size = self._file.seek(0, 2)
        while self._end + _HEAD.size <= size:
            self._file.seek(self._end)
            checksum, count = _HEAD.unpack(self._read(_HEAD.size))
            sizes = self._read(_ARRAY.size * count)
            if not count or len(sizes) < _ARRAY.size * count:  # zeros are what a crashed machine leaves
                return
            described = list(_ARRAY.iter_unpack(sizes))
            if any(kind >= len(_DTYPES) or not 0 <= length <= size for kind, length in described):
                return
            wanted = sum(_DTYPES[kind].itemsize * length for kind, length in described)
            payload = self._read(wanted)
            if len(payload) < wanted or zlib.crc32(payload, zlib.crc32(sizes)) != checksum:
                return
            self._places.append(self._end)
            self._end = self._file.tell()


def other_training(path: Path) -> InputError:
    """Refusal to go on from what doesn't belong to this training."""
    return InputError(
        "is of another training (other data, parameters or version of longtail): start anew without resuming, or "
        "remove it.",
        path=path,
    )

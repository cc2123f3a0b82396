"""Plain, .gz, .xz and .zst files: read in bounded pieces, and written completely or not at all."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import secrets
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from glob import escape, glob
from typing import Any, BinaryIO, cast

from longtail.errors import InputError, MissingExtraError
from longtail.runtime.disk import locked

COMPRESSIONS = (".gz", ".xz", ".zst")
_MAGIC = {b"\x1f\x8b": ".gz", b"\xfd7zXZ\x00": ".xz", b"\x28\xb5\x2f\xfd": ".zst"}
_PIECE = 1 << 18
_LEFT_AFTER = 1.0  # seconds: a new file may not be locked yet
_ZST_INPUT = 1 << 13  # zstandard can't bound its output, so its input is small


def split_suffix(path: str | os.PathLike[str]) -> tuple[str, str]:
    """Split a path into stem and compression suffix.

    Examples
    --------
    >>> split_suffix("train.txt.gz"), split_suffix("train.txt")
    (('train.txt', '.gz'), ('train.txt', ''))
    """
    text = os.fspath(path)
    for suffix in COMPRESSIONS:
        if text.lower().endswith(suffix):
            return text[: -len(suffix)], suffix
    return text, ""


class ByteReader(io.RawIOBase):
    """Read-only stream over a plain or compressed file, recognised by its first bytes, in bounded memory.

    Parameters
    ----------
    path : path-like

    Attributes
    ----------
    size : int
        Bytes of the file on disk.
    consumed : int
        Bytes of the file read so far, for progress bars.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__()
        self.path = os.fspath(path)
        self.consumed = 0
        self._file: io.FileIO | None = None
        try:
            self._file = io.FileIO(self.path, "rb")
            self.size = os.fstat(self._file.fileno()).st_size
            head = self._file.read(8) or b""
            self._file.seek(0)
        except OSError as error:
            self.close()
            raise self._unreadable(error) from None
        kind = next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), "")
        named = split_suffix(self.path)[1]
        if named and head and kind != named:
            self.close()
            raise InputError(
                f"is named {named} but contains no {named[1:]} data: rename it or download it again.", path=path
            )
        self._pieces = self._decompressed(kind) if kind else None
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, target: Any) -> int:
        """Fill `target` with bytes and return their number, 0 at the end."""
        view = memoryview(target).cast("B")
        if self._pieces is None:
            return self._read_raw(view)
        while not self._ready:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._ready = memoryview(piece)
        count = min(len(view), len(self._ready))
        view[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
        super().close()

    def _unreadable(self, error: OSError) -> InputError:
        return InputError(f"can't be read: {error.strerror or error}.", path=self.path)

    def _read_raw(self, view: memoryview) -> int:
        try:
            count = cast(io.FileIO, self._file).readinto(view) or 0
        except OSError as error:
            raise self._unreadable(error) from None
        self.consumed += count
        return count

    def _decompressed(self, kind: str) -> Iterator[bytes]:
        new_engine, failures = _decompressor(kind)
        block = memoryview(bytearray(_ZST_INPUT if kind == ".zst" else _PIECE))
        pending = bytes(block[: self._read_raw(block)])
        members = 0
        while pending:
            engine, produced = new_engine(), False
            while not engine.eof:
                if not pending and getattr(engine, "needs_input", True):
                    pending = bytes(block[: self._read_raw(block)])
                    if not pending:
                        raise InputError(
                            f"ends before its {kind[1:]} data does: it is truncated, download it again.", path=self.path
                        )
                try:
                    piece = engine.decompress(pending) if kind == ".zst" else engine.decompress(pending, _PIECE)
                except failures as error:
                    what = "is damaged" if produced or not members else "has trailing bytes after its end"
                    raise InputError(f"{what} ({kind[1:]}: {error}): download it again.", path=self.path) from None
                pending = getattr(engine, "unconsumed_tail", b"")
                if piece:
                    produced = True
                    yield piece
            members += 1
            pending = engine.unused_data.lstrip(b"\0")  # archives may be padded with zeros
            while not pending and (count := self._read_raw(block)):
                pending = bytes(block[:count]).lstrip(b"\0")


def read_text(path: str | os.PathLike[str]) -> str:
    """Return the text of a UTF-8 file, plain or compressed, without a byte order mark."""
    with ByteReader(path) as stream:
        data = stream.readall()
    return decoded(data, path)


def decoded(data: bytes, path: str | os.PathLike[str], line: int = 1) -> str:
    """Decode UTF-8 bytes of a file that begin at a line; an error names the line that is not UTF-8."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line += data.count(b"\n", 0, error.start)
        raise InputError("is not UTF-8: convert the file.", path=path, line=line) from None


def _decompressor(kind: str) -> tuple[Callable[[], Any], tuple[type[Exception], ...]]:
    if kind == ".gz":
        return lambda: zlib.decompressobj(31), (zlib.error,)
    if kind == ".xz":
        return lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ), (lzma.LZMAError, EOFError)
    zstandard = _zstandard("Reading .zst files")
    return zstandard.ZstdDecompressor().decompressobj, (zstandard.ZstdError,)


def _zstandard(what: str) -> Any:
    try:
        import zstandard
    except ImportError:
        raise MissingExtraError(what, "zst") from None
    return zstandard


@contextmanager
def write_whole(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file for writing, compressed by its suffix; it appears under its name only when it is complete.

    Devices and pipes are written to as they are; a symbolic link stays, and the file that it leads to is replaced.

    Examples
    --------
    >>> import tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "note.txt.gz")
    >>> with write_whole(path) as file:
    ...     _ = file.write(b"hello")
    >>> ByteReader(path).read()
    b'hello'
    """
    path = os.fspath(path)
    in_place = os.path.exists(path) and not os.path.isfile(path)
    target = os.path.realpath(path) if os.path.islink(path) and not in_place else path
    folder, name = os.path.split(target)
    temporary = path if in_place else os.path.join(folder, f".{name}.{secrets.token_hex(4)}.part")
    try:
        if not in_place:
            _clear_up(folder, name)
        raw = open(temporary, "wb" if in_place else "xb")  # noqa: SIM115 - closed below, before the rename
        locked(raw)
    except OSError as error:
        raise InputError(f"can't be written: {error.strerror or error}.", path=path) from None
    try:
        with raw, _compressing(raw, split_suffix(path)[1]) as file:
            yield file
        if not in_place:
            os.replace(temporary, target)
    except BaseException as error:
        if not in_place:
            with suppress(OSError):
                os.unlink(temporary)
        if isinstance(error, OSError):
            raise InputError(f"can't be written: {error.strerror or error}.", path=path) from None
        raise


def _clear_up(folder: str, name: str) -> None:
    """Remove temporary files of the same name left by killed processes; files in use are locked."""
    for left in glob(os.path.join(escape(folder), f".{escape(name)}.????????.part")):
        with suppress(OSError), open(left, "rb") as file:
            if locked(file) and os.fstat(file.fileno()).st_mtime < time.time() - _LEFT_AFTER:
                os.unlink(left)


@contextmanager
def _compressing(raw: BinaryIO, kind: str) -> Iterator[BinaryIO]:
    if kind == ".gz":
        with gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as zipped:
            yield cast(BinaryIO, zipped)
    elif kind == ".xz":
        with lzma.LZMAFile(raw, "wb") as packed:
            yield cast(BinaryIO, packed)
    elif kind == ".zst":
        compressor = _zstandard("Writing .zst files").ZstdCompressor(write_checksum=True)
        with compressor.stream_writer(raw, closefd=False) as file:
            yield file
    else:
        yield raw

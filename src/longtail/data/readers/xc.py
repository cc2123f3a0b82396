"""The text format of the Extreme Classification Repository."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import ExitStack
from typing import NoReturn

import numpy as np
import scipy.sparse as sp

from longtail.data.dataset import Dataset
from longtail.data.readers.mapped import MappedWriter
from longtail.data.streams import ByteReader, write_whole
from longtail.errors import InputError
from longtail.kernels.types import Float32, Int32, Int64
from longtail.runtime.progress import progress_bar

CHUNK = 1 << 24
CONVERTED_AT_ONCE = 1 << 22
_LARGEST = 2**31 - 1
_LINE_END = re.compile(rb"[ \t\r\n]")


def read_xc(path: str | os.PathLike[str]) -> Dataset:
    """Read a file in XC text format, plain or compressed (.gz, .xz, .zst).

    The first line is ``rows features labels``; each line after it is a row: its label ids, joined by commas, then
    ``feature:value`` pairs, joined by spaces. Ids count from 0. A row without labels begins with a space or with its
    first pair; a row without features ends after its labels. Pairs and labels may be in any order.

    Values are those of ``numpy.float32(float(text))``. The file is read in pieces of 16 MB.

    Returns
    -------
    Dataset
        With `X` and `Y`, and no names.

    Raises
    ------
    InputError
        With file, line and reason.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "toy.txt")
    >>> _ = path.write_text("2 3 4\\n0,2 1:0.5 2:1\\n3 0:2\\n")
    >>> read_xc(path)
    Dataset('toy': 2 rows, 3 features, 4 labels, 1.50 labels per row)
    """
    with ByteReader(path) as stream:
        return _Parser(stream, CHUNK).run()


def convert_xc(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    names: Callable[[int], list[str] | None] = lambda count: None,
) -> int:
    """Convert a file in XC text format to a directory of arrays, a few MB at a time; return the number of rows.

    Parameters
    ----------
    path : path-like
    out : path-like
        The directory, for `longtail.data.readers.mapped.read_mapped`.
    names : callable
        Called with the number of labels; returns their names or None.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "toy.txt").write_text("2 3 4\\n0,2 1:0.5 2:1\\n3 0:2\\n")
    >>> convert_xc(folder / "toy.txt", folder / "toy")
    2
    """
    with ByteReader(path) as stream:
        return _Parser(stream, CONVERTED_AT_ONCE).convert(out, names)


class _Parser:
    """State of reading a file: a window of text that slides over the file, and growing arrays."""

    def __init__(self, stream: ByteReader, chunk: int) -> None:
        from longtail.data.readers import xc_kernels

        self.kernels = xc_kernels
        self.stream = stream
        self.path = stream.path
        self.window = bytearray(min(max(4 * stream.size, 1 << 12), chunk))
        self.filled = 0
        self.ended = False
        self.shape = (0, 0, 0)
        self.begin: Callable[[], MappedWriter] | None = None
        self.writer: MappedWriter | None = None
        self.written = 0  # rows that it already has
        self.state = np.zeros(xc_kernels.STATE_SIZE, np.int64)
        self.x_indptr, self.y_indptr = np.zeros(1, np.int64), np.zeros(1, np.int64)
        self.x_indices, self.x_data = np.empty(0, np.int32), np.empty(0, np.float32)
        self.y_indices = np.empty(0, np.int32)

    def convert(self, out: str | os.PathLike[str], names: Callable[[int], list[str] | None]) -> int:
        with ExitStack() as stack:
            self.begin = lambda: stack.enter_context(MappedWriter(out, *self.shape[1:]))
            self._read()
            self._check_count()
            if self.writer is not None:
                self.writer.finish(self._name, names(self.shape[2]))
        return self.shape[0]

    def _read(self) -> None:
        with progress_bar(f"reading {os.path.basename(self.path)}", self.stream.size >> 20, "MB") as advance:
            shown = 0
            start = self._header()
            while True:
                end = self.window.rfind(b"\n", 0, self.filled) + 1
                if end > start:
                    self._parse(start, end)
                rest = self.filled - end
                self.window[:rest] = self.window[end : self.filled]
                self.filled, start = rest, 0
                advance((self.stream.consumed >> 20) - shown)
                shown = self.stream.consumed >> 20
                if self.ended:
                    break
                if rest == len(self.window) - 1:
                    self._widen()
                self._fill()

    def _fill(self) -> None:
        with memoryview(self.window) as view:
            while self.filled < len(self.window) - 1:  # room for a last newline
                count = self.stream.readinto(view[self.filled : -1])
                if count == 0:
                    self.ended = True
                    if self.filled and self.window[self.filled - 1] != 10:
                        self.window[self.filled] = 10
                        self.filled += 1
                    return
                self.filled += count

    def _widen(self) -> None:
        _, features, labels = self.shape
        if len(self.window) > CHUNK + 64 * features + 16 * labels:
            self._fail(f"is longer than a row of {features} features and {labels} labels can be.", self._line())
        wider = bytearray(2 * len(self.window))
        wider[: self.filled] = self.window[: self.filled]
        self.window = wider

    def _header(self) -> int:
        self._fill()
        if self.filled == 0:
            self._fail("is empty: the first line must be 'rows features labels'.", None)
        end = self.window.find(b"\n", 0, self.filled) + 1
        begin = 3 if self.window.startswith(b"\xef\xbb\xbf") else 0
        line = bytes(self.window[begin : end or self.filled])
        counts = re.fullmatch(rb"[ \t]*(\d{1,18})[ \t]+(\d{1,18})[ \t]+(\d{1,18})[ \t]*\r?\n", line)
        if counts is None:
            self._fail(f"the first line must be 'rows features labels', got {_quote(line.strip())}.", 1)
        rows, features, labels = (int(count) for count in counts.groups())
        for what, count in (("features", features), ("labels", labels)):
            if count > _LARGEST:
                self._fail(f"the header has {count} {what}: at most {_LARGEST} are supported.", 1)
        self.shape = (rows, features, labels)
        self.writer = None if self.begin is None else self.begin()
        return end

    def _parse(self, start: int, end: int) -> None:
        kernels, state = self.kernels, self.state
        size = end - start
        lines = self.window.count(b"\n", start, end)
        first, first_entry = int(state[kernels.ROW]), int(state[kernels.FEATURES])
        for indptr in (self.x_indptr, self.y_indptr):
            _reserve(indptr, first + lines + 1)
        for array in (self.x_indices, self.x_data):  # no pair is shorter than "1:2 ", no label than "1,"
            _reserve(array, first_entry + size // 4 + 1)
        _reserve(self.y_indices, int(state[kernels.LABELS]) + size // 2 + 1)
        unsure = np.empty(2 * (size // 4 + 1), np.int64)
        text = np.frombuffer(self.window, np.uint8)
        state[kernels.POSITION], state[kernels.UNSURE] = start, 0
        rows, features, labels = self.shape
        status = kernels.parse_rows(
            text, end, rows - self.written, features, labels, self.x_indptr, self.x_indices, self.x_data,
            self.y_indptr, self.y_indices, unsure, state,
        )  # fmt: skip
        for entry, place in unsure[: 2 * state[kernels.UNSURE]].reshape(-1, 2):
            if entry < state[kernels.FEATURES]:
                self.x_data[entry] = self._value(int(entry), int(place))
        last = int(state[kernels.ROW])
        for flag, what, indptr, indices, data in (
            (kernels.UNSORTED_LABELS, "label", self.y_indptr, self.y_indices, np.empty(0, np.float32)),
            (kernels.UNSORTED_FEATURES, "feature", self.x_indptr, self.x_indices, self.x_data),
        ):
            if state[flag]:
                twice = np.full(2, -1, np.int64)
                kernels.order_rows(indptr, indices, data, first, last, twice)
                if twice[0] >= 0:
                    line = self.written + int(twice[0]) + 2
                    self._fail(f"{what} {twice[1]} appears twice in this row: remove one.", line)
                state[flag] = 0
        if status != kernels.OK:
            self._explain(status)
        if self.writer is not None:
            self._hand_over(self.writer)

    def _hand_over(self, writer: MappedWriter) -> None:
        """Append the complete rows to the writer and start again with empty arrays."""
        counts = [int(self.state[which]) for which in (self.kernels.ROW, self.kernels.FEATURES, self.kernels.LABELS)]
        rows, features, labels = counts
        writer.append(
            self.x_indptr[1 : rows + 1], self.x_indices[:features], self.x_data[:features],
            self.y_indptr[1 : rows + 1], self.y_indices[:labels],
        )  # fmt: skip
        self.written += rows
        self.state[[self.kernels.ROW, self.kernels.FEATURES, self.kernels.LABELS]] = 0

    def _token(self, place: int) -> bytes:
        end = _LINE_END.search(self.window, place)
        return bytes(self.window[place : end.start() if end else self.filled])

    def _value(self, entry: int, place: int) -> np.float32:
        token = self._token(place)
        with np.errstate(over="ignore"):
            value = np.float32(float(token))
        if not np.isfinite(value):
            row = int(np.searchsorted(self.x_indptr[: self.state[self.kernels.ROW] + 1], entry, "right")) - 1
            self._fail(_not_finite(token), self.written + row + 2)
        return value

    def _line(self) -> int:
        return self.written + int(self.state[self.kernels.ROW]) + 2

    def _explain(self, status: int) -> NoReturn:
        kernels = self.kernels
        rows, features, labels = self.shape
        token = self._token(int(self.state[kernels.PLACE]))
        shown = _quote(token)
        value = token.partition(b":")[2].lstrip(b"+-").lower()
        if status == kernels.EXTRA_ROW:
            reason = f"the header has {rows} rows, but more follow: {shown}."
        elif status == kernels.LABEL_RANGE:
            reason = f"label {_quote(token.split(b',')[0])} is out of range: the header allows {_allowed(labels)}."
        elif status == kernels.FEATURE_RANGE:
            index = _quote(token.split(b":")[0])
            reason = f"feature {index} is out of range: the header allows {_allowed(features)}."
        elif status == kernels.TOO_LARGE or value.startswith((b"nan", b"inf")):
            reason = _not_finite(token)
        elif not _is_text(token):
            reason = f"{shown} is not text: the file is not in XC format, or damaged."
        elif status == kernels.BAD_LABEL:
            reason = f"{shown} is not a list of label ids like 3,17."
        else:
            reason = f"{shown} is not feature:value with a number for each."
        self._fail(reason, self._line())

    def _fail(self, reason: str, line: int | None) -> NoReturn:
        raise InputError(reason, path=self.path, line=line)

    @property
    def _name(self) -> str:
        return os.path.basename(self.path).split(".")[0]

    def _check_count(self) -> None:
        rows, found = self.shape[0], self._line() - 2
        if found != rows:
            self._fail(f"the header has {rows} rows, but the file has {found}: it may be truncated.", 1)

    def run(self) -> Dataset:
        self._read()
        self._check_count()
        kernels, state = self.kernels, self.state
        rows, features, labels = self.shape
        for array, used in (
            (self.x_indptr, rows + 1),
            (self.y_indptr, rows + 1),
            (self.x_indices, int(state[kernels.FEATURES])),
            (self.x_data, int(state[kernels.FEATURES])),
            (self.y_indices, int(state[kernels.LABELS])),
        ):
            array.resize(used, refcheck=False)
        ones = np.ones(len(self.y_indices), np.float32)
        X = sp.csr_array((self.x_data, self.x_indices, _offsets(self.x_indptr)), shape=(rows, features))
        Y = sp.csr_array((ones, self.y_indices, _offsets(self.y_indptr)), shape=(rows, labels))
        X.has_canonical_format = Y.has_canonical_format = True
        return Dataset(X, Y, name=self._name)


def write_xc(dataset: Dataset, path: str | os.PathLike[str]) -> None:
    """Write a data set in XC text format, compressed if the name ends in .gz, .xz or .zst.

    Values have the fewest digits from which `read_xc` reads the same float32. The file appears only when it is
    complete.

    Parameters
    ----------
    dataset : Dataset
        With features; names and texts are not written.
    path : path-like

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "toy.txt")
    >>> write_xc(Dataset([[0, 0.1], [2, 0]], [[1, 0, 1], [0, 0, 0]]), path)
    >>> path.read_text()
    '2 2 3\\n0,2 1:0.1\\n 0:2\\n'
    """
    from longtail.data.readers import xc_kernels

    X, Y = dataset.X, dataset.Y
    if X is None:
        raise InputError("XC format needs features, this data set has only texts: save it as .jsonl.", path=path)
    x_indptr, y_indptr = X.indptr.astype(np.int64), Y.indptr.astype(np.int64)
    x_indices, y_indices = X.indices.astype(np.int32, copy=False), Y.indices.astype(np.int32, copy=False)
    longest = 30 * x_indptr + 11 * y_indptr + np.arange(len(x_indptr))  # largest size of the rows before, in bytes
    with write_whole(path) as file:
        file.write(f"{X.shape[0]} {X.shape[1]} {Y.shape[1]}\n".encode())
        first = 0
        while first < X.shape[0]:
            last = max(int(np.searchsorted(longest, longest[first] + CHUNK, "right")) - 1, first + 1)
            out = np.empty(int(longest[last] - longest[first]), np.uint8)
            size = xc_kernels.format_rows(x_indptr, x_indices, X.data, y_indptr, y_indices, first, last, out)
            file.write(out[:size].data)
            first = last


def _reserve(array: Int64 | Int32 | Float32, size: int) -> None:
    if len(array) < size:
        array.resize(max(size, len(array) + len(array) // 8), refcheck=False)


def _offsets(indptr: Int64) -> Int64 | Int32:
    """Return offsets in the type that scipy wants for int32 indices; it copies both arrays otherwise."""
    return indptr.astype(np.int32) if indptr[-1] <= _LARGEST else indptr


def _allowed(count: int) -> str:
    return f"0 to {count - 1}, counting from 0" if count else "none"


def _not_finite(token: bytes) -> str:
    return f"{_quote(token)} has a value that is not a finite 32-bit number: remove or replace it."


def _is_text(token: bytes) -> bool:
    try:
        return token.decode().isprintable()
    except UnicodeDecodeError:
        return False


def _quote(token: bytes) -> str:
    short = token if len(token) <= 40 else token[:37] + b"..."
    return repr(short.decode()) if _is_text(short) else repr(short)[1:]

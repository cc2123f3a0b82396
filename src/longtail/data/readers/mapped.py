"""Data sets as directories of memory-mapped arrays, for data larger than memory."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from longtail.data.dataset import Dataset
from longtail.data.sparse import canonical_rows
from longtail.errors import InputError
from longtail.runtime.disk import replacing, writing
from longtail.runtime.mmap import map_array

MANIFEST, FORMAT, FORMAT_VERSION = "data.json", "longtail data", 1
_NAMES = "label_names.json"
_HEADER = 128  # bytes of a .npy file before its values
_KINDS = {"indices": np.int32, "data": np.float32}
_PARTS = ("indptr", "indices", "data")
_AT_ONCE = 1 << 22  # values


def is_mapped_data(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a directory written by `MappedWriter`."""
    return os.path.isfile(os.path.join(path, MANIFEST))


def read_mapped(path: str | os.PathLike[str], *, verify: bool = False) -> Dataset:
    """Open a directory of arrays, memory-mapped and read-only.

    Parameters
    ----------
    path : path-like
    verify : bool
        Also check the checksums of all values; file sizes are always checked.

    Raises
    ------
    InputError
        If a file is missing, truncated or changed.

    Examples
    --------
    >>> import tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "toy")
    >>> write_mapped(Dataset([[0, 1.5], [2, 0]], [[1, 0], [1, 1]], label_names=["cat", "dog"]), path)
    >>> read_mapped(path, verify=True)
    Dataset('toy': 2 rows, 2 features, 2 labels with names, 1.50 labels per row)
    """
    folder = Path(path)
    manifest = _read_manifest(folder)
    try:
        rows, features, labels = (int(manifest[what]) for what in ("rows", "features", "labels"))
        for name, listed in manifest["files"].items():
            _check(folder, name, listed, verify)
        X = _matrix(folder, "X", rows, features)
        Y = _matrix(folder, "Y", rows, labels)
        names = json.loads((folder / _NAMES).read_bytes()) if _NAMES in manifest["files"] else None
        return Dataset(X, Y, label_names=names, name=str(manifest["name"]))
    except (KeyError, TypeError, ValueError, OSError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"is damaged ({error}): convert the data again.", path=path) from None


def write_mapped(dataset: Dataset, path: str | os.PathLike[str]) -> None:
    """Write a data set as a directory of arrays, completely or not at all."""
    if dataset.X is None:
        raise InputError(
            "a directory of arrays needs features, this data set has only texts: save it as .jsonl.", path=path
        )
    with MappedWriter(path, dataset.X.shape[1], dataset.n_labels) as writer:
        for first in range(0, dataset.n_rows, 1 << 16):
            ends = slice(first, min(first + (1 << 16), dataset.n_rows) + 1)
            writer.append(*(part for matrix in (dataset.X, dataset.Y) for part in _rows(matrix, ends)))
        writer.finish(dataset.name, dataset.label_names)


def _rows(matrix: sp.csr_array, ends: slice) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
    offsets = matrix.indptr[ends]
    part = slice(offsets[0], offsets[-1])
    return offsets[1:] - offsets[0], matrix.indices[part], matrix.data[part]


class MappedWriter:
    """Writer of a directory of arrays, which appears when `finish` is called; rows are appended in batches.

    Parameters
    ----------
    path : path-like
        The directory; an older directory of arrays is replaced, anything else is refused.
    features, labels : int
    """

    def __init__(self, path: str | os.PathLike[str], features: int, labels: int) -> None:
        self._path = Path(path)
        self._shape = features, labels
        self._stack = ExitStack()
        check_mapped_target(self._path)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(writing(self._path))
            self._folder = stack.enter_context(replacing(self._path))
            kinds = {"indptr": np.int64, **_KINDS}
            self._files = {
                f"{matrix}.{part}": stack.enter_context(
                    _ArrayWriter(self._folder / f"{matrix}.{part}.npy", kinds[part])
                )
                for matrix in "XY"
                for part in _PARTS
            }
            for matrix in "XY":
                self._files[f"{matrix}.indptr"].append(np.zeros(1, np.int64))
            self._stack = stack.pop_all()
        self._ends = {"X": 0, "Y": 0}
        self._rows = 0
        self._finished = False
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None and not self._finished:
            kind, error = RuntimeError, RuntimeError("finish was not called")
        self._stack.__exit__(kind, error, at)

    def append(
        self,
        x_ends: npt.NDArray[Any],
        x_indices: npt.NDArray[Any],
        x_values: npt.NDArray[Any],
        y_ends: npt.NDArray[Any],
        y_indices: npt.NDArray[Any],
        y_values: npt.NDArray[Any] | None = None,
    ) -> None:
        """Append rows: their ends (relative to the first of them), indices and values."""
        values = np.ones(len(y_indices), np.float32) if y_values is None else y_values
        for matrix, ends, indices, data in (("X", x_ends, x_indices, x_values), ("Y", y_ends, y_indices, values)):
            self._files[f"{matrix}.indptr"].append(ends.astype(np.int64) + self._ends[matrix])
            self._files[f"{matrix}.indices"].append(indices)
            self._files[f"{matrix}.data"].append(data)
            self._ends[matrix] += len(indices)
        self._rows += len(x_ends)

    def finish(self, name: str | None, label_names: list[str] | None = None) -> None:
        """Write the manifest and complete the directory."""
        files = {file.name: file.close() for file in self._files.values()}
        for matrix in "XY":
            _narrow(self._folder, matrix, self._ends[matrix], files)
        if label_names is not None:
            lines = ",\n".join(json.dumps(label, ensure_ascii=False) for label in label_names)
            files[_NAMES] = _write_bytes(self._folder / _NAMES, f"[\n{lines}\n]\n".encode())
        manifest = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "name": name or self._path.name,
            "rows": self._rows,
            "features": self._shape[0],
            "labels": self._shape[1],
            "files": files,
        }
        manifest["checksum"] = _checksum(manifest)
        _write_bytes(self._folder / MANIFEST, json.dumps(manifest, indent=1, ensure_ascii=False).encode() + b"\n")
        self._finished = True


def check_mapped_target(path: Path) -> None:
    """Refuse a path that can't be written or has other content."""
    path = path.resolve()
    if not path.parent.is_dir():
        raise InputError("can't be written: its directory is not there, make it first.", path=path)
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    if not path.is_dir():
        raise InputError("is a file: give the name of a directory, without a suffix.", path=path)
    try:
        belonging = {MANIFEST, *_read_manifest(path)["files"]}
    except (InputError, KeyError, TypeError):
        raise InputError("is not a directory of arrays: choose another place or remove it.", path=path) from None
    others = {entry.name for entry in path.iterdir()} - belonging
    if others:
        raise InputError(f"also holds {min(others)}, which is not part of the data: move it first.", path=path)


class _ArrayWriter:
    """A growing one-dimensional .npy file, whose header is written last."""

    def __init__(self, path: Path, kind: Any) -> None:
        self.name = path.name
        self._dtype = np.dtype(kind).newbyteorder("<")
        self._file: BinaryIO = open(path, "xb")  # noqa: SIM115
        self._file.write(bytes(_HEADER))
        self._hash = hashlib.sha256()
        self._length = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def append(self, values: npt.NDArray[Any]) -> None:
        for first in range(0, len(values), _AT_ONCE):
            data = np.ascontiguousarray(values[first : first + _AT_ONCE], self._dtype)
            self._hash.update(data.data)
            self._file.write(data.data)
        self._length += len(values)

    def close(self) -> dict[str, Any]:
        self._file.seek(0)
        self._file.write(_header(self._dtype, self._length))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return {"bytes": _HEADER + self._length * self._dtype.itemsize, "sha256": self._hash.hexdigest()}


def _header(dtype: np.dtype[Any], length: int) -> bytes:
    """Return the header of an .npy file (version 1.0), padded to a fixed size."""
    described = f"{{'descr': {dtype.str!r}, 'fortran_order': False, 'shape': ({length},), }}".encode()
    size = _HEADER - len(np.lib.format.magic(1, 0)) - 2
    return np.lib.format.magic(1, 0) + size.to_bytes(2, "little") + described.ljust(size - 1) + b"\n"


def _narrow(folder: Path, matrix: str, values: int, files: dict[str, Any]) -> None:
    """Convert offsets to 32 bits if they fit, since scipy wants the same type as for the indices."""
    if values >= 2**31:
        return
    name = f"{matrix}.indptr.npy"
    wide, narrow = folder / name, _ArrayWriter(folder / f"narrow-{name}", np.int32)
    with narrow:
        offsets = np.memmap(wide, np.int64, "r", _HEADER)
        narrow.append(offsets)
        files[name] = narrow.close()
    os.replace(folder / f"narrow-{name}", wide)


def _write_bytes(path: Path, data: bytes) -> dict[str, Any]:
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _read_manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
    except FileNotFoundError:
        raise InputError(f"has no {MANIFEST}: it is not a directory of arrays.", path=folder) from None
    except (ValueError, OSError) as error:
        raise InputError(f"can't be read ({error}): convert the data again.", path=folder / MANIFEST) from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise InputError("doesn't describe a data set of longtail.", path=folder / MANIFEST)
    version = manifest.get("format_version")
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise InputError(f"has format {version}, which is newer than this longtail: upgrade it.", path=folder)
    if manifest.pop("checksum", None) != _checksum(manifest):
        raise InputError("was changed: its checksum is wrong; convert the data again.", path=folder / MANIFEST)
    return manifest


def _checksum(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _check(folder: Path, name: str, listed: Mapping[str, Any], verify: bool) -> None:
    path = folder / name
    if Path(name).name != name or not path.is_file():
        raise InputError("is missing: copy the directory again, all of its files.", path=path)
    size = path.stat().st_size
    if size != listed["bytes"]:
        raise InputError(f"has {size:,} bytes, expected {listed['bytes']:,}: copy it again.", path=path)
    if verify or name == _NAMES:
        with open(path, "rb") as file:
            file.seek(0 if name == _NAMES else _HEADER)
            if hashlib.file_digest(file, "sha256").hexdigest() != listed["sha256"]:
                raise InputError("was changed: its checksum is wrong; convert the data again.", path=path)


def _matrix(folder: Path, name: str, rows: int, columns: int) -> sp.csr_array:
    data, indices, indptr = (map_array(folder / f"{name}.{part}.npy") for part in ("data", "indices", "indptr"))
    if len(indptr) != rows + 1 or data.dtype != np.float32 or indices.dtype != np.int32:
        raise InputError(f"has arrays of {name} that don't fit together: convert the data again.", path=folder)
    return canonical_rows(data, indices, indptr, (rows, columns))

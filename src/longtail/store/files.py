"""The files of a model directory: plain arrays and lists of text, each with its size and checksum."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from longtail.errors import MissingExtraError, ModelError
from longtail.runtime.tensors import Tensors

HASH_ALWAYS = 128 << 20
"""Files up to this many bytes are always hashed when loading; larger ones only on request, to keep loading fast."""


class _HashedFile:
    """A file as `np.lib.format` needs it, which computes its checksum as it is written."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.sha256 = hashlib.sha256()
        self.bytes = 0

    def write(self, data: Any) -> int:
        self.sha256.update(data)
        self.bytes += len(data)
        return self._file.write(data)


class FileWriter:
    """Writes the files of one model and records their sizes and checksums."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.written: dict[str, dict[str, Any]] = {}

    def array(self, name: str, array: npt.NDArray[Any]) -> str:
        """Write an array as .npy and return the file's name."""
        file_name = f"{name}.npy"
        with self._open(file_name) as file:
            np.lib.format.write_array(file, np.asarray(array), allow_pickle=False)
        return file_name

    def texts(self, name: str, texts: list[str]) -> str:
        """Write a list of texts as a JSON array, one text per line, and return the file's name."""
        file_name = f"{name}.json"
        lines = ",\n".join(json.dumps(text, ensure_ascii=False) for text in texts)
        with self._open(file_name) as file:
            file.write(f"[\n{lines}\n]\n".encode("utf-8", "surrogatepass"))
        return file_name

    def tensors(self, name: str, tensors: Tensors) -> str:
        """Write arrays by name as .safetensors and return the file's name."""
        from safetensors.numpy import save

        file_name = f"{name}.safetensors"
        with self._open(file_name) as file:
            file.write(save({key: np.ascontiguousarray(array) for key, array in tensors.items()}))
        return file_name

    @contextmanager
    def _open(self, file_name: str) -> Iterator[_HashedFile]:
        if file_name in self.written:
            raise ModelError(f"Two parts of the model use the file {file_name}: give them different names.")
        with open(self.directory / file_name, "xb") as file:
            hashed = _HashedFile(file)
            yield hashed
            file.flush()
            os.fsync(file.fileno())
        self.written[file_name] = {"bytes": hashed.bytes, "sha256": hashed.sha256.hexdigest()}


class FileReader:
    """Checks the files of one model, then reads them."""

    def __init__(self, directory: Path, listed: Mapping[str, Mapping[str, Any]], *, verify: bool = False) -> None:
        self.directory = directory
        self._listed = frozenset(listed)
        for file_name, expected in listed.items():
            self._check(file_name, expected, verify)

    def array(self, file_name: str, dtype: str, shape: list[int]) -> npt.NDArray[Any]:
        """Map an array into memory, read-only."""
        path = self._path(file_name)
        try:
            array = np.load(path, mmap_mode="r" if 0 not in shape else None, allow_pickle=False)
        except (ValueError, OSError, EOFError, TypeError, KeyError, SyntaxError):
            raise _damaged(path, "is not a readable array") from None
        if array.dtype.str != dtype or list(array.shape) != shape:
            raise _damaged(path, f"holds {array.dtype.str} {list(array.shape)}, expected {dtype} {shape}")
        return np.asarray(array)

    def tensors(self, file_name: str) -> Tensors:
        """Read arrays by name."""
        if find_spec("safetensors") is None:
            raise MissingExtraError("A model of a neural learner", "neural")
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        path = self._path(file_name)
        try:
            return Tensors(load_file(path))
        except (SafetensorError, OSError, ValueError, KeyError):
            raise _damaged(path, "contains no readable tensors") from None

    def texts(self, file_name: str) -> list[str]:
        """Read a list of texts."""
        path = self._path(file_name)
        try:
            texts = json.loads(path.read_bytes().decode("utf-8", "surrogatepass"))
        except (ValueError, RecursionError):
            raise _damaged(path, "is not a readable list of texts") from None
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise _damaged(path, "is not a list of texts")
        return texts

    def _path(self, file_name: str) -> Path:
        if file_name not in self._listed:
            raise ModelError(f"{self.directory / 'model.json'} uses the file {file_name!r} but doesn't list it.")
        return self.directory / file_name

    def _check(self, file_name: str, expected: Mapping[str, Any], verify: bool) -> None:
        if Path(file_name).name != file_name or file_name in ("", ".", ".."):
            raise ModelError(
                f"{self.directory / 'model.json'} lists {file_name!r}, which is not a file in its directory."
            )
        path = self.directory / file_name
        if not path.is_file():
            raise ModelError(f"{path} is missing: copy the model again, all of its files.")
        size = path.stat().st_size
        if size != expected["bytes"]:
            raise _damaged(path, f"has {size:,} bytes, expected {expected['bytes']:,}")
        if (verify or size <= HASH_ALWAYS) and _sha256(path) != expected["sha256"]:
            raise _damaged(path, "was changed, its checksum is wrong")


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _damaged(path: Path, what: str) -> ModelError:
    return ModelError(f"{path} {what}: copy the model again or train it again.")

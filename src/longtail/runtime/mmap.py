"""Arrays in files: data mapped read-only, and temporary files for arrays that don't fit in memory."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from longtail.config import memory_limit
from longtail.runtime.block_file import spill_directory
from longtail.runtime.disk import writing
from longtail.runtime.memory import memory_in_use, note_files

Allocate = Callable[[Any, Any], npt.NDArray[Any]]
"""Creates an array of zeros from a shape and a dtype."""


def map_array(path: str | os.PathLike[str]) -> npt.NDArray[Any]:
    """Map a .npy file into memory, read-only."""
    note_files()
    with open(path, "rb") as file:
        np.lib.format.read_magic(file)
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        if 0 in shape:
            return np.empty(shape, dtype)
        return np.asarray(np.memmap(file, dtype, "r", file.tell(), shape))


def is_mapped(array: npt.NDArray[Any]) -> bool:
    """Return whether an array is mapped from a file.

    Examples
    --------
    >>> is_mapped(np.ones(3)), is_mapped(spilled(3, np.float32))
    (False, True)
    """
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    return isinstance(base, mmap.mmap) or hasattr(base, "mapped")


def writable(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the same memory as an array that numpy and numba treat as writable.

    numba compiles a kernel a second time for read-only arrays. This is for arrays mapped from a file or owned by
    another process, and for kernels that only read: writing to mapped memory ends the process.

    Examples
    --------
    >>> fixed = np.arange(3)
    >>> fixed.flags.writeable = False
    >>> writable(fixed).flags.writeable, np.shares_memory(fixed, writable(fixed))
    (True, True)
    """
    if array.flags.writeable or array.dtype.hasobject:
        return array
    if not array.size or not array.flags.aligned:
        return array.copy()
    return np.asarray(_Memory(array))


class _Memory:
    """Memory as numpy's array interface describes it, with a reference to the array that owns it."""

    def __init__(self, array: npt.NDArray[Any]) -> None:
        self._array = array
        if is_mapped(array):
            self.mapped = True
        described = dict(array.__array_interface__)
        self.__array_interface__ = described | {"data": (described["data"][0], False)}


def spilled(shape: Any, dtype: Any) -> npt.NDArray[Any]:
    """Return an array of zeros in a temporary file, which is deleted with the array.

    The space on disk is allocated at once, so that a full disk is an error here and not later.

    Examples
    --------
    >>> spilled((2, 2), np.int32)
    array([[0, 0],
           [0, 0]], dtype=int32)
    """
    size = prod(shape if isinstance(shape, tuple) else (int(shape),)) * np.dtype(dtype).itemsize
    if size == 0:
        return np.zeros(shape, dtype)
    note_files()
    folder = spill_directory() or Path(tempfile.gettempdir())
    with writing(folder), tempfile.TemporaryFile(dir=folder) as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
        else:
            file.truncate(size)
        return np.asarray(np.memmap(file, dtype, "r+", 0, shape))


def allocator(size: int) -> Allocate:
    """Return a function that creates arrays of `size` bytes in all: in memory, or on disk where the limit requires it.

    They may take half of what the limit leaves; the other half is for the work on them.

    Examples
    --------
    >>> from longtail import config_context
    >>> allocator(10**15) is np.zeros
    True
    >>> with config_context(memory_limit="1MB"):
    ...     is_mapped(allocator(10)(1, np.int8))
    True
    """
    limit = memory_limit()
    if limit is None or 2 * size <= limit - memory_in_use():
        return np.zeros
    return spilled


def allocator_like(array: npt.NDArray[Any]) -> Allocate:
    """Return a function that creates copies of an array: on disk if the array is there."""
    return spilled if is_mapped(array) else np.empty

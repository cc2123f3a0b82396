"""Arrays that lie in files and not in memory: data mapped read-only, and room on disk for what memory has none for."""

from __future__ import annotations

import ctypes
import mmap
import os
import tempfile
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from longtail.engine.disk import writing
from longtail.engine.memory import memory_in_use, note_files, parse_memory
from longtail.engine.spool import spill_directory

Allocate = Callable[[Any, Any], npt.NDArray[Any]]
"""Makes an array of zeros from a shape and a dtype."""


def map_array(path: str | os.PathLike[str]) -> npt.NDArray[Any]:
    """Map a .npy file into memory, read-only; what the system has no room for stays on disk."""
    note_files()
    with open(path, "rb") as file:
        np.lib.format.read_magic(file)
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        if 0 in shape:
            return np.empty(shape, dtype)
        return np.asarray(np.memmap(file, dtype, "r", file.tell(), shape))


def is_mapped(array: npt.NDArray[Any]) -> bool:
    """Whether an array lies in a file.

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


def unlocked(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Give an array that is mapped read-only the type of one that is not, so that kernels needn't be compiled twice.

    Its pages stay protected: who writes to it ends the process. It is for kernels that only read.
    """
    if array.flags.writeable or not is_mapped(array) or not array.flags.c_contiguous:
        return array
    buffer: Any = (ctypes.c_char * array.nbytes).from_address(array.ctypes.data)
    buffer.mapped = array  # which stays alive as long
    return np.frombuffer(buffer, array.dtype).reshape(array.shape)


def spilled(shape: Any, dtype: Any) -> npt.NDArray[Any]:
    """Make an array of zeros in a temporary file, which goes with the array.

    The room on disk is taken at once, so that a full disk is an error here and not later.

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


def allocator(memory_limit: int | str | None, size: int) -> Allocate:
    """Choose where arrays of so many bytes in all are made: in memory, or on disk where a limit leaves no room.

    Examples
    --------
    >>> allocator(None, 10**15) is np.zeros, is_mapped(allocator("1MB", 10)(1, np.int8))
    (True, True)
    """
    if memory_limit is None or memory_in_use() + size <= parse_memory(memory_limit):
        return np.zeros
    return spilled


def room_like(array: npt.NDArray[Any]) -> Allocate:
    """Choose where copies of an array are made: on disk if it lies there."""
    return spilled if is_mapped(array) else np.empty

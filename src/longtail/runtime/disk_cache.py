"""Cache on disk for slow results, under a hash of all that they depend on."""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from longtail.runtime.disk import replacing_file

VARIABLE = "LONGTAIL_CACHE"
"""Environment variable with the directory of the cache; empty for no cache."""


def cache_directory() -> Path | None:
    """Return the directory of the cache: the variable's, else ``longtail`` in the user's cache; None for no cache."""
    chosen = os.environ.get(VARIABLE)
    if chosen is not None:
        return Path(chosen) if chosen else None
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "longtail"


def digest_of_texts(texts: Iterable[str], *parts: object) -> str:
    """Return a hash of texts and of everything else that a result depends on.

    Examples
    --------
    >>> digest_of_texts(["ab", "c"]) == digest_of_texts(["a", "bc"])
    False
    """
    found = hashlib.sha256(repr(parts).encode())
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        found.update(len(data).to_bytes(8, "little"))
        found.update(data)
    return found.hexdigest()


def cached(kind: str, digest: str, make: Callable[[], Sequence[npt.NDArray[Any]]]) -> list[npt.NDArray[Any]]:
    """Return the arrays cached under a hash, or compute and cache them.

    A cache that can't be read or written is ignored.

    Parameters
    ----------
    kind : str
        Subdirectory of the cache.
    digest : str
    make : callable
        Computes the arrays.
    """
    directory = cache_directory()
    if directory is None:
        return list(make())
    path = directory / kind / f"{digest}.npz"
    with suppress(OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile), np.load(path) as file:
        return [file[f"array{number}"] for number in range(len(file.files))]
    arrays = list(make())
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing_file(path) as file:
            np.savez(file, **{f"array{number}": array for number, array in enumerate(arrays)})  # type: ignore[arg-type]
    return arrays

"""What took long to work out and depends on its input alone: kept on disk under a hash of that input."""

from __future__ import annotations

import hashlib
import os
import secrets
import zipfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

VARIABLE = "LONGTAIL_CACHE"
"""Environment variable with the directory of the cache; empty for no cache."""

Arrays = list[npt.NDArray[Any]]


def cache_directory() -> Path | None:
    """Directory of the cache: what the variable says, else ``longtail`` in the user's cache; None for no cache."""
    chosen = os.environ.get(VARIABLE)
    if chosen is not None:
        return Path(chosen) if chosen else None
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "longtail"


def digest_of_texts(texts: Iterable[str], *parts: object) -> str:
    """Hash of texts and of whatever else a result depends on.

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


def cached(kind: str, digest: str, make: Callable[[], Sequence[npt.NDArray[Any]]]) -> Arrays:
    """Give the arrays that were kept under a hash, or make and keep them.

    A cache that can't be read or written is as good as none.

    Parameters
    ----------
    kind : str
        Directory of its own in the cache.
    digest : str
    make : callable
        Works the arrays out.
    """
    directory = cache_directory()
    if directory is None:
        return list(make())
    path = directory / kind / f"{digest}.npz"
    with suppress(OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile), np.load(path) as file:
        return [file[f"array{number}"] for number in range(len(file.files))]
    arrays = list(make())
    new = path.with_name(f".{secrets.token_hex(4)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(new, "wb") as written:
            np.savez(written, **{f"array{number}": array for number, array in enumerate(arrays)})  # type: ignore[arg-type]
        os.replace(new, path)
    except OSError:
        with suppress(OSError):
            new.unlink()
    return arrays

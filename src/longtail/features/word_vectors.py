"""Word vectors: GloVe text files, JSON and numpy arrays, and the .npz files that they are converted to."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from longtail.data.streams import ByteReader, write_whole
from longtail.errors import InputError
from longtail.kernels.types import Float32
from longtail.validation import Integer, Optional

_WIDTH = Optional(Integer(1))


def convert_vectors(source: str | PathLike[str], target: str | PathLike[str]) -> tuple[int, int]:
    """Convert word vectors to an .npz file.

    Parameters
    ----------
    source : path-like
        Text with a word and its vector per line, as GloVe and word2vec write it, plain or compressed; or JSON, an
        object from words to vectors, alone or under the key ``vectors`` beside ``dimensions``, the optional number of
        values to use; or a numpy array ``NAME.npy`` with the words in ``NAME.txt``, one per line.
    target : path-like

    Returns
    -------
    words, dimensions : int

    Examples
    --------
    >>> import tempfile
    >>> directory = Path(tempfile.mkdtemp())
    >>> _ = (directory / "two.txt").write_text("red 1 0\\nblue 0 1\\n")
    >>> convert_vectors(directory / "two.txt", directory / "two.npz")
    (2, 2)
    >>> read_words(directory / "two.npz")
    ['red', 'blue']
    """
    path = Path(source)
    if path.suffix == ".npy":
        words, vectors = _from_array(path)
    else:
        words, vectors = _from_json(path) if ".json" in path.suffixes else _from_text(path)
    data = [word.encode("utf-8", "replace") for word in words]
    ends = np.cumsum([0, *map(len, data)], dtype=np.int64)
    with write_whole(target) as file:
        np.savez(file, letters=np.frombuffer(b"".join(data), np.uint8), ends=ends, vectors=vectors)
    return len(words), int(vectors.shape[1])


def read_words(path: str | PathLike[str]) -> list[str]:
    """Return the words of a file written by `convert_vectors`."""
    letters, ends = _read(path, "letters"), _read(path, "ends")
    text = letters.tobytes()
    return [text[begin:end].decode() for begin, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)]


def read_vectors(path: str | PathLike[str]) -> Float32:
    """Return the vectors of a file written by `convert_vectors`, one row per word."""
    return np.asarray(_read(path, "vectors"), np.float32)


def _read(path: str | PathLike[str], name: str) -> Any:
    place = Path(path)
    if not place.is_file():
        raise InputError("is not a file: make one from word vectors with longtail data vectors.", path=place)
    try:
        with np.load(place, allow_pickle=False) as file:
            return file[name]
    except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile, TypeError):
        raise InputError("contains no word vectors: make it with longtail data vectors.", path=place) from None


def _from_text(path: Path) -> tuple[list[str], Float32]:
    words: list[str] = []
    rows: list[Float32] = []
    width = 0
    for number, line in enumerate(_lines(path), 1):
        parts = line.rstrip().split(" ")
        if number == 1 and len(parts) == 2:  # word2vec begins with the counts
            continue
        width = width or len(parts) - 1
        values = np.array(parts[-width:], object) if width and len(parts) > width else None
        try:
            if values is None:
                raise ValueError
            rows.append(values.astype(np.float32))
        except ValueError:
            numbers = f"{width:,} numbers" if rows else "its numbers"
            reason = f"must be a word and {numbers}, separated by spaces, as in GloVe's text files."
            raise InputError(reason, path=path, line=number) from None
        words.append(" ".join(parts[:-width]))
    return _checked(path, words, rows)


def _from_json(path: Path) -> tuple[list[str], Float32]:
    try:
        found = json.loads("".join(_lines(path)))
    except InputError:
        raise
    except RecursionError:
        raise InputError("is nested too deeply: give an object of words with their vectors.", path=path) from None
    except ValueError as error:
        raise InputError(f"is not JSON: {error}.", path=path) from None
    width = None
    if isinstance(found, dict) and isinstance(found.get("vectors"), dict):
        width = found.get("dimensions")
        if not _WIDTH.accepts(width):
            reason = f'has {width!r} for "dimensions", which must be {_WIDTH.requirement}.'
            raise InputError(reason, path=path)
        found = found["vectors"]
    if not isinstance(found, dict):
        raise InputError("is not an object of words with their vectors.", path=path)
    try:
        rows = [np.asarray(values, np.float32)[:width] for values in found.values()]
    except (ValueError, TypeError, IndexError, OverflowError):
        raise InputError("has a word whose vector is not numeric: give a list of numbers.", path=path) from None
    return _checked(path, list(found), rows)


def _from_array(path: Path) -> tuple[list[str], Float32]:
    try:
        with open(path, "rb") as file:
            vectors = np.lib.format.read_array(file, allow_pickle=False)
    except FileNotFoundError:
        raise InputError("is not a file: give word vectors as text, JSON or a numpy array.", path=path) from None
    except (ValueError, OSError, EOFError, SyntaxError, TypeError, KeyError):
        raise InputError("is not a numpy array.", path=path) from None
    if vectors.ndim != 2 or vectors.dtype.kind not in "fiu":
        raise InputError("is not a two-dimensional numeric array with a row per word.", path=path)
    listed = path.with_suffix(".txt")
    words = [line.rstrip("\r\n") for line in _lines(listed)]
    if len(words) != len(vectors):
        raise InputError(f"has {len(words):,} words, and {path.name} {len(vectors):,} rows.", path=listed)
    return _checked(path, words, list(vectors.astype(np.float32)))


def _checked(path: Path, words: list[str], rows: list[Float32]) -> tuple[list[str], Float32]:
    if not rows:
        raise InputError("contains no words.", path=path)
    odd = next(
        (word for word, row in zip(words, rows, strict=True) if row.shape != rows[0].shape or row.ndim != 1), None
    )
    if odd is not None:
        raise InputError(
            f"the vector of {odd!r} has a different length from the first: all must be of the same length.", path=path
        )
    vectors = np.stack(rows)
    if not np.isfinite(vectors).all():
        raise InputError("has a NaN or infinite value.", path=path)
    return words, vectors


def _lines(path: Path) -> Iterator[str]:
    if not path.is_file():
        raise InputError("is not a file: give word vectors as text or JSON.", path=path)
    with ByteReader(path) as stream, io.TextIOWrapper(io.BufferedReader(stream), "utf-8", errors="replace") as file:
        yield from file

"""Pairs of scipy matrices, ``NAME.X.npz`` and ``NAME.Y.npz``, with label names in ``NAME.labels.txt``."""

from __future__ import annotations

import os
import zipfile
import zlib
from contextlib import ExitStack
from typing import Any, cast

import scipy.sparse as sp

from longtail.data.dataset import Dataset
from longtail.data.readers.label_names import read_names, write_names
from longtail.data.streams import write_whole
from longtail.errors import InputError


def npz_prefix(path: str | os.PathLike[str]) -> str:
    """Return the NAME of a pair, given either file, ``NAME.npz`` or NAME itself.

    Examples
    --------
    >>> npz_prefix("data/train.X.npz"), npz_prefix("data/train")
    ('data/train', 'data/train')
    """
    text = os.fspath(path)
    for suffix in (".X.npz", ".Y.npz", ".npz"):
        if text.endswith(suffix):
            return text[: -len(suffix)]
    return text


def read_npz(path: str | os.PathLike[str]) -> Dataset:
    """Read a pair of matrices saved with `scipy.sparse.save_npz`.

    Parameters
    ----------
    path : path-like
        ``NAME.X.npz``, ``NAME.Y.npz``, or NAME. ``NAME.labels.txt``, if it exists, has one label name per line.

    Raises
    ------
    InputError
        If a file is missing, no sparse matrix, or of another shape than the others.

    Examples
    --------
    >>> import tempfile
    >>> name = os.path.join(tempfile.mkdtemp(), "toy")
    >>> write_npz(Dataset([[0, 1.5]], [[1, 0]], label_names=["cat", "dog"]), name)
    >>> read_npz(name)
    Dataset('toy': 1 rows, 2 features, 2 labels with names, 1.00 labels per row)
    """
    prefix = npz_prefix(path)
    X, Y = _matrix(prefix + ".X.npz"), _matrix(prefix + ".Y.npz")
    names_path = prefix + ".labels.txt"
    names = read_names(names_path, Y.shape[1]) if os.path.exists(names_path) else None
    try:
        return Dataset(X, Y, label_names=names, name=os.path.basename(prefix))
    except InputError as error:
        raise InputError(error.reason, path=prefix + ".*.npz") from None


def write_npz(dataset: Dataset, path: str | os.PathLike[str]) -> None:
    """Write features and labels as a pair of matrices for `read_npz`, and label names beside them.

    Parameters
    ----------
    dataset : Dataset
        With features; texts have no place in this format.
    path : path-like
        NAME, ``NAME.npz`` or ``NAME.X.npz``: the files are ``NAME.X.npz``, ``NAME.Y.npz`` and ``NAME.labels.txt``.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> write_npz(Dataset([[0, 1.5]], [[1, 0]], label_names=["cat", "dog"]), f"{folder}/toy.npz")
    >>> sorted(os.listdir(folder))
    ['toy.X.npz', 'toy.Y.npz', 'toy.labels.txt']
    """
    if dataset.X is None:
        raise InputError("npz needs features, this data set has only texts: save it as .jsonl.", path=path)
    prefix = npz_prefix(path)
    with ExitStack() as stack:
        for part, matrix in (("X", dataset.X), ("Y", dataset.Y)):
            sp.save_npz(cast(Any, stack.enter_context(write_whole(f"{prefix}.{part}.npz"))), matrix)
        if dataset.label_names is not None:
            write_names(dataset.label_names, prefix + ".labels.txt")


def _matrix(path: str) -> Any:
    if not os.path.isfile(path):
        raise InputError("is missing: an npz data set is a pair of files, NAME.X.npz and NAME.Y.npz.", path=path)
    try:
        matrix = sp.load_npz(path)
        if hasattr(matrix, "check_format"):
            matrix.check_format(full_check=True)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, OSError, EOFError) as error:
        raise InputError(
            f"is not a sparse matrix of scipy.sparse.save_npz ({_first_line(error)}).", path=path
        ) from None
    except (zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
        raise InputError(f"is damaged ({_first_line(error)}): download or write it again.", path=path) from None
    return matrix


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")

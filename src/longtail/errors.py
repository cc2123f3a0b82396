"""Errors for the person who made them: one sentence, the place, and what to do about it."""

from __future__ import annotations

from errno import EDQUOT, EFBIG, ENOSPC
from os import PathLike, fspath

_MOST_SHOWN = 300  # characters of a value


class LongtailError(Exception):
    """Base class of every error that longtail raises on purpose; Ctrl-C is no error, see `Interrupted`."""


class InputError(LongtailError, ValueError):
    """Data that can't be used: names the file and the line where there is one.

    Parameters
    ----------
    reason : str
        One sentence that says what is wrong and what to do.
    path : path-like, optional
        The file.
    line : int, optional
        The line in that file, counted from 1.

    Examples
    --------
    >>> str(InputError("feature 7 stands twice.", path="train.txt", line=3))
    'train.txt:3: feature 7 stands twice.'
    """

    def __init__(self, reason: str, *, path: str | PathLike[str] | None = None, line: int | None = None) -> None:
        self.reason = reason
        self.path = None if path is None else fspath(path)
        self.line = line
        place = "" if self.path is None else self.path + (f":{line}" if line is not None else "") + ": "
        super().__init__(place + reason)


class ParameterError(LongtailError, ValueError):
    """A parameter with a value that makes no sense: names the parameter.

    Examples
    --------
    >>> str(ParameterError("seed", -1, "must be at least 0"))
    'seed must be at least 0, got -1.'
    """

    def __init__(self, name: str, value: object, requirement: str) -> None:
        self.name = name
        self.value = value
        shown = repr(value)
        super().__init__(
            f"{name} {requirement}, got {shown if len(shown) <= _MOST_SHOWN else shown[:_MOST_SHOWN] + '...'}."
        )


class MissingExtraError(LongtailError, ImportError):
    """A feature whose optional dependency is not installed.

    Examples
    --------
    >>> str(MissingExtraError("Reading .zst files", "zst"))
    'Reading .zst files needs an extra: pip install "longtail[zst]".'
    """

    def __init__(self, what: str, extra: str) -> None:
        self.extra = extra
        super().__init__(f'{what} needs an extra: pip install "longtail[{extra}]".')


class DiskError(LongtailError):
    """Something that could not be written: a full disk, a directory that vanished, no permission.

    Parameters
    ----------
    error : OSError
        What the system said.
    path : path-like
        What was being written.

    Examples
    --------
    >>> import errno
    >>> str(DiskError(OSError(errno.ENOSPC, "No space left on device"), path="model"))
    "model: can't be written: No space left on device; free some space, or write elsewhere."
    """

    def __init__(self, error: OSError, *, path: str | PathLike[str]) -> None:
        self.path = fspath(path)
        self.errno = error.errno
        full = error.errno in (ENOSPC, EDQUOT, EFBIG)
        advice = "; free some space, or write elsewhere." if full else "."
        super().__init__(f"{self.path}: can't be written: {error.strerror or error}{advice}")


class ModelError(LongtailError):
    """A model directory that can't be loaded: incomplete, changed, or from a newer longtail."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C: says how much was done before the stop.

    It is a KeyboardInterrupt and nothing else, so that neither ``except Exception`` nor ``except LongtailError``
    keeps a program going that was told to stop.

    Examples
    --------
    >>> issubclass(Interrupted, Exception)
    False
    """

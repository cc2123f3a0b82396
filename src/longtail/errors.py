"""Exceptions of longtail; each message is one sentence with the file or parameter and what to do."""

from __future__ import annotations

from errno import EDQUOT, EFBIG, ENOSPC
from os import PathLike, fspath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = [  # the functions are for longtail's own packages
    "DiskError",
    "InputError",
    "Interrupted",
    "LongtailError",
    "MissingExtraError",
    "ModelError",
    "NotNumbersError",
    "ParameterError",
    "UnknownNameError",
]

_MOST_SHOWN = 300  # characters of a value


class LongtailError(Exception):
    """Base class of all errors that longtail raises; Ctrl-C is not one of them, see `Interrupted`.

    Examples
    --------
    >>> try:
    ...     raise InputError("the file is empty.", path="train.txt")
    ... except LongtailError as error:
    ...     print(error)
    train.txt: the file is empty.
    """


class InputError(LongtailError, ValueError):
    """Invalid data; names the file and the line if there are any.

    Parameters
    ----------
    reason : str
        One sentence: what is wrong, and what to do.
    path : path-like, optional
        The file.
    line : int, optional
        The line in that file, counted from 1.

    Examples
    --------
    >>> str(InputError("feature 7 appears twice.", path="train.txt", line=3))
    'train.txt:3: feature 7 appears twice.'
    """

    def __init__(self, reason: str, *, path: str | PathLike[str] | None = None, line: int | None = None) -> None:
        self.reason = reason
        self.path = None if path is None else fspath(path)
        self.line = line
        place = "" if self.path is None else self.path + (f":{line}" if line is not None else "") + ": "
        super().__init__(place + reason)


class NotNumbersError(InputError, TypeError):
    """A matrix of Python objects that are not all numbers.

    Examples
    --------
    >>> issubclass(NotNumbersError, InputError), issubclass(NotNumbersError, TypeError)
    (True, True)
    """


class ParameterError(LongtailError, ValueError):
    """An invalid value of a parameter; names the parameter.

    Examples
    --------
    >>> str(ParameterError("random_state", -1, "must be at least 0"))
    'random_state must be at least 0, got -1.'
    """

    def __init__(self, name: str, value: object, requirement: str) -> None:
        self.name = name
        self.value = value
        self.requirement = requirement
        try:
            shown = repr(value)
        except ValueError:  # an integer with more digits than Python prints
            shown = "an integer of thousands of digits"
        super().__init__(f"{name} {requirement}, got {truncated(shown, _MOST_SHOWN)}.")

    def renamed(self, name: str, requirement: str | None = None) -> ParameterError:
        """Return the same error under another name of the parameter, such as that of an option.

        Examples
        --------
        >>> str(ParameterError("random_state", -1, "must be at least 0").renamed("--seed"))
        '--seed must be at least 0, got -1.'
        """
        return type(self)(name, self.value, self.requirement if requirement is None else requirement)


class UnknownNameError(ParameterError):
    """A name that doesn't exist, such as that of a parameter or a recipe; the message has no value.

    Examples
    --------
    >>> str(UnknownNameError("depht", 3, "is not a parameter of this recipe (did you mean depth?)"))
    'depht is not a parameter of this recipe (did you mean depth?).'
    """

    def __init__(self, name: str, value: object, requirement: str) -> None:
        super().__init__(name, value, requirement)
        self.args = (f"{name} {requirement}.",)


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
    """A file that could not be written: the disk is full, the directory is gone, or there is no permission.

    Parameters
    ----------
    error : OSError
        The error of the system.
    path : path-like
        The file or directory.

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
    """A model directory that can't be loaded: incomplete, changed, or from a newer longtail.

    Examples
    --------
    >>> str(ModelError("model/model.json is missing: copy the model again, all of its files."))
    'model/model.json is missing: copy the model again, all of its files.'
    """


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, with the amount of work done before the stop.

    It is only a KeyboardInterrupt, so that neither ``except Exception`` nor ``except LongtailError`` catches it.

    Examples
    --------
    >>> issubclass(Interrupted, Exception)
    False
    """


def truncated(text: str, most: int = 60) -> str:
    """Return a text of at most `most` characters; a longer one ends in "...".

    Examples
    --------
    >>> truncated("a hierarchy", 8), truncated("a tree", 8)
    ('a hie...', 'a tree')
    """
    return text if len(text) <= most else text[: most - 3] + "..."


def counted(number: int, what: str) -> str:
    """Write a number with what it counts.

    Examples
    --------
    >>> counted(1, "row"), counted(5592, "row")
    ('1 row', '5,592 rows')
    """
    return f"{number:,} {what}{'s' * (number != 1)}"


def did_you_mean(name: object, known: Iterable[str], *, key: Callable[[str], str] = str, most: int = 1) -> str:
    """Return the known names most like a wrong one, for the end of a clause in a message; "" if none is like it.

    Parameters
    ----------
    name : object
        The wrong name.
    known : iterable of str
    key : callable
        Applied to names before they are compared, such as ``str.casefold``.
    most : int
        Number of names to give.

    Examples
    --------
    >>> f"there is no recipe 'dismek'{did_you_mean('dismek', ['bonsai', 'dismec'])}"
    "there is no recipe 'dismek' (did you mean dismec?)"
    >>> did_you_mean("SHIP", ["ship", "shop"], key=str.casefold, most=2), did_you_mean("sea", ["tree"])
    (' (did you mean ship or shop?)', '')
    """
    from difflib import get_close_matches

    if not isinstance(name, str):
        return ""
    names = {key(one): one for one in known}
    close = get_close_matches(key(name), names, n=most)
    return f" (did you mean {' or '.join(names[one] for one in close)}?)" if close else ""

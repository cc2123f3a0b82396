"""Label names in a text file, one on each line, in the order of the label ids."""

from __future__ import annotations

import os
from collections.abc import Sequence

from longtail.corpus.streams import ByteReader, write_whole
from longtail.errors import InputError


def read_names(path: str | os.PathLike[str], count: int | None = None) -> list[str]:
    """Read label names, plain or compressed; with `count`, refuse a file with another number of lines.

    Examples
    --------
    >>> import tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "label_names.txt")
    >>> write_names(["cat", "dog"], path)
    >>> read_names(path, 2)
    ['cat', 'dog']
    """
    with ByteReader(path) as stream:
        data = stream.readall()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError("is not UTF-8: convert the file.", path=path, line=line) from None
    names = text.replace("\r\n", "\n").removesuffix("\n").split("\n") if text else []
    if count is not None and len(names) != count:
        raise InputError(
            f"has {len(names)} names for {count} labels: it must have one on each line; mend, rename or remove it.",
            path=path,
        )
    return names


def write_names(names: Sequence[str], path: str | os.PathLike[str]) -> None:
    """Write label names, one on each line."""
    check_names(names, path)
    with write_whole(path) as file:
        file.write("".join(name + "\n" for name in names).encode())


def check_names(names: Sequence[str], path: str | os.PathLike[str]) -> None:
    """Refuse names that can't stand on a line."""
    for label, name in enumerate(names):
        if "\n" in name or "\r" in name:
            raise InputError(
                f"the name of label {label} has a line break ({name!r}): it can't stand on a line.", path=path
            )

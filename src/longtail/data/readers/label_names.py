"""Label names in a text file, one per line, in the order of the label ids."""

from __future__ import annotations

import os
from collections.abc import Sequence

from longtail.data.streams import read_text, write_whole
from longtail.errors import InputError


def read_names(path: str | os.PathLike[str], count: int | None = None) -> list[str]:
    """Read label names from a plain or compressed file; with `count`, the file must have that many lines.

    Examples
    --------
    >>> import tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "label_names.txt")
    >>> write_names(["cat", "dog"], path)
    >>> read_names(path, 2)
    ['cat', 'dog']
    """
    text = read_text(path)
    names = text.replace("\r\n", "\n").removesuffix("\n").split("\n") if text else []
    if count is not None and len(names) != count:
        raise InputError(
            f"has {len(names)} names for {count} labels: it must have one per line; correct, rename or remove it.",
            path=path,
        )
    return names


def write_names(names: Sequence[str], path: str | os.PathLike[str]) -> None:
    """Write label names, one per line."""
    check_names(names, path)
    with write_whole(path) as file:
        file.write("".join(name + "\n" for name in names).encode())


def check_names(names: Sequence[str], path: str | os.PathLike[str]) -> None:
    """Refuse names with a line break."""
    for label, name in enumerate(names):
        if "\n" in name or "\r" in name:
            raise InputError(
                f"the name of label {label} has a line break ({name!r}): the file has one name per line.", path=path
            )

"""Text files with two names per line, such as a child and its parent."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from longtail.data.streams import read_text
from longtail.errors import InputError


def iter_pairs(
    path: str | os.PathLike[str], what: str = "two names", *, second_optional: bool = False
) -> Iterator[tuple[int, str, str]]:
    """Yield the line number and the two names of each line, which a tab, comma or semicolon separates.

    Blank lines are skipped. Names that contain the separator are quoted; between tabs, quotes are ordinary characters.

    Parameters
    ----------
    path : path-like
        Plain or compressed.
    what : str
        What a line must hold, for the error message.
    second_optional : bool
        Whether the second name may be empty.
    """
    lines = read_text(path).replace("\r\n", "\n").split("\n")
    first = next(filter(str.strip, lines), "")
    if "\t" in first:
        rows: Iterable[tuple[int, list[str]]] = ((line, row.split("\t")) for line, row in enumerate(lines, 1))
    else:
        by_comma = "," in first and not (";" in first and _are_pairs(_csv(lines, ";")))
        rows = _numbered(_csv(lines, "," if by_comma else ";"), path)
    for line, row in rows:
        names = [name.strip() for name in row]
        if not any(names):
            continue
        if len(names) != 2 or not names[0] or not (names[1] or second_optional):
            raise InputError(
                f"must be {what} with a tab, comma or semicolon between; quote names that contain one of these.",
                path=path,
                line=line,
            )
        yield line, names[0], names[1]


def _csv(lines: Sequence[str], delimiter: str) -> Any:
    return csv.reader((line + "\n" for line in lines), delimiter=delimiter, skipinitialspace=True, strict=True)


def _are_pairs(reader: Any) -> bool:
    """Return whether every line has two cells or none."""
    try:
        return all(len(row) == 2 or not any(map(str.strip, row)) for row in reader)
    except csv.Error:
        return False


def _numbered(reader: Any, path: str | os.PathLike[str]) -> Iterator[tuple[int, list[str]]]:
    try:
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:
        raise InputError(f"can't be read: {error}.", path=path, line=reader.line_num) from None

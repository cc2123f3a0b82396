"""Formatting of numbers and names in reports."""

from __future__ import annotations

import re
from collections.abc import Sequence

from longtail.metrics import Interval

_LONGEST_TEXT, _LONGEST_NAME = 320, 80
_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]+")


def as_percent(value: float) -> str:
    """Format a percentage as `longtail evaluate` does."""
    return f"{value:.2f}"


def percents(value: float) -> str:
    """Format a percentage with a percent sign and a no-break space."""
    return f"{as_percent(value)}\N{NO-BREAK SPACE}%"


def share(part: float) -> str:
    """Format a fraction as an integer percentage.

    Examples
    --------
    >>> share(0.951).split()
    ['95', '%']
    """
    return f"{100 * part:.0f}\N{NO-BREAK SPACE}%"


def span(interval: Interval) -> str:
    """Format the bounds of an interval.

    Examples
    --------
    >>> span(Interval(50.0, 48.126, 51.9))
    '48.13–51.90'
    """
    return f"{as_percent(interval.low)}–{as_percent(interval.high)}"


def listing(names: Sequence[str]) -> str:
    """Join names with commas and "and".

    Examples
    --------
    >>> listing(["a", "b", "c"]), listing(["a"])
    ('a, b and c', 'a')
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def rows_of(counts: tuple[int, int]) -> str:
    """Format a range of training counts.

    Examples
    --------
    >>> rows_of((3, 3)), rows_of((20, 1000))
    ('3', '20–1,000')
    """
    low, high = counts
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"


def training_rows(counts: tuple[int, int]) -> str:
    """Format a range of training counts with its unit.

    Examples
    --------
    >>> training_rows((1, 1)), training_rows((0, 1))
    ('1 training row', '0–1 training rows')
    """
    return f"{rows_of(counts)} training {'row' if counts == (1, 1) else 'rows'}"


def round_numbers(below: int) -> list[int]:
    """Return 1, 2, 5, 10, 20, 50, ... up to a number, which is not included.

    Examples
    --------
    >>> round_numbers(21), round_numbers(20), round_numbers(0)
    ([1, 2, 5, 10, 20], [1, 2, 5, 10], [])
    """
    steps = [step * 10**power for power in range(len(str(below))) for step in (1, 2, 5)]
    return [step for step in steps if step < below]


def shorten(text: str, longest: int = _LONGEST_TEXT) -> str:
    """Return the beginning of a text on one line, cut between words where possible, without unprintable characters.

    Examples
    --------
    >>> shorten("one  two\\nthree", 9)
    'one two …'
    """
    line = " ".join(_UNSAFE.sub(" ", text[: 4 * longest]).split())
    if len(line) <= longest:
        return line
    cut = line[: longest - 1]
    words = cut.rpartition(" ")[0]
    return (words + " …") if len(words) > longest // 2 else cut + "…"


def shorten_name(name: str) -> str:
    """Return the name of a label for a page, shortened; quoted if nothing of it can be printed.

    Examples
    --------
    >>> shorten_name("red\\nships"), shorten_name("")
    ('red ships', "''")
    """
    return shorten(name, _LONGEST_NAME) or ascii(name)

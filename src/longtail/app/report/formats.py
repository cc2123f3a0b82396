"""How numbers and names are written in a report."""

from __future__ import annotations

from collections.abc import Sequence

from longtail.metrics import Interval


def percent(value: float) -> str:
    """Write a percentage as `longtail evaluate` does."""
    return f"{value:.2f}"


def percents(value: float) -> str:
    """Write a percentage with its sign, which stays on the same line."""
    return f"{percent(value)}\N{NO-BREAK SPACE}%"


def share(part: float) -> str:
    """Write a part of 1 as a whole percentage.

    Examples
    --------
    >>> share(0.951).split()
    ['95', '%']
    """
    return f"{100 * part:.0f}\N{NO-BREAK SPACE}%"


def span(interval: Interval) -> str:
    """Write the ends of an interval.

    Examples
    --------
    >>> span(Interval(50.0, 48.126, 51.9))
    '48.13–51.90'
    """
    return f"{percent(interval.low)}–{percent(interval.high)}"


def listing(names: Sequence[str]) -> str:
    """Join names as in a sentence.

    Examples
    --------
    >>> listing(["a", "b", "c"]), listing(["a"])
    ('a, b and c', 'a')
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def rows_of(counts: tuple[int, int]) -> str:
    """Write the least and most training rows of some labels.

    Examples
    --------
    >>> rows_of((3, 3)), rows_of((20, 1000))
    ('3', '20–1,000')
    """
    low, high = counts
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"


def training_rows(counts: tuple[int, int]) -> str:
    """Write the least and most training rows of some labels for a sentence.

    Examples
    --------
    >>> training_rows((1, 1)), training_rows((0, 1))
    ('1 training row', '0–1 training rows')
    """
    return f"{rows_of(counts)} training {'row' if counts == (1, 1) else 'rows'}"

"""One data set's part of a figure, as numbers: what a table lists and a picture draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from longtail.app.reproduce.markdown import markdown_table

Value = tuple[float, float | None]
"""A number, and half of its interval where it has one."""


@dataclass(frozen=True)
class Panel:
    """Curves over the same places.

    Parameters
    ----------
    title : str
        A sentence without its full stop, with the data set's name.
    across : str
        What the places are.
    places : sequence of str
    up : str
        What is measured.
    curves : mapping of str to sequence of Value or None
        A value for each place, None where there is none.
    legend : str
        What the names of the curves are, where they don't say it.
    """

    title: str
    across: str
    places: Sequence[str]
    up: str
    curves: Mapping[str, Sequence[Value | None]]
    legend: str = ""

    def lines(self) -> list[str]:
        """The panel as Markdown, a row for each place."""
        rows = [
            [place, *(_put(values[number]) for values in self.curves.values())]
            for number, place in enumerate(self.places)
        ]
        return [f"{self.title}:", "", *markdown_table([self.across, *self.curves], rows)]


def _put(value: Value | None) -> str:
    if value is None:
        return "-"
    number, half = value
    if half is not None:
        return f"{number:.2f} ± {half:.2f}"
    return f"{number:,.0f}" if float(number).is_integer() and abs(number) >= 100 else f"{number:.4g}"

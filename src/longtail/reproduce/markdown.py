"""Reproduced tables and panels of figures as Markdown."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from longtail.reproduce.jobs import COSTS, METRICS, Job
from longtail.reproduce.methods import recipe_for
from longtail.reproduce.papers import PaperTable
from longtail.reproduce.tables import Gain, Reproduced


def as_markdown(found: Reproduced, failed: Mapping[Job, str], *, with_paper: bool = True) -> str:
    """Return all sections of a table; `with_paper` includes the paper's numbers on data sets that are missing."""
    table = found.table
    lines = [f"## {table.key}", "", f"{table.shows} {table.paper}.", ""]
    if found.direct:
        lines += ["The paper's number, the measured one ± half of its 95 % bootstrap interval, and the difference:", ""]
        lines += _direct(found)
    if found.standing_in:
        lines += ["On other data sets, the measured number ± half of the 95 % bootstrap interval:", ""]
        lines += _standing_in(found)
    if found.gains:
        lines += ["Gain of each method over its base on the same test rows, with 95 % bootstrap intervals:", ""]
        lines += _gains(found.gains)
        signs = signs_of(found.gains)
        if signs:
            lines += [f"{signs_sentence(signs)}", ""]
    if with_paper:
        lines += printed(table, set(found.missing))
    lines += missing_sets(found.missing)
    lines += not_run(found.left_out, failed)
    if found.notes:
        lines += ["Notes:", "", *(f"- {note}" for note in found.notes), ""]
    return "\n".join(lines)


def printed(table: PaperTable, datasets: Container[str] | None = None) -> list[str]:
    """Return the paper's numbers on some of its data sets, if there are any."""
    rows = [row for row in table.rows if datasets is None or row.data in datasets]
    if not rows:
        return []
    columns = list(dict.fromkeys(name for row in rows for name in row.values))
    cells = [
        [row.data, row.method, *("-" if name not in row.values else f"{row.values[name]:,.10g}" for name in columns)]
        for row in rows
    ]
    return ["In the paper:", "", *markdown_table(["data set", "method", *columns], cells)]


def missing_sets(missing: Mapping[str, str]) -> list[str]:
    """Return the missing data sets of the paper and how to get them."""
    return ["Missing data sets:", "", *(f"- {name}: {how}." for name, how in missing.items()), ""] if missing else []


def not_run(left_out: Mapping[str, str], failed: Mapping[Job, str]) -> list[str]:
    """Return the methods that did not run, with reasons."""
    reasons = {**left_out, **{f"{job.recipe.name} on {job.data.name}": why for job, why in failed.items()}}
    return (
        ["Not run:", "", *(f"- {name}: {reason.rstrip('.')}." for name, reason in reasons.items()), ""]
        if reasons
        else []
    )


@dataclass(frozen=True)
class Sign:
    """Gain of a method over its base on a data set, mean of PSP@k over k, and the gain expected from the paper.

    `is_sure` is True if the intervals of all PSP@k exclude 0 on the same side.
    """

    data: str
    method: str
    measured: float
    expected: float
    is_sure: bool

    @property
    def agrees(self) -> bool:
        """Whether both have the same sign."""
        return self.measured * self.expected > 0


def signs_of(gains: Iterable[Gain]) -> list[Sign]:
    """Return a sign per method and data set with gains in PSP@k, measured and published."""
    found = []
    scored = [
        (gain, expected) for gain in gains if gain.metric.startswith("PSP@") and (expected := gain.expected) is not None
    ]
    for data, method in dict.fromkeys((gain.data, gain.method) for gain, _ in scored):
        own = [(gain, expected) for gain, expected in scored if (gain.data, gain.method) == (data, method)]
        mean, wanted = (sum(values) / len(own) for values in zip(*((g.measured, e) for g, e in own), strict=True))
        is_sure = all(gain.low > 0 for gain, _ in own) or all(gain.high < 0 for gain, _ in own)
        found.append(Sign(data, method, mean, wanted, is_sure))
    return found


def signs_sentence(signs: Sequence[Sign]) -> str:
    """Return a sentence with the number of gains that have the paper's sign."""
    yes, sure = sum(sign.agrees for sign in signs), [sign for sign in signs if sign.is_sure]
    return (
        f"{yes} of {len(signs)} pairs of method and data set have the paper's sign in the mean of PSP@k; of the "
        f"{len(sure)} whose intervals all exclude 0, {sum(sign.agrees for sign in sure)}."
    )


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table, and an empty one."""
    return [
        "| " + " | ".join(columns) + " |",
        "|" + "---|" * len(columns),
        *("| " + " | ".join(row) + " |" for row in rows),
        "",
    ]


def _direct(found: Reproduced) -> list[str]:
    metrics = list(dict.fromkeys(cell.metric for cells in found.direct.values() for cell in cells))
    rows = []
    for (data, method), cells in found.direct.items():
        by_metric = {cell.metric: cell for cell in cells}
        mark = "" if all(cell.is_alike for cell in cells) else " (another split)"
        row = [f"{data}{mark}", method, _recipe(method)]
        for metric in metrics:
            cell = by_metric[metric]
            paper = "-" if cell.paper is None else f"{cell.paper:g}"
            apart = "" if cell.difference is None else f" ({cell.difference:+.2f})"
            row.append(f"{paper} / {_with_half(cell.measured, cell.half)}{apart}")
        rows.append(row)
    return markdown_table(["data set", "method", "measured", *metrics], rows)


def _standing_in(found: Reproduced) -> list[str]:
    metrics = [metric for metric in (*METRICS, *COSTS) if metric in found.table.metrics]
    rows = [
        [data, _recipe(method), *(_with_half(result.value(m), result.half(m)) for m in metrics)]
        for (data, method), result in found.standing_in.items()
    ]
    return markdown_table(["data set", "recipe", *metrics], rows)


def _gains(gains: Sequence[Gain]) -> list[str]:
    metrics = list(dict.fromkeys(gain.metric for gain in gains))
    rows = []
    for data, method in dict.fromkeys((gain.data, gain.method) for gain in gains):
        own = {gain.metric: gain for gain in gains if (gain.data, gain.method) == (data, method)}
        rows.append([data, _recipe(method), *(_gain(own[metric]) for metric in metrics)])
    for method in dict.fromkeys(gain.method for gain in gains):
        own = {gain.metric: gain for gain in gains if gain.method == method}
        if any(gain.paper for gain in own.values()):
            rows.append(["*paper, lowest to highest*", method, *(_range(own[metric]) for metric in metrics)])
    return markdown_table(["data set", "recipe", *metrics], rows)


def _gain(gain: Gain) -> str:
    return f"{gain.measured:+.2f} ({gain.low:+.2f} to {gain.high:+.2f})"


def _range(gain: Gain) -> str:
    values = gain.paper.values()
    return f"{min(values):+.2f} to {max(values):+.2f}" if values else "-"


def _recipe(method: str) -> str:
    mine = recipe_for(method)
    return "-" if mine is None else f"`{mine.name}`"


def _with_half(value: float | None, half: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" + ("" if half is None else f" ± {half:.2f}")


ValueAndHalf = tuple[float, float | None]
"""A number, and half of its interval if it has one."""


@dataclass(frozen=True)
class Panel:
    """Curves of a figure over common x values, on one data set."""

    title: str  # with the name of the data set
    xlabel: str
    x: Sequence[str]
    ylabel: str
    curves: Mapping[str, Sequence[ValueAndHalf | None]]  # a value for each x
    legend: str = ""  # title of the legend, if needed

    def lines(self) -> list[str]:
        """Return the panel as Markdown, a row for each x."""
        rows = [[x, *(_put(values[at]) for values in self.curves.values())] for at, x in enumerate(self.x)]
        return [f"{self.title}:", "", *markdown_table([self.xlabel, *self.curves], rows)]


def _put(value: ValueAndHalf | None) -> str:
    if value is None:
        return "-"
    number, half = value
    if half is not None:
        return f"{number:.2f} ± {half:.2f}"
    return f"{number:,.0f}" if float(number).is_integer() and abs(number) >= 100 else f"{number:.4g}"

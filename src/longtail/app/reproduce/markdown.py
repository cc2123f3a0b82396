"""A reproduced table as Markdown."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from longtail.app.reproduce.jobs import COSTS, METRICS, Job
from longtail.app.reproduce.methods import ours
from longtail.app.reproduce.papers import Table
from longtail.app.reproduce.tables import Gain, Reproduced


def as_markdown(found: Reproduced, failed: Mapping[Job, str], *, with_paper: bool = True) -> str:
    """Everything about a table, in sections; `with_paper` for the paper's numbers on data sets that are not at hand."""
    table = found.table
    lines = [f"## {table.key}", "", f"{table.shows} {table.paper}.", ""]
    if found.direct:
        lines += ["The paper's number, ours with half of its 95 % interval over test rows, and the difference:", ""]
        lines += _direct(found)
    if found.standing_in:
        lines += ["On data sets that stand in, ours with half of the 95 % interval:", ""]
        lines += _standing_in(found)
    if found.gains:
        lines += ["What each method adds to its base, on the same test rows, with 95 % intervals:", ""]
        lines += _gains(found.gains)
        signs = signs_of(found.gains)
        if signs:
            lines += [f"{told_signs(signs)}", ""]
    if with_paper:
        lines += printed(table, set(found.missing))
    lines += not_at_hand(found.missing)
    lines += not_run(found.left_out, failed)
    if found.notes:
        lines += ["To be read with this in mind:", "", *(f"- {note}" for note in found.notes), ""]
    return "\n".join(lines)


def printed(table: Table, datasets: Container[str] | None = None) -> list[str]:
    """What the paper printed, on some of its data sets; nothing where our text of it has no numbers."""
    rows = [row for row in table.rows if datasets is None or row.data in datasets]
    if not rows:
        return []
    columns = list(dict.fromkeys(name for row in rows for name in row.values))
    cells = [
        [row.data, row.method, *("-" if name not in row.values else f"{row.values[name]:,.10g}" for name in columns)]
        for row in rows
    ]
    return ["In the paper:", "", *markdown_table(["data set", "method", *columns], cells)]


def not_at_hand(missing: Mapping[str, str]) -> list[str]:
    """Data sets of the paper that are missing, and how to get them."""
    return ["Not at hand:", "", *(f"- {name}: {how}." for name, how in missing.items()), ""] if missing else []


def not_run(left_out: Mapping[str, str], failed: Mapping[Job, str]) -> list[str]:
    """What did not run, and why; nothing where all did."""
    reasons = {**left_out, **{f"{job.ours.name} on {job.data.name}": why for job, why in failed.items()}}
    return (
        ["Not run:", "", *(f"- {name}: {reason.rstrip('.')}." for name, reason in reasons.items()), ""]
        if reasons
        else []
    )


@dataclass(frozen=True)
class Sign:
    """What a method adds to its base on a data set in PSP@k, the mean over k, and what the paper leads to expect.

    `is_sure` says whether the intervals of all PSP@k leave out 0 on the same side.
    """

    data: str
    method: str
    ours: float
    expected: float
    is_sure: bool

    @property
    def agrees(self) -> bool:
        """Whether both go the same way."""
        return self.ours * self.expected > 0


def signs_of(gains: Iterable[Gain]) -> list[Sign]:
    """One sign for each method and data set that have gains in PSP@k, ours and the paper's."""
    found = []
    scored = [
        (gain, expected) for gain in gains if gain.metric.startswith("PSP@") and (expected := gain.expected) is not None
    ]
    for data, method in dict.fromkeys((gain.data, gain.method) for gain, _ in scored):
        own = [(gain, expected) for gain, expected in scored if (gain.data, gain.method) == (data, method)]
        mean, wanted = (sum(values) / len(own) for values in zip(*((g.ours, e) for g, e in own), strict=True))
        is_sure = all(gain.low > 0 for gain, _ in own) or all(gain.high < 0 for gain, _ in own)
        found.append(Sign(data, method, mean, wanted, is_sure))
    return found


def told_signs(signs: Sequence[Sign]) -> str:
    """How many gains go the paper's way, in a sentence."""
    yes, sure = sum(sign.agrees for sign in signs), [sign for sign in signs if sign.is_sure]
    return (
        f"{yes} of {len(signs)} pairs of method and data set have the paper's sign in the mean of PSP@k; of the "
        f"{len(sure)} with all intervals on one side of 0, {sum(sign.agrees for sign in sure)}."
    )


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table, and an empty one."""
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
            row.append(f"{paper} / {_with_half(cell.ours, cell.half)}{apart}")
        rows.append(row)
    return markdown_table(["data set", "method", "ours", *metrics], rows)


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
    return f"{gain.ours:+.2f} ({gain.low:+.2f} to {gain.high:+.2f})"


def _range(gain: Gain) -> str:
    values = gain.paper.values()
    return f"{min(values):+.2f} to {max(values):+.2f}" if values else "-"


def _recipe(method: str) -> str:
    mine = ours(method)
    return "-" if mine is None else f"`{mine.name}`"


def _with_half(value: float | None, half: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" + ("" if half is None else f" ± {half:.2f}")

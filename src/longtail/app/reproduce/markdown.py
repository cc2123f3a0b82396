"""A reproduced table as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from longtail.app.reproduce.jobs import METRICS
from longtail.app.reproduce.methods import ours
from longtail.app.reproduce.tables import Gain, Reproduced


def as_markdown(found: Reproduced, failed: dict[str, str]) -> str:
    """Everything about a table, in sections."""
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
        judged = agreeing(found.gains)
        if judged:
            yes = sum(judged.values())
            lines += [f"{yes} of {len(judged)} pairs of method and data set have the paper's sign.", ""]
    if found.missing:
        lines += ["Not at hand:", "", *(f"- {name}: {how}." for name, how in found.missing.items()), ""]
    lines += not_run(found.left_out, failed)
    if found.notes:
        lines += ["To be read with this in mind:", "", *(f"- {note}" for note in found.notes), ""]
    return "\n".join(lines)


def not_run(left_out: Mapping[str, str], failed: Mapping[str, str]) -> list[str]:
    """What did not run, and why; nothing where all did."""
    reasons = {**left_out, **failed}
    return (
        ["Not run:", "", *(f"- {name}: {reason.rstrip('.')}." for name, reason in reasons.items()), ""]
        if reasons
        else []
    )


def agreeing(gains: Sequence[Gain]) -> dict[tuple[str, str], bool]:
    """Whether a method's mean gain in the propensity-scored metrics, or in all where there are none, has the paper's
    sign, by data set and method."""
    found = {}
    for data, method in dict.fromkeys((gain.data, gain.method) for gain in gains):
        own = [gain for gain in gains if (gain.data, gain.method) == (data, method) and gain.paper]
        scored = [gain for gain in own if gain.metric.startswith("PS")] or own
        if scored:
            theirs = sum(sum(gain.paper) / 2 for gain in scored)
            found[data, method] = (sum(gain.ours for gain in scored) >= 0) == (theirs >= 0)
    return found


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
        row = [data, method, _recipe(method)]
        for metric in metrics:
            cell = by_metric[metric]
            paper = "-" if cell.paper is None else f"{cell.paper:g}"
            apart = "" if cell.difference is None else f" ({cell.difference:+.2f})"
            row.append(f"{paper} / {_with_half(cell.ours, cell.half)}{apart}")
        rows.append(row)
    return markdown_table(["data set", "method", "ours", *metrics], rows)


def _standing_in(found: Reproduced) -> list[str]:
    metrics = [metric for metric in METRICS if metric in found.table.metrics]
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
            rows.append(["*paper, lowest and highest*", method, *(_range(own[metric]) for metric in metrics)])
    return markdown_table(["data set", "recipe", *metrics], rows)


def _gain(gain: Gain) -> str:
    return f"{gain.ours:+.2f} ({gain.low:+.2f} to {gain.high:+.2f})"


def _range(gain: Gain) -> str:
    return f"{gain.paper[0]:+.2f} to {gain.paper[1]:+.2f}" if gain.paper else "-"


def _recipe(method: str) -> str:
    mine = ours(method)
    return "-" if mine is None else f"`{mine.name}`"


def _with_half(value: float | None, half: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" + ("" if half is None else f" ± {half:.2f}")

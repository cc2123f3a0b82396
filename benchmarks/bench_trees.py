"""longtail's label trees against the peers' and against exact one-vs-rest.

Targets are printed under the tables, with the measured value and whether it reaches the target.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from data import DATASETS
from longtail.metrics import relative_change
from measure import Benchmark, run_benchmark, table

Row = dict[str, Any]

OURS, EXACT, PLAIN = "longtail-tree", "longtail-dismec", "longtail-bonsai"
WEIGHTED = ("longtail-pw-bonsai", "longtail-pw-cb-bonsai")
PEERS = ("pecos", "napkinxc", "omikuji")
SCORES = ("P@1", "P@5", "PSP@5")
EXACT_MARGIN = 0.7
WEIGHTED_LOSS = 2.0
WEIGHTED_ON = ("eurlex57k", "tate-subjects")
P99_ON = ("eurlex57k",)
SIGNS: dict[str, Callable[[float, float], bool]] = {
    ">=": lambda measured, bound: measured >= bound,
    "<=": lambda measured, bound: measured <= bound,
    "<": lambda measured, bound: measured < bound,
}
COLUMNS = {
    "compared": ("what", "{}"),
    "with": ("against", "{}"),
    "measured": ("measured", "{:.4g}"),
    "wanted": ("wanted", "{}"),
    "reached": ("answer", "{}"),
    "figures": ("figures", "{}"),
}
HOW = f"""\
Times are the best and sizes the largest of a system's runs, scores their mean; they are compared unrounded. The
peers are {", ".join(PEERS)}. "Not measured" means that a run is missing, or, where it says so, that no peer
comes near enough. The figures are ours and theirs.

- **P@1, P@5, PSP@5, peers**: ours minus the highest of the peers, in points, each score with its own best peer.
- **P@1, P@5, PSP@5, exact**: ours minus that of {EXACT}, in points.
- **training**: seconds of the fastest peer over ours, among peers whose P@5 is at most 1 point below ours.
- **batch**: our rows per second over those of the peer that predicts all test rows fastest.
- **single row p50**: our median time of a call with one row over that of PECOS, its model loaded for prediction only.
- **single row p99**: our 99th percentile of the same calls in milliseconds, {", ".join(P99_ON)} alone.
- **model size**: ours over that of the smallest peer, among peers whose P@5 is at most 0.5 points below ours.
- **propensity weighting**: mean relative change of the propensity-scored metrics (equation 30) against {PLAIN},
  in percent: the larger of {" and ".join(WEIGHTED)}, of those whose P@1 is at most
  {WEIGHTED_LOSS:g} points lower; {" and ".join(WEIGHTED_ON)} alone.
"""


@dataclass(frozen=True)
class Comparison:
    """A measured number beside the wanted one; `measured` is None where a run is missing or nothing qualifies."""

    what: str
    against: str | None
    measured: float | None
    sign: str
    bound: float
    figures: str | None = None
    reached: bool | None = None

    @property
    def row(self) -> Row:
        """What is kept of it, with `reached` found out where it isn't given."""
        reached = self.reached
        if reached is None and self.measured is not None:
            reached = SIGNS[self.sign](self.measured, self.bound)
        answer = "not measured" if reached is None else "yes" if reached else "no"
        return asdict(self) | {"wanted": f"{self.sign} {self.bound:g}", "reached": reached, "answer": answer}


def compare(dataset: str, rows: Iterable[Row]) -> list[Row]:
    """Everything that is compared on one data set."""
    by_name = {row["system"]: row for row in rows}
    ours = by_name.get(OURS)
    peers = [by_name[name] for name in PEERS if name in by_name]
    found = [
        *_scores(ours, peers, by_name.get(EXACT)),
        _training(ours, peers),
        _batch(ours, peers),
        *_single(dataset, ours, by_name.get("pecos")),
        _size(ours, peers),
    ]
    if dataset in WEIGHTED_ON:
        found.append(_weighting(by_name))
    return [comparison.row for comparison in found]


def _scores(ours: Row | None, peers: list[Row], exact: Row | None) -> list[Comparison]:
    found = []
    for key in SCORES:
        best = max(peers, key=lambda row: row[key], default=None)
        found.append(_difference(f"{key}, peers", key, ours, best, 0.0))
    for key in SCORES:
        found.append(_difference(f"{key}, exact", key, ours, exact, -EXACT_MARGIN))
    return found


def _difference(what: str, key: str, ours: Row | None, other: Row | None, bound: float) -> Comparison:
    if ours is None or other is None:
        return Comparison(what, None, None, ">=", bound)
    figures = f"{ours[key]:.2f}, {other[key]:.2f}"
    return Comparison(what, other["system"], round(ours[key] - other[key], 9), ">=", bound, figures)


def _training(ours: Row | None, peers: list[Row]) -> Comparison:
    near = _as_accurate(ours, peers, 1.0)
    fastest = min(near, key=lambda row: row["train_seconds"], default=None)
    return _ratio("training", "train_seconds", fastest, ours, ">=", 3.0, "s", missing=_none_near(ours, peers, near))


def _batch(ours: Row | None, peers: list[Row]) -> Comparison:
    key = "predict_batch_us_per_row"
    fastest = min(peers, key=lambda row: row[key], default=None)
    return _ratio("batch", key, fastest, ours, ">=", 10.0, "us/row")


def _single(dataset: str, ours: Row | None, pecos: Row | None) -> list[Comparison]:
    """Only runs that count their calls are compared: those of an earlier version made fewer, without a warm-up."""
    ours, pecos = (row if row and "predict_single_calls" in row else None for row in (ours, pecos))
    found = [_ratio("single row p50", "predict_single_us_p50", ours, pecos, "<=", 0.2, "us")]
    if dataset in P99_ON:
        micros = ours.get("predict_single_us_p99") if ours else None
        found.append(Comparison("single row p99", None, None if micros is None else micros / 1000, "<", 1.0))
    return found


def _size(ours: Row | None, peers: list[Row]) -> Comparison:
    near = _as_accurate(ours, peers, 0.5)
    smallest = min(near, key=lambda row: row["model_mb"], default=None)
    return _ratio("model size", "model_mb", ours, smallest, "<=", 1.0, "MB", missing=_none_near(ours, peers, near))


def _as_accurate(ours: Row | None, peers: list[Row], points: float) -> list[Row]:
    """Peers whose P@5 is at most so many points below ours."""
    return [row for row in peers if ours and row["P@5"] >= ours["P@5"] - points]


def _none_near(ours: Row | None, peers: list[Row], near: list[Row]) -> str | None:
    return "no peer comes near enough in P@5" if ours and peers and not near else None


def _ratio(
    what: str,
    key: str,
    over: Row | None,
    under: Row | None,
    sign: str,
    bound: float,
    unit: str,
    *,
    missing: str | None = None,
) -> Comparison:
    """One of two figures over the other; the figures are shown ours first, or why there are none."""
    if over is None or under is None:
        return Comparison(what, None, None, sign, bound, missing)
    ours, other = (over, under) if over["system"] == OURS else (under, over)
    figures = f"{ours[key]:.4g}, {other[key]:.4g} {unit}"
    return Comparison(what, other["system"], over[key] / under[key], sign, bound, figures)


def _weighting(by_name: dict[str, Row]) -> Comparison:
    what, bound = "propensity weighting", 4.0
    plain = by_name.get(PLAIN)
    weighted = [by_name[name] for name in WEIGHTED if name in by_name]
    if plain is None or not weighted:
        return Comparison(what, None, None, ">=", bound)
    changes = {row["system"]: relative_change(row, plain)["PS"] for row in weighted}
    losses = {row["system"]: plain["P@1"] - row["P@1"] for row in weighted}
    figures = "; ".join(f"{name} {changes[name]:+.2f} %, P@1 {-losses[name]:+.2f}" for name in changes)
    fit = [name for name in changes if losses[name] <= WEIGHTED_LOSS]
    if fit:
        return Comparison(what, PLAIN, max(changes[name] for name in fit), ">=", bound, figures)
    undecided = None if len(weighted) < len(WEIGHTED) else False
    return Comparison(what, PLAIN, None, ">=", bound, figures, undecided)


def comparisons(report: Row) -> str:
    """Put what is compared into the report, and give it as Markdown."""
    report["comparisons"] = {name: compare(name, rows) for name, rows in report["datasets"].items()}
    lines = ["", "## What is compared", "", HOW]
    for name in (name for name in DATASETS if name in report["comparisons"]):
        rows = report["datasets"][name]
        times = sorted(time for row in rows for time in row["measured"])
        lines += [f"### {name}", "", *table(COLUMNS, report["comparisons"][name]), ""]
        if times:
            lines += [f"Runs finished between {times[0]} and {times[-1]}.", ""]
        missing = [peer for peer in PEERS if peer not in {row["system"] for row in rows}]
        if missing:
            lines += [f"No run of {', '.join(missing)}: the best and the fastest are those of the other peers.", ""]
    return "\n".join(lines)


TREES = Benchmark(
    name="trees",
    description=__doc__,
    ours=OURS,
    systems=(OURS, "longtail-parabel", PLAIN, *WEIGHTED, "longtail-plt", EXACT, *PEERS),
    datasets=("eurlex57k", "tate-subjects", "debian-depends"),
    without=("as trained us/row",),
    closing=comparisons,
)

if __name__ == "__main__":
    sys.exit(run_benchmark(TREES))

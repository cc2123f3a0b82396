"""Tables of a paper beside measured results: numbers on its data sets where available, gains on other data sets."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from longtail.data.registry import describe, names
from longtail.metrics import compare
from longtail.reproduce.jobs import COSTS, METRICS, Job, JobResult
from longtail.reproduce.methods import base_method, recipe_for
from longtail.reproduce.papers import PaperTable
from longtail.reproduce.sets import AvailableSet


@dataclass(frozen=True)
class FigureNumber:
    """A published number and the measured one, with half of its 95 % interval; `is_alike` if both are of one split."""

    metric: str
    paper: float | None
    measured: float | None
    half: float | None
    is_alike: bool = True

    @property
    def difference(self) -> float | None:
        """The measured number minus the paper's; None if they can't be compared."""
        if self.paper is None or self.measured is None or not self.is_alike:
            return None
        return self.measured - self.paper


@dataclass(frozen=True)
class Gain:
    """Gain of a method over its base on a data set, with its 95 % bootstrap interval, and in the paper."""

    data: str
    method: str
    base: str
    metric: str
    measured: float  # on the same test rows
    low: float
    high: float
    paper: Mapping[str, float]  # published differences by data set

    @property
    def expected(self) -> float | None:
        """Gain expected from the paper: its difference on this data set, else the median over its data sets."""
        if not self.paper:
            return None
        return self.paper.get(self.data, float(np.median(list(self.paper.values()))))


@dataclass
class Reproduced:
    """A table with measured numbers by data set and method, on data sets of the paper and on others."""

    table: PaperTable
    direct: dict[tuple[str, str], list[FigureNumber]] = field(default_factory=dict)
    standing_in: dict[tuple[str, str], JobResult] = field(default_factory=dict)
    gains: list[Gain] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)  # data sets of the paper, and how to get them
    left_out: dict[str, str] = field(default_factory=dict)  # methods that were not run, and why
    notes: list[str] = field(default_factory=list)  # limits of the comparison


def planned(
    table: PaperTable,
    sets: Mapping[str, AvailableSet],
    networks: bool,
    stand_ins: Iterable[str],
    swept: Container[str] | None = None,
) -> list[Job]:
    """Return the jobs of a table: its methods on its available data sets and on the stand-ins.

    Parameter sweeps run only on stand-ins in `swept`, if it is given.
    """
    chosen = [name for name in table.datasets if name in sets]
    chosen += [name for name in stand_ins if name not in chosen]
    jobs = []
    for name in chosen:
        for method in table.methods:
            mine = recipe_for(method)
            if mine is not None and (not mine.is_network or (networks and sets[name].has_texts)):
                job = Job(sets[name], mine)
                if not job.is_sweep or swept is None or name in swept or name in table.datasets:
                    jobs.append(job)
    return jobs


def reproduced(
    table: PaperTable,
    sets: Mapping[str, AvailableSet],
    results: Mapping[Job, JobResult],
    networks: bool,
    stand_ins: Sequence[str],
) -> Reproduced:
    """Compare results with the paper."""
    found = Reproduced(table)
    columns = [metric for metric in (*METRICS, *COSTS) if metric in table.metrics]
    for method in table.methods:
        mine = recipe_for(method)
        if mine is None:
            found.left_out[method] = "not among longtail's recipes"
        elif mine.is_network and not networks:
            found.left_out[method] = "a network: add --networks"
    for name in table.datasets:
        if name not in sets:
            found.missing[name] = where_from(name)
            continue
        for method in table.methods:
            result = _result(results, sets[name], method)
            if result is None:
                continue
            base = base_method(method, table.methods)
            found.direct[name, method] = [
                FigureNumber(
                    metric,
                    table.value(name, method, metric, base),
                    result.value(metric),
                    result.half(metric),
                    not other_split(name, sets[name].n_rows, result.figures.get("labels")),
                )
                for metric in columns
            ]
    for name in stand_ins:
        for method in table.methods:
            result = _result(results, sets[name], method)
            if result is not None and name not in table.datasets:
                found.standing_in[name, method] = result
    found.gains = [*_gains(table, sets, results, [metric for metric in columns if _ranked_as(metric)], stand_ins)]
    found.notes = _notes(table, found, results, sets)
    return found


def _ranked_as(column: str) -> str | None:
    """Return the ranking metric of a column; None for others, such as seconds."""
    return {"test accuracy %": "P@1"}.get(column, column if column in METRICS else None)


def _result(results: Mapping[Job, JobResult], data: AvailableSet, method: str) -> JobResult | None:
    mine = recipe_for(method)
    return None if mine is None else results.get(Job(data, mine))


def _gains(
    table: PaperTable,
    sets: Mapping[str, AvailableSet],
    results: Mapping[Job, JobResult],
    metrics: Sequence[str],
    stand_ins: Sequence[str],
) -> Iterable[Gain]:
    if not metrics:
        return
    ranked = {metric: _ranked_as(metric) or metric for metric in metrics}
    for name in dict.fromkeys([*(name for name in table.datasets if name in sets), *stand_ins]):
        pairs = [(method, base_method(method, table.methods)) for method in table.methods]
        both = [
            (method, base, _result(results, sets[name], method), _result(results, sets[name], base))
            for method, base in pairs
            if base is not None
        ]
        if not any(one and other for _, _, one, other in both):
            continue
        train, test = sets[name].read()
        counts = np.pad(train.label_counts, (0, test.n_labels - train.n_labels))
        inverse = sets[name].propensity.inverse(counts, train.n_rows)
        for method, base, own, plain in both:
            if own is None or plain is None:
                continue
            compared = compare(
                plain.labels(), own.labels(), test.Y, inverse_propensity=inverse, metrics=set(ranked.values()),
                permutations=1,  # p-values are not used
            )  # fmt: skip
            for metric in metrics:
                apart = compared[ranked[metric]]
                paper = printed_gains(table, method, base, metric)
                yield Gain(name, method, base, metric, apart.difference, apart.low, apart.high, paper)


def printed_gains(table: PaperTable, method: str, base: str, metric: str) -> dict[str, float]:
    """Return the published differences of two methods by data set.

    Examples
    --------
    >>> from longtail.reproduce.papers import find_table
    >>> printed_gains(find_table("ranknet-2"), "RankNet-Bonsai", "Bonsai", "PSP@1")["EURLex-4K"]
    8.15
    """
    found = {}
    for data in table.datasets:
        own, plain = table.value(data, method, metric, base), table.value(data, base, metric)
        is_broken = table.is_broken(data, method, metric) or table.is_broken(data, base, metric)
        if own is not None and plain is not None and not is_broken:
            found[data] = round(own - plain, 2)
    return found


def where_from(name: str) -> str:
    """Return how to get a data set."""
    if name not in names():
        return "not a published split"
    info = describe(name)
    return f"{info.train_rows:,} training rows; from {info.source}, into DIR/{name} as train.txt and test.txt"


def _notes(
    table: PaperTable, found: Reproduced, results: Mapping[Job, JobResult], sets: Mapping[str, AvailableSet]
) -> list[str]:
    notes = [table.note] if table.note else []
    if any(job.recipe.is_network for job in results):
        notes.append(
            "Networks: another backbone (MiniLM rather than BERT, RoBERTa or XLNet), and one network, not three."
        )
    if found.standing_in:
        notes.append("Other data sets have other rows, features and labels: compare gains, not numbers.")
    for name in dict.fromkeys(data for data, _ in found.direct):
        labels = next((result.figures.get("labels") for job, result in results.items() if job.data.name == name), None)
        notes += other_split(name, sets[name].n_rows, labels)
        if sets[name].has_texts:
            notes.append(f"{name}: tf-idf features of the texts instead of the paper's features.")
    notes += [f"{row.method} on {row.data}: {row.remark}" for row in table.rows if row.remark]
    if not table.rows:
        notes.append("There are no published numbers for this table.")
    return notes


def other_split(name: str, n_rows: int, n_labels: int | None) -> list[str]:
    """Return a note if a data set differs from the published split of its name.

    Examples
    --------
    >>> other_split("EURLex-4K", 15539, 3993)
    []
    >>> other_split("EURLex-4K", 500, 20)[0][:59]
    'EURLex-4K: not the published split. It has 500 training row'
    """
    info = describe(name)
    known = {(info.train_rows, info.labels), *((one.train_rows, one.labels) for one in info.variants)}
    if any(n_rows == rows and n_labels in (None, labels) for rows, labels in known):
        return []
    size = f"{n_rows:,} training rows" + ("" if n_labels is None else f" and {n_labels:,} labels")
    published = f"the published one {info.train_rows:,} and {info.labels:,}"
    return [f"{name}: not the published split. It has {size}, {published}: numbers can't be compared."]

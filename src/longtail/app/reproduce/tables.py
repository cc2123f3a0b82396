"""A table of a paper beside ours: numbers where its data sets are at hand, gains where others stand in."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from longtail.app.reproduce.jobs import COSTS, METRICS, Job, Result
from longtail.app.reproduce.methods import base_method, ours
from longtail.app.reproduce.papers import Table
from longtail.app.reproduce.sets import AtHand
from longtail.corpus.registry import describe, names
from longtail.metrics import compare


@dataclass(frozen=True)
class Cell:
    """A number of the paper and ours, with half of our 95 % interval over test rows; None where there is none.

    `is_alike` says whether both are of the same split.
    """

    metric: str
    paper: float | None
    ours: float | None
    half: float | None
    is_alike: bool = True

    @property
    def difference(self) -> float | None:
        """Ours less the paper's; None where they can't be compared."""
        if self.paper is None or self.ours is None or not self.is_alike:
            return None
        return self.ours - self.paper


@dataclass(frozen=True)
class Gain:
    """What a method adds to its base on a data set, and what it added in the paper.

    Parameters
    ----------
    data, method, base : str
    metric : str
    ours, low, high : float
        Difference on the same test rows, and its 95 % interval.
    paper : mapping of str to float
        The paper's differences, by its data sets; empty where it has none.
    """

    data: str
    method: str
    base: str
    metric: str
    ours: float
    low: float
    high: float
    paper: Mapping[str, float]

    @property
    def expected(self) -> float | None:
        """What the paper leads to expect: its own difference on this data set, else the middle one of all its sets."""
        if not self.paper:
            return None
        return self.paper.get(self.data, float(np.median(list(self.paper.values()))))


@dataclass
class Reproduced:
    """A table with our numbers.

    Parameters
    ----------
    table : Table
    direct : dict
        Cells by data set and method, where the paper's own data set is at hand.
    standing_in : dict
        Results by data set and method on other data sets.
    gains : list of Gain
    missing : dict of str to str
        Data sets of the paper that are not at hand, and how to get them.
    left_out : dict of str to str
        Methods that were not run, and why.
    notes : list of str
        Why numbers can't be compared as they stand.
    """

    table: Table
    direct: dict[tuple[str, str], list[Cell]] = field(default_factory=dict)
    standing_in: dict[tuple[str, str], Result] = field(default_factory=dict)
    gains: list[Gain] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def planned(
    table: Table,
    sets: Mapping[str, AtHand],
    networks: bool,
    stand_ins: Iterable[str],
    swept: Container[str] | None = None,
) -> list[Job]:
    """What has to run for a table: its methods on its data sets that are at hand, and on those that stand in.

    Recipes with other parameters than their own run on those that stand in and are in `swept` alone, if it is given.
    """
    chosen = [name for name in table.datasets if name in sets]
    chosen += [name for name in stand_ins if name not in chosen]
    jobs = []
    for name in chosen:
        for method in table.methods:
            mine = ours(method)
            if mine is not None and (not mine.is_network or (networks and sets[name].has_texts)):
                job = Job(sets[name], mine)
                if not job.is_sweep or swept is None or name in swept or name in table.datasets:
                    jobs.append(job)
    return jobs


def reproduced(
    table: Table, sets: Mapping[str, AtHand], results: Mapping[Job, Result], networks: bool, stand_ins: Sequence[str]
) -> Reproduced:
    """Put what ran beside what the paper printed."""
    found = Reproduced(table)
    columns = [metric for metric in (*METRICS, *COSTS) if metric in table.metrics]
    for method in table.methods:
        mine = ours(method)
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
                Cell(
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
    """The metric of rankings that a column is; None for one that is none, such as seconds."""
    return {"test accuracy %": "P@1"}.get(column, column if column in METRICS else None)


def _result(results: Mapping[Job, Result], data: AtHand, method: str) -> Result | None:
    mine = ours(method)
    return None if mine is None else results.get(Job(data, mine))


def _gains(
    table: Table,
    sets: Mapping[str, AtHand],
    results: Mapping[Job, Result],
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
        truth, inverse = _truth(sets[name])
        for method, base, own, plain in both:
            if own is None or plain is None:
                continue
            compared = compare(
                plain.labels(), own.labels(), truth, inverse_propensity=inverse, metrics=set(ranked.values()),
                permutations=1,  # nobody asks for p-values
            )  # fmt: skip
            for metric in metrics:
                apart = compared[ranked[metric]]
                paper = printed_gains(table, method, base, metric)
                yield Gain(name, method, base, metric, apart.difference, apart.low, apart.high, paper)


def printed_gains(table: Table, method: str, base: str, metric: str) -> dict[str, float]:
    """Differences of two methods in a paper, by its data sets.

    Examples
    --------
    >>> from longtail.app.reproduce.papers import find_table
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


def _truth(data: AtHand) -> tuple[object, np.ndarray[tuple[int], np.dtype[np.float64]]]:
    train, test = data.read()
    counts = np.pad(train.label_counts, (0, test.n_labels - train.n_labels))
    return test.Y, data.propensity.inverse(counts, train.n_rows)


def where_from(name: str) -> str:
    """How a user gets a data set."""
    if name not in names():
        return "not a published split"
    info = describe(name)
    return f"{info.train_rows:,} training rows; from {info.source}, into DIR/{name} as train.txt and test.txt"


def _notes(table: Table, found: Reproduced, results: Mapping[Job, Result], sets: Mapping[str, AtHand]) -> list[str]:
    notes = [table.note] if table.note else []
    if any(job.ours.is_network for job in results):
        notes.append(
            "Networks: another backbone (MiniLM rather than BERT, RoBERTa or XLNet), and one network, not three."
        )
    if found.standing_in:
        notes.append(
            "Data sets that stand in have other rows, features and labels: gains can be compared, numbers can't."
        )
    for name in dict.fromkeys(data for data, _ in found.direct):
        labels = next((result.figures.get("labels") for job, result in results.items() if job.data.name == name), None)
        notes += other_split(name, sets[name].n_rows, labels)
        if sets[name].has_texts:
            notes.append(f"{name}: tf-idf of the texts, where the paper has features of its own.")
    notes += [f"{row.method} on {row.data}: {row.remark}" for row in table.rows if row.remark]
    if not table.rows:
        notes.append("The text that the numbers were typed from has none for this table.")
    return notes


def other_split(name: str, n_rows: int, n_labels: int | None) -> list[str]:
    """A note where a data set at hand is not the published one of its name; nothing where it is.

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

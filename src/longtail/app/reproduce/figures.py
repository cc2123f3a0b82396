"""Figures of the papers: the same experiments on the data sets that are at hand, as tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from longtail.app.reproduce.jobs import Job, Result
from longtail.app.reproduce.markdown import markdown_table
from longtail.app.reproduce.methods import Ours
from longtail.app.reproduce.sets import AtHand
from longtail.metrics import by_frequency

_SWEEPS: dict[str, tuple[str, list[Ours], list[str]]] = {
    "ranknet-figure-2": (
        "Augmented rows for each row",
        [Ours("bonsai"), *(Ours("taug+bonsai", {"copies": copies, "tau": 1e-9}) for copies in (1, 4, 8))],
        ["P@5", "PSP@1", "PSP@3", "PSP@5"],
    ),
    "ranknet-figure-5": (
        "Share of the labels that count as head",
        [Ours("taug+bonsai", {"tau": tau}) for tau in (0.01, 0.1, 0.25, 0.5, 0.75)] + [Ours("bonsai")],
        ["PSP@1", "PSP@3", "PSP@5"],
    ),
    "pfastrexml-3": (
        "Trees over rows, by propensity-scored metrics",
        [Ours("fastxml"), Ours("pfastxml"), Ours("pfastrexml")],
        ["PSP@1", "PSP@3", "PSP@5", "PSnDCG@1", "PSnDCG@3", "PSnDCG@5"],
    ),
    "pfastrexml-4": (
        "How many different labels stand in the top places, in percent of all",
        [Ours("fastxml"), Ours("pfastrexml")],
        ["C@1", "C@3", "C@5"],
    ),
}
_FREQUENCIES = (1, 2, 5, 10, 30, 100)


@dataclass(frozen=True)
class Figure:
    """An experiment of ours for a figure: what runs, and how it is told."""

    key: str
    jobs: Callable[[AtHand], list[Job]]
    told: Callable[[AtHand, Mapping[Job, Result]], list[str]]


def figures() -> dict[str, Figure]:
    """Figures, and tables without numbers, that have an experiment of their own."""
    found = {key: Figure(key, _sweep_jobs(key), _sweep_told(key)) for key in _SWEEPS}
    found["pfastrexml-figure-1"] = Figure("pfastrexml-figure-1", lambda data: [], _counts)
    found["pfastrexml-figure-2"] = Figure("pfastrexml-figure-2", lambda data: [], _propensities)
    found["pfastrexml-figure-4"] = Figure(
        "pfastrexml-figure-4",
        lambda data: [Job(data, Ours("fastxml")), Job(data, Ours("pfastrexml"))],
        lambda data, results: _by_frequency(data, results, "fastxml", "pfastrexml"),
    )
    found["ranknet-figure-1"] = Figure(
        "ranknet-figure-1",
        lambda data: [Job(data, Ours("bonsai")), Job(data, Ours("taug+bonsai"))],
        lambda data, results: _counts(data, results) + _by_frequency(data, results, "bonsai", "taug+bonsai"),
    )
    return found


def elsewhere() -> dict[str, str]:
    """Figures that another command draws."""
    return {
        "pfastrexml-figure-3": "longtail study missing DATA --recipes pfastxml --plot figure.svg",
        "xgrank-figure-3": "longtail train xgrank TRAIN --out MODEL --set head.flat_below=0, which tells what the "
        "retrieving stage lets through",
    }


def _sweep_jobs(key: str) -> Callable[[AtHand], list[Job]]:
    return lambda data: [Job(data, mine) for mine in _SWEEPS[key][1]]


def _sweep_told(key: str) -> Callable[[AtHand, Mapping[Job, Result]], list[str]]:
    title, all_ours, metrics = _SWEEPS[key]

    def told(data: AtHand, results: Mapping[Job, Result]) -> list[str]:
        rows = []
        for mine in all_ours:
            result = results.get(Job(data, mine))
            if result is not None:
                values = [f"{result.value(m) or 0:.2f} ± {result.half(m) or 0:.2f}" for m in metrics]
                rows.append([f"`{mine.name}`", *values])
        return [f"{title}, {data.name}:", "", *markdown_table(["recipe", *metrics], rows)]

    return told


def _counts(data: AtHand, results: Mapping[Job, Result]) -> list[str]:
    counts = data.read()[0].label_counts
    seen = counts[counts > 0]
    rows = [
        [f"{low} to {high - 1}" if high else f"{low} or more", f"{_between(seen, low, high):,}"]
        for low, high in zip(_FREQUENCIES, [*_FREQUENCIES[1:], 0], strict=True)
    ]
    few = _between(seen, 1, 5)
    told = (
        f"{data.name}: {few:,} of {len(seen):,} labels ({100 * few / max(len(seen), 1):.0f} %) have fewer than 5 rows:"
    )
    return [told, "", *markdown_table(["training rows of a label", "labels"], rows)]


def _between(counts: np.ndarray[tuple[int], np.dtype[np.int64]], low: int, high: int) -> int:
    return int(((counts >= low) & ((counts < high) if high else True)).sum())


def _propensities(data: AtHand, results: Mapping[Job, Result]) -> list[str]:
    rows_of = data.read()[0].n_rows
    counts = np.array(_FREQUENCIES)
    found = data.propensity.propensities(counts, rows_of)
    a, b = data.propensity.a, data.propensity.b
    rows = [[f"{count}", f"{p:.3f}", f"{1 / p:.2f}"] for count, p in zip(counts, found, strict=True)]
    told = f"{data.name}: A = {a:g} and B = {b:g} over {rows_of:,} rows; `longtail propensity fit` fits others:"
    return [told, "", *markdown_table(["training rows of a label", "propensity", "weight"], rows)]


def _by_frequency(data: AtHand, results: Mapping[Job, Result], base: str, other: str) -> list[str]:
    pair = [results.get(Job(data, Ours(name))) for name in (base, other)]
    if pair[0] is None or pair[1] is None:
        return []
    train, test = data.read()
    counts = np.pad(train.label_counts, (0, test.n_labels - train.n_labels))
    parts = [by_frequency(result.labels(), test.Y, counts, ks=(5,)) for result in pair if result is not None]
    rows = [
        [one.name, *(f"{part.scores['recall@5']:.2f}" for part in (one, two)), _apart(one.scores, two.scores)]
        for one, two in zip(parts[0], parts[1], strict=True)
    ]
    told = f"{data.name}: share of the true labels of each frequency that are among the five best:"
    return [told, "", *markdown_table(["labels", f"`{base}`", f"`{other}`", "difference"], rows)]


def _apart(one: Mapping[str, float], other: Mapping[str, float]) -> str:
    return f"{other['recall@5'] - one['recall@5']:+.2f}"


def told_of(figure: Figure, sets: Sequence[AtHand], results: Mapping[Job, Result]) -> list[str]:
    """Lines of a figure for all data sets."""
    return [line for data in sets for line in figure.told(data, results)]

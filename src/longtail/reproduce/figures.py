"""Figures of the papers, and tables without numbers: the same experiments on the available data sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from longtail.metrics import by_frequency
from longtail.reproduce.jobs import FREQUENCIES, RECALLS, Job, JobResult
from longtail.reproduce.markdown import Panel, ValueAndHalf
from longtail.reproduce.methods import RecipeSetup
from longtail.reproduce.sets import AvailableSet

_SWEEPS: dict[str, tuple[str, str, dict[str, RecipeSetup], list[str]]] = {
    "ranknet-figure-2": (
        "bonsai with augmented rows",
        "augmented copies per row",
        {"0": RecipeSetup("bonsai")}
        | {f"{copies}": RecipeSetup("taug+bonsai", {"copies": copies, "tau": 1e-9}) for copies in (1, 4, 8)},
        ["P@5", "PSP@1", "PSP@3", "PSP@5"],
    ),
    "ranknet-figure-5": (
        "taug+bonsai by share of head labels",
        "share of the labels that count as head",
        {f"{tau:g}": RecipeSetup("taug+bonsai", {"tau": tau}) for tau in (0.01, 0.1, 0.25, 0.5, 0.75)}
        | {"1": RecipeSetup("bonsai")},
        ["PSP@1", "PSP@3", "PSP@5"],
    ),
    "pfastrexml-3": (
        "instance trees by propensity-scored metrics",
        "recipe",
        {name: RecipeSetup(name) for name in ("fastxml", "pfastxml", "pfastrexml")},
        ["PSP@1", "PSP@3", "PSP@5", "PSnDCG@1", "PSnDCG@3", "PSnDCG@5"],
    ),
    "pfastrexml-4": (
        "percent of all labels among the k best of some row",
        "recipe",
        {name: RecipeSetup(name) for name in ("fastxml", "pfastrexml")},
        ["C@1", "C@3", "C@5"],
    ),
}
_RETRIEVING = (RecipeSetup("parabel"), RecipeSetup("fastxml"))
_ROWS = "training rows of the label"
_ADD = "a network: add --networks"
_RETRIEVING_NETWORKS = (RecipeSetup("xgrank", {"head.flat_below": 0}), RecipeSetup("lightxml", {"head.flat_below": 0}))


@dataclass(frozen=True)
class Figure:
    """An experiment for a figure: its jobs on a data set, and its panels."""

    key: str
    jobs: Callable[[AvailableSet, bool], list[Job]]
    panels: Callable[[AvailableSet, Mapping[Job, JobResult]], list[Panel]]
    networks: Mapping[str, str] = field(default_factory=dict)  # recipes that run only with --networks


def figures() -> dict[str, Figure]:
    """Return all figures, and the tables without published numbers."""
    found = [_sweep(key) for key in _SWEEPS]
    found += [
        Figure("pfastrexml-figure-1", _nothing, lambda data, results: [_counts(data)]),
        Figure("pfastrexml-figure-2", _nothing, lambda data, results: _propensities(data)),
        Figure("pfastrexml-figure-3", _missing_jobs, _missing),
        _compared("pfastrexml-figure-4", "fastxml", "pfastrexml"),
        _compared("ranknet-figure-1", "bonsai", "taug+bonsai"),
        Figure("xgrank-figure-3", _retrieving_jobs, _retrieved, {mine.recipe: _ADD for mine in _RETRIEVING_NETWORKS}),
    ]
    return {figure.key: figure for figure in found}


def _nothing(data: AvailableSet, networks: bool) -> list[Job]:
    return []


def _sweep(key: str) -> Figure:
    title, across, configured, metrics = _SWEEPS[key]

    def panels(data: AvailableSet, results: Mapping[Job, JobResult]) -> list[Panel]:
        done = [results.get(Job(data, mine)) for mine in configured.values()]
        curves = {metric: [_value(result, metric) for result in done] for metric in metrics}
        found = [Panel(f"{data.name}, {title}", across, list(configured), "percent", curves)] if any(done) else []
        if key == "ranknet-figure-2":
            found += _norms(data, {place: results.get(Job(data, mine)) for place, mine in configured.items()}, across)
        return found

    return Figure(key, lambda data, networks: [Job(data, mine) for mine in configured.values()], panels)


def _value(result: JobResult | None, metric: str) -> ValueAndHalf | None:
    value = None if result is None else result.value(metric)
    return None if result is None or value is None else (value, result.half(metric))


def _counts(data: AvailableSet) -> Panel:
    counts = data.read()[0].label_counts
    seen = counts[counts > 0]
    few = _between(seen, 1, 5)
    share = f"{few:,} of {len(seen):,} labels ({100 * few / max(len(seen), 1):.0f} %) have fewer than 5 rows"
    bars = [(float(_between(seen, low, high)), None) for low, high in _ends()]
    return Panel(f"{data.name}, {share}", _ROWS, _ranges(), "labels", {"labels": bars})


def _ends() -> list[tuple[int, int]]:
    """Return lower and upper ends of the bins of labels by training rows; 0 for no upper end."""
    return list(zip(FREQUENCIES, [*FREQUENCIES[1:], 0], strict=True))


def _ranges() -> list[str]:
    return [
        f"{low} or more" if not high else f"{low}" if high == low + 1 else f"{low} to {high - 1}"
        for low, high in _ends()
    ]


def _between(counts: np.ndarray[tuple[int], np.dtype[np.int64]], low: int, high: int) -> int:
    return int(((counts >= low) & ((counts < high) if high else True)).sum())


def _propensities(data: AvailableSet) -> list[Panel]:
    n_rows, (a, b) = data.read()[0].n_rows, (data.propensity.a, data.propensity.b)
    found = data.propensity.propensities(np.array(FREQUENCIES), n_rows)
    curve = f"{data.name}, A = {a:g} and B = {b:g} over {n_rows:,} rows; `longtail propensity fit` fits others"
    inverse = f"{data.name}, one over the propensity"
    counts = [f"{count}" for count in FREQUENCIES]
    return [
        Panel(curve, _ROWS, counts, "propensity", {"propensity": [(float(p), None) for p in found]}),
        Panel(inverse, _ROWS, counts, "weight", {"weight": [(float(1 / p), None) for p in found]}),
    ]


def _compared(key: str, base: str, other: str) -> Figure:
    """Compare the recall of two recipes by label frequency."""

    def panels(data: AvailableSet, results: Mapping[Job, JobResult]) -> list[Panel]:
        pair = {name: results.get(Job(data, RecipeSetup(name))) for name in (base, other)}
        train, test = data.read()
        counts = np.pad(train.label_counts, (0, test.n_labels - train.n_labels))
        parts = {
            name: by_frequency(result.labels(), test.Y, counts, ks=(5,))
            for name, result in pair.items()
            if result is not None
        }
        if len(parts) < len(pair):
            return []
        curves = {f"`{name}`": [(part.scores["recall@5"], None) for part in found] for name, found in parts.items()}
        title = f"{data.name}, percent of the true labels in head, torso and tail that are among the five best"
        norms = _norms(data, pair, "recipe") if key == "ranknet-figure-1" else []
        return [_counts(data), *norms, Panel(title, "labels", [part.name for part in parts[base]], "recall@5", curves)]

    return Figure(key, lambda data, networks: [Job(data, RecipeSetup(name)) for name in (base, other)], panels)


def _norms(data: AvailableSet, results: Mapping[str, JobResult | None], what: str) -> list[Panel]:
    """Return the norms of the classifiers by label frequency."""
    known = {name: result.figures.get("norms") for name, result in results.items() if result is not None}
    curves = {
        f"`{name}`": [None if norm is None else (float(norm), None) for norm in norms]
        for name, norms in known.items()
        if norms is not None
    }
    title = f"{data.name}, mean norm of the classifiers, by {what}"
    return [Panel(title, _ROWS, _ranges(), "norm", curves, what)] if curves else []


def _missing_jobs(data: AvailableSet, networks: bool) -> list[Job]:
    return [Job(data, RecipeSetup("pfastxml"), task="missing")]


def _missing(data: AvailableSet, results: Mapping[Job, JobResult]) -> list[Panel]:
    """Hide labels by known propensities; train with the true ones, then with others."""
    result = results.get(_missing_jobs(data, False)[0])
    if result is None:
        return []
    study = result.figures
    title = f"{data.name}, labels hidden by known propensities, evaluated on all labels"
    others = f"{data.name}, {study['reference_left']:.0f} % of the labels kept, pfastxml with other propensities"
    return [
        Panel(title, "% of the labels kept", study["left"], study["metric"], _curves(study["right"])),
        Panel(others, "% kept by the given propensities", study["left"], study["metric"], _curves(study["given"])),
    ]


def _curves(stored: Mapping[str, Sequence[Sequence[float | None]]]) -> dict[str, list[ValueAndHalf | None]]:
    return {
        f"`{name}`": [None if value is None else (float(value), half) for value, half in values]
        for name, values in stored.items()
    }


def _retrieving_jobs(data: AvailableSet, networks: bool) -> list[Job]:
    configured = (*_RETRIEVING, *(_RETRIEVING_NETWORKS if networks and data.has_texts else ()))
    return [Job(data, mine, task="recall") for mine in configured]


def _retrieved(data: AvailableSet, results: Mapping[Job, JobResult]) -> list[Panel]:
    done = {job.recipe.name: results[job] for job in _retrieving_jobs(data, True) if job in results}
    if not done:
        return []
    cutoffs = [k for k in RECALLS if k <= data.read()[0].n_labels // 2]
    curves = {f"`{name}`": [_value(result, f"R@{k}") for k in cutoffs] for name, result in done.items()}
    title = f"{data.name}, percent of the true labels among those retrieved"
    return [Panel(title, "labels retrieved", [f"{k}" for k in cutoffs], "R@k", curves)]

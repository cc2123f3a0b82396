"""The numbers of a report: what each model does on the same test rows, predicted once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from longtail.app.report.curves import (
    CountBin,
    PowerLaw,
    PropensityCurve,
    ScoreCurve,
    by_count,
    fit_power_law,
    propensity_curve,
    score_curve,
)
from longtail.app.report.examples import Examples, find_examples
from longtail.app.report.label_map import LabelMap, map_labels
from longtail.corpus import Dataset
from longtail.engine.progress import show_progress
from longtail.engine.topk import TopK
from longtail.errors import InputError, ParameterError
from longtail.metrics import (
    Evaluator,
    FrequencyTable,
    Interval,
    LabelScores,
    Scores,
    bootstrap,
    bootstrap_by_frequency,
    calibration_error,
)
from longtail.propensity import Propensity
from longtail.store import Model
from longtail.tail import label_norms

KS = (1, 3, 5)
METRICS = {"plain": ("P", "nDCG", "R"), "tail": ("PSP", "PSnDCG", "C")}
MOST_MODELS = 6
"""A picture has so many colours."""
RANKED = 20
"""Places that are predicted; calibration looks at all of them, the scores at the first five."""


@dataclass(frozen=True)
class ModelResults:
    """One model on the test rows.

    Parameters
    ----------
    name : str
        What the report calls it.
    recipe, learner : str
        How it was made: the recipe where there is one, and the learner's class.
    training : mapping
        What the model tells of its training: seconds, data, ...
    n_rows, n_features, n_labels : int
        Of the training data.
    size : int or None
        Bytes of the model directory.
    propensity : Propensity
    label_counts, inverse_propensity : ndarray
        One a label, those that only test rows have last.
    top : TopK
        The first `RANKED` places.
    scores : Scores
        As `Model.evaluate` gives them.
    intervals : mapping of str to Interval
        Of the same metrics.
    deciles, parts : FrequencyTable
        By tenths of the labels, and by head, torso and tail.
    decile_intervals, part_intervals : mapping of str to mapping
        Of the bins by name.
    labels : LabelScores
        Within the first five places.
    score_curve : ScoreCurve
        How often predictions of each raw score are recorded.
    probability_curve : ScoreCurve or None
        The same for probabilities: of a calibrated model, or scores between 0 and 1; else None.
    calibration_error : float or None
        ECE@5 of these probabilities, in percent.
    norms : tuple of CountBin or None
        Length of the labels' weights by training count; None for a learner without weights.
    has_embeddings : bool
        Whether the learner has embeddings of the labels.
    label_map : LabelMap or None
        Where these lie; None for a learner without them, or with too few for a map.
    examples : Examples
    """

    name: str
    recipe: str | None
    learner: str
    training: Mapping[str, Any]
    n_rows: int
    n_features: int
    n_labels: int
    size: int | None
    propensity: Propensity
    label_counts: npt.NDArray[np.int64]
    inverse_propensity: npt.NDArray[np.float64]
    top: TopK
    scores: Scores
    intervals: Mapping[str, Interval]
    deciles: FrequencyTable
    decile_intervals: Mapping[str, Mapping[str, Interval]]
    parts: FrequencyTable
    part_intervals: Mapping[str, Mapping[str, Interval]]
    labels: LabelScores
    score_curve: ScoreCurve
    probability_curve: ScoreCurve | None
    calibration_error: float | None
    norms: tuple[CountBin, ...] | None
    has_embeddings: bool
    label_map: LabelMap | None
    examples: Examples


@dataclass(frozen=True)
class Report:
    """Several models on the same test rows.

    Parameters
    ----------
    test : str
        Name of the test data.
    n_rows, n_recorded : int
        Test rows, and labels recorded for them.
    n_labels, n_unseen : int
        Different labels that test rows have, and those among them that no training row of the first model has.
    label_counts : ndarray
        Training rows of each label, from the first model.
    power_law : PowerLaw or None
        Fitted to them.
    propensities : tuple of PropensityCurve
        One for each kind of propensities among the models.
    same_training : bool
        Whether all models had the same rows for each label and the same propensities, so that their propensity-scored
        values can be compared.
    models : tuple of ModelResults
    level : float
        Of the intervals, such as 0.95.
    resamples : int
        Draws of the test rows behind them.
    """

    test: str
    n_rows: int
    n_recorded: int
    n_labels: int
    n_unseen: int
    label_counts: npt.NDArray[np.int64]
    power_law: PowerLaw | None
    propensities: tuple[PropensityCurve, ...]
    same_training: bool
    models: tuple[ModelResults, ...]
    level: float
    resamples: int


def load_models(paths: Sequence[Path]) -> dict[str, Model]:
    """Load models by the names of their directories, and refuse those that can't stand side by side.

    Directories of the same name are called by their paths.
    """
    if not 1 <= len(paths) <= MOST_MODELS:
        raise ParameterError("MODEL", len(paths), f"must be given between one and {MOST_MODELS} times")
    places = [path.resolve() for path in paths]
    for place, path in zip(places, paths, strict=True):
        if places.count(place) > 1:
            raise ParameterError("MODEL", str(path), "must be a different directory each time")
    short = [place.name for place in places]
    names = [name if short.count(name) == 1 else str(path) for name, path in zip(short, paths, strict=True)]
    models = {name: Model.load(path) for name, path in zip(names, paths, strict=True)}
    check_models(models)
    return models


def check_models(models: Mapping[str, Model]) -> None:
    """Refuse models that know different labels."""
    (first, base), *others = models.items()
    for name, model in others:
        if model.n_labels != base.n_labels:
            raise InputError(
                f"{first} knows {base.n_labels:,} labels and {name} {model.n_labels:,}: "
                "a report compares models of the same labels."
            )
        if model.label_names is None or base.label_names is None:
            continue
        for label, (mine, theirs) in enumerate(zip(base.label_names, model.label_names, strict=True)):
            if mine != theirs:
                raise InputError(
                    f"label {label} is {mine!r} in {first} and {theirs!r} in {name}: "
                    "a report compares models of the same labels."
                )


def shared_names(models: Mapping[str, Model]) -> list[str] | None:
    """Label names of the models, where any of them has names."""
    return next((model.label_names for model in models.values() if model.label_names is not None), None)


def gather(
    models: Mapping[str, Model],
    dataset: Dataset,
    *,
    test: str | None = None,
    directories: Mapping[str, Path] | None = None,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    threads: int | None = None,
) -> Report:
    """Predict the test rows with each model once, and measure.

    Parameters
    ----------
    models : mapping of str to Model
        By the names that the report uses.
    dataset : Dataset
        Test rows whose labels are known, with the label ids of the models.
    test : str, optional
        What to call the test data; its own name by default.
    directories : mapping of str to Path, optional
        Where the models are kept, for their sizes.
    resamples : int
        Draws of the test rows for the intervals.
    level : float
        Of the intervals.
    seed, threads : int, optional

    Examples
    --------
    >>> from longtail import Dataset, Model, Popularity
    >>> data = Dataset([[1], [2], [3]], [[0, 1], [1, 1], [0, 1]], name="toy")
    >>> model = Model(Popularity().fit(data.X, data.Y))
    >>> gather({"popularity": model}, data, resamples=20).models[0].scores["P@1"]
    100.0
    """
    check_models(models)
    title = test or dataset.name or "test rows"
    aligned = {name: _aligned(name, model, dataset, title) for name, model in models.items()}
    settings = {"resamples": resamples, "level": level, "seed": seed, "threads": threads}
    sizes = {name: _size(place) for name, place in (directories or {}).items()}
    results = tuple(
        _results(name, model, dataset, aligned[name], sizes.get(name), settings) for name, model in models.items()
    )
    first, Y = results[0], next(iter(aligned.values()))
    used = np.unique(Y.indices)
    curves = _curves(results)
    return Report(
        test=title,
        n_rows=dataset.n_rows,
        n_recorded=int(Y.nnz),
        n_labels=len(used),
        n_unseen=int((first.label_counts[used] == 0).sum()),
        label_counts=first.label_counts,
        power_law=fit_power_law(first.label_counts),
        propensities=curves,
        same_training=len(curves) == 1,
        models=results,
        level=level,
        resamples=resamples,
    )


def _aligned(name: str, model: Model, dataset: Dataset, title: str) -> sp.csr_array:
    """Recorded labels by the ids of the model; refuses rows that the model can't take or that say nothing about it."""
    try:
        model.rows(dataset)
        Y, _ = model.aligned_labels(dataset)
    except InputError as error:
        raise InputError(error.reason, path=name) from None
    if not Y.nnz:
        raise InputError("its rows have no labels: a report needs rows whose labels are known.", path=title)
    if not model.label_counts[Y.indices[Y.indices < model.n_labels]].any():
        raise InputError(
            "its rows have no label that the models were trained on: give test rows of the same data.", path=title
        )
    return Y


def _results(
    name: str,
    model: Model,
    dataset: Dataset,
    Y: sp.csr_array,
    size: int | None,
    settings: dict[str, Any],
) -> ModelResults:
    counts = np.concatenate([model.label_counts, np.zeros(Y.shape[1] - model.n_labels, np.int64)])
    inverse = model.propensity.inverse(counts, model.n_rows)
    chunks = list(model.iter_topk(dataset, RANKED))
    top = TopK(*(np.concatenate(parts) for parts in zip(*((one.labels, one.scores) for one in chunks), strict=True)))
    evaluator = Evaluator(len(counts), inverse_propensity=inverse, ks=KS).update(top, Y)
    labels = evaluator.per_label(KS[-1])
    norms, embeddings = label_norms(model.learner), model.label_embeddings
    names = dataset.label_names if len(dataset.label_names or ()) == Y.shape[1] else model.label_names
    recorded = _recorded(top, Y)
    scores = score_curve(top.scores, recorded)
    calibrated = top if model.calibration is None else model.calibration.probabilities(top)
    probable = calibrated if model.calibration is not None or scores.within_one else None
    judging: dict[str, Any] = {"inverse_propensity": inverse, "ks": KS, **settings}
    with show_progress(False):  # seconds, and three bars for each model
        intervals = bootstrap(top, Y, **judging)
        decile_intervals = bootstrap_by_frequency(top, Y, counts, bins="deciles", **judging)
        part_intervals = bootstrap_by_frequency(top, Y, counts, bins="head-torso-tail", **judging)
    return ModelResults(
        name=name,
        recipe=model.recipe,
        learner=type(getattr(model.learner, "learner_", model.learner)).__name__,
        training=model.training,
        n_rows=model.n_rows,
        n_features=model.learner.n_features_in_,
        n_labels=model.n_labels,
        size=size,
        propensity=model.propensity,
        label_counts=counts,
        inverse_propensity=inverse,
        top=top,
        scores=evaluator.scores(),
        intervals=intervals,
        deciles=evaluator.by_frequency(counts, "deciles"),
        decile_intervals=decile_intervals,
        parts=evaluator.by_frequency(counts, "head-torso-tail"),
        part_intervals=part_intervals,
        labels=labels,
        score_curve=scores,
        probability_curve=None if probable is None else score_curve(_without_padding(probable), recorded),
        calibration_error=None if probable is None else calibration_error(probable, Y, KS[-1]),
        norms=None if norms is None else by_count(norms, model.label_counts),
        has_embeddings=embeddings is not None,
        label_map=None if embeddings is None else map_labels(embeddings, model.label_counts, Y, names),
        examples=find_examples(
            top,
            Y,
            recorded,
            labels,
            inverse_propensity=inverse,
            label_counts=counts,
            label_names=names,
            texts=dataset.texts,
        ),
    )


def _recorded(top: TopK, Y: sp.csr_array) -> npt.NDArray[np.bool_]:
    """Which places hold a recorded label."""
    rows = np.repeat(np.arange(len(top)), top.k)
    labels = top.labels.ravel()
    found = np.zeros(len(labels), np.bool_)
    real = labels >= 0
    found[real] = np.asarray(Y[rows[real], labels[real]]).ravel() != 0
    return found.reshape(top.labels.shape)


def _without_padding(top: TopK) -> npt.NDArray[np.float32]:
    return np.where(top.labels >= 0, top.scores, np.float32(np.nan))


def _curves(results: Sequence[ModelResults]) -> tuple[PropensityCurve, ...]:
    """Propensities against counts, models that share them together."""
    kinds: list[list[ModelResults]] = []
    for result in results:
        for kind in kinds:
            same_counts = np.array_equal(kind[0].label_counts, result.label_counts)
            if same_counts and np.array_equal(kind[0].inverse_propensity, result.inverse_propensity):
                kind.append(result)
                break
        else:
            kinds.append([result])
    return tuple(
        propensity_curve([one.name for one in kind], kind[0].propensity, kind[0].label_counts, kind[0].n_rows)
        for kind in kinds
    )


def _size(place: Path) -> int:
    return sum(file.stat().st_size for file in place.iterdir())

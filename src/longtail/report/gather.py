"""The numbers of a report: each model evaluated on the same test rows, with one prediction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail.data import Dataset
from longtail.data.label_index import LabelIndex
from longtail.errors import InputError, ParameterError
from longtail.kernels.types import Flags, Float64, Int64
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
from longtail.plots.curves import (
    CountBin,
    PowerLaw,
    PropensityCurve,
    ScoreCurve,
    by_count,
    fit_power_law,
    propensity_curve,
    score_curve,
)
from longtail.plots.label_points import LabelMap, map_labels
from longtail.propensity import Propensity
from longtail.report.examples import Examples, find_examples
from longtail.rerank import label_norms
from longtail.runtime.disk import directory_size
from longtail.runtime.progress import show_progress
from longtail.store import Model, several
from longtail.topk import TopK

KS = (1, 3, 5)
METRICS = {"plain": ("P", "nDCG", "R"), "tail": ("PSP", "PSnDCG", "C")}
Truth = tuple[sp.csr_array, Int64, Float64]
MOST_MODELS = 6
"""Number of colours in figures."""
RANKED = 20
"""Number of labels predicted per row; calibration uses all of them, the metrics the first five."""


@dataclass(frozen=True)
class ModelResults:
    """One model on the test rows.

    Parameters
    ----------
    name, recipe, learner : str
        Name in the report, recipe if there is one, and class of the learner.
    training : mapping
        Training metadata of the model: seconds, data, ...
    n_rows, n_features, n_labels : int
        Of the training data.
    size : int or None
        Bytes of the model directory.
    propensity : Propensity
    label_counts, inverse_propensity : ndarray
        Per label; labels that occur in test rows only come last.
    top : TopK
        The `RANKED` highest-ranked labels.
    scores, intervals
        As returned by `Model.evaluate`, and their bootstrap intervals.
    deciles, bins, decile_intervals, bin_intervals
        By deciles of the labels, and by head, torso and tail.
    labels : LabelScores
        Of the five highest-ranked.
    score_curve, probability_curve : ScoreCurve
        Share of recorded labels by raw score, and by probability if the model has any.
    calibration_error : float or None
        ECE@5 of these probabilities, in percent.
    norms : tuple of CountBin or None
        Norms of the labels' weights by training count; None for a learner without weights.
    has_embeddings, label_map
        Whether the learner has embeddings of the labels, and their map; None for too few labels.
    examples : Examples

    Examples
    --------
    >>> from longtail import Dataset, Model, Popularity
    >>> data = Dataset([[1], [2], [3]], [[0, 1], [1, 1], [0, 1]], name="toy")
    >>> report = gather({"popularity": Model(Popularity().fit(data.X, data.Y))}, data, resamples=20)
    >>> report.models[0].name, report.models[0].label_counts, report.models[0].bins[0].name
    ('popularity', array([1, 3]), 'head')
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
    label_counts: Int64
    inverse_propensity: Float64
    top: TopK
    scores: Scores
    intervals: Mapping[str, Interval]
    deciles: FrequencyTable
    decile_intervals: Mapping[str, Mapping[str, Interval]]
    bins: FrequencyTable
    bin_intervals: Mapping[str, Mapping[str, Interval]]
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
        Number of distinct labels of the test rows, and of those without a training row in the first model.
    label_counts : ndarray
        Training rows of each label, from the first model.
    power_law : PowerLaw or None
        Fitted to them.
    propensities : tuple of PropensityCurve
        One per distinct propensity model.
    same_training : bool
        Whether all models have the same training counts and propensities, so that propensity-scored values are on one
        scale.
    models : tuple of ModelResults
    level : float
        Of the intervals, such as 0.95.
    resamples : int
        Number of bootstrap resamples.

    Examples
    --------
    >>> from longtail import Dataset, Model, Popularity
    >>> data = Dataset([[1], [2], [3]], [[0, 1], [1, 1], [0, 1]], name="toy")
    >>> report = gather({"popularity": Model(Popularity().fit(data.X, data.Y))}, data, resamples=20)
    >>> report.test, report.n_rows, report.n_recorded, report.same_training
    ('toy', 3, 4, True)
    """

    test: str
    n_rows: int
    n_recorded: int
    n_labels: int
    n_unseen: int
    label_counts: Int64
    power_law: PowerLaw | None
    propensities: tuple[PropensityCurve, ...]
    same_training: bool
    models: tuple[ModelResults, ...]
    level: float
    resamples: int


def load_models(paths: Sequence[Path]) -> dict[str, Model]:
    """Load models, named by their directories or, where these names are equal, by their paths; check the labels.

    Examples
    --------
    >>> import tempfile
    >>> from longtail import Popularity
    >>> path = Path(tempfile.mkdtemp()) / "popular"
    >>> Model(Popularity().fit([[1]], [[1]])).save(path)
    >>> list(load_models([path]))
    ['popular']
    """
    if not 1 <= len(paths) <= MOST_MODELS:
        raise ParameterError("MODEL", len(paths), f"must be given between one and {MOST_MODELS} times")
    models = several.load_models(paths)
    check_models(models)
    return models


def check_models(models: Mapping[str, Model]) -> None:
    """Raise an error for models with different labels.

    Examples
    --------
    >>> from longtail import Popularity
    >>> one, two = (Model(Popularity().fit([[1]], [[1] * n_labels])) for n_labels in (1, 2))
    >>> check_models({"one": one, "two": two})
    Traceback (most recent call last):
    longtail.errors.InputError: one knows 1 labels and two 2: a report compares models of the same labels.
    """
    several.check_same_labels(models, "a report compares models of the same labels")


def gather(
    models: Mapping[str, Model],
    dataset: Dataset,
    *,
    test: str | None = None,
    directories: Mapping[str, Path] | None = None,
    resamples: int = 1000,
    level: float = 0.95,
    random_state: int = 0,
) -> Report:
    """Predict the test rows with each model and evaluate them.

    Parameters
    ----------
    models : mapping of str to Model
        By name.
    dataset : Dataset
        Test rows with labels, with the label ids of the models.
    test : str, optional
        Name of the test data; its own by default.
    directories : mapping of str to Path, optional
        Directories of the models, for their sizes.
    resamples : int
        Number of bootstrap resamples for the intervals.
    level : float
        Of the intervals.
    random_state : int

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
    settings = {"resamples": resamples, "level": level, "random_state": random_state}
    sizes = {name: directory_size(path) for name, path in (directories or {}).items()}
    results = tuple(
        _results(name, model, dataset, aligned[name], sizes.get(name), settings) for name, model in models.items()
    )
    first, Y = results[0], next(iter(aligned.values()))[0]
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


def _aligned(name: str, model: Model, dataset: Dataset, title: str) -> Truth:
    """Return what `Model.truth` returns; raise an error for rows that the model can't be evaluated on."""
    try:
        model.rows(dataset)
        Y, counts, inverse = model.truth(dataset)
    except InputError as error:
        raise InputError(error.reason, path=name) from None
    if not Y.nnz:
        raise InputError("its rows have no labels: a report needs rows whose labels are known.", path=title)
    if not model.label_counts[Y.indices[Y.indices < model.n_labels]].any():
        raise InputError(
            "its rows have no label that the models were trained on: give test rows of the same data.", path=title
        )
    return Y, counts, inverse


def _results(
    name: str, model: Model, dataset: Dataset, truth: Truth, size: int | None, settings: dict[str, Any]
) -> ModelResults:
    Y, counts, inverse = truth
    top = TopK.concat(model.iter_topk(dataset, RANKED))
    evaluator = Evaluator(len(counts), inverse_propensity=inverse, ks=KS).update(top, Y)
    labels = evaluator.per_label(KS[-1])
    norms, embeddings = label_norms(model.learner), model.label_embeddings
    names = model.labels.extended(dataset.label_names).names or dataset.label_names
    shown = LabelIndex(names, Y.shape[1]).shown
    recorded = _recorded(top, Y)
    scores = score_curve(top.scores, recorded)
    calibrated = top if model.calibration is None else model.calibration.probabilities(top)
    probable = calibrated if model.calibration is not None or scores.within_one else None
    probabilities = np.where(calibrated.labels >= 0, calibrated.scores, np.float32(np.nan))  # without padding
    return ModelResults(
        name=name,
        recipe=model.recipe,
        learner=model.learner.display_name,
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
        deciles=evaluator.by_frequency(counts, "deciles"),
        bins=evaluator.by_frequency(counts, "head-torso-tail"),
        **_intervals(top, Y, counts, {"inverse_propensity": inverse, "ks": KS, **settings}),
        labels=labels,
        score_curve=scores,
        probability_curve=None if probable is None else score_curve(probabilities, recorded),
        calibration_error=None if probable is None else calibration_error(probable, Y, KS[-1]),
        norms=None if norms is None else by_count(norms, model.label_counts),
        has_embeddings=embeddings is not None,
        label_map=None if embeddings is None else map_labels(embeddings, model.label_counts, Y, shown),
        examples=find_examples(
            top, Y, recorded, labels,
            inverse_propensity=inverse, label_counts=counts, shown=shown, texts=dataset.texts,
        ),
    )  # fmt: skip


def _intervals(top: TopK, Y: sp.csr_array, counts: Int64, judging: dict[str, Any]) -> dict[str, Any]:
    with show_progress(False):  # three bars of a few seconds per model
        return {
            "intervals": bootstrap(top, Y, **judging),
            "decile_intervals": bootstrap_by_frequency(top, Y, counts, bins="deciles", **judging),
            "bin_intervals": bootstrap_by_frequency(top, Y, counts, bins="head-torso-tail", **judging),
        }


def _recorded(top: TopK, Y: sp.csr_array) -> Flags:
    """Return which predictions are recorded labels."""
    rows = np.repeat(np.arange(len(top)), top.k)
    labels = top.labels.ravel()
    found = np.zeros(len(labels), np.bool_)
    real = labels >= 0
    found[real] = np.asarray(Y[rows[real], labels[real]]).ravel() != 0
    return found.reshape(top.labels.shape)


def _curves(results: Sequence[ModelResults]) -> tuple[PropensityCurve, ...]:
    """Return a propensity curve per distinct propensity model."""
    kinds: dict[tuple[bytes, bytes], list[ModelResults]] = {}
    for result in results:
        kinds.setdefault((result.label_counts.tobytes(), result.inverse_propensity.tobytes()), []).append(result)
    return tuple(
        propensity_curve([one.name for one in kind], kind[0].propensity, kind[0].label_counts, kind[0].n_rows)
        for kind in kinds.values()
    )

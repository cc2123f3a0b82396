"""The inputs of `longtail propensity`: hierarchies, complete rows and substitutes from files, rankings of models."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail.cli.console import note
from longtail.cli.loading import models_and_rows, ranked
from longtail.data import Dataset, load, read_hierarchy
from longtail.data.label_index import LabelIndex
from longtail.data.sparse import with_columns
from longtail.errors import InputError, counted
from longtail.metrics.propensity_sensitivity import Sensitivity, sensitivity
from longtail.propensity import (
    JainPropensity,
    PropensityPoints,
    estimate_from_hierarchy,
    estimate_from_sample,
    estimate_from_substitutes,
    read_pairs,
)


def from_hierarchy(dataset: Dataset, path: Path, **options: Any) -> PropensityPoints:
    """Estimate from the file of a hierarchy; concepts that are not labels may come between labels."""
    names = dataset.labels.all_shown()
    pairs = read_hierarchy(path).pairs(names)
    others = {concept for pair in pairs for concept in pair if isinstance(concept, str)}
    if others:
        note(f"{len(others):,} concepts of {path} are not labels of the data.")
    return estimate_from_hierarchy(dataset.Y, pairs, label_names=names, **options)


def from_complete(dataset: Dataset, path: Path, observed: Path | None, **options: Any) -> PropensityPoints:
    """Estimate from rows with their complete labels, which are rows of the data set unless `observed` has them."""
    recorded = dataset if observed is None else load(observed, label_names=dataset.label_names)
    names = recorded.label_names if recorded.n_labels >= dataset.n_labels else dataset.label_names
    complete = load(path, label_names=names)
    n_labels = max(dataset.n_labels, recorded.n_labels, complete.n_labels)
    if dataset.label_names is None and n_labels > dataset.n_labels:
        raise InputError(f"has {n_labels} labels, and the data {dataset.n_labels}: use the same ids.", path=path)
    rows = _same_rows(recorded, complete, path)
    return estimate_from_sample(
        with_columns(recorded.Y[rows], n_labels),
        with_columns(complete.Y, n_labels),
        label_counts=np.pad(dataset.label_counts, (0, n_labels - dataset.n_labels)),
        n_rows=dataset.n_rows,
        **options,
    )


def from_substitutes(dataset: Dataset, viewed: Path, bought: Path | None, **options: Any) -> PropensityPoints:
    """Estimate from files of pairs: items viewed together and, unless the rows are the items, bought together."""
    if bought is None:
        ids = LabelIndex(n_labels=dataset.n_rows)
        (viewed_pairs,) = read_pairs(ids, viewed)
        together = with_columns(dataset.Y.T.tocsr(), len(ids))
    else:
        ids = LabelIndex(dataset.label_names, dataset.n_labels)
        bought_pairs, viewed_pairs = read_pairs(ids, bought, viewed)
        together = _matrix(bought_pairs, len(ids))[: dataset.n_labels]
    return estimate_from_substitutes(dataset.Y, _matrix(viewed_pairs, len(ids)), together, **options)


def measured(
    paths: Sequence[Path],
    test: str,
    *,
    a: Sequence[float],
    b: Sequence[float],
    ks: Sequence[int],
    base: JainPropensity | None = None,
) -> Sensitivity:
    """Rank the test rows with each model, and compute PSP over a grid of A and B."""
    models, dataset = models_and_rows(paths, test, "compare models that were trained on the same rows")
    (first_name, first), *others = models.items()
    for name, model in others:
        if model.n_rows != first.n_rows or not np.array_equal(model.label_counts, first.label_counts):
            raise InputError(f"{name} and {first_name} were not trained on the same rows: compare models that were.")
    if not dataset.n_rows:
        raise InputError("has no rows to evaluate: give at least one.", path=test)
    tops = {name: ranked(model, dataset, max(ks)) for name, model in models.items()}
    Y, counts, _ = first.truth(dataset)
    own = first.propensity if isinstance(first.propensity, JainPropensity) else JainPropensity()
    chosen = base or own
    return sensitivity(tops, Y, counts, first.n_rows, a=a, b=b, ks=ks, base=(chosen.a, chosen.b))


def _matrix(pairs: Any, size: int) -> sp.csr_array:
    return sp.csr_array((np.ones(len(pairs), np.float32), (pairs[:, 0], pairs[:, 1])), shape=(size, size))


def _same_rows(recorded: Dataset, complete: Dataset, path: Path) -> Any:
    """Return the rows of `recorded` that are in `complete`: by their texts if both have texts, else by position."""
    if recorded.texts is None or complete.texts is None:
        if recorded.n_rows != complete.n_rows:
            raise InputError(
                f"has {counted(complete.n_rows, 'row')} where {recorded.n_rows:,} are recorded: it must have the same "
                "rows in the same order; give those as recorded with --observed.",
                path=path,
            )
        return np.arange(recorded.n_rows)
    if recorded.texts == complete.texts:
        return np.arange(recorded.n_rows)
    places: dict[str, deque[int]] = defaultdict(deque)
    for row, text in enumerate(recorded.texts):
        places[text].append(row)
    found = []
    for line, text in enumerate(complete.texts, 1):
        if not places[text]:
            raise InputError("has a text that is not among the recorded rows: keep the texts.", path=path, line=line)
        found.append(places[text].popleft())
    return np.array(found)

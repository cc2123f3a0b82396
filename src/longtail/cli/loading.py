"""Models, and labelled rows with the label ids of a model, for the commands that evaluate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from longtail.cli.arguments import read
from longtail.cli.console import errors_of, note
from longtail.errors import InputError
from longtail.kernels.types import Int32

if TYPE_CHECKING:
    from longtail.data import Dataset
    from longtail.data.label_index import LabelIndex
    from longtail.store import Model


def model_and_rows(path: Path, source: str, *, verify: bool = False) -> tuple[Model, Dataset]:
    """Load a model, and labelled rows for it."""
    from longtail.store import Model

    model = Model.load(path, verify=verify)
    return model, rows_for({str(path): model}, source)


def models_and_rows(
    paths: Sequence[Path], source: str, advice: str, *, verify: bool = False
) -> tuple[dict[str, Model], Dataset]:
    """Load different models of the same labels, by name, and labelled rows for them; `advice` is for other models."""
    from longtail.store.several import check_same_labels, load_models

    models = load_models(paths, verify=verify)
    check_same_labels(models, advice)
    return models, rows_for(models, source)


def rows_for(models: Mapping[str, Model], source: str) -> Dataset:
    """Read labelled rows for models of the same labels, of which some may have no names."""
    found = list(models.values())
    return labelled_rows(
        source, next((model for model in found if model.label_names is not None), found[0]).labels, models
    )


def labelled_rows(source: str, labels: LabelIndex, models: Mapping[str, Model] | None = None) -> Dataset:
    """Read rows whose labels get the ids of `labels`, by name where both have names; other labels come last.

    Refuses features in place of texts, or the reverse, for any of the models.
    """
    is_ambiguous = labels.names is not None and not labels.is_unique
    dataset = read(source, label_names=labels.names if is_ambiguous else None)
    for name, model in (models or {}).items():
        if (dataset.texts if model.takes_texts else dataset.X) is None:
            with errors_of(name):
                model.rows(dataset)
    if dataset.n_rows and not dataset.Y.nnz:
        raise InputError("its rows have no labels: give rows whose labels are known.", path=source)
    if is_ambiguous:  # several labels have one name: matched as the rows were read
        return dataset
    with errors_of(source):
        Y = labels.align(dataset.Y, dataset.label_names)
    return replace(dataset, Y=Y, label_names=labels.extended(dataset.label_names).names)


def ranked(model: Model, dataset: Dataset, k: int, tail: float | None = None) -> Int32:
    """Return the ids of the k best labels of each row."""
    from longtail.topk import TopK

    return TopK.concat([TopK.empty(0, k), *model.iter_topk(dataset, k, tail=tail)]).labels


def note_trained_on(models: Sequence[Model], dataset: Dataset, consequence: str) -> None:
    """Note where a data set is one that a model was trained on, by its name."""
    if dataset.name is not None and any(model.training.get("data") == dataset.name for model in models):
        which = "The model" if len(models) == 1 else "A model"
        note(f"{which} was trained on {dataset.name}: give rows that it hasn't seen, or {consequence}.")

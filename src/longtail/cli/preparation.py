"""What `longtail train` and `longtail estimate` share: the training rows, and a learner that is ready for them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from longtail.cli.arguments import read
from longtail.cli.console import errors_of
from longtail.errors import InputError, ParameterError, UnknownNameError, counted
from longtail.recipes.compose import FEATURES, label_texts_of, learner_and_rows

if TYPE_CHECKING:
    from longtail.data import Dataset
    from longtail.learners import Learner, TextLearner


def prepare(
    plan: TextLearner, parameters: dict[str, Any], source: str, tree: Path | None, label_texts: str | None
) -> tuple[Learner, Any, Dataset]:
    """Read the training rows; return the learner for them, the rows as it takes them, and the data set."""
    dataset = read(source)
    if not dataset.Y.nnz:
        raise InputError("has no labels: there is nothing to learn.", path=source)
    _set_label_data(plan, dataset, tree, label_texts)
    if dataset.X is not None:
        for name in parameters:
            if name == "features" or name.startswith(FEATURES):
                raise UnknownNameError(
                    name.replace("__", "."),
                    parameters[name],
                    f"is a parameter for texts, and {source} has features only",
                )
    with errors_of(source):
        learner, rows = learner_and_rows(plan, dataset)
    return learner, rows, dataset


def _set_label_data(plan: TextLearner, dataset: Dataset, tree: Path | None, label_texts: str | None) -> None:
    """Give the learner the label tree and the label texts of the options."""
    parts = dict(plan.parts())
    tree_at = next((path for path, part in parts.items() if "tree" in part.get_params(deep=False)), None)
    texts_at = label_texts_of(plan)
    if label_texts is None and texts_at is not None and dataset.label_names is not None:
        label_texts = "names"
    if label_texts == "none":
        label_texts = None
    found: dict[str, Any] = {}
    if tree is not None:
        if tree_at is None:
            raise ParameterError("--tree", str(tree), "is for recipes of label trees; longtail recipes lists them")
        from longtail.data import read_hierarchy

        names = dataset.labels.all_shown()
        found[f"{tree_at}tree"] = read_hierarchy(tree).pairs(names)
    if label_texts is not None:
        if tree_at is None and texts_at is None:
            what = "is for recipes of label trees, and for xgrank and its forms"
            raise ParameterError("--label-texts", label_texts, what)
        found[texts_at or f"{tree_at}representation"] = _label_texts(label_texts, dataset)
    plan.set_params(**found)
    for name in found:  # compose has checked all the others
        parts[name.rpartition("__")[0] + "__"]._check_parameters()


def _label_texts(source: str, dataset: Dataset) -> list[str]:
    """Return the label names, or one text per label and line of a file."""
    if source == "names":
        if dataset.label_names is None:
            raise ParameterError("--label-texts", source, "must be a file, because the labels have no names")
        return list(dataset.label_names)
    path = Path(source)
    if not path.is_file():
        raise InputError("is not a file: give a file with one text per label, or 'names'.", path=path)
    from longtail.data.readers.label_names import read_names

    texts = read_names(path)
    if len(texts) != dataset.n_labels:
        lines = counted(len(texts), "line")
        raise InputError(
            f"has {lines}, and the data set {dataset.n_labels:,} labels: give one line per label.", path=source
        )
    return texts

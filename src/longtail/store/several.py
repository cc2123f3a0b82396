"""Several models together: their names, and whether they have the same labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from longtail.errors import InputError, ParameterError
from longtail.store.model import Model


def model_names(paths: Sequence[Path]) -> list[str]:
    """Return the names of model directories; where several have the same one, their paths.

    Examples
    --------
    >>> model_names([Path("runs/a/model"), Path("runs/b/model"), Path("runs/c/other")])
    ['runs/a/model', 'runs/b/model', 'other']
    """
    short = [path.resolve().name for path in paths]
    return [name if short.count(name) == 1 else str(path) for name, path in zip(short, paths, strict=True)]


def load_models(paths: Sequence[Path], *, verify: bool = False) -> dict[str, Model]:
    """Load different models, by the names of `model_names`."""
    resolved = [path.resolve() for path in paths]
    for path in paths:
        if resolved.count(path.resolve()) > 1:
            raise ParameterError("MODEL", str(path), "must be a different directory each time")
    return {name: Model.load(path, verify=verify) for name, path in zip(model_names(paths), paths, strict=True)}


def check_same_labels(models: Mapping[str, Model], advice: str) -> None:
    """Raise an error for models with different labels; `advice` says what to do.

    Examples
    --------
    >>> from longtail import Popularity
    >>> models = {name: Model(Popularity().fit([[1]], [[1]]), label_names=[name]) for name in ("ship", "tree")}
    >>> check_same_labels(models, "compare models of the same labels")
    Traceback (most recent call last):
    ...
    longtail.errors.InputError: label 0 is 'ship' in ship and 'tree' in tree: compare models of the same labels.
    """
    (first, base), *others = models.items()
    for name, model in others:
        found = base.labels.difference(model.labels, first, name)
        if found:
            raise InputError(f"{found}: {advice}.")

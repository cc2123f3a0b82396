"""Deployment of models with networks: int8 weights, or an ONNX file."""

from __future__ import annotations

from dataclasses import replace
from os import PathLike

from longtail.errors import InputError
from longtail.learners import Learner, NeuralClassifier
from longtail.store.model import Model


def quantised(model: Model) -> Model:
    """Return a model whose networks have int8 weights; everything else is shared with the given model.

    Raises
    ------
    InputError
        When the model has no networks, or they have int8 weights already.
    """
    if all(network.precision_ == "int8" for network in _networks_of(model)):
        raise InputError("The model has int8 weights already.")
    return replace(model, learner=_copied(model.learner))


def export_onnx(model: Model, path: str | PathLike[str]) -> float:
    """Write the network of a model as an ONNX file; return the largest difference between its scores and torch's.

    Learners that wrap the network, such as RankNet or the tail dial, are not part of the file.
    """
    network, *others = _networks_of(model)
    if others:
        raise InputError(f"The model has {1 + len(others)} networks: export them one by one, before they are blended.")
    return network.export_onnx(path)


def _copied(learner: Learner) -> Learner:
    if isinstance(learner, NeuralClassifier):
        return learner.quantised()
    return learner._with_nested(_copied)


def _networks_of(model: Model) -> list[NeuralClassifier]:
    found = [part for _, part in model.learner.parts(fitted=True) if isinstance(part, NeuralClassifier)]
    if not found:
        raise InputError("The model has no networks: use a model of a recipe such as xgrank.")
    return found

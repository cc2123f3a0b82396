"""Models of networks on their way to where they are used: with weights of eight bits, or as an ONNX file."""

from __future__ import annotations

import copy
from dataclasses import replace
from os import PathLike
from typing import Any

from longtail.errors import InputError
from longtail.learners import Blend, Learner, NeuralClassifier
from longtail.store.model import Model


def quantised(model: Model) -> Model:
    """Give a model whose networks have weights of eight bits; everything else is shared with the one given.

    Raises
    ------
    InputError
        When the model has no networks, or they have such weights already.
    """
    if _network_of(model).precision_ == "int8":
        raise InputError("The model has weights of eight bits already.")
    return replace(model, learner=_copied(model.learner))


def export_onnx(model: Model, path: str | PathLike[str]) -> float:
    """Write the network of a model as an ONNX file; gives the largest difference between its scores and torch's.

    What goes around the network, such as RankNet or the tail dial, is not in the file.
    """
    return _network_of(model).export_onnx(path)


def _copied(learner: Any) -> Any:
    if isinstance(learner, NeuralClassifier):
        return learner.quantised()
    found = copy.copy(learner)
    for name, part in vars(learner).items():
        if isinstance(part, Learner) and name.endswith("_"):
            setattr(found, name, _copied(part))
    return found


def _network_of(model: Model) -> NeuralClassifier:
    waiting: list[Any] = [model.learner]
    while waiting:
        part = waiting.pop()
        if isinstance(part, NeuralClassifier):
            return part
        waiting += [inner for name, inner in vars(part).items() if isinstance(inner, Learner) and name.endswith("_")]
    if isinstance(model.learner, Blend):
        raise InputError("The model is a blend: do this with its networks, one by one, before they are blended.")
    raise InputError("The model has no networks: this is for models of recipes such as xgrank.")

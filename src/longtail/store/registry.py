"""Classes that a saved model may contain: a closed list of short names, so that a file can never name code to run."""

from __future__ import annotations

import importlib
from typing import Any, TypeVar

from longtail.errors import ModelError

_PACKAGES = {
    "data": "Hierarchy",
    "features": "TextEmbedding Tfidf TfidfEmbedding Tokens",
    "propensity": "FittedPropensity GivenPropensity JainPropensity",
    "losses": "Hinge Logistic Rebalanced SquaredHinge Surrogate Unbiased UnbiasedRebalanced ZeroOne",
    "weighting": "ClassBalanced InversePropensity LogFrequency NoWeighting PW PWcb PowerFrequency",
    "learners": "AdaptiveHead AttentionHead BiLSTM Blend BlockWeights CNN Calibration ChunkWeights EmbeddingClassifier "
    "InstanceForest InstanceTrees LabelForest LabelTree NeuralClassifier OneVsRest Popularity Pretrained RankingHead "
    "TextLearner WordBag",
    "rerank": "CentroidReranker LabelCentroids RankNet Stacked TAug TailDial",
}
_PUBLIC = {name: f"longtail.{package}" for package, names in _PACKAGES.items() for name in names.split()}
_registered: dict[str, type[Any]] = {}

Class = TypeVar("Class", bound=type[Any])


def register(cls: Class) -> Class:
    """Allow a class of your own in saved models; a decorator, also needed in the program that loads the model.

    The class needs `get_params` (as scikit-learn's `BaseEstimator` has it) and a tuple `_stored` with the names of the
    fitted attributes to save.

    Examples
    --------
    >>> from longtail.learners import Popularity
    >>> @register
    ... class Seasonal(Popularity):
    ...     pass
    """
    name = cls.__name__
    if name in _PUBLIC:
        raise ModelError(f"The name {name} belongs to a class of longtail: give yours another name.")
    _registered[name] = cls
    return cls


def name_of(cls: type[Any]) -> str:
    """Return the short name of a class that models may contain."""
    name = cls.__name__
    if _registered.get(name) is cls or (name in _PUBLIC and _find(name) is cls):
        return name
    raise ModelError(f"A model can't contain a {name}: pass its class to longtail.store.register first.")


def class_of(name: str) -> type[Any]:
    """Return the class with a short name."""
    cls = _registered.get(name) or (_find(name) if name in _PUBLIC else None)
    if cls is None:
        raise ModelError(
            f"The model contains a {name}, which this version of longtail doesn't know: upgrade longtail, or pass the "
            "class of that name to longtail.store.register first."
        )
    return cls


def _find(name: str) -> type[Any] | None:
    return getattr(importlib.import_module(_PUBLIC[name]), name, None)

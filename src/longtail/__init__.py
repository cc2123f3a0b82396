"""longtail: extreme multi-label classification for rare labels and incomplete annotations."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = [
    "Blend",
    "CentroidReranker",
    "Dataset",
    "EmbeddingClassifier",
    "InstanceForest",
    "Interrupted",
    "JainPropensity",
    "LabelTree",
    "Learner",
    "LongtailError",
    "Model",
    "OneVsRest",
    "Popularity",
    "RankNet",
    "Stacked",
    "TAug",
    "TailDial",
    "TextLearner",
    "Tfidf",
    "TopK",
    "__version__",
    "datasets",
    "evaluate",
    "load",
    "recipe",
    "resumable",
    "show_progress",
    "use_engine",
]

if TYPE_CHECKING:
    from longtail import datasets
    from longtail.corpus import Dataset, Tfidf
    from longtail.engine.cluster import use_engine
    from longtail.engine.progress import show_progress
    from longtail.engine.spool import resumable
    from longtail.engine.topk import TopK
    from longtail.errors import Interrupted, LongtailError
    from longtail.learners import (
        Blend,
        EmbeddingClassifier,
        InstanceForest,
        LabelTree,
        Learner,
        OneVsRest,
        Popularity,
        TextLearner,
    )
    from longtail.metrics import evaluate
    from longtail.propensity import JainPropensity
    from longtail.recipes import recipe
    from longtail.store import Model, load
    from longtail.tail import CentroidReranker, RankNet, Stacked, TailDial, TAug

_PLACES = {
    "Blend": "longtail.learners",
    "CentroidReranker": "longtail.tail",
    "Dataset": "longtail.corpus",
    "EmbeddingClassifier": "longtail.learners",
    "InstanceForest": "longtail.learners",
    "Interrupted": "longtail.errors",
    "JainPropensity": "longtail.propensity",
    "LabelTree": "longtail.learners",
    "Learner": "longtail.learners",
    "LongtailError": "longtail.errors",
    "Model": "longtail.store",
    "OneVsRest": "longtail.learners",
    "Popularity": "longtail.learners",
    "RankNet": "longtail.tail",
    "Stacked": "longtail.tail",
    "TAug": "longtail.tail",
    "TailDial": "longtail.tail",
    "TextLearner": "longtail.learners",
    "Tfidf": "longtail.corpus",
    "TopK": "longtail.engine.topk",
    "evaluate": "longtail.metrics",
    "load": "longtail.store",
    "recipe": "longtail.recipes",
    "resumable": "longtail.engine.spool",
    "show_progress": "longtail.engine.progress",
    "use_engine": "longtail.engine.cluster",
}


def __getattr__(name: str) -> Any:
    if name == "datasets":
        return importlib.import_module("longtail.datasets")
    if name in _PLACES:
        return getattr(importlib.import_module(_PLACES[name]), name)
    raise AttributeError(f"module 'longtail' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__

"""Upgrade of models of earlier format versions: their JSON is rewritten before it is decoded.

Version 3 took over the parameter names of scikit-learn, LIBLINEAR and torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from longtail.store.registry import class_of

_RUN = {"seed": "random_state", "threads": None, "memory_limit": None}
_LINEAR = {"regularisation": "C", "tolerance": "tol"}
_TRAINING = {"batch": "batch_size", "passes": "epochs", "rate": "learning_rate", "held_out": "validation_fraction"}
_RENAMED: dict[str, dict[str, str | None]] = {
    "OneVsRest": {**_RUN, **_LINEAR, "max_passes": "max_iter"},
    "LabelTree": {
        **_RUN,
        **_LINEAR,
        "max_passes": "max_iter",
        "trees": "n_trees",
        "negatives": "n_hard_negatives",
        "dimensions": "n_components",
    },
    "InstanceForest": {**_RUN, **_LINEAR, "newton_steps": "max_iter", "sweeps": "max_inner_iter", "trees": "n_trees"},
    "EmbeddingClassifier": {
        **_RUN,
        **_TRAINING,
        "dimensions": "embedding_dim",
        "hidden": "hidden_layer_sizes",
        "mined": "n_hard_negatives",
        "negatives": "n_negatives",
        "strength": "regulariser_weight",
        "label_rate": "label_learning_rate",
        "keep": "input_dropout",
    },
    "NeuralClassifier": {
        **_RUN,
        **_TRAINING,
        "at_once": "micro_batch_size",
        "head_rate": "head_learning_rate",
        "warm_up": "warmup_fraction",
        "clip": "max_grad_norm",
        "checks": "evals_per_epoch",
        "keep_frozen": "cache_frozen",
    },
    "RankNet": {
        **_RUN,
        "passes": "epochs",
        "rate": "learning_rate",
        "gain_rate": "gain_learning_rate",
        "negatives": "n_negatives",
        "candidates": "top_k",
        "most_loss": "max_loss",
    },
    "TailDial": {**_RUN, "most_loss": "max_loss", "held_out": "validation_fraction"},
    "Blend": {**_RUN, "candidates": "top_k", "held_out": "validation_fraction"},
    "CentroidReranker": {**_RUN, "candidates": "top_k"},
    "Stacked": {**_RUN, "candidates": "top_k"},
    "TAug": {**_RUN, "keep": "input_dropout"},
    "Tfidf": {**_RUN, "ngrams": "ngram_range", "min_rows": "min_df"},
    "TextEmbedding": _RUN,
    "BiLSTM": {"dimensions": "embedding_dim", "hidden": "hidden_size", "depth": "num_layers"},
    "CNN": {
        "dimensions": "embedding_dim",
        "hidden": "hidden_size",
        "filters": "n_filters",
        "sizes": "kernel_sizes",
        "parts": "pool_chunks",
    },
    "WordBag": {"dimensions": "embedding_dim"},
    "RankingHead": {"dimensions": "embedding_dim"},
    "AttentionHead": {"candidates": "top_k", "hidden": "hidden_layer_sizes"},
    "AdaptiveHead": {"clusters": "n_clusters", "hidden": "hidden_size"},
}
_RENAMED_VALUES: dict[str, dict[str, dict[Any, Any]]] = {"NeuralClassifier": {"loss": {"bce": "logistic"}}}
_CONVERTED: dict[str, Callable[[Any], Any]] = {
    "keep": lambda keep: 1 - keep,
    "ngrams": lambda longest: {"tuple": [1, longest]},
}


def present_names(name: str) -> set[str]:
    """Return what a parameter of an earlier version is called now, in any class; empty if none was called so.

    Examples
    --------
    >>> present_names("regularisation"), sorted(present_names("hidden"))
    ({'C'}, ['hidden_layer_sizes', 'hidden_size'])
    """
    former = {**_RUN, "threads": "n_jobs"}
    return {new for table in (former, *_RENAMED.values()) for old, new in table.items() if old == name and new}


def upgraded(value: Any, version: int) -> Any:
    """Return the contents of a model of format `version` as the current version writes them.

    Examples
    --------
    >>> upgraded({"object": "Tfidf", "params": {"ngrams": 2, "lowercase": True}}, 2)
    {'object': 'Tfidf', 'params': {'ngram_range': {'tuple': [1, 2]}, 'lowercase': True}}
    >>> upgraded({"object": "NeuralClassifier", "params": {"loss": "bce", "keep_frozen": False}}, 2)
    {'object': 'NeuralClassifier', 'params': {'loss': 'logistic', 'cache_frozen': False}}
    """
    if version >= 3:
        return value
    if isinstance(value, list):
        return [upgraded(item, version) for item in value]
    if not isinstance(value, dict):
        return value
    inside = {key: upgraded(item, version) for key, item in value.items()}
    if isinstance(inside.get("object"), str) and isinstance(inside.get("params"), dict):
        bases = reversed(class_of(inside["object"]).__mro__)  # of a registered class too
        renamed = {old: new for base in bases for old, new in _RENAMED.get(base.__name__, {}).items()}
        inside["params"] = _params(renamed, inside["params"])
        for base in class_of(inside["object"]).__mro__:
            for name, values in _RENAMED_VALUES.get(base.__name__, {}).items():
                if isinstance(inside["params"].get(name), str):
                    inside["params"][name] = values.get(inside["params"][name], inside["params"][name])
        history = inside.get("state", {}).get("history_", {}).get("dict", {})
        if "held_out" in history:
            history["validation"] = history.pop("held_out")
    return inside


def _params(renamed: dict[str, str | None], params: dict[str, Any]) -> dict[str, Any]:
    found = {}
    for old, value in params.items():
        new = renamed.get(old, old)
        if new is not None:
            found[new] = _CONVERTED[old](value) if new != old and old in _CONVERTED else value
    return found

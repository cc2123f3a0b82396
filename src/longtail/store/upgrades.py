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
    "InstanceForest": {
        **_RUN,
        **_LINEAR,
        "newton_steps": "max_iter",
        "sweeps": "max_inner_iter",
        "trees": "n_trees",
        "ideal": "criterion",
    },
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
        "loss": "loss",  # of which one value is renamed, in _CONVERTED
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
    "TailDial": {**_RUN, "most_loss": "max_loss", "held_out": "validation_fraction", "first": "first_tail"},
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
_RENAMED_STATE: dict[str, dict[str, str | None]] = {"TailDial": {"first_": "first_tail_"}}
_CONVERTED: dict[str, Callable[[Any], Any]] = {
    "keep": lambda keep: 1 - keep,
    "ngrams": lambda longest: {"tuple": [1, longest]},
    "ideal": lambda is_ideal: "ndcg" if is_ideal else "dcg",
    "loss": lambda loss: "logistic" if loss == "bce" else loss,
}


def present_names(name: str) -> set[str]:
    """Return what a parameter of an earlier version is called now, in any class; empty if none was called so.

    Examples
    --------
    >>> present_names("regularisation"), sorted(present_names("hidden"))
    ({'C'}, ['hidden_layer_sizes', 'hidden_size'])
    """
    former = {**_RUN, "threads": "n_jobs"}
    return {
        new
        for table in (former, *_RENAMED.values())
        for old, new in table.items()
        if old == name and new not in (None, old)
    }


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
    contents = {key: upgraded(item, version) for key, item in value.items()}
    if isinstance(contents.get("object"), str) and isinstance(contents.get("params"), dict):
        contents["params"] = _renamed(contents["params"], contents["object"], _RENAMED)
        if isinstance(contents.get("state"), dict):
            state = contents["state"] = _renamed(contents["state"], contents["object"], _RENAMED_STATE)
            history = state.get("history_", {}).get("dict", {})
            if "held_out" in history:
                history["validation"] = history.pop("held_out")
    return contents


def _renamed(values: dict[str, Any], name: str, table: dict[str, dict[str, str | None]]) -> dict[str, Any]:
    """Return the parameters or the state of an object under their present names."""
    bases = reversed(class_of(name).__mro__)  # of a registered class too
    renamed = {old: new for base in bases for old, new in table.get(base.__name__, {}).items()}
    found = {}
    for old, value in values.items():
        new = renamed.get(old, old)
        if new is not None:
            found[new] = _CONVERTED[old](value) if old in renamed and old in _CONVERTED else value
    return found

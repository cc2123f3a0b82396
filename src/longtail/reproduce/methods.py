"""The recipe for each method of the papers, and the base that it is compared with."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from longtail.recipes.compose import is_network

_PLAIN = {
    "DiSMEC": "dismec", "one-vs-all": "dismec", "Parabel": "parabel", "Bonsai": "bonsai", "FastXML": "fastxml",
    "PfastXML": "pfastxml", "PfastreXML": "pfastrexml", "GLaS": "glas", "RankNet": "ranknet+bonsai",
    "RankNet+Taug": "ranknet+taug+bonsai", "Bonsai w/ Taug": "taug+bonsai", "AttentionXML": "attentionxml",
    "APLC-XLNet": "aplc-xlnet", "XML-CNN": "xml-cnn", "LightXML": "lightxml", "X-GRank": "xgrank",
    "AttentionXML-1": "attentionxml", "LightXML-1": "lightxml", "X-GRank-1": "xgrank",
    "X-GRank-1 w/ LF": "xgrank", "baseline": "bonsai", "Taug-ds": "taug+bonsai",
}  # fmt: skip
_WITH: dict[str, tuple[str, dict[str, Any]]] = {
    "X-BCE-1 w/o LF": ("xgrank-bce", {"head.texts": False}),
    "X-GRank-1 w/o LF": ("xgrank", {"head.texts": False}),
    "Taug-d": ("taug+bonsai", {"swaps": 0}),
    "Taug-s": ("taug+bonsai", {"input_dropout": 0.0}),
    "None": ("embedding", {}),
    "regularizer = None": ("embedding", {}),
    "regularizer = Gravity": ("glas", {"regulariser": "gravity"}),
    "rho = 1.0": ("glas", {"input_dropout": 0.0}),
    "rho = 0.8": ("glas", {"input_dropout": 0.2}),
    "rho = 0.6": ("glas", {"input_dropout": 0.4}),
    "lambda = 1": ("glas", {"regulariser_weight": 1.0}),
    "lambda = 10": ("glas", {"regulariser_weight": 10.0}),
    "lambda = 100": ("glas", {"regulariser_weight": 100.0}),
    "batch size = 1024": ("glas", {"batch_size": 1024}),
    "batch size = 2048": ("glas", {"batch_size": 2048}),
    "batch size = 4096": ("glas", {"batch_size": 4096}),
    "d = 256": ("glas", {"embedding_dim": 256}),
    "d = 512": ("glas", {"embedding_dim": 512}),
    "d = 1024": ("glas", {"embedding_dim": 1024}),
    "embedding = linear": ("glas", {"activation": "linear"}),
    "embedding = nonlinear (ReLU)": ("glas", {}),
}


@dataclass(frozen=True)
class RecipeSetup:
    """A recipe with settings, as ``longtail train --set`` takes them."""

    recipe: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def is_network(self) -> bool:
        """Whether it is a neural network over texts."""
        return is_network(self.recipe)

    @property
    def name(self) -> str:
        """The recipe and its settings in one line."""
        return " ".join([self.recipe, *(f"{name}={value}" for name, value in self.settings.items())])


def recipe_for(method: str) -> RecipeSetup | None:
    """Return the recipe for a method of the papers; None if longtail has none.

    Examples
    --------
    >>> recipe_for("PW-cb-DiSMEC").name, recipe_for("RankNet-Parabel").name, recipe_for("SLEEC")
    ('pw-cb-dismec', 'ranknet+parabel', None)
    """
    if method in _WITH:
        return RecipeSetup(*_WITH[method])
    prefix = re.match(r"(PW-cb-|PW-|RankNet-)(.*)", method)
    name = _PLAIN.get(prefix[2] if prefix and method not in _PLAIN else method)
    if name is None:
        return None
    if prefix and method not in _PLAIN:
        return RecipeSetup({"PW-cb-": "pw-cb-", "PW-": "pw-", "RankNet-": "ranknet+"}[prefix[1]] + name)
    return RecipeSetup(name)


def base_method(method: str, known: list[str]) -> str | None:
    """Return the method of a table that another one improves on; None for a base.

    Examples
    --------
    >>> base_method("PW-DiSMEC", ["DiSMEC", "PW-DiSMEC"])
    'DiSMEC'
    """
    for pattern in (r"PW-cb-(.*)", r"PW-(.*)", r"RankNet-(.*)", r"(.*) w/ Taug"):
        found = re.fullmatch(pattern, method)
        if found and found[1] in known:
            return found[1]
    first = {
        "PfastreXML": "FastXML", "PfastXML": "FastXML", "RankNet": "Bonsai", "RankNet+Taug": "Bonsai",
        "Taug-d": "baseline", "Taug-s": "baseline", "Taug-ds": "baseline", "X-GRank-1 w/o LF": "X-BCE-1 w/o LF",
        "X-GRank-1 w/ LF": "X-GRank-1 w/o LF", "GLaS": "None",
    }.get(method)  # fmt: skip
    return first if first in known else None

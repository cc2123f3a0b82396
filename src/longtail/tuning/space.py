"""The search space: recipes, and the most important parameters of each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from longtail.recipes.compose import base_recipe

if TYPE_CHECKING:
    from optuna import Trial

RECIPES = (
    "dismec", "pw-dismec", "pw-cb-dismec", "longtail-tree", "parabel", "longtail-tail", "bonsai", "pw-cb-bonsai",
    "glas", "ranknet+bonsai", "fastxml", "pfastrexml",
)  # fmt: skip
"""Tried first with their default parameters, in this order, about from the fastest to the slowest."""
TAILS = (0.0, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0)
"""Positions of the tail dial that are evaluated for every trained learner, without further training."""


@dataclass(frozen=True)
class Dimension:
    """A parameter and its range."""

    name: str  # as ``longtail train --set`` takes it
    low: float
    high: float
    is_log: bool = False  # search on a logarithmic scale
    is_integer: bool = False

    def key(self, recipe: str) -> str:
        """Return its name in optuna, which is specific to the recipe."""
        return f"{recipe}: {self.name}"

    def own(self, recipe: str) -> Any:
        """Return the default of the recipe."""
        return _own_value(recipe, self.name)

    def suggest(self, trial: Trial, recipe: str) -> Any:
        """Return a value suggested by optuna."""
        if self.is_integer:
            return trial.suggest_int(self.key(recipe), int(self.low), int(self.high), log=self.is_log)
        value = trial.suggest_float(self.key(recipe), self.low, self.high, log=self.is_log)
        return value if value == self.own(recipe) else float(f"{value:.3g}")


_LINEAR = (Dimension("C", 0.03, 10.0, is_log=True),)
_SPACES: dict[str, tuple[Dimension, ...]] = {
    "dismec": _LINEAR,
    "parabel": (*_LINEAR, Dimension("leaf_size", 20, 400, is_log=True, is_integer=True)),
    "bonsai": (*_LINEAR, Dimension("discount", 0.2, 1.0)),
    "plt": (Dimension("C", 1.0, 100.0, is_log=True),),
    "longtail-tree": (*_LINEAR, Dimension("weighting.factor", 1.0, 4.0), Dimension("discount", 0.1, 1.0)),
    "longtail-tail": (*_LINEAR, Dimension("first_tail", 0.0, 1.0)),
    "fastxml": (*_LINEAR, Dimension("leaf_size", 5, 40, is_log=True, is_integer=True)),
    "pfastxml": (*_LINEAR, Dimension("leaf_size", 5, 40, is_log=True, is_integer=True)),
    "pfastrexml": (Dimension("alpha", 0.5, 0.98), Dimension("leaf_size", 5, 40, is_log=True, is_integer=True)),
    "embedding": (Dimension("learning_rate", 0.003, 0.03, is_log=True), Dimension("input_dropout", 0.05, 0.6)),
    "glas": (Dimension("learning_rate", 0.003, 0.03, is_log=True), Dimension("input_dropout", 0.05, 0.6)),
    "glas+ranknet": (Dimension("input_dropout", 0.05, 0.6),),  # RankNet has a learning rate of its own
    "xml-cnn": (Dimension("learning_rate", 3e-4, 3e-3, is_log=True),),
    "attentionxml": (Dimension("learning_rate", 3e-4, 3e-3, is_log=True),),
    "xgrank": (Dimension("learning_rate", 2e-5, 2e-4, is_log=True),),
    "aplc-xlnet": (Dimension("learning_rate", 2e-5, 2e-4, is_log=True),),
}
_BALANCED = Dimension("weighting.beta", 0.5, 0.99)


def space_of(recipe: str) -> tuple[Dimension, ...]:
    """Return the search space of a recipe.

    Examples
    --------
    >>> [dimension.name for dimension in space_of("pw-cb-dismec")]
    ['C', 'weighting.beta']
    """
    base = base_recipe(recipe)
    balanced = base.startswith("pw-cb-")
    plain = base.removeprefix("pw-cb-").removeprefix("pw-")
    found = _SPACES.get(recipe, _SPACES.get(plain, ()))
    return (*found, _BALANCED) if balanced and found else found


@cache
def _own_value(recipe: str, name: str) -> Any:
    from longtail.recipes import find

    path = name.replace(".", "__")
    found = [part.get_params()[path] for _, part in find(recipe).build(None).parts() if path in part.get_params()]
    if not found or found[0] is None:
        raise ValueError(f"{recipe} has no number {name}")
    return found[0]


def has_dial(recipe: str) -> bool:
    """Return whether a recipe sets the tail dial itself, so that the search doesn't."""
    return recipe.startswith(("longtail-tail", "ips+", "ranknet+")) or recipe.endswith("+ranknet")

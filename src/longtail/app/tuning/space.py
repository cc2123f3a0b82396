"""What is searched: recipes, and the few parameters of each that matter most."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from longtail.app.plans import inner_recipe

if TYPE_CHECKING:
    from optuna import Trial

RECIPES = (
    "dismec", "pw-dismec", "pw-cb-dismec", "longtail-tree", "parabel", "longtail-tail", "bonsai", "pw-cb-bonsai",
    "glas", "ranknet+bonsai", "fastxml", "pfastrexml",
)  # fmt: skip
"""Tried first with their own parameters, in this order: about from the quickest to the slowest."""
TAILS = (0.0, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0)
"""Positions of the tail dial that are looked at with every trained learner: they cost no training."""


@dataclass(frozen=True)
class Dimension:
    """A parameter and where it is looked for.

    Parameters
    ----------
    name : str
        As ``longtail train --set`` takes it.
    low, high : float
    is_log : bool
        Whether ratios matter rather than differences.
    is_whole : bool
    """

    name: str
    low: float
    high: float
    is_log: bool = False
    is_whole: bool = False

    def key(self, recipe: str) -> str:
        """What optuna calls it: the same parameter of two recipes is two to it."""
        return f"{recipe}: {self.name}"

    def own(self, recipe: str) -> Any:
        """The recipe's own value."""
        return _own_value(recipe, self.name)

    def draw(self, trial: Trial, recipe: str) -> Any:
        """Ask optuna for a value."""
        if self.is_whole:
            return trial.suggest_int(self.key(recipe), int(self.low), int(self.high), log=self.is_log)
        value = trial.suggest_float(self.key(recipe), self.low, self.high, log=self.is_log)
        return value if value == self.own(recipe) else float(f"{value:.3g}")


_LINEAR = (Dimension("regularisation", 0.03, 10.0, is_log=True),)
_SPACES: dict[str, tuple[Dimension, ...]] = {
    "dismec": _LINEAR,
    "parabel": (*_LINEAR, Dimension("leaf_size", 20, 400, is_log=True, is_whole=True)),
    "bonsai": (*_LINEAR, Dimension("discount", 0.2, 1.0)),
    "plt": (Dimension("regularisation", 1.0, 100.0, is_log=True),),
    "longtail-tree": (*_LINEAR, Dimension("weighting.factor", 1.0, 4.0), Dimension("discount", 0.1, 1.0)),
    "longtail-tail": (*_LINEAR, Dimension("first", 0.0, 1.0)),
    "fastxml": (*_LINEAR, Dimension("leaf_size", 5, 40, is_log=True, is_whole=True)),
    "pfastxml": (*_LINEAR, Dimension("leaf_size", 5, 40, is_log=True, is_whole=True)),
    "pfastrexml": (Dimension("alpha", 0.5, 0.98), Dimension("leaf_size", 5, 40, is_log=True, is_whole=True)),
    "embedding": (Dimension("rate", 0.003, 0.03, is_log=True), Dimension("keep", 0.4, 0.95)),
    "glas": (Dimension("rate", 0.003, 0.03, is_log=True), Dimension("keep", 0.4, 0.95)),
    "glas+ranknet": (Dimension("keep", 0.4, 0.95),),  # RankNet has a rate of its own
    "xml-cnn": (Dimension("rate", 3e-4, 3e-3, is_log=True),),
    "attentionxml": (Dimension("rate", 3e-4, 3e-3, is_log=True),),
    "xgrank": (Dimension("rate", 2e-5, 2e-4, is_log=True),),
    "aplc-xlnet": (Dimension("rate", 2e-5, 2e-4, is_log=True),),
}
_BALANCED = Dimension("weighting.beta", 0.5, 0.99)


def space_of(recipe: str) -> tuple[Dimension, ...]:
    """Parameters of a recipe that are searched.

    Examples
    --------
    >>> [dimension.name for dimension in space_of("pw-cb-dismec")]
    ['regularisation', 'weighting.beta']
    """
    base = inner_recipe(recipe)
    balanced = base.startswith("pw-cb-")
    plain = base.removeprefix("pw-cb-").removeprefix("pw-")
    found = _SPACES.get(recipe, _SPACES.get(plain, ()))
    return (*found, _BALANCED) if balanced and found else found


@cache
def _own_value(recipe: str, name: str) -> Any:
    from longtail.learners.base import nested
    from longtail.recipes import find

    path = name.replace(".", "__")
    found = [part.get_params()[path] for _, part in nested(find(recipe).build(None)) if path in part.get_params()]
    if not found or found[0] is None:
        raise ValueError(f"{recipe} has no number {name}")
    return found[0]


def has_dial(recipe: str) -> bool:
    """Whether a recipe sets the tail dial by itself, so that it isn't turned from outside."""
    return recipe.startswith(("longtail-tail", "ips+", "ranknet+")) or recipe.endswith("+ranknet")

"""Recipes by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from longtail.errors import ParameterError, UnknownNameError, did_you_mean
from longtail.recipes.definition import PropensityLike, Recipe
from longtail.recipes.settings import configure
from longtail.recipes.systems import RANKNET, RECIPES, WRAPPERS, wrapped

if TYPE_CHECKING:
    from longtail.learners import Learner


def recipes() -> list[Recipe]:
    """Return all recipes, in the order in which they build on each other.

    Examples
    --------
    >>> [known.name for known in recipes()][:4]
    ['popularity', 'dismec', 'pw-dismec', 'pw-cb-dismec']
    """
    return list(RECIPES)


def recipe(name: str, *, propensity: PropensityLike = None, **params: Any) -> Learner:
    """Return the unfitted learner of a recipe, with the constants of its paper.

    Parameters
    ----------
    name : str
        See `recipes`.
    propensity : Propensity or str, optional
        Propensity model, or the name of a data set with published constants; for recipes that weight by propensities.
    **params
        Parameters to change, nested ones by their path: ``weighting__beta=0.99``.

    Examples
    --------
    >>> from longtail import recipe
    >>> recipe("pw-cb-dismec", C=0.5).C
    0.5
    >>> recipe("pw-dismec", propensity="Amazon-670K").weighting
    PW(propensity=JainPropensity(a=0.6, b=2.6))
    """
    return configure(find(name).build(propensity), params, propensity)


def find(name: str) -> Recipe:
    """Return the recipe of a name; for an unknown name, raise an error with similar ones.

    The prefixes ``ips+``, ``ranknet+`` and ``taug+`` wrap any recipe.

    Examples
    --------
    >>> find("ips+taug+parabel").build(None).learner.learner.arity
    2
    """
    by_name = {known.name: known for known in RECIPES}
    wrapper, plus, rest = str(name).partition("+")
    if name in by_name:
        return by_name[name]
    if plus and wrapper == "taug" and (rest.partition("+")[0] in WRAPPERS or rest in ("longtail-tail", "glas+ranknet")):
        raise ParameterError("recipe", name, "must have taug+ next to what is augmented, as in ranknet+taug+bonsai")
    if plus and wrapper in WRAPPERS:
        base = find(rest)
        return Recipe(name, f"{WRAPPERS[wrapper].summary} Wraps {rest}.", RANKNET, wrapped(wrapper, base.build))
    hint = did_you_mean(name, by_name, key=lambda one: str(one).lower().replace("_", "-"))
    *some, last = (f"{prefix}+" for prefix in WRAPPERS)
    listed = f"'longtail recipes' lists all, and {', '.join(some)} or {last} can go before their names"
    raise UnknownNameError("recipe", name, f"{name!r} doesn't exist{hint}: {listed}")

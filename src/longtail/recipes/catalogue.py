"""Recipes by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from longtail.errors import ParameterError
from longtail.recipes.definition import Recipe
from longtail.recipes.settings import configure, near
from longtail.recipes.systems import AROUND, RANKNET, RECIPES, wrapped

if TYPE_CHECKING:
    from longtail.learners import Learner
    from longtail.propensity import Propensity


def recipes() -> list[Recipe]:
    """Every recipe, in the order in which they build on each other.

    Examples
    --------
    >>> [known.name for known in recipes()][:4]
    ['popularity', 'dismec', 'pw-dismec', 'pw-cb-dismec']
    """
    return list(RECIPES)


def recipe(name: str, *, propensity: Propensity | str | None = None, **params: Any) -> Learner:
    """Compose the system of that name, unfitted, with the constants of its paper.

    Parameters
    ----------
    name : str
        See `recipes`.
    propensity : Propensity or str, optional
        How likely a true label was recorded, or the name of a data set with published constants; for recipes that
        weight by it.
    **params
        Parameters to set otherwise, nested ones by their path: ``weighting__beta=0.99``.

    Examples
    --------
    >>> from longtail import recipe
    >>> recipe("pw-cb-dismec", regularisation=0.5).regularisation
    0.5
    >>> recipe("pw-dismec", propensity="Amazon-670K").weighting
    PW(propensity=JainPropensity(a=0.6, b=2.6))
    """
    return configure(find(name).build(propensity), params, propensity)


def find(name: str) -> Recipe:
    """Recipe of that name; for an unknown one, an error with the names that come near.

    What stands before a plus goes around the recipe behind it, whichever that is: ``ips+``, ``ranknet+``, ``taug+``.

    Examples
    --------
    >>> find("ips+taug+parabel").build(None).learner.learner.arity
    2
    """
    by_name = {known.name: known for known in RECIPES}
    around, plus, rest = str(name).partition("+")
    if name in by_name:
        return by_name[name]
    if plus and around == "taug" and (rest.partition("+")[0] in AROUND or rest in ("longtail-tail", "glas+ranknet")):
        raise ParameterError("recipe", name, "must have taug+ next to what is augmented, as in ranknet+taug+bonsai")
    if plus and around in AROUND:
        inner = find(rest)
        return Recipe(name, f"{AROUND[around].summary} Around {rest}.", RANKNET, wrapped(around, inner.build))
    listed = f"{', '.join(by_name)}, or one of these behind {', '.join(f'{way}+' for way in AROUND)}"
    raise ParameterError("recipe", name, f"must be one of {listed}{near(name, by_name)}")

"""The systems of the papers by name: each a learner composed with its published constants."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypeVar

from longtail.errors import ParameterError

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

    from longtail.learners import Learner
    from longtail.propensity import Propensity
    from longtail.weighting import Weighting

Estimator = TypeVar("Estimator", bound="BaseEstimator")

_DISMEC = "Babbar and Schölkopf: DiSMEC: Distributed Sparse Machines for Extreme Multi-label Classification. WSDM 2017."
_PW = (
    "Qaraei, Schultheis, Gupta and Babbar: Convex Surrogates for Unbiased Loss Functions in Extreme Classification "
    "With Missing Labels. WWW 2021."
)


@dataclass(frozen=True)
class Recipe:
    """A system by name.

    Parameters
    ----------
    name : str
    summary : str
        One sentence on what it does.
    paper : str or None
        Where it was published.
    build : callable
        ``build(propensity)`` gives the unfitted learner.
    """

    name: str
    summary: str
    paper: str | None
    build: Callable[[Propensity | str | None], Learner]


def recipes() -> list[Recipe]:
    """Every recipe, in the order in which they build on each other.

    Examples
    --------
    >>> [known.name for known in recipes()]
    ['popularity', 'dismec', 'pw-dismec', 'pw-cb-dismec']
    """
    return list(_RECIPES)


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
    """Recipe of that name; for an unknown one, an error with the names that come near."""
    by_name = {known.name: known for known in _RECIPES}
    if name not in by_name:
        raise ParameterError("recipe", name, f"must be one of {', '.join(by_name)}{_near(name, by_name)}")
    return by_name[name]


def configure(estimator: Estimator, params: Mapping[str, Any], propensity: Propensity | str | None = None) -> Estimator:
    """Set parameters by name, nested ones as ``weighting__beta``; an unknown name is an error with the known ones.

    A weighting that is given by its name uses `propensity`. A part is set before the parameters inside it, in whatever
    order they come.
    """
    for name, value in sorted(params.items(), key=lambda param: param[0].count("__")):
        if name == "weighting" and isinstance(value, str):
            value = _weighting(value, propensity)
        try:
            estimator.set_params(**{name: value})
        except (ValueError, AttributeError):
            known = sorted(estimator.get_params())
            listed = ", ".join(known) or "none"
            raise ParameterError(name, value, f"is no parameter here{_near(name, known)}: there are {listed}") from None
    return estimator


def _weighting(name: str, propensity: Propensity | str | None) -> Weighting:
    from longtail.propensity import get_propensity
    from longtail.weighting import get_weighting

    return get_weighting(name, propensity=get_propensity(propensity))


def _near(name: str, known: Mapping[str, Any] | list[str]) -> str:
    close = get_close_matches(str(name), known, n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def _popularity(propensity: Propensity | str | None) -> Learner:
    from longtail.learners import Popularity

    return Popularity()


def _dismec(propensity: Propensity | str | None) -> Learner:
    return _one_vs_rest(None)


def _pw_dismec(propensity: Propensity | str | None) -> Learner:
    return _one_vs_rest(_weighting("pw", propensity))


def _pw_cb_dismec(propensity: Propensity | str | None) -> Learner:
    return _one_vs_rest(_weighting("pw-cb", propensity))


def _one_vs_rest(weighting: Weighting | None) -> Learner:
    from longtail.learners import OneVsRest

    return OneVsRest(loss="squared-hinge", regularisation=1.0, prune_below=0.01, weighting=weighting)


_RECIPES = (
    Recipe(
        "popularity",
        "The most frequent labels for every row: the baseline to beat.",
        None,
        _popularity,
    ),
    Recipe(
        "dismec",
        "One linear classifier a label: squared hinge, C = 1, weights below 0.01 pruned.",
        _DISMEC,
        _dismec,
    ),
    Recipe(
        "pw-dismec",
        "dismec whose positive rows cost 2/p - 1, for labels that went unrecorded.",
        _PW,
        _pw_dismec,
    ),
    Recipe(
        "pw-cb-dismec",
        "pw-dismec with costs balanced by label frequency, beta = 0.9, for the rare labels.",
        _PW,
        _pw_cb_dismec,
    ),
)

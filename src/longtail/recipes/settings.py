"""Parameters by name: those of a recipe, of what it wraps, and of what goes with them."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypeVar

from longtail.errors import ParameterError

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

    from longtail.propensity import Propensity
    from longtail.weighting import Weighting

Estimator = TypeVar("Estimator", bound="BaseEstimator")

_OF_A_RUN = ("threads", "seed", "memory_limit")


def configure(estimator: Estimator, params: Mapping[str, Any], propensity: Propensity | str | None = None) -> Estimator:
    """Set parameters by name, nested ones as ``weighting__beta``; an unknown name is an error with the known ones.

    A weighting that is given by its name uses `propensity`. A part is set before the parameters inside it, in whatever
    order they come. A parameter that a wrapper doesn't have is set in the learner, or both learners, that it wraps;
    `threads`, `seed` and `memory_limit` are set in every learner that has them, unless one is named by its path. Two
    names for one parameter are an error, and so is a parameter of a learner that is set to None.
    """
    _check_no_learner_gone(estimator, params)
    taken: dict[str, str] = {}
    for given, value in sorted(params.items(), key=_turn):
        for name in _paths_of(estimator, given):
            if name in taken:
                raise ParameterError(given, value, f"sets the same as {taken[name]}: give only one of them")
            if given not in _OF_A_RUN:
                taken[name] = given
            if name.rpartition("__")[2] == "weighting" and isinstance(value, str):
                value = weighting_named(value, propensity)
            if name.rpartition("__")[2] == "encoder" and isinstance(value, str):
                value = _encoder_like(estimator.get_params().get(name), value)
            try:
                estimator.set_params(**{name: value})
            except (ValueError, AttributeError):
                known = sorted(estimator.get_params())
                listed = ", ".join(known) or "none"
                raise ParameterError(
                    given, value, f"is no parameter here{near(given, known)}: there are {listed}"
                ) from None
    return estimator


def _encoder_like(present: Any, name: str) -> Any:
    """Encoder of a network by its name; other things that are called so, as in features, are text."""
    from longtail.learners.neural.encoders import Encoder, encoder_named

    return encoder_named(name) if isinstance(present, Encoder) else name


def _turn(param: tuple[str, Any]) -> tuple[int, int]:
    """When a parameter is set: outer ones first, and learners before what is set inside them by its bare name."""
    given = param[0]
    return given.count("__"), 0 if given.endswith("learner") else 1 + (given in _OF_A_RUN)


def _check_no_learner_gone(estimator: BaseEstimator, params: Mapping[str, Any]) -> None:
    gone = [given for given, value in params.items() if value is None and given.rpartition("__")[2] == "learner"]
    for given, value in params.items():
        for path in gone if given not in _OF_A_RUN else ():
            if any(name.startswith(f"{path}__") for name in _paths_of(estimator, given)):
                raise ParameterError(given, value, f"is inside of {path}, which is set to None: give only one of them")


def _paths_of(estimator: BaseEstimator, name: str) -> list[str]:
    """Paths to a parameter: its name, or those inside of the outermost wrapped learners that have it.

    Those of a run are set wherever they are.
    """
    from longtail.learners.base import Learner, nested

    if not isinstance(estimator, Learner):
        return [name]
    if name in _OF_A_RUN:
        inside = [(f"{path}__", part) for path, part in estimator.get_params().items() if isinstance(part, Learner)]
        owners = [("", estimator), *inside]
    else:
        owners = list(nested(estimator))
    found = [path for path, part in owners if name.partition("__")[0] in part.get_params(deep=False)]
    outermost = min((path.count("__") for path in found), default=0)
    return [path + name for path in found if name in _OF_A_RUN or path.count("__") == outermost] or [name]


def weighting_named(name: str, propensity: Propensity | str | None) -> Weighting:
    """Weighting of that name, by these propensities."""
    from longtail.propensity import get_propensity
    from longtail.weighting import get_weighting

    return get_weighting(name, propensity=get_propensity(propensity))


def near(name: str, known: Mapping[str, Any] | list[str]) -> str:
    """Give a question after the known name that comes nearest, or nothing."""
    close = get_close_matches(str(name), known, n=1)
    return f" (did you mean {close[0]}?)" if close else ""

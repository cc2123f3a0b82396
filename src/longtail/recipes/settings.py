"""Parameters by name, also those of wrapped learners and of other parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from longtail.errors import ParameterError, UnknownNameError, did_you_mean

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

    from longtail.recipes.definition import PropensityLike
    from longtail.weighting import Weighting

AnyEstimator = TypeVar("AnyEstimator", bound="BaseEstimator")


def configure(estimator: AnyEstimator, params: Mapping[str, Any], propensity: PropensityLike = None) -> AnyEstimator:
    """Set parameters by name, nested ones as ``weighting__beta``; an unknown name is an error with the known ones.

    A weighting given by name uses `propensity`. A part is set before the parameters inside it, whatever their order. A
    parameter that a wrapper doesn't have is set in the learner, or both learners, that it wraps; `random_state` is set
    in every learner that has it, unless given with a path. Two names for one parameter are an error, and so is a
    parameter of a learner that is set to None.

    Examples
    --------
    >>> from longtail import OneVsRest, TailDial
    >>> configure(TailDial(), {"learner": OneVsRest(), "C": 0.5, "weighting": "pw"}).learner
    OneVsRest(C=0.5, weighting=PW(propensity=JainPropensity()))
    """
    _check_no_learner_gone(estimator, params)
    taken: dict[str, str] = {}
    for given, value in sorted(params.items(), key=_setting_order):
        for name in _paths_of(estimator, given):
            if name in taken:
                raise ParameterError(given, value, f"sets the same as {taken[name]}: give only one of them")
            if given != "random_state":
                taken[name] = given
            if name.rpartition("__")[2] == "weighting" and isinstance(value, str):
                value = weighting_named(value, propensity)
            if name.rpartition("__")[2] == "encoder" and isinstance(value, str):
                value = _encoder_like(estimator.get_params().get(name), value)
            try:
                estimator.set_params(**{name: value})
            except (ValueError, AttributeError):
                raise _unknown(estimator, given, value) from None
    return estimator


def _unknown(estimator: BaseEstimator, given: str, value: Any) -> UnknownNameError:
    """Return the error for a parameter that is not there: what it is called now, what it needs, or what there is."""
    from longtail.store.upgrades import present_names

    params = estimator.get_params()
    outer, _, last = given.rpartition("__")
    if params.get(outer, estimator) is None:
        return UnknownNameError(given, value, f"is a parameter of {outer}, which is None: set {outer}, too")
    present = present_names(last)
    renamed = [name for name in sorted(params) if name.rpartition("__")[2] in present]
    hint = f" (it is called {renamed[0]} now)" if renamed else did_you_mean(given, params, key=str.lower)
    listed = ", ".join(sorted(params)) or "none"
    return UnknownNameError(given, value, f"is not a parameter of this recipe{hint}: there are {listed}")


def _encoder_like(present: Any, name: str) -> Any:
    """Return the encoder of a network by its name; other parameters called encoder, as in features, are text."""
    from longtail.learners.neural.encoders import Encoder, encoder_named

    return encoder_named(name) if isinstance(present, Encoder) else name


def _setting_order(param: tuple[str, Any]) -> tuple[int, int]:
    """Return the order in which parameters are set: outer ones first, learners before the parameters inside them."""
    given = param[0]
    return given.count("__"), 0 if given.endswith("learner") else 1 + (given == "random_state")


def _check_no_learner_gone(estimator: BaseEstimator, params: Mapping[str, Any]) -> None:
    gone = [given for given, value in params.items() if value is None and given.rpartition("__")[2] == "learner"]
    for given, value in params.items():
        for path in gone if given != "random_state" else ():
            if any(name.startswith(f"{path}__") for name in _paths_of(estimator, given)):
                raise ParameterError(given, value, f"is inside {path}, which is set to None: give only one of them")


def _paths_of(estimator: BaseEstimator, name: str) -> list[str]:
    """Return the paths to a parameter: its name, or those in the outermost wrapped learners that have it.

    `random_state` is set wherever it is.
    """
    from longtail.learners.base import Learner

    if not isinstance(estimator, Learner):
        return [name]
    owners = [(path, part) for path, part in estimator.parts() if "." not in path]  # set_params reaches no lists
    found = [path for path, part in owners if name.partition("__")[0] in part.get_params(deep=False)]
    outermost = min((path.count("__") for path in found), default=0)
    return [path + name for path in found if name == "random_state" or path.count("__") == outermost] or [name]


def weighting_named(name: str | None, propensity: PropensityLike) -> Weighting | None:
    """Return the weighting of that name, with these propensities."""
    if name is None:
        return None
    from longtail.propensity import get_propensity
    from longtail.weighting import get_weighting

    return get_weighting(name, propensity=get_propensity(propensity))

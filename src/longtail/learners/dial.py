"""The tail dial: which power of which inverse propensities scores are multiplied by."""

from __future__ import annotations

from typing import Any

from longtail.errors import ParameterError
from longtail.propensity import Propensity, get_propensity
from longtail.propensity.base import is_number

CANDIDATES = 100
"""Labels of a row that are looked at where a learner can't search with factors."""


def checked_tail(tail: Any) -> float:
    """Power of the inverse propensities, checked."""
    if not (is_number(tail) and 0 <= tail <= 1):
        raise ParameterError("tail", tail, "must be a number from 0 to 1")
    return float(tail)


def propensity_of(learner: Any, default: Propensity | None = None) -> Propensity:
    """Propensities that a learner was told to reckon with, itself or in its weighting or inside; `default` if none.

    Examples
    --------
    >>> from longtail import JainPropensity, OneVsRest
    >>> from longtail.weighting import PW
    >>> propensity_of(OneVsRest(weighting=PW(propensity=JainPropensity(a=0.6, b=2.6))))
    JainPropensity(a=0.6, b=2.6)
    """
    return get_propensity(given_propensity(learner, default))


def given_propensity(learner: Any, default: Propensity | None) -> Propensity | str | None:
    """As `propensity_of`, in the form in which it was given."""
    while learner is not None:
        for holder in (learner, getattr(learner, "weighting", None)):
            known: Propensity | str | None = getattr(holder, "propensity", None)
            if known is not None:
                return known
        learner = getattr(learner, "learner", None)
    return default

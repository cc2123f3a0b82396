"""All weightings by name: `WEIGHTINGS`."""

from __future__ import annotations

from longtail.errors import ParameterError
from longtail.propensity import Propensity
from longtail.validation import named
from longtail.weighting.base import PropensityWeighting, Weighting
from longtail.weighting.weightings import (
    PW,
    ClassBalanced,
    InversePropensity,
    LogFrequency,
    NoWeighting,
    PowerFrequency,
    PWcb,
)

WEIGHTINGS: dict[str, type[Weighting]] = {
    weighting.name: weighting
    for weighting in (NoWeighting, PW, PWcb, InversePropensity, ClassBalanced, LogFrequency, PowerFrequency)
}
"""The weightings by name."""


def get_weighting(weighting: str | Weighting | None, *, propensity: Propensity | str | None = None) -> Weighting:
    """Return the weighting with that name, the weighting itself, or none for None.

    Parameters
    ----------
    weighting : str, Weighting or None
        "none", "pw", "pw-cb", "inverse-propensity", "class-balanced", "log-frequency" or "power-frequency"; or an
        object, which is returned unchanged.
    propensity : Propensity or str, optional
        For a named weighting that uses one; ignored by the others.

    Examples
    --------
    >>> get_weighting("pw-cb")
    PWcb()
    >>> get_weighting("pw", propensity="Amazon-670K").costs([1, 1000], 490_449).positive.round(1)
    array([25.2,  1.8], dtype=float32)
    """
    if weighting is None:
        return NoWeighting()
    if isinstance(weighting, Weighting) and propensity is not None:
        raise ParameterError("propensity", propensity, "must be set in the weighting when that is an object")
    found = named("weighting", weighting, WEIGHTINGS, Weighting)
    if propensity is not None and isinstance(found, PropensityWeighting):
        found.propensity = propensity
    return found

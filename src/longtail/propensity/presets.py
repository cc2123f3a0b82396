"""The published constants A and B of each data set."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from types import MappingProxyType

from longtail.errors import ParameterError
from longtail.propensity.models import JainPropensity, Propensity

_AMAZON = (0.6, 2.6)
_WIKIPEDIA = (0.5, 0.4)
_OTHER = (0.55, 1.5)

_NAMES: dict[tuple[float, float], tuple[str, ...]] = {
    _AMAZON: (
        "Amazon-670K", "Amazon-3M", "AmazonTitles-670K", "AmazonTitles-3M", "LF-Amazon-131K", "LF-Amazon-1.3M",
        "LF-AmazonTitles-131K", "LF-AmazonTitles-1.3M",
    ),
    _WIKIPEDIA: (
        "WikiLSHTC-325K", "Wikipedia-LSHTC", "Wikipedia-500K", "Wiki-500K", "WikiTitles-500K", "LF-Wikipedia-500K",
        "LF-WikiTitles-500K",
    ),
    _OTHER: (
        "AmazonCat-13K", "Bibtex", "Delicious", "Delicious-200K", "EURLex-4K", "EURLex-57K", "Mediamill", "Wiki10-31K",
        "Wikipedia-31K", "WikiSeeAlsoTitles-350K", "LF-WikiSeeAlso-320K", "LF-WikiSeeAlsoTitles-320K",
        "debian-depends", "debian-tags", "tate-subjects",
    ),
}  # fmt: skip

PRESETS: Mapping[str, tuple[float, float]] = MappingProxyType(
    {name: constants for constants, names in _NAMES.items() for name in names}
)
"""(A, B) by data set.

Jain et al. 2016 estimate them for Wikipedia and Amazon; by convention all other data sets, AmazonCat and the see-also
sets included, use the mean of those two. For Wiki10 the paper reports A = 0.55 and B = 0.1, but all published results
use 0.55 and 1.5.
"""


def preset(name: str | None, *, default: JainPropensity | None = None) -> JainPropensity:
    """Return the propensity model with a data set's published constants.

    Parameters
    ----------
    name : str or None
        The data set's name; case, spaces, hyphens, underscores and dots don't matter.
    default : JainPropensity, optional
        Returned for None and unknown names, which are an error without it.

    Examples
    --------
    >>> preset("Amazon-670K")
    JainPropensity(a=0.6, b=2.6)
    >>> preset("wiki10_31k")
    JainPropensity()
    >>> preset("our-catalogue", default=JainPropensity(b=0.1))
    JainPropensity(b=0.1)
    """
    if isinstance(name, str) and (known := _BY_KEY.get(_key(name))) is not None:
        a, b = PRESETS[known]
        return JainPropensity(a=a, b=b)
    if default is not None:
        return default
    close = get_close_matches(_key(name), _BY_KEY, n=3) if isinstance(name, str) else []
    hint = " or ".join(_BY_KEY[key] for key in close)
    advice = f"did you mean {hint}?" if hint else "for other data use JainPropensity(a=0.55, b=1.5)"
    raise ParameterError("preset", name, f"must be a data set with published constants ({advice})")


def get_propensity(propensity: Propensity | str | None) -> Propensity:
    """Return a propensity model itself, the preset of a data set, or the default for None.

    Examples
    --------
    >>> get_propensity(None)
    JainPropensity()
    >>> get_propensity("Wikipedia-500K")
    JainPropensity(a=0.5, b=0.4)
    """
    if propensity is None:
        return JainPropensity()
    if isinstance(propensity, str):
        return preset(propensity)
    if isinstance(propensity, Propensity):
        return propensity
    raise ParameterError("propensity", propensity, "must be a Propensity, the name of a data set, or None")


def _key(name: str) -> str:
    return "".join(filter(str.isalnum, name.casefold()))


_BY_KEY = {_key(name): name for name in PRESETS}

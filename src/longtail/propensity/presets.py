"""Propensity models with the published constants of data sets."""

from __future__ import annotations

import os

from longtail.data.published_constants import PRESETS, name_key
from longtail.data.readers.mapped import is_mapped_data
from longtail.data.registry import check_split
from longtail.errors import ParameterError, did_you_mean
from longtail.propensity.models import JainPropensity, Propensity


def preset(name: str | None, *, default: JainPropensity | None = None) -> JainPropensity:
    """Return the propensity model with a data set's published constants.

    Parameters
    ----------
    name : str or None
        The data set's name; case, spaces and punctuation don't matter.
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
    if isinstance(name, str) and (known := _BY_KEY.get(name_key(name))) is not None:
        a, b = PRESETS[known]
        return JainPropensity(a=a, b=b)
    if default is not None:
        return default
    hint = did_you_mean(name, PRESETS, key=name_key, most=3)
    advice = hint or ", and for other data you can use JainPropensity(a=0.55, b=1.5)"
    raise ParameterError("preset", name, f"must be a data set with published constants{advice}")


def published_propensity(source: str) -> JainPropensity:
    """Return the propensity model for rows by their source, as `longtail.data.load` takes it.

    Parameters
    ----------
    source : str
        The name of a data set, also with a split, as in ``"debian-tags:test"``: its published constants. Files and
        unknown names have the default ones, and so have files that are named as a data set.

    Examples
    --------
    >>> published_propensity("LF-Amazon-131K:test")
    JainPropensity(a=0.6, b=2.6)
    >>> published_propensity("data/Amazon-670K")
    JainPropensity()
    """
    name, _, split = source.partition(":")
    is_file = os.path.isfile(source) or is_mapped_data(source) or "/" in name or "\\" in name
    known = None if is_file else _BY_KEY.get(name_key(name))
    if known is None:
        return JainPropensity()
    check_split(split or "train", known)
    return preset(known)


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


_BY_KEY = {name_key(name): name for name in PRESETS}

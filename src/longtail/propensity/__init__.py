"""Propensities, the probabilities that true labels were recorded: the model of Jain et al. and estimates from data."""

from longtail.data.published_constants import PRESETS
from longtail.propensity.fitting import FittedPropensity, fit_jain
from longtail.propensity.hierarchy import estimate_from_hierarchy
from longtail.propensity.models import GivenPropensity, JainPropensity, Propensity, check_counts
from longtail.propensity.pairs import read_pairs
from longtail.propensity.points import PropensityPoints
from longtail.propensity.presets import get_propensity, preset, published_propensity
from longtail.propensity.sample import estimate_from_sample
from longtail.propensity.saved import describe_propensity, read_propensity, write_propensity
from longtail.propensity.substitutes import estimate_from_substitutes

__all__ = [
    "PRESETS",
    "FittedPropensity",
    "GivenPropensity",
    "JainPropensity",
    "Propensity",
    "PropensityPoints",
    "check_counts",
    "describe_propensity",
    "estimate_from_hierarchy",
    "estimate_from_sample",
    "estimate_from_substitutes",
    "fit_jain",
    "get_propensity",
    "preset",
    "published_propensity",
    "read_pairs",
    "read_propensity",
    "write_propensity",
]

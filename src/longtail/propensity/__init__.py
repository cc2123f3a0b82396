"""How likely a true label was recorded: the model of Jain et al., its published constants, and known propensities."""

from longtail.propensity.base import Propensity, check_counts
from longtail.propensity.given import GivenPropensity
from longtail.propensity.jain import JainPropensity
from longtail.propensity.presets import PRESETS, get_propensity, preset

__all__ = [
    "PRESETS",
    "GivenPropensity",
    "JainPropensity",
    "Propensity",
    "check_counts",
    "get_propensity",
    "preset",
]

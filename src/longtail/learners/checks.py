"""Checks of parameters that many estimators share."""

from __future__ import annotations

from typing import Any

import numpy as np

from longtail.errors import ParameterError
from longtail.propensity.base import is_number


def check_whole(owner: Any, **least: int) -> None:
    """Refuse parameters of an estimator that are no whole numbers of at least so much.

    Examples
    --------
    >>> from longtail.learners import InstanceForest
    >>> check_whole(InstanceForest(), trees=1, leaf_size=1)
    """
    for name, low in least.items():
        value = getattr(owner, name)
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or not low <= value < 2**31:
            raise ParameterError(name, value, f"must be a whole number from {low} to {2**31 - 1}")


def check_shares(owner: Any, *names: str) -> None:
    """Refuse parameters of an estimator that are no numbers of at least 0 and below 1."""
    for name in names:
        value = getattr(owner, name)
        if not (is_number(value) and 0 <= value < 1):
            raise ParameterError(name, value, "must be a number of at least 0 and below 1")

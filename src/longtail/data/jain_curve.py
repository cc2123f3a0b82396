"""The curve of Jain et al. 2016 from counts of labels to propensities."""

from __future__ import annotations

from math import log

import numpy as np

from longtail.errors import ParameterError
from longtail.kernels.types import Float64


def jain_odds(label_counts: Float64, a: float | Float64, b: float | Float64, n_rows: int) -> Float64:
    """Return the odds (1 - p) / p = C (n + B)^-A, with C = (ln N - 1)(B + 1)^A, that a true label is missing.

    With fewer than three rows C would be negative, so it is 0 and every p is 1. Odds that no float can hold are
    infinite, see `check_propensities`.

    Examples
    --------
    >>> jain_odds(np.array([1.0, 10.0, 1000.0]), 0.6, 2.6, 490_449).round(2)
    array([12.1 ,  5.71,  0.41])
    """
    with np.errstate(over="ignore"):
        odds: Float64 = max(log(max(n_rows, 1)) - 1.0, 0.0) * ((b + 1.0) / (label_counts + b)) ** a
    return odds


def jain_curve(label_counts: Float64, a: float | Float64, b: float | Float64, n_rows: int) -> Float64:
    """Return the propensities p = 1 / (1 + C (n + B)^-A) of labels by their counts; see `jain_odds`.

    Examples
    --------
    >>> jain_curve(np.array([1.0]), 0.55, 1.5, 50)
    array([0.25562222])
    """
    return 1.0 / (1.0 + jain_odds(label_counts, a, b, n_rows))


def check_propensities(propensities: Float64, a: float, b: float) -> None:
    """Raise a ParameterError if propensities of `jain_curve` are 0.

    Examples
    --------
    >>> check_propensities(np.array([0.5, 0.0]), 400.0, 0.1)
    Traceback (most recent call last):
    longtail.errors.ParameterError: a is too large with b = 0.1: some propensities vanish, got 400.0.
    """
    if not (propensities > 0).all():
        raise ParameterError("a", a, f"is too large with b = {b}: some propensities vanish")

"""What every propensity model answers, and the check of the counts it is asked about."""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import isfinite
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator

from longtail.errors import InputError, ParameterError


class Propensity(BaseEstimator, ABC):
    """A model of p_l = P(label l was recorded | label l is true), one number per label.

    This is equation 1 of Qaraei et al. 2021; equation 2, that no false label is recorded, is taken for granted.
    A subclass stores its parameters verbatim in ``__init__``, checks them when they are used, and implements `inverse`.
    """

    @abstractmethod
    def inverse(self, label_counts: npt.ArrayLike, n_rows: int) -> npt.NDArray[np.float64]:
        """1 / p of each label: finite and at least 1.

        Parameters
        ----------
        label_counts : array-like, shape (L,)
            Training rows of each label; 0 for labels never seen. At a tree node, those of each cluster.
        n_rows : int
            Training rows, those without labels included.
        """

    def propensities(self, label_counts: npt.ArrayLike, n_rows: int) -> npt.NDArray[np.float64]:
        """Propensity p of each label, above 0 and at most 1; takes what `inverse` takes."""
        return 1.0 / self.inverse(label_counts, n_rows)


def check_counts(label_counts: npt.ArrayLike, n_rows: Any) -> npt.NDArray[np.float64]:
    """Return the counts as float64, or say what is wrong with them.

    Counts are rows, so none can be negative or above `n_rows`. (Summing a label matrix whose values are not all 1
    gives such counts.)

    Examples
    --------
    >>> check_counts([3, 0], 10)
    array([3., 0.])
    >>> check_counts([3, 12], 10)
    Traceback (most recent call last):
    ...
    longtail.errors.InputError: label_counts has 12 for label 1 among 10 rows: count the rows of each label.
    """
    if isinstance(n_rows, bool | np.bool_) or not isinstance(n_rows, int | np.integer) or n_rows < 1:
        raise ParameterError("n_rows", n_rows, "must be a whole number of at least 1")
    counts = np.asarray(label_counts)
    if counts.ndim != 1 or (counts.size and counts.dtype.kind not in "biuf"):
        raise InputError("label_counts must be a flat array with one number per label.")
    wrong = ~((counts >= 0) & (counts <= n_rows))
    if wrong.any():
        label = int(wrong.argmax())
        raise InputError(
            f"label_counts has {counts[label]:g} for label {label} among {n_rows} rows: count the rows of each label."
        )
    return counts.astype(np.float64)


def is_number(value: object) -> bool:
    """Tell whether the value is a finite real number (True and False are not)."""
    return isinstance(value, Real) and not isinstance(value, bool) and isfinite(value)

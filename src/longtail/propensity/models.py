"""Propensity models: the base class, the model of Jain et al. 2016, and propensities given per label."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator

from longtail.data.jain_curve import check_propensities, jain_odds
from longtail.errors import ParameterError
from longtail.kernels.types import Float64
from longtail.validation import PROBABILITY, Constraint, Integer, Number, Validated, check, numbers_per_label


class Propensity(Validated, BaseEstimator, ABC):
    """A model of p_l = P(label l was recorded | label l is true), one number per label.

    This is equation 1 of Qaraei et al. 2021; equation 2, that no false label is recorded, is assumed. Subclasses
    implement `inverse`.

    Examples
    --------
    >>> class Constant(Propensity):
    ...     def inverse(self, label_counts, n_rows):
    ...         return 2.0 + 0.0 * check_counts(label_counts, n_rows)
    >>> Constant().propensities([1, 9], 10)
    array([0.5, 0.5])
    """

    @abstractmethod
    def inverse(self, label_counts: npt.ArrayLike, n_rows: int) -> Float64:
        """Return 1 / p of each label: finite and at least 1.

        Parameters
        ----------
        label_counts : array-like, shape (L,)
            Training rows of each label, 0 for unseen labels; at a tree node, of each cluster.
        n_rows : int
            Training rows, with or without labels.
        """

    def propensities(self, label_counts: npt.ArrayLike, n_rows: int) -> Float64:
        """Return the propensity p of each label, above 0 and at most 1; for parameters see `inverse`."""
        return 1.0 / self.inverse(label_counts, n_rows)


class JainPropensity(Propensity):
    """Rare labels are recorded less often: p = 1 / (1 + C (n + B)^-A) with C = (ln N - 1)(B + 1)^A.

    n is the training count of the label (or of a cluster of labels in a tree) and N the number of training rows:
    equation 1 of Jain et al. 2016 and equation 3 of Qaraei et al. 2021. With fewer than three rows, where C would be
    negative, every p is 1.

    Parameters
    ----------
    a : float
        A, how steeply propensity rises with the count; at least 0.
    b : float
        B, the count from which it rises; above 0. The defaults are the paper's for data sets without an estimate of
        their own; see `preset` for others.

    Examples
    --------
    >>> import numpy as np
    >>> JainPropensity().propensities([1], 50)
    array([0.25562222])
    >>> JainPropensity(a=0.6, b=2.6).inverse([1, 10, 1000], 490_449).round(2)
    array([13.1 ,  6.71,  1.41])

    References
    ----------
    Jain, Prabhu, Varma: Extreme Multi-label Loss Functions for Recommendation, Tagging, Ranking & Other Missing Label
    Applications. KDD 2016, section 5.
    """

    _constraints: ClassVar[Mapping[str, Constraint]] = {"a": Number(low=0), "b": Number(above=0)}

    def __init__(self, *, a: float = 0.55, b: float = 1.5) -> None:
        self.a = a
        self.b = b

    def inverse(self, label_counts: npt.ArrayLike, n_rows: int) -> Float64:
        """Return 1 / p of each label, 1 + C (n + B)^-A; see `Propensity.inverse`."""
        counts = check_counts(label_counts, n_rows)
        self._check_parameters()
        inverse = 1.0 + jain_odds(counts, self.a, self.b, n_rows)
        check_propensities(1.0 / inverse, self.a, self.b)
        return inverse


class GivenPropensity(Propensity):
    """One known propensity per label, whatever the counts; clusters of labels, as in a tree, are refused.

    Parameters
    ----------
    values : array-like, shape (L,)
        Propensities above 0 and at most 1, in the order of the labels. Further labels without training rows, as in a
        test set, get the smallest of them.

    Examples
    --------
    >>> known = GivenPropensity(values=[0.5, 1.0])
    >>> known.inverse([10, 3], 100)
    array([2., 1.])
    >>> known.inverse([10, 3, 0], 100)
    array([2., 1., 2.])
    """

    def __init__(self, *, values: npt.ArrayLike) -> None:
        self.values = values

    def inverse(self, label_counts: npt.ArrayLike, n_rows: int) -> Float64:
        """Return 1 / p of each label; further labels must have counts of 0. See `Propensity.inverse`."""
        counts, given = check_counts(label_counts, n_rows), self._inverse_values()
        n_new = len(counts) - len(given)
        if n_new < 0 or counts[len(given) :].any() or (n_new and not len(given)):
            raise ParameterError("len(values)", len(given), f"must equal the number of labels ({len(counts)})")
        return np.append(given, np.full(n_new, given.max())) if n_new else given

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._inverse_values()

    def _inverse_values(self) -> Float64:
        """Return 1 / p of the given values, checked."""
        return 1.0 / numbers_per_label("values", self.values, PROBABILITY)


def check_counts(label_counts: npt.ArrayLike, n_rows: Any, n_labels: int | None = None) -> Float64:
    """Return the rows of each label as float64; refuse counts that are negative or above `n_rows`.

    Examples
    --------
    >>> check_counts([3, 0], 10)
    array([3., 0.])
    >>> check_counts([3, 12], 10)
    Traceback (most recent call last):
    ...
    longtail.errors.ParameterError: label_counts of label 1 must be a number from 0 to 10, got 12.0.
    """
    check("n_rows", n_rows, Integer(1, 2**63 - 1))
    return numbers_per_label("label_counts", label_counts, Number(low=0, high=int(n_rows)), n_labels)

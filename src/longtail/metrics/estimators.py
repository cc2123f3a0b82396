"""Metrics on complete labels, estimated from the recorded ones and their propensities.

The estimators of table 1 of Jain, Prabhu and Varma (KDD 2016). Every recorded label represents 1/p true ones, so a sum
over the true labels of a row becomes a sum over the recorded ones, each divided by its propensity p. That is unbiased
for any sum over true labels. A metric that is also divided by a function of the complete labels, such as their number,
needs that number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from longtail.errors import InputError, ParameterError
from longtail.kernels.types import Array, Float64
from longtail.metrics.evaluation import check_weights
from longtail.metrics.ranking import first_places, ranked_labels, with_labels
from longtail.metrics.rows import JudgedRows
from longtail.topk import TopK
from longtail.validation import LEVEL, Integer, Number, OneOf, check, numbers_per_label


@dataclass(frozen=True)
class Recorded:
    """Rows judged by their recorded labels, with 1/p of each recorded label as its gain.

    `mass` is the sum of 1/p over the recorded labels of each row, `n_true` its number of true labels, at least 1.
    """

    rows: JudgedRows
    mass: Float64
    n_true: Float64

    @cached_property
    def gains(self) -> Float64:
        """1/p of the hits, ranks by rows."""
        return np.zeros((0, 0)) if self.rows.gains is None else self.rows.gains

    @property
    def decided(self) -> Float64:
        """Number of labels among the first k ranks of each row."""
        total: Float64 = self.rows.decided.sum(axis=0, dtype=np.float64)
        return total

    def weighted_gains(self, of_place: Float64) -> Float64:
        """Sum the gains of each row, with a factor per rank."""
        total: Float64 = of_place @ self.gains
        return total


def _discounts(k: int) -> Float64:
    return 1.0 / np.log2(np.arange(2, k + 2))


def _reciprocals(k: int) -> Float64:
    return 1.0 / np.arange(1, k + 1)


def _first_hit(recorded: Recorded) -> Float64:
    """Sum over ranks of 1/rank times the unbiased estimate that this rank is the first hit."""
    none_before, total = np.ones(recorded.gains.shape[1]), np.zeros(recorded.gains.shape[1])
    for place, gain in enumerate(recorded.gains, start=1):
        total += none_before * gain / place
        none_before *= 1.0 - gain
    return total


@dataclass(frozen=True)
class MetricEstimator:
    """How one metric is estimated.

    Parameters
    ----------
    rows : callable
        Estimates of the rows as shares.
    needs_n_true : bool
        Whether the numbers of true labels must be known.
    divides_by_n_true : bool
        Whether it divides by this number alone, so that the constants of corollary 4.2.1 can be given instead.
    largest : callable, optional
        ``largest(k, m)``: the most that the hits of a row with m true labels can add up to where every 1/p is 1.
    """

    rows: Callable[[Recorded], Float64]
    needs_n_true: bool = False
    divides_by_n_true: bool = False
    largest: Callable[[int, Float64], Float64] | None = None


def _mass_of(places: Callable[[int], Float64], k: int, m: Float64) -> Float64:
    """Sum of the factors of the first min(k, m) ranks."""
    sums = np.concatenate([[0.0], np.cumsum(places(k))])
    return sums[np.minimum(m, k).astype(np.int64)]


def _size(recorded: Recorded) -> int:
    return len(recorded.gains)


ESTIMATORS: dict[str, MetricEstimator] = {
    "P": MetricEstimator(
        lambda r: r.weighted_gains(np.ones(_size(r))) / _size(r), largest=lambda k, m: np.minimum(m, k) / k
    ),
    "DCG": MetricEstimator(
        lambda r: r.weighted_gains(_discounts(_size(r))) / _discounts(_size(r)).sum(),
        largest=lambda k, m: _mass_of(_discounts, k, m) / _discounts(k).sum(),
    ),
    "nDCG": MetricEstimator(
        lambda r: r.weighted_gains(_discounts(_size(r))) / _mass_of(_discounts, _size(r), r.n_true),
        needs_n_true=True,
        largest=lambda k, m: np.minimum(m, 1.0),
    ),
    "R": MetricEstimator(
        lambda r: r.weighted_gains(np.ones(_size(r))) / r.n_true,
        needs_n_true=True,
        divides_by_n_true=True,
        largest=lambda k, m: np.minimum(m, k) / np.maximum(m, 1),
    ),
    "ADG": MetricEstimator(
        lambda r: r.weighted_gains(_discounts(_size(r))) / r.n_true,
        needs_n_true=True,
        divides_by_n_true=True,
        largest=lambda k, m: _mass_of(_discounts, k, m) / np.maximum(m, 1),
    ),
    "ARR": MetricEstimator(
        lambda r: r.weighted_gains(_reciprocals(_size(r))) / r.n_true,
        needs_n_true=True,
        divides_by_n_true=True,
        largest=lambda k, m: _mass_of(_reciprocals, k, m) / np.maximum(m, 1),
    ),
    "MRR": MetricEstimator(_first_hit),
    "F1": MetricEstimator(
        lambda r: 2 * r.weighted_gains(np.ones(_size(r))) / (r.n_true + r.decided),
        needs_n_true=True,
        largest=lambda k, m: 2 * np.minimum(m, k) / np.maximum(m + np.minimum(m, k), 1),
    ),
    "Hamming": MetricEstimator(
        lambda r: (r.mass - 2 * r.weighted_gains(np.ones(_size(r))) + r.decided) / r.rows.n_labels,
        largest=lambda k, m: m + np.minimum(m, k),
    ),
}
"""The metrics that can be estimated."""


def unbiased_estimate(
    name: str,
    top: TopK | npt.ArrayLike,
    Y: Any,
    inverse_propensity: npt.ArrayLike | None,
    k: int = 5,
    n_true: npt.ArrayLike | None = None,
    *,
    g: npt.ArrayLike | None = None,
) -> float:
    """Estimate a metric on complete labels from recorded ones, in percent; the estimate is unbiased.

    With p the propensity of a label, its probability of being recorded where it is true:

    - ``"P"``: hits over k. Unbiased whatever the dependence between missing labels (theorem 4.1), as are the next two.
    - ``"DCG"``: discounted hits over the discounts of all k ranks; the nDCG of table 1.
    - ``"Hamming"``: predicted labels that are not true and true ones that are not predicted, over all labels (theorem
      4.4).
    - ``"nDCG"``: discounted hits over the discounts of the first min(k, true labels) ranks. Needs `n_true`.
    - ``"R"``, ``"ADG"``: hits and discounted hits over the true labels. Need `n_true` or `g`.
    - ``"ARR"``: sum of 1/rank over all hits, over the true labels; called MRR in table 1. Needs `n_true` or `g`.
    - ``"F1"``: twice the hits over true and predicted labels of the row. Needs `n_true`.
    - ``"MRR"``: 1/rank of the first hit. Unbiased if the labels of a row go missing independently of each other.

    All but F1, DCG and ARR estimate the metric of that name in `evaluate`. An estimate may lie outside 0 to 100, for a
    single row and for the mean over few rows.

    Parameters
    ----------
    name : str
        One of the above.
    top : TopK or array of int, shape (n, ranks)
        The ranking; see `evaluate`.
    Y : matrix, shape (n, n_labels)
        Recorded labels.
    inverse_propensity : array of float, shape (n_labels,)
        1/p of each label, at least 1. None together with `g`.
    k : int
        Cutoff.
    n_true : array of int, shape (n,), optional
        Number of true labels of each row (theorem 4.2).
    g : array of float, shape (n_labels,), optional
        Where the number of true labels is unknown but labels are recorded with probability g over that number: the g of
        each label (corollary 4.2.1), instead of `inverse_propensity` and `n_true`.

    Returns
    -------
    float
        The mean of `unbiased_rows`.

    References
    ----------
    Jain, Prabhu, Varma: Extreme multi-label loss functions for recommendation, tagging, ranking and other missing label
    applications. KDD 2016, section 4.

    Examples
    --------
    Two of three predictions are recorded; the second label is recorded every other time, so it counts twice:

    >>> unbiased_estimate("P", [[0, 1, 2]], [[1, 1, 0, 0]], [1.0, 2.0, 4.0, 4.0], k=3)
    100.0
    >>> unbiased_estimate("R", [[0, 1, 2]], [[1, 1, 0, 0]], [1.0, 2.0, 4.0, 4.0], k=3, n_true=[4])
    75.0
    """
    return float(unbiased_rows(name, top, Y, inverse_propensity, k, n_true, g=g).mean())


def unbiased_rows(
    name: str,
    top: TopK | npt.ArrayLike,
    Y: Any,
    inverse_propensity: npt.ArrayLike | None,
    k: int = 5,
    n_true: npt.ArrayLike | None = None,
    *,
    g: npt.ArrayLike | None = None,
) -> Float64:
    """Return the estimates of single rows, whose mean is `unbiased_estimate`.

    Parameters
    ----------
    name, top, Y, inverse_propensity, k, n_true, g
        As for `unbiased_estimate`.

    Returns
    -------
    ndarray of float64, shape (n,)
        In percent.

    Examples
    --------
    >>> unbiased_rows("P", [[0], [1]], [[1, 0], [0, 1]], [1.0, 4.0], k=1)
    array([100., 400.])
    """
    estimator = _find(name)
    check("k", k, Integer(1))
    truth = with_labels(Y)
    n, n_labels = truth.shape
    given = len(ranked_labels(top))
    if given != n or not n:
        raise InputError(f"The ranking has {given} rows and Y has {n}: they must be the same rows, at least one.")
    recorded = np.diff(truth.indptr)
    if g is not None:
        if not estimator.divides_by_n_true:
            raise InputError(f"g is for {_names(lambda e: e.divides_by_n_true)}: leave it out for {name}.")
        if inverse_propensity is not None or n_true is not None:
            raise InputError("g takes the place of inverse_propensity and n_true: leave them out.")
        weights, numbers = 1.0 / numbers_per_label("g", g, Number(above=0), n_labels), np.ones(n)
    else:
        weights = _checked_inverse(inverse_propensity, n_labels)
        if estimator.needs_n_true and n_true is None:
            needs = "n_true or g" if estimator.divides_by_n_true else "n_true"
            raise ParameterError("name", name, f"needs {needs}, because it is a share of the true labels")
        numbers = np.ones(n) if n_true is None else np.maximum(_checked_n_true(n_true, recorded), 1.0)
    labels = first_places(top, k, n_labels)
    rows = JudgedRows.from_ranking(labels, truth.indptr.astype(np.int64), truth.indices, weights, n_labels=n_labels)
    return 100.0 * estimator.rows(Recorded(rows, truth @ weights, numbers))


def concentration_bound(
    name: str, inverse_propensity: npt.ArrayLike, max_true: npt.ArrayLike, k: int = 5, *, level: float = 0.95
) -> float:
    """Bound the distance of an estimate from its expectation, with probability `level`, in percent: theorem 4.3.

    With N rows and R(i) the width of the range of row i's loss, the distance is at most
    sqrt(mean of R(i) squared) sqrt(ln(2 / (1 - level)) / (2N)). A row with at most m true labels has at most min(k, m)
    hits, each of at most max(1/p) times the weight of its rank. For ``"P"`` that gives the theorem's max(1/p)/k
    times the root mean square of min(k, m). Rows must be independent of each other; missing labels of a row need not
    be. The bound holds for any distribution and is therefore wide; `bootstrap` estimates the actual variation.

    Parameters
    ----------
    name : str
        As for `unbiased_estimate`; not ``"MRR"``, which has no such bound.
    inverse_propensity : array of float, shape (n_labels,)
        1/p of each label.
    max_true : array of int, shape (n,)
        Largest number of labels that can be true in each row; where an estimate needs `n_true`, the same numbers.
    k : int
        Cutoff.
    level : float
        Probability that the bound holds.

    Returns
    -------
    float
        Percent to either side.

    Examples
    --------
    >>> bounds = [concentration_bound("P", [1.0, 2.0, 10.0], [5] * n, k=5) for n in (1000, 4000)]
    >>> [round(bound, 2) for bound in bounds]
    [42.95, 21.47]
    """
    estimator = _find(name)
    check("k", k, Integer(1))
    if estimator.largest is None:
        raise ParameterError("name", name, f"must be one of {_names(lambda e: e.largest is not None)}")
    check("level", level, LEVEL)
    weights = _checked_inverse(inverse_propensity, None)
    most = np.asarray(max_true)
    if most.ndim != 1 or not most.size or most.dtype.kind not in "iu" or most.min() < 0:
        raise InputError("max_true must be one integer, a number of labels, for each row.")
    ranges = weights.max() * estimator.largest(k, most.astype(np.float64))
    if name == "Hamming":
        ranges = np.minimum(ranges / len(weights), weights.max())
    root_mean_square = math.sqrt(float(np.mean(ranges**2)))
    return 100.0 * root_mean_square * math.sqrt(math.log(2.0 / (1.0 - level)) / (2.0 * len(most)))


def _checked_inverse(inverse_propensity: npt.ArrayLike | None, n_labels: int | None) -> Float64:
    """Return inverse propensities, one per label and none below 1."""
    if inverse_propensity is None:
        raise ParameterError("inverse_propensity", None, "must hold 1/p of each label")
    size = len(np.atleast_1d(np.asarray(inverse_propensity))) if n_labels is None else n_labels
    weights = check_weights(inverse_propensity, size)
    if weights is None or not weights.size or weights.min() < 1:
        raise InputError("inverse_propensity must be at least 1 for every label: give 1/p, not p.")
    return weights


def _checked_n_true(n_true: npt.ArrayLike, recorded: Array) -> Float64:
    numbers = np.asarray(n_true)
    if numbers.shape != recorded.shape or numbers.dtype.kind not in "iu":
        raise InputError("n_true must be one integer, the number of true labels, for each row.")
    if (numbers < recorded).any():
        row = int(np.flatnonzero(numbers < recorded)[0])
        raise InputError(
            f"n_true is {numbers[row]} for row {row}, which has {recorded[row]} recorded labels: "
            "give the numbers of complete labels."
        )
    return numbers.astype(np.float64)


def _find(name: str) -> MetricEstimator:
    """Return the estimator with that name."""
    check("name", name, OneOf(*ESTIMATORS))
    return ESTIMATORS[name]


def _names(which: Callable[[MetricEstimator], bool]) -> str:
    """Return the names of the estimators that fulfil a condition, as text."""
    return ", ".join(name for name, estimator in ESTIMATORS.items() if which(estimator))

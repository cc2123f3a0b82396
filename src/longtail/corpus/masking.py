"""Hiding labels of a complete data set, the way annotators miss them: for experiments where the truth is known."""

from __future__ import annotations

from math import isfinite, log
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from longtail.corpus.sparse import as_indicator
from longtail.errors import ParameterError

Counts = Literal["complete", "observed"]
_HALVINGS = 60


class MaskedLabels(NamedTuple):
    """Labels before and after some were hidden.

    Attributes
    ----------
    complete : csr_array of float32, shape (n_rows, n_labels)
        All labels, as they were given.
    observed : csr_array of float32, same shape
        Those that were kept: train on these, measure on `complete`.
    propensities : ndarray of float64, shape (n_labels,)
        The probability with which each label was kept; ``GivenPropensity(values=...)`` takes it.
    """

    complete: sp.csr_array
    observed: sp.csr_array
    propensities: npt.NDArray[np.float64]


def mask_labels(Y: Any, propensity: npt.ArrayLike, *, seed: int = 0) -> MaskedLabels:
    """Keep each label of each row with the probability of that label, independently of all others.

    This is equations 1 and 2 of Qaraei et al. 2021: a true label is recorded with probability p, a false one never.
    With the same seed, a larger propensity keeps all that a smaller one keeps.

    Parameters
    ----------
    Y : matrix of shape (n_rows, n_labels)
        Complete labels; non-zero means present.
    propensity : float or array-like, shape (n_labels,)
        p, above 0 and at most 1: one per label, or one for all.
    seed : int
        The same seed hides the same labels, whatever form `Y` comes in.

    Returns
    -------
    MaskedLabels

    Examples
    --------
    >>> masked = mask_labels(np.ones((1000, 2)), [0.2, 1.0])
    >>> masked.observed.sum(axis=0)
    array([ 203., 1000.], dtype=float32)
    """
    complete = as_indicator(Y)
    return _masked(complete, _check_propensity(propensity, complete.shape[1]), seed)


def mask_by_curve(
    Y: Any, a: float = 0.55, b: float = 1.5, *, counts: Counts = "complete", n_rows: int | None = None, seed: int = 0
) -> MaskedLabels:
    """Hide labels by the propensity curve of Jain et al. 2016, under which rare labels go missing more often.

    The curve is p(n) = 1 / (1 + C (n + B)^-A) with C = (ln N - 1)(B + 1)^A, and there are two counts n to put in:

    - ``"complete"``: the rows that have the label before any is hidden. What most would expect, but whoever then
      computes ``JainPropensity(a=a, b=b)`` from the *observed* labels gets smaller propensities than were used.
    - ``"observed"``: the rows that keep the label on average, p times the complete ones, as the model is written: it
      speaks of the counts of a data set with missing labels. p solves p = p(p n), and the curve computed from the
      observed labels is right but for the chance in their counts.

    Parameters
    ----------
    Y : matrix of shape (n_rows, n_labels)
        Complete labels; non-zero means present.
    a, b : float
        A, at least 0, and B, above 0.
    counts : {"complete", "observed"}
        Which counts the curve is a function of.
    n_rows : int, optional
        N, if it is not the rows of `Y`: for instance where `Y` stands for a larger data set.
    seed : int
        The same seed hides the same labels.

    Returns
    -------
    MaskedLabels

    Examples
    --------
    >>> rows = np.arange(1000)
    >>> Y = np.column_stack([rows < 800, rows < 80, rows < 8])
    >>> mask_by_curve(Y).propensities.round(3)
    array([0.802, 0.535, 0.261])
    >>> mask_by_curve(Y, counts="observed").propensities.round(3)
    array([0.779, 0.42 , 0.15 ])
    """
    complete = as_indicator(Y)
    if not _is_number(a) or a < 0:
        raise ParameterError("a", a, "must be a number of at least 0")
    if not _is_number(b) or b <= 0:
        raise ParameterError("b", b, "must be a number above 0")
    if counts not in ("complete", "observed"):
        raise ParameterError("counts", counts, "must be complete or observed")
    if n_rows is not None and not (_is_whole(n_rows) and n_rows >= 1):
        raise ParameterError("n_rows", n_rows, "must be a whole number of at least 1")
    total = complete.shape[0] if n_rows is None else int(n_rows)
    label_counts = np.bincount(complete.indices, minlength=complete.shape[1]).astype(np.float64)
    most = int(label_counts.max(initial=0.0))
    if most > total:
        raise ParameterError("n_rows", n_rows, f"must be at least {most}, the rows of the most frequent label")
    find = _curve if counts == "complete" else _consistent
    propensities = find(label_counts, float(a), float(b), total)
    if not (propensities > 0).all():
        raise ParameterError("a", a, f"is too large with b = {b}: some propensities vanish")
    return _masked(complete, propensities, seed)


def _curve(counts: npt.NDArray[np.float64], a: float, b: float, n_rows: int) -> npt.NDArray[np.float64]:
    """p(n) of Jain et al.; with fewer than three rows C would be negative, so it is 0 and every p is 1."""
    with np.errstate(over="ignore"):
        return 1.0 / (1.0 + max(log(max(n_rows, 1)) - 1.0, 0.0) * ((b + 1.0) / (counts + b)) ** a)


def _consistent(counts: npt.NDArray[np.float64], a: float, b: float, n_rows: int) -> npt.NDArray[np.float64]:
    """Solve p = p(p n) by bisection: the curve rises, so p lies between p(0) and p(n); for A up to 1 it is unique."""
    low, high = _curve(np.zeros_like(counts), a, b, n_rows), _curve(counts, a, b, n_rows)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        is_low = _curve(middle * counts, a, b, n_rows) >= middle
        low, high = np.where(is_low, middle, low), np.where(is_low, high, middle)
    return low


def _masked(complete: sp.csr_array, propensities: npt.NDArray[np.float64], seed: Any) -> MaskedLabels:
    if not _is_whole(seed) or seed < 0:
        raise ParameterError("seed", seed, "must be a whole number of at least 0")
    keep = np.random.default_rng(seed).random(complete.nnz) < propensities[complete.indices]
    offsets = np.append(0, np.cumsum(keep))[complete.indptr].astype(np.int32)
    observed = sp.csr_array((complete.data[keep], complete.indices[keep], offsets), shape=complete.shape)
    return MaskedLabels(complete, observed, propensities)


def _check_propensity(propensity: npt.ArrayLike, n_labels: int) -> npt.NDArray[np.float64]:
    given = np.asarray(propensity)
    if given.ndim > 1 or given.dtype.kind not in "iuf":
        raise ParameterError("propensity", propensity, "must be a number or a flat array with one per label")
    if given.ndim and len(given) != n_labels:
        raise ParameterError("len(propensity)", len(given), f"must equal the number of labels ({n_labels})")
    wrong = ~((given > 0) & (given <= 1))
    if wrong.any():
        label = int(wrong.argmax())
        place = f"propensity[{label}]" if given.ndim else "propensity"
        raise ParameterError(place, float(given.flat[label]), "must be above 0 and at most 1")
    return np.broadcast_to(given.astype(np.float64), n_labels).copy()


def _is_number(value: object) -> bool:
    real = isinstance(value, int | float | np.integer | np.floating)
    return real and not isinstance(value, bool) and isfinite(value)  # type: ignore[arg-type]


def _is_whole(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)

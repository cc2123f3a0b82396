"""Hide labels of a complete data set as annotators miss them, for experiments with a known truth."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from longtail.data.jain_curve import check_propensities, jain_curve
from longtail.data.sparse import as_indicator, column_counts
from longtail.errors import ParameterError
from longtail.kernels.types import Float64
from longtail.validation import PROBABILITY, SEED, Integer, Number, OneOf, Optional, check, numbers_per_label

CurveCounts = Literal["complete", "observed"]
_HALVINGS = 60


class MaskedLabels(NamedTuple):
    """Labels before and after some were hidden.

    Attributes
    ----------
    complete : csr_array of float32, shape (n_rows, n_labels)
        All labels.
    observed : csr_array of float32, same shape
        The labels that were kept: train on these, evaluate on `complete`.
    propensities : ndarray of float64, shape (n_labels,)
        The probability of keeping each label, for ``GivenPropensity(values=...)``.

    Examples
    --------
    >>> masked = mask_labels(np.ones((4, 2)), [0.5, 1.0])
    >>> int(masked.observed.sum()), int(masked.complete.sum()), masked.propensities
    (5, 8, array([0.5, 1. ]))
    """

    complete: sp.csr_array
    observed: sp.csr_array
    propensities: Float64


def mask_labels(Y: Any, propensity: npt.ArrayLike, *, random_state: int = 0) -> MaskedLabels:
    """Keep each label of each row with the label's propensity, independently (equations 1 and 2 of Qaraei et al. 2021).

    With the same seed, a larger propensity keeps all that a smaller one keeps.

    Parameters
    ----------
    Y : matrix of shape (n_rows, n_labels)
        Complete labels; non-zero means present.
    propensity : float or array-like, shape (n_labels,)
        Above 0 and at most 1: one per label, or one for all.
    random_state : int
        Seed; the same seed hides the same labels.

    Examples
    --------
    >>> masked = mask_labels(np.ones((1000, 2)), [0.2, 1.0])
    >>> masked.observed.sum(axis=0)
    array([ 203., 1000.], dtype=float32)
    """
    complete = as_indicator(Y)
    return _masked(complete, _check_propensity(propensity, complete.shape[1]), random_state)


def mask_by_curve(
    Y: Any,
    a: float = 0.55,
    b: float = 1.5,
    *,
    counts: CurveCounts = "complete",
    n_rows: int | None = None,
    random_state: int = 0,
) -> MaskedLabels:
    """Hide labels by the propensity curve of Jain et al. 2016, so that rare labels go missing more often.

    The curve is p(n) = 1 / (1 + C (n + B)^-A) with C = (ln N - 1)(B + 1)^A, where n is one of two counts:

    - ``"complete"``: the rows with the label before any is hidden. ``JainPropensity(a=a, b=b)`` computed from the
      *observed* labels then gives smaller propensities than were used.
    - ``"observed"``: the expected number of rows that keep the label, as in the model, which is about data with missing
      labels. p solves p = p(p n), and the curve computed from the observed labels is right up to random variation.

    Parameters
    ----------
    Y : matrix of shape (n_rows, n_labels)
        Complete labels; non-zero means present.
    a, b : float
        A, at least 0, and B, above 0.
    counts : {"complete", "observed"}
        The counts n.
    n_rows : int, optional
        N, if it is not the number of rows of `Y`.
    random_state : int
        Seed.

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
    check("a", a, Number(low=0))
    check("b", b, Number(above=0))
    check("counts", counts, OneOf(*get_args(CurveCounts)))
    check("n_rows", n_rows, Optional(Integer(1, 2**63 - 1)))
    total = complete.shape[0] if n_rows is None else int(n_rows)
    label_counts = column_counts(complete).astype(np.float64)
    most = int(label_counts.max(initial=0.0))
    if most > total:
        raise ParameterError("n_rows", n_rows, f"must be at least {most}, the rows of the most frequent label")
    find = jain_curve if counts == "complete" else _consistent
    propensities = find(label_counts, float(a), float(b), total)
    check_propensities(propensities, a, b)
    return _masked(complete, propensities, random_state)


def _consistent(counts: Float64, a: float, b: float, n_rows: int) -> Float64:
    """Solve p = p(p n) by bisection: the curve rises, so p is between p(0) and p(n); it is unique for A up to 1."""
    low, high = jain_curve(np.zeros_like(counts), a, b, n_rows), jain_curve(counts, a, b, n_rows)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        is_low = jain_curve(middle * counts, a, b, n_rows) >= middle
        low, high = np.where(is_low, middle, low), np.where(is_low, high, middle)
    return low


def _masked(complete: sp.csr_array, propensities: Float64, seed: Any) -> MaskedLabels:
    check("random_state", seed, SEED)
    keep = np.random.default_rng(seed).random(complete.nnz) < propensities[complete.indices]
    offsets = np.append(0, np.cumsum(keep))[complete.indptr].astype(np.int32)
    observed = sp.csr_array((complete.data[keep], complete.indices[keep], offsets), shape=complete.shape)
    return MaskedLabels(complete, observed, propensities)


def _check_propensity(propensity: npt.ArrayLike, n_labels: int) -> Float64:
    given = numbers_per_label("propensity", propensity, PROBABILITY, n_labels, may_be_one=True)
    return np.broadcast_to(given, n_labels).copy()

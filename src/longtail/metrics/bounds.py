"""How far an estimate from recorded labels can lie from the truth."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from longtail.errors import InputError, ParameterError
from longtail.metrics.estimators import check_inverse, check_k, find, names


def concentration_bound(
    name: str,
    inverse_propensity: npt.ArrayLike,
    max_true: npt.ArrayLike,
    k: int = 5,
    *,
    level: float = 0.95,
) -> float:
    """Bound how far an estimate lies from its expectation with a chance of at least `level`, in percent: theorem 4.3.

    With N rows and R(i) the width of the range of row i's loss, the distance is at most
    sqrt(mean of R(i) squared) sqrt(ln(2 / (1 - level)) / (2N)). A row with at most m true labels has at most min(k, m)
    hits, each worth at most max(1/p) times what its place is worth. For ``"P"`` that makes the theorem's
    max(1/p)/k times the root mean square of min(k, m). Rows must be independent of each other; missing labels
    of a row need not be. The bound holds for any distribution and is therefore wide: `bootstrap` says how far values
    typically move.

    Parameters
    ----------
    name : str
        As for `estimate`; not ``"MRR"``, which has no such bound.
    inverse_propensity : array of float, shape (n_labels,)
        1/p of each label.
    max_true : array of int, shape (n,)
        The most labels that can be true in each row; where an estimate needs `n_true`, the same numbers.
    k : int
        Places that count.
    level : float
        Least chance that the bound holds.

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
    estimator = find(name)
    check_k(k)
    if estimator.largest is None:
        raise ParameterError("name", name, f"must be one of {names(lambda e: e.largest is not None)}")
    if isinstance(level, bool) or not isinstance(level, int | float | np.number) or not 0 < level < 1:
        raise ParameterError("level", level, "must be a number between 0 and 1, such as 0.95")
    weights = check_inverse(inverse_propensity, None)
    most = np.asarray(max_true)
    if most.ndim != 1 or not most.size or most.dtype.kind not in "iu" or most.min() < 0:
        raise InputError("max_true must be one whole number of labels for each row.")
    ranges = weights.max() * estimator.largest(k, most.astype(np.float64))
    if name == "Hamming":
        ranges = np.minimum(ranges / len(weights), weights.max())
    root_mean_square = math.sqrt(float(np.mean(ranges**2)))
    return 100.0 * root_mean_square * math.sqrt(math.log(2.0 / (1.0 - level)) / (2.0 * len(most)))

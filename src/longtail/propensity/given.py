"""Propensities that are known, or were estimated elsewhere."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from longtail.errors import ParameterError
from longtail.propensity.base import Propensity, check_counts


class GivenPropensity(Propensity):
    """One known propensity per label, whatever the counts.

    It knows the labels alone: asked about clusters of labels, as a tree does, it refuses, because there are not as many
    clusters as values.

    Parameters
    ----------
    values : array-like, shape (L,)
        Propensities above 0 and at most 1, in the order of the labels. Labels beyond them that no training row has, as
        a test set may bring, get the smallest of them.

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

    def inverse(self, label_counts: npt.ArrayLike, n_rows: int) -> npt.NDArray[np.float64]:
        """1 / p of each label, whatever its count.

        Parameters
        ----------
        label_counts : array-like, shape (L,)
            Training rows of each label; there may be more labels than values if the others have 0.
        n_rows : int
            Training rows.
        """
        counts = check_counts(label_counts, n_rows)
        values = np.asarray(self.values)
        if values.ndim != 1 or (values.size and values.dtype.kind not in "biuf"):
            raise ParameterError("values", self.values, "must be a flat array with one propensity per label")
        values = values.astype(np.float64)
        n_new = len(counts) - len(values)
        if n_new < 0 or counts[len(values) :].any() or (n_new and not len(values)):
            raise ParameterError("len(values)", len(values), f"must equal the number of labels ({len(counts)})")
        with np.errstate(divide="ignore", over="ignore"):
            inverse = 1.0 / values
        wrong = ~((values <= 1.0) & (inverse >= 1.0) & np.isfinite(inverse))
        if wrong.any():
            label = int(wrong.argmax())
            raise ParameterError(f"values[{label}]", float(values[label]), "must be above 0 and at most 1")
        return np.append(inverse, np.full(n_new, inverse.max())) if n_new else inverse

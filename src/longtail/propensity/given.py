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
        Propensities above 0 and at most 1, in the order of the labels.

    Examples
    --------
    >>> known = GivenPropensity(values=[0.5, 1.0])
    >>> known.inverse([10, 3], 100)
    array([2., 1.])
    """

    def __init__(self, *, values: npt.ArrayLike) -> None:
        self.values = values

    def inverse(self, label_counts: npt.ArrayLike, n_rows: int) -> npt.NDArray[np.float64]:
        """1 / p of each label; only the number of `label_counts` matters.

        Parameters
        ----------
        label_counts : array-like, shape (L,)
            Training rows of each label.
        n_rows : int
            Training rows.
        """
        n_labels = len(check_counts(label_counts, n_rows))
        values = np.asarray(self.values)
        if values.ndim != 1 or (values.size and values.dtype.kind not in "biuf"):
            raise ParameterError("values", self.values, "must be a flat array with one propensity per label")
        values = values.astype(np.float64)
        if len(values) != n_labels:
            raise ParameterError("len(values)", len(values), f"must equal the number of labels ({n_labels})")
        with np.errstate(divide="ignore", over="ignore"):
            inverse = 1.0 / values
        wrong = ~((values <= 1.0) & (inverse >= 1.0) & np.isfinite(inverse))
        if wrong.any():
            label = int(wrong.argmax())
            raise ParameterError(f"values[{label}]", float(values[label]), "must be above 0 and at most 1")
        return inverse

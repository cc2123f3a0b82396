"""Estimated propensities of labels in bins of similar frequency, to which a curve is fitted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import numpy.typing as npt

from longtail.errors import InputError
from longtail.kernels.types import Float64, Int64
from longtail.propensity.models import check_counts
from longtail.validation import Integer, OneOf, check

if TYPE_CHECKING:
    from longtail.propensity.fitting import FittedPropensity

Average = Literal["labels", "rows"]


@dataclass(frozen=True, eq=False)
class PropensityPoints:
    """Bins of labels of similar frequency with their mean propensity; all arrays have one entry per bin.

    Parameters
    ----------
    counts : ndarray of float64
        Geometric mean of the training counts of the bin's labels.
    propensities : ndarray of float64
        Mean propensity of the bin's labels, from 0 to 1.
    n_labels : ndarray of int64
        Labels in the bin.
    support : ndarray of int64
        Cases in the bin: how often one of its labels should have been recorded.
    n_rows : int
        Training rows, with or without labels.
    average : {"labels", "rows"}
        What has equal weight, within bins and in a fit: each label or each case.

    Examples
    --------
    >>> cases = {"hits": [1, 3, 1], "support": [4, 4, 2]}
    >>> points = PropensityPoints.from_labels([1, 9, 4], **cases, n_rows=100, labels_per_bin=1)
    >>> points.counts, points.propensities
    (array([1., 4., 9.]), array([0.25, 0.5 , 0.75]))
    """

    counts: Float64
    propensities: Float64
    n_labels: Int64
    support: Int64
    n_rows: int
    average: Average = "labels"

    @property
    def weights(self) -> Float64:
        """Weight of each bin in a fit: its number of labels or cases.

        Bins are made by noisy counts, which biases those of the rarest labels. Weighting by cases reduces the effect.
        """
        return (self.support if self.average == "rows" else self.n_labels).astype(np.float64)

    def __len__(self) -> int:
        return len(self.counts)

    @classmethod
    def from_labels(
        cls,
        label_counts: npt.ArrayLike,
        *,
        hits: npt.ArrayLike,
        support: npt.ArrayLike,
        n_rows: int,
        labels_per_bin: int = 20,
        average: Average = "labels",
    ) -> PropensityPoints:
        """Sort labels by count into bins of (nearly) equal size and average within each.

        Labels without support are skipped, and so are labels with a count of 0, whose estimate would be 0 whatever
        their propensity.

        Parameters
        ----------
        label_counts : array-like of int
            Training rows of each label.
        hits, support : array-like of int
            How often each label was recorded, out of how many cases where it should have been.
        n_rows : int
            Training rows.
        labels_per_bin : int
            Labels per bin; a remainder is spread over the bins. Labels of equal count keep their order.
        average : {"labels", "rows"}
            What has equal weight: each label or each case.
        """
        check("average", average, OneOf(*get_args(Average)))
        check("labels_per_bin", labels_per_bin, Integer(1))
        counts, part, whole = check_counts(label_counts, n_rows), np.asarray(hits), np.asarray(support)
        usable = np.flatnonzero((counts > 0) & (whole > 0))
        if not len(usable):
            raise InputError("No recorded label has a case to estimate its propensity from: give more rows or labels.")
        order = usable[np.argsort(counts[usable], kind="stable")]
        counts, part, whole = (values[order].astype(np.float64) for values in (counts, part, whole))
        weights = whole if average == "rows" else np.ones(len(order))
        bins = max(len(order) // labels_per_bin, 1)
        n_labels = np.full(bins, len(order) // bins)
        n_labels[: len(order) % bins] += 1
        starts = np.cumsum(n_labels) - n_labels
        total = np.add.reduceat(weights, starts)
        means = np.exp(np.add.reduceat(weights * np.log(counts), starts) / total)
        return cls(
            counts=np.clip(means, counts[starts], counts[starts + n_labels - 1]),  # against rounding
            propensities=np.add.reduceat(weights * (part / whole), starts) / total,
            n_labels=n_labels.astype(np.int64),
            support=np.add.reduceat(whole, starts).astype(np.int64),
            n_rows=int(n_rows),
            average=average,
        )

    def fit(
        self, *, weights: npt.ArrayLike | None = None, level: float = 0.95, resamples: int = 500, random_state: int = 0
    ) -> FittedPropensity:
        """Fit A and B of the model of Jain et al. to the points, by default with their `weights`; see `fit_jain`."""
        from longtail.propensity.fitting import fit_points

        chosen = self.weights if weights is None else weights
        return fit_points(self, weights=chosen, level=level, resamples=resamples, random_state=random_state)

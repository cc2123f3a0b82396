"""Estimated propensities of labels, gathered into bins of similar frequency: what a curve is fitted to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from longtail.errors import InputError, ParameterError
from longtail.propensity.base import check_counts

if TYPE_CHECKING:
    from longtail.propensity.fitting import FittedPropensity

Average = Literal["labels", "rows"]


@dataclass(frozen=True, eq=False)
class PropensityPoints:
    """Bins of labels of similar frequency with their mean propensity; all arrays have one entry a bin.

    Parameters
    ----------
    counts : ndarray of float64
        Geometric mean of the training counts of the bin's labels.
    propensities : ndarray of float64
        Mean propensity of the bin's labels, from 0 to 1.
    n_labels : ndarray of int64
        Labels in the bin.
    support : ndarray of int64
        Cases behind the bin: how often one of its labels should have been recorded.
    n_rows : int
        Training rows, those without labels included.
    average : {"labels", "rows"}
        Whether each label counts the same, or each case: within the bins, and between them when a curve is fitted.

    Examples
    --------
    >>> cases = {"hits": [1, 3, 1], "support": [4, 4, 2]}
    >>> points = PropensityPoints.from_labels([1, 9, 4], **cases, n_rows=100, labels_per_bin=1)
    >>> points.counts, points.propensities
    (array([1., 4., 9.]), array([0.25, 0.5 , 0.75]))
    """

    counts: npt.NDArray[np.float64]
    propensities: npt.NDArray[np.float64]
    n_labels: npt.NDArray[np.int64]
    support: npt.NDArray[np.int64]
    n_rows: int
    average: Average = "labels"

    @property
    def weights(self) -> npt.NDArray[np.float64]:
        """How much each bin counts in a fit: its labels, or its cases.

        Counts are noisy, and bins are made by them, so that among the rarest labels those come together that were
        recorded more, or less, often than they would be again. Where each case counts, such bins weigh little.
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
        """Sort labels by count into bins of (nearly) equally many labels and average within each.

        Labels without support are left out, and so are labels with a count of 0: a label that was never recorded was
        also never recorded where it should have been, whatever its propensity.

        Parameters
        ----------
        label_counts : array-like of int
            Training rows of each label.
        hits, support : array-like of int
            How often each label was recorded, out of how many cases where it should have been.
        n_rows : int
            Training rows.
        labels_per_bin : int
            Labels in a bin; what is left over is spread over the bins. Labels of equal count go by their order.
        average : {"labels", "rows"}
            Whether each label counts the same, or each case. The mean of the counts is taken the same way.
        """
        if average not in get_args(Average):
            raise ParameterError("average", average, 'must be "labels" or "rows"')
        check_whole("labels_per_bin", labels_per_bin)
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
            counts=np.clip(means, counts[starts], counts[starts + n_labels - 1]),  # what rounding took beyond
            propensities=np.add.reduceat(weights * (part / whole), starts) / total,
            n_labels=n_labels.astype(np.int64),
            support=np.add.reduceat(whole, starts).astype(np.int64),
            n_rows=int(n_rows),
            average=average,
        )

    def fit(
        self, *, weights: npt.ArrayLike | None = None, level: float = 0.95, resamples: int = 500, seed: int = 0
    ) -> FittedPropensity:
        """Fit A and B of the model of Jain et al. to the points, by default with their `weights`; see `fit_jain`."""
        from longtail.propensity.fitting import fit_points

        chosen = self.weights if weights is None else weights
        return fit_points(self, weights=chosen, level=level, resamples=resamples, seed=seed)


def check_whole(name: str, value: Any, least: int = 1) -> None:
    """Refuse what is not a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ParameterError(name, value, f"must be a whole number of at least {least}")

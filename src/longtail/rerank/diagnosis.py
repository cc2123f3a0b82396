"""Diagnosis of the tail: which labels are predicted, by their frequency and by the norm of their classifiers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from longtail.data.sparse import as_indicator, column_counts
from longtail.errors import InputError
from longtail.kernels.types import Array, Float64, Int64
from longtail.learners import Learner
from longtail.learners.norms import label_norms
from longtail.learners.prediction import checked_k
from longtail.metrics import frequency_bins
from longtail.metrics.frequency import BinsOrEdges, LabelBin, count_range
from longtail.metrics.scores import text_table
from longtail.topk import TopK

_DIGITS = 4


@dataclass(frozen=True)
class BinShare(LabelBin):
    """Share of the true labels and of the predicted labels that belongs to one frequency bin.

    Parameters
    ----------
    name, n_labels, counts
        See `LabelBin`.
    true_share, predicted_share : float
        In percent of all true labels of the test rows, and of all predictions.
    """

    true_share: float
    predicted_share: float

    @property
    def ratio(self) -> float:
        """Predicted share over true share: below 1, the bin is under-predicted; NaN where no row has a label of it."""
        return self.predicted_share / self.true_share if self.true_share else float("nan")


@dataclass(frozen=True)
class Correlation:
    """Correlation of two quantities over the labels.

    Parameters
    ----------
    n_labels : int
        Labels for which both are known.
    spearman : float
        Rank correlation.
    n_positive : int
        Labels where both are above 0.
    pearson : float
        Correlation of the logarithms over these labels.
    exponent : float
        Slope of the second logarithm against the first, by least squares; 1 where the two are proportional.
    partial : float
        Partial rank correlation given the training counts; NaN where one of the two is the training count.
    """

    n_labels: int
    spearman: float
    n_positive: int
    pearson: float
    exponent: float
    partial: float


@dataclass(frozen=True, eq=False, repr=False)
class Diagnosis:
    """Predicted labels by frequency, and how predictions depend on the norm of the labels' classifiers.

    Made by `diagnose`, or by `of` from a ranking. Printing shows tables.

    Parameters
    ----------
    k, n_rows : int
        Cutoff and number of rows.
    label_counts : ndarray of int64, shape (n_labels,)
        Training rows of each label.
    norms : ndarray of float64 or None
        Norm of each label's classifier, NaN where there is none; None for a learner without any.
    n_true, n_predicted : ndarray of int64
        Test rows with each label, and those where it is predicted.
    bins, deciles : tuple of BinShare
        Head, torso and tail; deciles of the labels. The most frequent first.
    norm_by_frequency : Correlation or None
        Of the norm with the training count.
    prediction_by_norm : Correlation or None
        Of the norm with the number of predictions, which are proportional by theorem 1.
    """

    k: int
    n_rows: int
    label_counts: Int64
    norms: Float64 | None
    n_true: Int64
    n_predicted: Int64
    bins: tuple[BinShare, ...]
    deciles: tuple[BinShare, ...]
    norm_by_frequency: Correlation | None
    prediction_by_norm: Correlation | None

    @classmethod
    def of(cls, top: TopK | Array, Y: Any, label_counts: npt.ArrayLike, norms: Float64 | None) -> Diagnosis:
        """Diagnose a ranking.

        Parameters
        ----------
        top : TopK or ndarray of label ids, shape (n, k)
            Padded with -1.
        Y : matrix, shape (n, n_labels)
            True labels.
        label_counts : array of int, shape (n_labels,)
            Training rows of each label.
        norms : ndarray or None
            Of as many labels, or of the first of them.

        Examples
        --------
        >>> found = Diagnosis.of(np.array([[0, 1], [0, 2]]), [[1, 0, 0], [0, 1, 1]], [8, 1, 1], None)
        >>> [(share.name, round(share.ratio, 2)) for share in found.bins]
        [('head', 1.5), ('torso', 0.75), ('tail', nan)]
        """
        labels, truth = np.asarray(top.labels if isinstance(top, TopK) else top), as_indicator(Y)
        counts, n_labels = np.asarray(label_counts), truth.shape[1]
        if labels.ndim != 2 or len(labels) != truth.shape[0]:
            raise InputError(f"top has {len(labels)} rows and Y has {truth.shape[0]}: they must be the same rows.")
        if len(counts) != n_labels or (norms is not None and len(norms) > n_labels):
            raise InputError(f"Y has {n_labels} labels: give the training count and the norm of each of them.")
        if labels.max(initial=-1) >= n_labels:
            raise InputError(f"top has the label {labels.max()}, and Y has {n_labels} labels: use the same ids.")
        n_true = column_counts(truth)
        n_predicted = np.bincount(labels[labels >= 0], minlength=n_labels).astype(np.int64)
        if norms is not None:
            norms = np.append(norms, np.full(n_labels - len(norms), np.nan))
        return cls(
            k=int(labels.shape[1]),
            n_rows=len(labels),
            label_counts=counts.astype(np.int64),
            norms=norms,
            n_true=n_true,
            n_predicted=n_predicted,
            bins=_shares(counts, n_true, n_predicted, "head-torso-tail"),
            deciles=_shares(counts, n_true, n_predicted, "deciles"),
            norm_by_frequency=None if norms is None else _correlation(counts, norms, counts),
            prediction_by_norm=None if norms is None else _correlation(norms, n_predicted, counts),
        )

    def table(self) -> str:
        """Return the shares as text: a line per bin."""
        cells = [["", "labels", "training rows", "true", "predicted", "ratio"]]
        for share in (*self.bins, *self.deciles):
            cells.append([share.name, f"{share.n_labels}", share.shown_counts, *written_shares(share)])
        return text_table(cells)

    def __repr__(self) -> str:
        lines = [f"Labels in the first {self.k} places of {self.n_rows} rows, in percent", self.table()]
        for name, found in (
            ("Norm by training rows", self.norm_by_frequency),
            ("Predictions by norm", self.prediction_by_norm),
        ):
            if found is not None:
                lines.append(f"{name}: {written(found)}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return the results without the arrays, ready for JSON; unknown values are None."""
        return {
            "rows": self.n_rows,
            "k": self.k,
            "bins": [_as_dict(share) for share in self.bins],
            "deciles": [_as_dict(share) for share in self.deciles],
            "norm_by_frequency": _numbers(self.norm_by_frequency),
            "prediction_by_norm": _numbers(self.prediction_by_norm),
        }


def diagnose(learner: Learner, X: Any, y: Any, *, k: int = 5, tail: float | None = None) -> Diagnosis:
    """Measure which labels a learner predicts, and the norms of their classifiers.

    A learner suppresses the tail if rare labels have a smaller share of its predictions than of the true labels. One
    explanation is that their classifiers have small norms: the probability of a label to be predicted is claimed to be
    proportional to the norm (theorem 1). Both are measured here.

    Parameters
    ----------
    learner : Learner
        Fitted.
    X, y : matrices
        Held-out rows and their labels.
    k : int
        Cutoff: the first k labels count as predicted.
    tail : float, optional
        Position of the tail dial; see `Learner.predict_topk`.

    Returns
    -------
    Diagnosis

    References
    ----------
    Improving Tail Label Prediction for Extreme Multi-label Learning. Under review for ICLR 2021, authors not named.

    Examples
    --------
    >>> from longtail import OneVsRest
    >>> X, Y = [[1, 0], [0, 1], [1, 1], [1, 0]], [[1, 0], [0, 1], [1, 1], [1, 0]]
    >>> found = diagnose(OneVsRest().fit(X, Y), X, Y, k=1)
    >>> [(share.name, round(share.true_share), round(share.predicted_share)) for share in found.bins]
    [('head', 60, 75), ('torso', 40, 25), ('tail', 0, 0)]
    """
    top = learner.predict_topk(X, checked_k(k), tail=tail)
    return Diagnosis.of(top, y, learner.label_counts_, label_norms(learner))


def _shares(counts: Int64, n_true: Int64, n_predicted: Int64, bins: BinsOrEdges) -> tuple[BinShare, ...]:
    of_label, names = frequency_bins(counts, bins)
    found = []
    for number, name in enumerate(names):
        inside = of_label == number
        true, predicted = (
            100 * float(numbers[inside].sum()) / max(int(numbers.sum()), 1) for numbers in (n_true, n_predicted)
        )
        found.append(BinShare(name, *count_range(counts[inside]), true, predicted))
    return tuple(found)


def _correlation(first: Any, second: Any, counts: Int64) -> Correlation:
    """Correlate over labels with a training row for which both numbers are known."""
    from scipy.stats import rankdata

    known = np.isfinite(first) & np.isfinite(second) & (counts > 0)
    x, y, n = (np.asarray(numbers, np.float64)[known] for numbers in (first, second, counts))
    positive = (x > 0) & (y > 0)
    log_x, log_y = np.log(x[positive]), np.log(y[positive])
    pearson = _pearson(log_x, log_y)
    ranks = [rankdata(numbers) for numbers in (x, y, n)]
    slope = pearson * float(log_y.std() / log_x.std()) if np.isfinite(pearson) else float("nan")
    return Correlation(len(x), _pearson(*ranks[:2]), int(positive.sum()), pearson, slope, _partial(*ranks))


def _pearson(x: Float64, y: Float64) -> float:
    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    return float(np.corrcoef(x, y)[0, 1])


def _partial(x: Float64, y: Float64, z: Float64) -> float:
    """Partial correlation of x and y given z."""
    xy, xz, yz = _pearson(x, y), _pearson(x, z), _pearson(y, z)
    left = (1 - xz**2) * (1 - yz**2)
    return (xy - xz * yz) / float(np.sqrt(left)) if left > 1e-12 else float("nan")


def written_shares(share: BinShare) -> list[str]:
    """True share, predicted share and their ratio as text."""
    ratio = "" if np.isnan(share.ratio) else f"{share.ratio:.2f}"
    return [f"{share.true_share:.2f}", f"{share.predicted_share:.2f}", ratio]


def written(found: Correlation) -> str:
    """A correlation in words."""
    partial = "" if np.isnan(found.partial) else f", {found.partial:.2f} at equal frequency"
    return (
        f"rank correlation {found.spearman:.2f}{partial}; of logarithms {found.pearson:.2f}, "
        f"exponent {found.exponent:.2f} ({found.n_positive} labels)"
    )


def _as_dict(share: BinShare) -> dict[str, Any]:
    return {
        "name": share.name,
        "labels": share.n_labels,
        "training_rows": list(share.counts),
        "true_share": round(share.true_share, _DIGITS),
        "predicted_share": round(share.predicted_share, _DIGITS),
        "ratio": _number(share.ratio),
    }


def _numbers(found: Correlation | None) -> dict[str, Any] | None:
    return None if found is None else {name: _number(value) for name, value in vars(found).items()}


def _number(value: float) -> float | None:
    return round(value, _DIGITS) if np.isfinite(value) else None

"""The core of every metric: hits per row, and metrics as ratios of sums over the rows.

A metric at k is ``sum(numerators) / sum(denominators)`` with one numerator and one denominator per row. The metrics of
any resample of the rows therefore follow from the same two arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from longtail.kernels.types import Float64, Int32, Int64, UInt8
from longtail.metrics.kernels import best_gains, judge


@dataclass(frozen=True)
class JudgedRows:
    """Hits and gains at every rank of every row; matrices are k ranks by n rows.

    Parameters
    ----------
    hits : ndarray of uint8, shape (k, n)
        1 where the label at this rank is a true label of the row.
    decided : ndarray of uint8, shape (k, n)
        1 where there is a label at this rank, 0 for padding.
    n_true : ndarray of int64, shape (n,)
        True labels of each row.
    gains, best : ndarray of float64, shape (k, n), optional
        Inverse propensity of the label at this rank if it is a hit, else 0; and the row's largest inverse propensities
        in decreasing order, the gains of a perfect ranking.
    n_labels : int
        Number of labels, for Hamming.
    """

    hits: UInt8
    decided: UInt8
    n_true: Int64
    gains: Float64 | None = None
    best: Float64 | None = None
    n_labels: int = 1

    @classmethod
    def from_ranking(
        cls,
        labels: Int32,
        indptr: Int64,
        indices: Int32,
        inverse_propensity: Float64 | None = None,
        gain_labels: Int32 | None = None,
        n_labels: int = 1,
    ) -> JudgedRows:
        """Compare `labels` (n by k, -1 for padding) with the sorted true labels of each row.

        With `gain_labels` the gains are those of this other ranking.
        """
        shape = labels.shape[::-1]
        hits, n_true, none = np.empty(shape, np.uint8), np.diff(indptr), np.empty((0, 0))
        decided = np.ascontiguousarray((labels >= 0).T).view(np.uint8)
        if inverse_propensity is None:
            judge(labels, indptr, indices, np.empty(0), hits, none)
            return cls(hits, decided, n_true, n_labels=n_labels)
        gains, best = np.empty(shape), np.empty(shape)
        judge(labels, indptr, indices, inverse_propensity, hits, gains)
        if gain_labels is not None:
            judge(gain_labels, indptr, indices, inverse_propensity, np.empty(shape, np.uint8), gains)
        best_gains(indptr, indices, inverse_propensity, best)
        return cls(hits, decided, n_true, gains, best, n_labels)

    @property
    def discounts(self) -> Float64:
        """Discounts of DCG, 1 / log2(rank + 1); shape (k, 1)."""
        return 1.0 / np.log2(np.arange(2, self.hits.shape[0] + 2))[:, None]

    @cached_property
    def hits_so_far(self) -> Float64:
        """Hits up to each rank."""
        return _running_sum(self.hits.astype(np.float64))

    @cached_property
    def decided_so_far(self) -> Float64:
        """Labels predicted up to each rank."""
        return _running_sum(self.decided.astype(np.float64))

    @cached_property
    def discounted_hits_so_far(self) -> Float64:
        """Discounted hits up to each rank."""
        return _running_sum(self.hits * self.discounts)

    @cached_property
    def gains_so_far(self) -> tuple[Float64, Float64]:
        """Gains up to each rank, and those of a perfect ranking."""
        gains, best = _weighted(self)
        return _running_sum(gains), _running_sum(best)

    @cached_property
    def discounted_gains_so_far(self) -> tuple[Float64, Float64]:
        """Discounted gains up to each rank, and those of a perfect ranking."""
        gains, best = _weighted(self)
        return _running_sum(gains * self.discounts), _running_sum(best * self.discounts)

    @cached_property
    def share_of_one(self) -> Float64:
        """1 / true labels of the row, 1 where there are none; shape (n,)."""
        share: Float64 = 1.0 / np.maximum(self.n_true, 1)
        return share

    def dcg_mass(self, ks: Int64) -> Float64:
        """Return the DCG of min(k, true labels) hits at the first ranks; 1 where a row has no true label."""
        mass = np.cumsum(self.discounts)
        return mass[np.clip(self.n_true[None, :], 1, ks[:, None]) - 1]


Ratio = tuple[Float64, Float64]
"""Numerators and denominators of a metric, each of shape (ks, n); denominators shared by all rows have shape (ks,)."""


def _running_sum(values: Float64) -> Float64:
    """Cumulative sum over the ranks; faster than numpy's cumsum along this axis."""
    total = np.empty_like(values)
    total[0] = values[0]
    for place in range(1, len(values)):
        np.add(total[place - 1], values[place], out=total[place])
    return total


def _per_row(values: Float64) -> Ratio:
    """Return a metric that is the mean of one value per row."""
    return values, np.ones(len(values))


def precision(rows: JudgedRows, ks: Int64) -> Ratio:
    """P: hits over k, whatever the number of predictions or true labels."""
    return rows.hits_so_far[ks - 1], ks.astype(np.float64)


def ndcg(rows: JudgedRows, ks: Int64) -> Ratio:
    """Compute nDCG: discounted hits over those of a perfect ranking of min(k, true labels) ranks."""
    return _per_row(rows.discounted_hits_so_far[ks - 1] / rows.dcg_mass(ks))


def recall(rows: JudgedRows, ks: Int64) -> Ratio:
    """R: hits over the row's true labels."""
    return _per_row(rows.hits_so_far[ks - 1] / np.maximum(rows.n_true, 1))


def psp(rows: JudgedRows, ks: Int64) -> Ratio:
    """PSP: inverse propensities of the hits over the k largest of the row's true labels."""
    gains, best = rows.gains_so_far
    return gains[ks - 1], best[ks - 1]


def psndcg_ratio(rows: JudgedRows, ks: Int64) -> Ratio:
    """PSnDCG_ratio: discounted gains over discounted best gains, with no normaliser of the row."""
    gains, best = rows.discounted_gains_so_far
    return gains[ks - 1], best[ks - 1]


def psndcg(rows: JudgedRows, ks: Int64) -> Ratio:
    """PSnDCG: as PSnDCG_ratio, with both sides first divided by the row's DCG mass of min(k, true labels) ranks."""
    gain, best = psndcg_ratio(rows, ks)
    mass = rows.dcg_mass(ks)
    return gain / mass, best / mass


def psr(rows: JudgedRows, ks: Int64) -> Ratio:
    """PSR: as PSP, with both sides first divided by the row's true labels."""
    gain, best = psp(rows, ks)
    return gain * rows.share_of_one, best * rows.share_of_one


def reciprocal_rank(rows: JudgedRows, ks: Int64) -> Ratio:
    """MRR: one over the rank of the first hit; 0 where there is none among the first k."""
    best = rows.hits / np.arange(1.0, len(rows.hits) + 1)[:, None]
    for place in range(1, len(best)):
        np.maximum(best[place - 1], best[place], out=best[place])
    return _per_row(best[ks - 1])


def average_discounted_gain(rows: JudgedRows, ks: Int64) -> Ratio:
    """ADG: discounted hits over the row's true labels."""
    return _per_row(rows.discounted_hits_so_far[ks - 1] * rows.share_of_one)


def psadg(rows: JudgedRows, ks: Int64) -> Ratio:
    """PSADG: as PSnDCG_ratio, with both sides first divided by the row's true labels."""
    gain, best = psndcg_ratio(rows, ks)
    return gain * rows.share_of_one, best * rows.share_of_one


def micro_f1(rows: JudgedRows, ks: Int64) -> Ratio:
    """microF1: twice the hits over true and predicted labels, all rows together."""
    return 2.0 * rows.hits_so_far[ks - 1], rows.decided_so_far[ks - 1] + rows.n_true


def hamming(rows: JudgedRows, ks: Int64) -> Ratio:
    """Compute Hamming, a loss: predicted labels that are not true, and true ones not predicted, over all labels."""
    wrong = rows.decided_so_far[ks - 1] + rows.n_true - 2.0 * rows.hits_so_far[ks - 1]
    return wrong, np.full(len(ks), float(rows.n_labels))


def _weighted(rows: JudgedRows) -> Ratio:
    if rows.gains is None or rows.best is None:
        raise ValueError("propensity-scored metrics need rows judged with inverse propensities")
    return rows.gains, rows.best


ROW_METRICS: dict[str, Callable[[JudgedRows, Int64], Ratio]] = {
    "P": precision,
    "nDCG": ndcg,
    "PSP": psp,
    "PSnDCG": psndcg,
    "PSnDCG_ratio": psndcg_ratio,
    "R": recall,
    "PSR": psr,
    "MRR": reciprocal_rank,
    "ADG": average_discounted_gain,
    "PSADG": psadg,
    "microF1": micro_f1,
    "Hamming": hamming,
}
"""Every metric that is a ratio of sums over rows, by the name before @k."""

PROPENSITY_SCORED = frozenset({"PSP", "PSnDCG", "PSnDCG_ratio", "PSR", "PSADG"})
"""Those of them that need inverse propensities."""

"""Ranked predictions: the k best labels of each row, ties broken by the lower label id."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp


@dataclass(frozen=True)
class TopK:
    """The k best labels of each row, best first.

    Parameters
    ----------
    labels : ndarray of int32, shape (n, k)
        Label ids, padded with -1 where a row has fewer than k.
    scores : ndarray of float32, shape (n, k)
        Their scores, padded with -inf; equal scores are ordered by label id.

    Examples
    --------
    >>> top = TopK(np.array([[4, 2]], np.int32), np.array([[0.9, 0.1]], np.float32))
    >>> top.k, len(top)
    (2, 1)
    >>> top.at_least(0.5).labels
    array([[ 4, -1]], dtype=int32)
    """

    labels: npt.NDArray[np.int32]
    scores: npt.NDArray[np.float32]

    @classmethod
    def empty(cls, n: int, k: int) -> TopK:
        """Return a ranking of n rows that is all padding, to be filled in."""
        return cls(np.full((n, k), -1, np.int32), np.full((n, k), -np.inf, np.float32))

    @classmethod
    def concat(cls, tops: Iterable[TopK], axis: int = 0) -> TopK:
        """Join rankings: of different rows (axis 0), or the candidates of the same rows side by side (axis 1).

        Examples
        --------
        >>> top = TopK(np.array([[4, 2]], np.int32), np.array([[0.9, 0.1]], np.float32))
        >>> TopK.concat([top, top]).labels.shape, TopK.concat([top, top], axis=1).labels.shape
        ((2, 2), (1, 4))
        """
        labels, scores = zip(*((top.labels, top.scores) for top in tops), strict=True)
        return cls(np.concatenate(labels, axis), np.concatenate(scores, axis))

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def k(self) -> int:
        """Labels per row, padding included."""
        return int(self.labels.shape[1])

    def ranked_by(self, scores: npt.NDArray[np.float32], k: int) -> TopK:
        """Rank the same labels by other scores and keep the k best.

        Examples
        --------
        >>> top = TopK(np.array([[4, 2, -1]], np.int32), np.array([[0.9, 0.1, -np.inf]], np.float32))
        >>> top.ranked_by(np.array([[0.2, 0.3, 0]], np.float32), k=2).labels
        array([[2, 4]], dtype=int32)
        """
        scores = np.where(self.labels >= 0, scores, -np.float32(np.inf))
        order = np.lexsort((np.where(self.labels >= 0, self.labels, np.iinfo(np.int32).max), -scores), axis=1)
        labels = np.take_along_axis(self.labels, order, axis=1)[:, :k]
        scores = np.take_along_axis(scores, order, axis=1)[:, :k]
        missing = ((0, 0), (0, k - labels.shape[1]))
        return TopK(np.pad(labels, missing, constant_values=-1), np.pad(scores, missing, constant_values=-np.inf))

    def at_least(self, min_score: float) -> TopK:
        """Keep the labels whose score reaches `min_score`; the others become padding."""
        keep = self.scores >= min_score
        return TopK(np.where(keep, self.labels, np.int32(-1)), np.where(keep, self.scores, -np.float32(np.inf)))

    def indicator(self, n_labels: int) -> sp.csr_array:
        """Return the ranking as a sparse 0/1 matrix of shape (n, n_labels)."""
        keep = self.labels >= 0
        indptr = np.concatenate([[0], np.cumsum(keep.sum(axis=1))])
        matrix = sp.csr_array((np.ones(indptr[-1], np.float32), self.labels[keep], indptr), shape=(len(self), n_labels))
        matrix.sort_indices()
        return matrix

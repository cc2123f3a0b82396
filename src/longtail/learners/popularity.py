"""The constant ranking by label frequency, a baseline for every other learner."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from longtail.kernels.types import Float32, Int32, Int64
from longtail.learners.base import Allowed, Factors, Learner
from longtail.learners.cost import TrainingCost
from longtail.learners.explanation import Explanation
from longtail.learners.updates import UpdateBatch
from longtail.runtime.memory import resident_memory
from longtail.topk import TopK


class Popularity(Learner):
    """Rank the labels of every row by their share of the training rows.

    The score of a label is its share, so `predict` returns the labels that more than half of the training rows have.
    Labels without a training row are never predicted.

    Attributes
    ----------
    ranking_ : ndarray of int32
        Labels with a training row, most frequent first, ties by the lower id.
    shares_ : ndarray of float32
        Their shares of the training rows.

    Examples
    --------
    >>> learner = Popularity().fit([[1], [2], [3]], [[0, 1, 0], [0, 1, 1], [0, 0, 0]])
    >>> learner.predict_topk([[5]], k=3).labels
    array([[ 1,  2, -1]], dtype=int32)
    """

    _gives_probabilities = True

    _stored: ClassVar[tuple[str, ...]] = ("ranking_", "shares_")
    _decision_threshold: ClassVar[float] = 0.5

    ranking_: Int32
    shares_: Float32

    def _fit(self, X: sp.csr_array, Y: sp.csr_array) -> None:
        self._rank(self.label_counts_, self.n_rows_)

    def _update(self, batch: UpdateBatch) -> None:
        self._rank(batch.label_counts, batch.n_rows)

    def _rank(self, label_counts: Int64, n_rows: int) -> None:
        shares = (label_counts / n_rows).astype(np.float32)
        ranking = np.argsort(-shares, kind="stable")[: np.count_nonzero(label_counts)]
        self.ranking_ = ranking.astype(np.int32)
        self.shares_ = shares[ranking]

    def _topk(self, X: sp.csr_array, k: int, allowed: Allowed) -> TopK:
        ranking, shares = self.ranking_, self.shares_
        if allowed is not None:
            keep = allowed[ranking]
            ranking, shares = ranking[keep], shares[keep]
        top = TopK.empty(X.shape[0], k)
        top.labels[:, : len(ranking)] = ranking[:k]
        top.scores[:, : len(ranking)] = shares[:k]
        return top

    def _weighted_topk(self, X: sp.csr_array, k: int, allowed: Allowed, factors: Factors) -> TopK:
        if factors is None or not len(factors):
            return self._topk(X, k, allowed)
        top = self._topk(X[:1], max(len(self.ranking_), 1), allowed)
        best = top.ranked_by(top.scores * factors[top.labels], k)
        n = X.shape[0]
        return TopK(np.repeat(best.labels[:1], n, axis=0), np.repeat(best.scores[:1], n, axis=0))

    def _explain(self, X: sp.csr_array, labels: Int32) -> list[Explanation]:
        shares = np.full(self.n_labels_, -np.inf)
        shares[self.ranking_] = self.shares_
        return [Explanation(int(label), str(label), float(shares[label]), float(shares[label]), []) for label in labels]

    def _estimate(self, X: sp.csr_array, Y: sp.csr_array) -> TrainingCost:
        return TrainingCost(0.0, resident_memory() / 1e6, 16 * Y.shape[1] / 1e6, 0.0, 1)

"""Re-ranking by centroids: the tail classifier of PfastreXML, for any learner."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from longtail.kernels.types import Float64, Int32
from longtail.learners import Explanation, Learner, TrainingCost
from longtail.learners.base import Allowed
from longtail.learners.composite import GrowsTrees, MetaLearner
from longtail.learners.rows import row_squares
from longtail.learners.updates import UpdateBatch
from longtail.rerank.centroid_kernels import rerank
from longtail.rerank.centroids import LabelCentroids
from longtail.runtime.pool import in_chunks
from longtail.topk import TopK
from longtail.validation import Constraint, Integer, Number, Validated

_ROWS_AT_ONCE, _CANDIDATES_AT_ONCE = 4096, 1 << 22
BIAS = 1.0


class CentroidReranker(MetaLearner, GrowsTrees):
    """Re-rank the labels of a learner by its scores and by the distance of the row from the centroid of each label.

    A label with few training rows has little influence on an instance tree, but a row near the mean of those few is
    likely to have it. The score of a label is ``s ** alpha * t ** (1 - alpha)``, where s is the learner's score and
    ``t = 1 / (1 + exp(gamma * ||x - centroid||^2))``, from 0 to 1/2. Rows are normalised to length 1, including a bias
    feature of 1. Only the learner's best `top_k` labels are ranked.

    If the learner's scores are margins, as those of `OneVsRest`, s is 1 / (1 + exp(-3 margin)).

    Parameters
    ----------
    learner : Learner, optional
        Any learner; ``InstanceForest(weighting="inverse-propensity", criterion="dcg")`` by default.
    gamma : float
        Decay with the squared distance.
    alpha : float
        From 0, the centroids alone, to 1, the learner alone.
    top_k : int
        Candidates per row.
    drop : float
        The smallest values of a centroid are dropped, up to this total norm. A squared distance then changes by at
        most twice as much, and the logarithm of a score by at most ``2 * gamma * (1 - alpha) * drop``.
    n_jobs : int, optional
        Threads; None as `longtail.config_context` says. The result does not depend on it.

    Attributes
    ----------
    learner_ : Learner
        The fitted learner.
    centroids_ : LabelCentroids

    References
    ----------
    Jain, Prabhu and Varma: Extreme Multi-label Loss Functions for Recommendation, Tagging, Ranking and Other Missing
    Label Applications. KDD 2016.

    Examples
    --------
    >>> from longtail import CentroidReranker, Popularity
    >>> X, Y = [[1, 0], [1, 0], [0, 1]], [[1, 0], [1, 0], [0, 1]]
    >>> CentroidReranker(learner=Popularity()).fit(X, Y).predict_topk([[0, 1]], k=2).labels
    array([[1, 0]], dtype=int32)
    """

    _stored: ClassVar[tuple[str, ...]] = ("learner_", "centroids_")

    learner_: Learner
    centroids_: LabelCentroids

    @property
    def _decision_threshold(self) -> float:  # type: ignore[override]
        """Score of a label at the learner's own threshold, in a row without any feature of its centroid."""
        Validated._check_parameters(self)  # may be set on a fitted learner
        decided = float(self.learner_._log_scores(np.array([self.learner_._decision_threshold]))[0])
        return math.exp(self.alpha * decided - (1 - self.alpha) * float(np.logaddexp(0, self.gamma)))

    _constraints: ClassVar[Mapping[str, Constraint]] = {
        "gamma": Number(low=0),
        "alpha": Number(low=0, high=1),
        "drop": Number(low=0, high=1),
        "top_k": Integer(1),
    }

    def __init__(
        self,
        *,
        learner: Learner | None = None,
        gamma: float = 30.0,
        alpha: float = 0.8,
        top_k: int = 1000,
        drop: float = 0.1,
        n_jobs: int | None = None,
    ) -> None:
        self.learner = learner
        self.gamma = gamma
        self.alpha = alpha
        self.top_k = top_k
        self.drop = drop
        self.n_jobs = n_jobs

    def _default(self) -> Learner:
        from longtail.learners import InstanceForest

        return InstanceForest(weighting="inverse-propensity", criterion="dcg")

    def _fit(self, X: sp.csr_array, Y: sp.csr_array) -> None:
        self.learner_ = self._base()._fit_checked(X, Y)
        self.centroids_ = self._centroids(self.learner_._points(X), Y)

    def _update(self, batch: UpdateBatch) -> None:
        """Update the wrapped learner and the centroids: exactly if all rows are given, else as a mean of means."""
        super()._update(batch)
        X, Y = batch.all_rows
        found = self._centroids(self.learner_._points(X), Y)
        if batch.earlier is None:
            found = self.centroids_.joined(found, batch.before, np.bincount(Y.indices, minlength=batch.n_labels))
        self.centroids_ = found

    def _centroids(self, X: sp.csr_array, Y: sp.csr_array) -> LabelCentroids:
        return LabelCentroids.of(X, Y, _scales(X), BIAS, float(self.drop))

    def _topk(self, X: sp.csr_array, k: int, allowed: Allowed) -> TopK:
        Validated._check_parameters(self)  # may be set on a fitted learner
        n = X.shape[0]
        top = TopK.empty(n, k)
        chunk_size = max(1, min(_ROWS_AT_ONCE, _CANDIDATES_AT_ONCE // min(int(self.top_k), max(self.n_labels_, 1))))
        for begin in range(0, n, chunk_size):
            part = slice(begin, begin + chunk_size)
            rows = X if n <= chunk_size else X[part]
            self._rank(rows, allowed, TopK(top.labels[part], top.scores[part]))
        return top

    def _rank(self, X: sp.csr_array, allowed: Allowed, top: TopK) -> None:
        points = self.learner_._points(X)
        centroids, scales = self.centroids_.arrays(points.shape[1], self.n_labels_), _scales(points)
        self._check_labels()
        found = self.learner_._topk(X, min(int(self.top_k), max(self.n_labels_, 1)), allowed)
        strengths = self.learner_._log_scores(found.scores)

        def rank(first: int, last: int) -> None:
            rerank(
                points.indptr, points.indices, points.data, scales, first, last, BIAS, centroids, float(self.gamma),
                float(self.alpha), found.labels[first:last], strengths[first:last],
                np.zeros(points.shape[1], np.float32), top.labels[first:last], top.scores[first:last],
            )  # fmt: skip

        in_chunks(rank, X.shape[0], _ROWS_AT_ONCE, "re-ranking")

    def _explain(self, X: sp.csr_array, labels: Int32) -> list[Explanation]:
        Validated._check_parameters(self)  # may be set on a fitted learner
        found = self.learner_._topk(X, min(int(self.top_k), max(self.n_labels_, 1)), None).labels[0]
        reached = set(found.tolist())
        return [
            self._explain_one(X, explanation, explanation.label in reached)
            for explanation in self.learner_._explain(X, labels)
        ]

    def _explain_one(self, X: sp.csr_array, base: Explanation, is_reached: bool) -> Explanation:
        """Distribute the score over the features of the learner and of the centroid.

        The score is a product of both. Each gets the mean of its contributions when its features come first and when
        they come last (Shapley values), so that the parts add up to the score.
        """
        alpha, name = float(self.alpha), type(self.learner_).__name__
        strength, start = (float(value) for value in self.learner_._log_scores(np.array([base.score, base.bias])))
        if not is_reached or strength == -math.inf:
            few = f"It is not among the {self.top_k:,} best labels of {name}, so it is not ranked."
            return Explanation(base.label, base.name, 0.0, 0.0, [], remark=base.remark or few)
        effects = np.zeros(self.n_features_in_)
        for feature, effect in base.parts:
            effects[int(feature)] = effect
        effects = effects[X.indices]
        points = self.learner_._points(X)
        near, far, products = self._nearness(points, base.label)
        if points is not X:  # distances in another space than that of the features
            far, products = near, np.zeros(len(effects))
        with_features, without = (_power(value, alpha) for value in (strength, start if effects.sum() else strength))
        close, distant = (_power(value, 1 - alpha) for value in (near, far if products.sum() else near))
        score = with_features * close
        whole = Explanation.from_effects(
            base.label,
            without * distant,
            X.indices,
            _spread(effects, (with_features - without) * (close + distant) / 2)
            + _spread(products, (close - distant) * (with_features + without) / 2),
        )
        alone = math.exp(strength)
        return replace(
            whole,
            sources=[(f"{name} alone", alone), (f"centroid, which brings it to {score:.3g}", score - alone)],
            path=base.path,
            path_name=base.path_name,
            path_share=base.path_share,
        )

    def _nearness(self, X: sp.csr_array, label: int) -> tuple[float, float, Float64]:
        """Logarithm of t, the same without the features, and the contribution of each feature to the inner product."""
        centroids = self.centroids_.arrays(X.shape[1], self.n_labels_)
        part = slice(centroids.starts[label], centroids.starts[label + 1])
        dense = np.zeros(X.shape[1])
        dense[centroids.features[part]] = centroids.values[part]
        scale = float(_scales(X)[0])
        products = dense[X.indices] * X.data * scale
        far = (float(np.square(X.data, dtype=np.float64).sum()) + BIAS**2) * scale**2 + float(centroids.squares[label])
        own = BIAS * scale * float(centroids.bias[label])
        near, bias = (
            -np.logaddexp(0, self.gamma * max(0.0, far - 2 * (own + product))) for product in (products.sum(), 0.0)
        )
        return float(near), float(bias), products

    def _estimate(self, X: sp.csr_array, Y: sp.csr_array) -> TrainingCost:
        base = self._base()._estimate(X, Y)
        start = time.perf_counter()
        centroids = self._centroids(X, Y)
        seconds = time.perf_counter() - start
        size = sum(getattr(centroids, name).nbytes for name in centroids._stored[1:]) / 1e6
        return replace(
            base.times(1, alone=seconds), model_mb=base.model_mb + size, peak_memory_mb=base.peak_memory_mb + size
        )


def _power(logarithm: float, exponent: float) -> float:
    return math.exp(exponent * logarithm) if exponent else 1.0


def _spread(weights: Float64, amount: float) -> Float64:
    """Distribute an amount in proportion to weights."""
    total = weights.sum()
    return weights * (amount / total) if total else weights * 0


def _scales(X: sp.csr_array) -> Float64:
    """Factors that normalise rows to length 1, including the bias feature."""
    return np.asarray(1 / np.sqrt(row_squares(X) + BIAS**2))

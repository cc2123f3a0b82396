"""Re-ranking by centroids: the tail classifier of PfastreXML around any learner."""

from __future__ import annotations

import copy
import math
import sys
import time
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from longtail.engine.centroids import rerank
from longtail.engine.pool import in_chunks, thread_count
from longtail.engine.topk import TopK
from longtail.errors import InputError, ModelError, ParameterError
from longtail.learners import Estimate, Explanation, InstanceForest, Learner
from longtail.learners.base import checked_k
from longtail.learners.linear.training import row_squares
from longtail.learners.updates import MoreRows
from longtail.propensity.base import is_number
from longtail.tail.around import Around
from longtail.tail.centroids import LabelCentroids

_ROWS_AT_ONCE, _CANDIDATES_AT_ONCE = 4096, 1 << 22
_RANGES = (("gamma", sys.float_info.max), ("alpha", 1.0), ("drop", 1.0))
BIAS = 1.0


class CentroidReranker(Around):
    """Rank what a learner returns anew, by its scores and by how far the row is from the centroid of each label.

    A label with few training rows has little support in a learner that looks at rows together, but a row that lies near
    the mean of those few is likely to have it. The score of a label is ``s ** alpha * t ** (1 - alpha)``, where s is
    the learner's score and ``t = 1 / (1 + exp(gamma * ||x - centroid||^2))``, from 0 to 1/2. Rows are brought to length
    1, with a bias feature of 1 in them. Only labels among the learner's best `candidates` are ranked.

    Where the learner's scores are margins, as those of `OneVsRest`, s is 1 / (1 + exp(-3 margin)).

    Parameters
    ----------
    learner : Learner, optional
        Any learner; ``InstanceForest(weighting="inverse-propensity", ideal=False)`` when left out.
    gamma : float
        How fast a label fades with the distance.
    alpha : float
        From 0, the centroids alone, to 1, the learner alone.
    candidates : int
        Labels of a row that are looked at.
    drop : float
        The smallest values of a centroid are dropped, as long as they are together no longer than this. A squared
        distance then changes by at most twice as much, and the logarithm of a score by at most
        ``2 * gamma * (1 - alpha) * drop``.
    threads : int, optional

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
        """Score of a label that the learner would just decide for, in a row that has nothing of its centroid."""
        self._check_ranking()
        decided = float(self.learner_._log_scores(np.array([self.learner_._decision_threshold]))[0])
        return math.exp(self.alpha * decided - (1 - self.alpha) * float(np.logaddexp(0, self.gamma)))

    def __init__(
        self,
        *,
        learner: Learner | None = None,
        gamma: float = 30.0,
        alpha: float = 0.8,
        candidates: int = 1000,
        drop: float = 0.1,
        threads: int | None = None,
    ) -> None:
        self.learner = learner
        self.gamma = gamma
        self.alpha = alpha
        self.candidates = candidates
        self.drop = drop
        self.threads = threads

    def add_trees(self, X: Any, Y: Any, trees: int) -> Self:
        """Grow more trees in the forest inside and leave the others, and the centroids, as they are.

        See `InstanceForest.add_trees`. When it fails or is interrupted, the learner stays as it was.

        Examples
        --------
        >>> X, Y = [[1, 0], [0, 1], [1, 1]], [[1, 0], [0, 1], [1, 1]]
        >>> learner = CentroidReranker(learner=InstanceForest(trees=2)).fit(X, Y)
        >>> learner.add_trees(X, Y, 3).learner_.trees_.n_trees
        5
        """
        check_is_fitted(self, "n_labels_")
        self._check_ranking()
        grown: Any = copy.copy(self.learner_)
        if not hasattr(grown, "add_trees"):
            raise InputError(f"{type(grown).__name__} has no trees over rows that more could join: train it anew.")
        grown.add_trees(X, Y, trees)
        with self._whole_or_unchanged():
            self.learner, self.learner_ = clone(grown), grown
            self.n_rows_, self.label_counts_ = grown.n_rows_, grown.label_counts_
        return self

    def _check_parameters(self) -> None:
        self._check_ranking()
        self._check_learner()
        self._base()._check_parameters()

    def _check_ranking(self) -> None:
        """Refuse what ranking can't work with; these may be set on a fitted learner, so every ranking asks."""
        for name, most in _RANGES:
            value = getattr(self, name)
            if not ((type(value) in (float, int) or is_number(value)) and 0 <= value <= most):
                raise ParameterError(name, value, f"must be a number of at least 0{' and at most 1' * (most == 1)}")
        checked_k(self.candidates, "candidates")
        if self.threads is not None:
            thread_count(self.threads)

    def _default(self) -> Learner:
        return InstanceForest(weighting="inverse-propensity", ideal=False, threads=self.threads)

    def _fit(self, X: sp.csr_array, Y: sp.csr_array) -> None:
        self.learner_ = self._base().fit(X, Y)
        self.centroids_ = self._centroids(self.learner_._points(X), Y)

    def _update(self, more: MoreRows) -> None:
        """Update the learner inside, and the centroids: exactly where all rows are there, else as a mean of means."""
        self.learner_ = self.learner_._updated(more)
        X, Y = more.all_rows
        found = self._centroids(self.learner_._points(X), Y)
        if more.earlier is None:
            found = self.centroids_.joined(found, more.before, np.bincount(Y.indices, minlength=more.n_labels))
        self.centroids_ = found

    def _centroids(self, X: sp.csr_array, Y: sp.csr_array) -> LabelCentroids:
        return LabelCentroids.of(X, Y, _scales(X), BIAS, float(self.drop), self.threads)

    def _topk(self, X: sp.csr_array, k: int, allowed: npt.NDArray[np.bool_] | None) -> TopK:
        self._check_ranking()
        n = X.shape[0]
        top = TopK(np.full((n, k), -1, np.int32), np.full((n, k), -np.inf, np.float32))
        at_once = max(1, min(_ROWS_AT_ONCE, _CANDIDATES_AT_ONCE // min(int(self.candidates), max(self.n_labels_, 1))))
        for begin in range(0, n, at_once):
            part = slice(begin, begin + at_once)
            rows = X if n <= at_once else X[part]
            self._rank(rows, allowed, TopK(top.labels[part], top.scores[part]))
        return top

    def _rank(self, X: sp.csr_array, allowed: npt.NDArray[np.bool_] | None, top: TopK) -> None:
        points = self.learner_._points(X)
        centroids, scales = self.centroids_.arrays(points.shape[1], self.n_labels_), _scales(points)
        if self.learner_.n_labels_ != self.n_labels_:
            raise ModelError("The learner inside has other labels than the re-ranker: train it again.")
        found = self.learner_._topk(X, min(int(self.candidates), max(self.n_labels_, 1)), allowed)
        strengths = self.learner_._log_scores(found.scores)

        def rank(first: int, last: int) -> None:
            rerank(
                points.indptr, points.indices, points.data, scales, first, last, BIAS, centroids, float(self.gamma),
                float(self.alpha), found.labels[first:last], strengths[first:last],
                np.zeros(points.shape[1], np.float32), top.labels[first:last], top.scores[first:last],
            )  # fmt: skip

        in_chunks(rank, X.shape[0], _ROWS_AT_ONCE, self.threads, "ranking anew")

    def _explain(self, X: sp.csr_array, labels: npt.NDArray[np.int32]) -> list[Explanation]:
        self._check_ranking()
        found = self.learner_._topk(X, min(int(self.candidates), max(self.n_labels_, 1)), None).labels[0]
        reached = set(found.tolist())
        return [self._explain_one(X, why, why.label in reached) for why in self.learner_._explain(X, labels)]

    def _explain_one(self, X: sp.csr_array, why: Explanation, is_reached: bool) -> Explanation:
        """Share the score out between the learner and the centroid, and what each adds among its features.

        The score is a product of both. Each of them gets the mean of what it adds when its features come first and
        when they come last, so the parts add up to the score.
        """
        alpha, name = float(self.alpha), type(self.learner_).__name__
        strength, start = (float(value) for value in self.learner_._log_scores(np.array([why.score, why.bias])))
        if not is_reached or strength == -math.inf:
            few = f"It is not among the {self.candidates:,} best labels of {name}, so it is not ranked."
            return Explanation(why.label, why.name, 0.0, 0.0, [], remark=why.remark or few)
        effects = np.zeros(self.n_features_in_)
        for feature, effect in why.parts:
            effects[int(feature)] = effect
        effects = effects[X.indices]
        points = self.learner_._points(X)
        near, far, likeness = self._nearness(points, why.label)
        if points is not X:  # what is near are not the features themselves
            far, likeness = near, np.zeros(len(effects))
        with_features, without = (_power(value, alpha) for value in (strength, start if effects.sum() else strength))
        close, distant = (_power(value, 1 - alpha) for value in (near, far if likeness.sum() else near))
        score = with_features * close
        whole = Explanation.from_effects(
            why.label,
            without * distant,
            X.indices,
            _spread(effects, (with_features - without) * (close + distant) / 2)
            + _spread(likeness, (close - distant) * (with_features + without) / 2),
        )
        alone = math.exp(strength)
        return replace(
            whole,
            sources=[(f"{name} alone", alone), (f"centroid, which brings it to {score:.3g}", score - alone)],
            path=why.path,
            path_name=why.path_name,
            path_share=why.path_share,
        )

    def _nearness(self, X: sp.csr_array, label: int) -> tuple[float, float, npt.NDArray[np.float64]]:
        """Logarithm of what the centroid says, the same without the features' likeness, and the likeness of each."""
        centroids = self.centroids_.arrays(X.shape[1], self.n_labels_)
        part = slice(centroids.starts[label], centroids.starts[label + 1])
        dense = np.zeros(X.shape[1])
        dense[centroids.features[part]] = centroids.values[part]
        scale = float(_scales(X)[0])
        likeness = dense[X.indices] * X.data * scale
        far = (float(np.square(X.data, dtype=np.float64).sum()) + BIAS**2) * scale**2 + float(centroids.squares[label])
        own = BIAS * scale * float(centroids.bias[label])
        near, bias = (-np.logaddexp(0, self.gamma * max(0.0, far - 2 * (own + more))) for more in (likeness.sum(), 0.0))
        return float(near), float(bias), likeness

    def _estimate(self, X: sp.csr_array, Y: sp.csr_array) -> Estimate:
        inner = self._base()._estimate(X, Y)
        start = time.perf_counter()
        centroids = self._centroids(X, Y)
        seconds = time.perf_counter() - start
        size = sum(getattr(centroids, name).nbytes for name in centroids._stored[1:]) / 1e6
        return replace(
            inner.times(1, alone=seconds),
            model_mb=inner.model_mb + size,
            peak_memory_mb=inner.peak_memory_mb + size,
        )


def _power(logarithm: float, exponent: float) -> float:
    return math.exp(exponent * logarithm) if exponent else 1.0


def _spread(weights: npt.NDArray[np.float64], amount: float) -> npt.NDArray[np.float64]:
    """Share an amount out in proportion to weights."""
    total = weights.sum()
    return weights * (amount / total) if total else weights * 0


def _scales(X: sp.csr_array) -> npt.NDArray[np.float64]:
    """Factors that bring rows to length 1, the bias feature in them."""
    return np.asarray(1 / np.sqrt(row_squares(X) + BIAS**2))

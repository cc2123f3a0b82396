"""Stacking: probabilities from the scores of one or two learners and the frequency of labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

from longtail.data.sparse import chosen_rows
from longtail.errors import ModelError
from longtail.kernels.types import Float32, Float64, Int32, Int64
from longtail.learners import Explanation, Learner, OneVsRest, TrainingCost
from longtail.learners.base import Allowed
from longtail.learners.composite import MetaLearner, check_learner, unit_scores
from longtail.learners.platt import fit_logistic
from longtail.learners.prediction import checked_k
from longtail.learners.updates import UpdateBatch
from longtail.metrics.ranking import are_true
from longtail.rerank.folds import find_candidates, split_folds
from longtail.rerank.stacking_kernels import FIRST_LOG_ODDS, LEAST, MOST, candidate_features, look_up, n_features
from longtail.runtime.mmap import allocator
from longtail.topk import TopK
from longtail.validation import SEED, Constraint, Integer, parameters_of

_ROWS_AT_ONCE, _CANDIDATES_AT_ONCE = 2048, 1 << 16
_PAIRS = 400_000  # training candidates of the logistic regression
_RIDGE = 0.1
_LEAST_TRUE = 100  # candidates


class Stacked(MetaLearner):
    """Turn the scores of one or two learners into probabilities that a label is recorded, and rank by them.

    A logistic regression is trained on out-of-fold candidates of the learners. Its features are the log-odds of each
    learner, the frequency of the label, its rank, and the scores of the other candidates: the same score means less for
    a rare label, and less in a row with many high scores. Frequent and rare labels then have comparable scores, which
    the tail dial needs. Two learners with different errors, such as a plain one and one with weighted costs, are better
    together than each alone.

    Parameters
    ----------
    learner : Learner, optional
        Selects the candidates; ``OneVsRest()`` by default.
    second : Learner, optional
        Scores the same labels; none by default.
    top_k : int
        Candidates per row. With `only` or `exclude`, the best allowed labels are added.
    folds : int
        Number of folds for the out-of-fold candidates.
    random_state : int

    Attributes
    ----------
    learner_, second_ : Learner
        The fitted learners; `second_` is None if there is none.
    weights_ : ndarray of float64
        Of the logistic regression, the intercept last.

    Examples
    --------
    >>> from longtail import OneVsRest, Stacked
    >>> X, Y = [[1, 0], [0, 1], [1, 0], [0, 1]], [[1, 0], [0, 1], [1, 0], [0, 1]]
    >>> Stacked(second=OneVsRest(weighting="pw")).fit(X, Y).predict_topk([[1, 0]], k=1).labels
    array([[0]], dtype=int32)
    """

    _stored: ClassVar[tuple[str, ...]] = ("learner_", "second_", "weights_")
    _decision_threshold: ClassVar[float] = 0.5

    learner_: Learner
    second_: Learner | None
    weights_: Float64

    _constraints: ClassVar[Mapping[str, Constraint]] = {"folds": Integer(2), "top_k": Integer(1), "random_state": SEED}

    _gives_probabilities = True

    def __init__(
        self,
        *,
        learner: Learner | None = None,
        second: Learner | None = None,
        top_k: int = 30,
        folds: int = 2,
        random_state: int = 0,
    ) -> None:
        self.learner = learner
        self.second = second
        self.top_k = top_k
        self.folds = folds
        self.random_state = random_state

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_learner(self, "second")
        if self.second is not None:
            with parameters_of("second"):
                self.second._check_parameters()

    def _default(self) -> Learner:
        return OneVsRest()

    def _bases(self) -> list[Learner]:
        return [self._base()] if self.second is None else [self._base(), clone(self.second)]

    @property
    def _fitted(self) -> list[Learner]:
        return [self.learner_] if self.second_ is None else [self.learner_, self.second_]

    def _fit(self, X: sp.csr_array, Y: sp.csr_array) -> None:
        self.weights_ = self._learn(X, Y)
        fitted = [base._fit_checked(X, Y) for base in self._bases()]
        self.learner_, self.second_ = fitted[0], fitted[1] if len(fitted) > 1 else None

    def _update(self, batch: UpdateBatch) -> None:
        """Update the wrapped learners; the logistic regression stays unchanged."""
        super()._update(batch)
        self.second_ = None if self.second_ is None else self.second_._updated(batch)

    def _learn(self, X: sp.csr_array, Y: sp.csr_array) -> Float64:
        """Fit the weights to out-of-fold candidates of a sample of the rows."""
        folds = split_folds(X.shape[0], int(self.folds), int(self.random_state))
        features, truth = [], []
        for held_out, others in folds:
            part, rest = self._sampled(held_out, len(folds)), chosen_rows(X, others)
            fitted = [base._fit_checked(rest, Y[others]) for base in self._bases()]
            del rest
            for first in range(0, len(part), self._rows_at_once):
                rows = part[first : first + self._rows_at_once]
                some = chosen_rows(X, rows)
                top = self._candidates(fitted[0], some, None)
                used = top.labels >= 0
                features.append(self._features(fitted, some, top)[used])
                truth.append(are_true(top.labels, Y[rows])[used])
        n_known = n_features(len(fitted))
        del fitted
        if sum(int(some.sum()) for some in truth) < _LEAST_TRUE:  # too few: the learner's own probabilities
            alone: Float64 = np.eye(n_known + 1)[FIRST_LOG_ODDS]
            return alone
        known = _together(features, n_known)
        centre = known.mean(axis=0)
        known -= centre
        scale = np.sqrt(np.einsum("ij,ij->j", known, known) / len(known)) + 1e-6
        known /= scale
        weights = fit_logistic(known, np.concatenate(truth), _RIDGE)
        weights[:-1] /= scale
        weights[-1] -= float(weights[:-1] @ centre)
        return weights

    @property
    def _merged_candidates(self) -> int:
        return int(self.top_k)

    @property
    def _rows_at_once(self) -> int:
        return max(1, min(_ROWS_AT_ONCE, _CANDIDATES_AT_ONCE // checked_k(self.top_k, "top_k")))

    def _sampled(self, rows: Int64, folds: int) -> Int64:
        most = max(1, _PAIRS // folds // max(int(self.top_k), 1))
        if len(rows) <= most:
            return rows
        return np.sort(np.random.default_rng(self.random_state).choice(rows, most, replace=False))

    def _candidates(self, learner: Learner, X: sp.csr_array, allowed: Allowed) -> TopK:
        return find_candidates(learner, X, checked_k(self.top_k, "top_k"), allowed)

    def _features(self, fitted: list[Learner], X: sp.csr_array, top: TopK) -> Float32:
        """Features of the candidates, of shape (rows, candidates, features)."""
        log_odds = [_log_odds(top.scores)]
        for other in fitted[1:]:
            found = find_candidates(other, X, 2 * top.k)
            by_other = np.empty_like(log_odds[0])
            look_up(top.labels, found.labels, _log_odds(found.scores), by_other)
            log_odds.append(by_other)
        if len(log_odds) > 1:
            log_odds.append(np.mean(log_odds, axis=0, dtype=np.float32))
        counts = np.append(fitted[0].label_counts_, 0)[top.labels]
        features = np.zeros((*top.labels.shape, n_features(len(fitted))), np.float32)
        candidate_features(top.labels, np.stack(log_odds), (np.log1p(counts) / 3).astype(np.float32), features)
        return features

    def _topk(self, X: sp.csr_array, k: int, allowed: Allowed) -> TopK:
        fitted = self._fitted
        if any(part.n_labels_ != self.n_labels_ for part in fitted):
            raise ModelError("The wrapped learners have other labels than the model: train it again.")
        if self.weights_.shape != (n_features(len(fitted)) + 1,):
            raise ModelError("The weights of the model don't fit its learners: train it again.")
        n, chunk_size = X.shape[0], self._rows_at_once
        best = TopK.empty(n, k)
        for first in range(0, n, chunk_size):
            part = slice(first, first + chunk_size)
            rows = X if n <= chunk_size else X[part]
            top = self._candidates(fitted[0], rows, None)
            if allowed is not None:
                top = _with_others(top, self._candidates(fitted[0], rows, allowed))
            probabilities = self._probabilities(fitted, rows, top)
            if allowed is not None:
                top = TopK(np.where((top.labels >= 0) & allowed[top.labels], top.labels, np.int32(-1)), top.scores)
            ranked = top.ranked_by(probabilities, k)
            best.labels[part], best.scores[part] = ranked.labels, ranked.scores
        return best

    def _probabilities(self, fitted: list[Learner], X: sp.csr_array, top: TopK) -> Float32:
        log_odds = self._features(fitted, X, top) @ self.weights_[:-1] + self.weights_[-1]
        return np.asarray(1 / (1 + np.exp(-np.clip(log_odds, -80, 80))), np.float32)

    def _explain(self, X: sp.csr_array, labels: Int32) -> list[Explanation]:
        """Distribute the probability over the features in proportion to the learner's own explanation."""
        top = self._candidates(self.learner_, X, None)
        found = self._probabilities(self._fitted, X, top)[0]
        probabilities = dict(zip(top.labels[0].tolist(), found.tolist(), strict=True))
        explanations = []
        for explanation in self.learner_._explain(X, labels):
            plain, start = unit_scores(self.learner_, explanation.score, explanation.bias)
            probability = probabilities.get(explanation.label, 0.0)
            sources = [(type(self.learner_).__name__, plain), ("stacking", probability - plain)]
            of_features = probability * (1 - start / plain) if plain > 0 else 0.0
            explanations.append(explanation.rescaled(probability, of_features).with_sources(sources))
        return explanations

    def _estimate(self, X: sp.csr_array, Y: sp.csr_array) -> TrainingCost:
        whole = TrainingCost.in_turn([base._estimate(X, Y).times(max(int(self.folds), 2)) for base in self._bases()])
        return replace(whole, peak_memory_mb=whole.peak_memory_mb + whole.model_mb)


def _together(parts: list[Float32], width: int) -> Float64:
    """Join the features of candidates and free the parts; on disk where the memory limit requires it."""
    length, end = sum(len(part) for part in parts), 0
    known = allocator(8 * length * width)((length, width), np.float64)
    parts.reverse()
    while parts:
        part = parts.pop()
        known[end : end + len(part)] = part
        end += len(part)
    return known


def _log_odds(probabilities: Float32) -> Float32:
    with np.errstate(divide="ignore"):
        log_odds = np.log(probabilities) - np.log1p(-probabilities)
    return np.asarray(np.clip(log_odds, LEAST, MOST), np.float32)


def _with_others(top: TopK, others: TopK) -> TopK:
    """Join two sets of candidates, each label once."""
    known = (others.labels[:, :, None] == top.labels[:, None, :]).any(axis=2)
    both = TopK.concat([top, TopK(np.where(known, np.int32(-1), others.labels), others.scores)], axis=1)
    ranked = both.ranked_by(both.scores, both.k)
    return TopK(ranked.labels, np.where(ranked.labels >= 0, ranked.scores, np.float32(0)))

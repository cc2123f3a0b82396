"""Stacking: probabilities of a learner's best labels, from its scores, those of a second learner, and rarity."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import clone

from longtail.corpus.sparse import chosen_rows
from longtail.engine.mapped import allocator
from longtail.engine.stacking import FIRST_LOG_ODDS, LEAST, MOST, candidate_features, fit_logistic, look_up, n_features
from longtail.engine.topk import TopK
from longtail.errors import ModelError
from longtail.learners import Estimate, Explanation, Learner, OneVsRest
from longtail.learners.base import checked_k, memory_limit_of
from longtail.learners.checks import check_whole
from longtail.learners.updates import MoreRows
from longtail.metrics.hits import are_true
from longtail.tail.around import Around
from longtail.tail.folds import fold_numbers, linked

_ROWS_AT_ONCE, _CANDIDATES_AT_ONCE = 2048, 1 << 16
_PAIRS = 400_000  # from which the probabilities are learned
_RIDGE = 0.1
_LEAST_TRUE = 100  # candidates


class Stacked(Around):
    """Turn the scores of a learner, or of two, into probabilities that a label is recorded, and rank by them.

    A logistic regression is trained on candidates that the learners ranked for rows they had not seen. Besides the
    log-odds by each learner it looks at how frequent the label is, at its place, and at the scores of its rivals: the
    same score means less for a rare label, and less in a row with many good ones. So frequent and rare labels can be
    compared, which is what the tail dial needs. Two learners that err in different ways, such as a plain one and one
    with weighted costs, are better together than each alone.

    Parameters
    ----------
    learner : Learner, optional
        Gives the candidates; ``OneVsRest()`` when left out.
    second : Learner, optional
        Gives an opinion on the same labels; none when left out.
    candidates : int
        Labels of a row that are ranked. Where labels are restricted to some, the best of these are ranked besides.
    folds : int
        Rows are ranked by learners that were trained on the other folds.
    seed : int

    Attributes
    ----------
    learner_, second_ : Learner
        The fitted learners; `second_` is None if there is none.
    weights_ : ndarray of float64
        Of the logistic regression, that of the constant last.

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
    weights_: npt.NDArray[np.float64]

    def __init__(
        self,
        *,
        learner: Learner | None = None,
        second: Learner | None = None,
        candidates: int = 30,
        folds: int = 2,
        seed: int = 0,
    ) -> None:
        self.learner = learner
        self.second = second
        self.candidates = candidates
        self.folds = folds
        self.seed = seed

    def _check_parameters(self) -> None:
        check_whole(self, folds=2, seed=0)
        checked_k(self.candidates, "candidates")
        self._check_learner()
        self._check_learner("second")
        for base in self._bases():
            base._check_parameters()

    def _default(self) -> Learner:
        return OneVsRest()

    def _bases(self) -> list[Learner]:
        return [self._base()] if self.second is None else [self._base(), clone(self.second)]

    @property
    def _fitted(self) -> list[Learner]:
        return [self.learner_] if self.second_ is None else [self.learner_, self.second_]

    def _fit(self, X: sp.csr_array, Y: sp.csr_array) -> None:
        self.weights_ = self._learn(X, Y)
        fitted = [base.fit(X, Y) for base in self._bases()]
        self.learner_, self.second_ = fitted[0], fitted[1] if len(fitted) > 1 else None

    def _update(self, more: MoreRows) -> None:
        """Update the learners inside; how their scores become probabilities stays."""
        self.learner_ = self.learner_._updated(more)
        self.second_ = None if self.second_ is None else self.second_._updated(more)

    def _learn(self, X: sp.csr_array, Y: sp.csr_array) -> npt.NDArray[np.float64]:
        """Weights from rows that the learners had not seen; a row more or less is drawn for the sake of time."""
        folds = fold_numbers(X.shape[0], int(self.folds), int(self.seed))
        features, truth = [], []
        for number in range(folds.max() + 1):
            held_out = np.flatnonzero(folds == number)
            others = np.flatnonzero(folds != number) if folds.max() > 0 else held_out
            part, rest = self._drawn(held_out, folds.max() + 1), chosen_rows(X, others)
            fitted = [base.fit(rest, Y[others]) for base in self._bases()]
            del rest
            for first in range(0, len(part), self._rows_at_once):
                rows = part[first : first + self._rows_at_once]
                some = chosen_rows(X, rows)
                top = self._candidates(fitted[0], some, None)
                used = top.labels >= 0
                features.append(self._features(fitted, some, top)[used])
                truth.append(are_true(top, Y[rows])[used])
        n_known = n_features(len(fitted))
        del fitted
        if sum(int(some.sum()) for some in truth) < _LEAST_TRUE:  # too few to learn from: the learner's own chances
            alone: npt.NDArray[np.float64] = np.eye(n_known + 1)[FIRST_LOG_ODDS]
            return alone
        known = _together(features, n_known, memory_limit_of(self))
        centre = known.mean(axis=0)
        known -= centre
        scale = np.sqrt(np.einsum("ij,ij->j", known, known) / len(known)) + 1e-6
        known /= scale
        weights = fit_logistic(known, np.concatenate(truth), _RIDGE)
        weights[:-1] /= scale
        weights[-1] -= float(weights[:-1] @ centre)
        return weights

    @property
    def _rows_at_once(self) -> int:
        return max(1, min(_ROWS_AT_ONCE, _CANDIDATES_AT_ONCE // checked_k(self.candidates, "candidates")))

    def _drawn(self, rows: npt.NDArray[np.int64], folds: int) -> npt.NDArray[np.int64]:
        most = max(1, _PAIRS // folds // max(int(self.candidates), 1))
        if len(rows) <= most:
            return rows
        return np.sort(np.random.default_rng(self.seed).choice(rows, most, replace=False))

    def _candidates(self, learner: Learner, X: sp.csr_array, allowed: npt.NDArray[np.bool_] | None) -> TopK:
        k = min(checked_k(self.candidates, "candidates"), max(learner.n_labels_, 1))
        return linked(learner, learner._topk(X, k, allowed))

    def _features(self, fitted: list[Learner], X: sp.csr_array, top: TopK) -> npt.NDArray[np.float32]:
        """Features of the candidates, of shape (rows, candidates, features)."""
        log_odds = [_log_odds(top.scores)]
        for other in fitted[1:]:
            found = linked(other, other._topk(X, min(2 * top.k, max(other.n_labels_, 1)), None))
            by_other = np.empty_like(log_odds[0])
            look_up(top.labels, found.labels, _log_odds(found.scores), by_other)
            log_odds.append(by_other)
        if len(log_odds) > 1:
            log_odds.append(np.mean(log_odds, axis=0, dtype=np.float32))
        counts = np.append(fitted[0].label_counts_, 0)[top.labels]
        features = np.zeros((*top.labels.shape, n_features(len(fitted))), np.float32)
        candidate_features(top.labels, np.stack(log_odds), (np.log1p(counts) / 3).astype(np.float32), features)
        return features

    def _topk(self, X: sp.csr_array, k: int, allowed: npt.NDArray[np.bool_] | None) -> TopK:
        fitted = self._fitted
        if any(part.n_labels_ != self.n_labels_ for part in fitted):
            raise ModelError("The learners inside have other labels than the model: train it again.")
        if self.weights_.shape != (n_features(len(fitted)) + 1,):
            raise ModelError("The weights of the model don't fit its learners: train it again.")
        n, at_once = X.shape[0], self._rows_at_once
        best = TopK(np.full((n, k), -1, np.int32), np.full((n, k), -np.inf, np.float32))
        for first in range(0, n, at_once):
            part = slice(first, first + at_once)
            rows = X if n <= at_once else X[part]
            top = self._candidates(fitted[0], rows, None)
            if allowed is not None:
                top = _with_others(top, self._candidates(fitted[0], rows, allowed))
            chances = self._chances(fitted, rows, top)
            if allowed is not None:
                top = TopK(np.where((top.labels >= 0) & allowed[top.labels], top.labels, np.int32(-1)), top.scores)
            ranked = top.ranked_by(chances, k)
            best.labels[part], best.scores[part] = ranked.labels, ranked.scores
        return best

    def _chances(self, fitted: list[Learner], X: sp.csr_array, top: TopK) -> npt.NDArray[np.float32]:
        odds = self._features(fitted, X, top) @ self.weights_[:-1] + self.weights_[-1]
        return np.asarray(1 / (1 + np.exp(-np.clip(odds, -80, 80))), np.float32)

    def _explain(self, X: sp.csr_array, labels: npt.NDArray[np.int32]) -> list[Explanation]:
        """The probability, shared out over the features as the learner's own score is."""
        top = self._candidates(self.learner_, X, None)
        chances = dict(zip(top.labels[0].tolist(), self._chances(self._fitted, X, top)[0].tolist(), strict=True))
        whys = []
        for why in self.learner_._explain(X, labels):
            plain, start = np.exp(self.learner_._log_scores(np.array([why.score, why.bias], np.float64)))
            chance, effects = chances.get(why.label, 0.0), sum(effect for _, effect in why.parts)
            scale = chance * float(1 - start / plain) / effects if effects and plain > 0 else 0.0
            parts = [(feature, effect * scale) for feature, effect in why.parts]
            bias = chance - sum(effect for _, effect in parts)
            sources = [(type(self.learner_).__name__, float(plain)), ("stacking", chance - float(plain))]
            whys.append(replace(why, score=chance, bias=bias, parts=parts).with_sources(sources))
        return whys

    def _estimate(self, X: sp.csr_array, Y: sp.csr_array) -> Estimate:
        parts = [base._estimate(X, Y) for base in self._bases()]
        whole = [part.times(max(int(self.folds), 2)) for part in parts]
        return replace(
            parts[0],
            seconds=sum(part.seconds for part in whole),
            least_seconds=sum(part.least_seconds or 0.0 for part in whole),
            model_mb=sum(part.model_mb for part in parts),
            peak_memory_mb=max(part.peak_memory_mb for part in parts) + sum(part.model_mb for part in parts),
        )


def _together(
    parts: list[npt.NDArray[np.float32]], width: int, memory_limit: int | str | None
) -> npt.NDArray[np.float64]:
    """Join features of candidates and let the parts go; on disk where a limit leaves no room in memory."""
    length, end = sum(len(part) for part in parts), 0
    known = allocator(memory_limit, 8 * length * width)((length, width), np.float64)
    parts.reverse()
    while parts:
        part = parts.pop()
        known[end : end + len(part)] = part
        end += len(part)
    return known


def _log_odds(chances: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    with np.errstate(divide="ignore"):
        odds = np.log(chances) - np.log1p(-chances)
    return np.asarray(np.clip(odds, LEAST, MOST), np.float32)


def _with_others(top: TopK, others: TopK) -> TopK:
    """Candidates and more candidates, each label once."""
    known = (others.labels[:, :, None] == top.labels[:, None, :]).any(axis=2)
    labels = np.concatenate([top.labels, np.where(known, np.int32(-1), others.labels)], axis=1)
    scores = np.concatenate([top.scores, others.scores], axis=1)
    ranked = TopK(labels, scores).ranked_by(scores, labels.shape[1])
    return TopK(ranked.labels, np.where(ranked.labels >= 0, ranked.scores, np.float32(0)))

"""Several learners as one: their scores as log-odds, weighted and added up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from longtail.corpus.sparse import as_indicator, as_rows
from longtail.corpus.texts import as_texts
from longtail.engine.topk import TopK
from longtail.errors import InputError, ParameterError
from longtail.learners.base import Learner, checked_k
from longtail.learners.blending import Links, find_weights, log_odds, merged
from longtail.learners.checks import check_shares, check_whole
from longtail.learners.estimate import Estimate
from longtail.learners.explanation import Explanation
from longtail.learners.held_out import split_rows
from longtail.learners.links import fit_link
from longtail.propensity.base import is_number

_LEAST_SLOPE = 0.01


class Blend(Learner):
    """Rank by the weighted sum of what several learners say.

    Each learner's scores become log-odds first, by a line of their own. A label that one learner doesn't rank among its
    best `candidates` counts there as the last that it does. With equal weights this is the ensemble of the papers: the
    same network with other encoders, clusterings or seeds.

    Parameters
    ----------
    learners : sequence of Learner
        All for texts, or all for the same features.
    names : sequence of str, optional
        For explanations; the classes' names when left out.
    weights : sequence of float, optional
        One for each learner, of at least 0; found on the rows held out when left out.
    candidates : int
        Labels of each learner that are looked at in a row.
    held_out : float
        Share of the rows that no learner is trained on, by which scores become log-odds and weights are found; where
        they would be fewer than 20, none, and all learners weigh the same.
    seed : int

    Attributes
    ----------
    learners_ : list of Learner
        Fitted.
    weights_ : ndarray of float64
        Adding up to 1.
    slope_, offset_ : float
        From the sum to log-odds.

    Examples
    --------
    >>> from longtail import Blend, LabelTree, OneVsRest, datasets
    >>> from longtail.corpus import Tfidf
    >>> data = datasets.load("debian-tags:train")
    >>> X, Y = Tfidf().fit_transform(data.texts[:800]), data.Y[:800]
    >>> blend = Blend(learners=[OneVsRest(), LabelTree()], weights=[1, 1]).fit(X, Y)
    >>> blend.predict_topk(X[:2], k=3).labels.shape
    (2, 3)
    """

    _stored: ClassVar[tuple[str, ...]] = ("learners_", "weights_", "slopes_", "offsets_", "slope_", "offset_")

    learners_: list[Learner]
    weights_: npt.NDArray[np.float64]
    slopes_: npt.NDArray[np.float64]
    offsets_: npt.NDArray[np.float64]
    slope_: float
    offset_: float

    def __init__(
        self,
        *,
        learners: Sequence[Learner] = (),
        names: Sequence[str] | None = None,
        weights: Sequence[float] | None = None,
        candidates: int = 50,
        held_out: float = 0.1,
        seed: int = 0,
    ) -> None:
        self.learners = learners
        self.names = names
        self.weights = weights
        self.candidates = candidates
        self.held_out = held_out
        self.seed = seed

    def fit(self, X: Any, Y: Any) -> Self:
        """Train all learners on most rows `X` and labels `Y`, and weigh them by the others.

        Returns
        -------
        self
        """
        self._check_parameters()
        rows, labels = self._read(X), as_indicator(Y)
        if _count(rows) != labels.shape[0]:
            raise InputError(f"X has {_count(rows)} rows and Y has {labels.shape[0]}: they must be the same rows.")
        with self._whole_or_unchanged():
            self._fit(rows, labels)
        return self

    def join(self, learners: Sequence[Learner], X: Any, Y: Any) -> Self:
        """Take learners that are trained already, and weigh them by rows that none of them has seen.

        Parameters
        ----------
        learners : sequence of Learner
            Fitted with the same labels.
        X : matrix or sequence of texts
        Y : matrix, rows by labels

        Returns
        -------
        self
        """
        self._check_joined(learners)
        truth = as_indicator(Y)
        if truth.shape[1] != learners[0].n_labels_:
            raise InputError(f"Y has {truth.shape[1]} labels, and the learners have {learners[0].n_labels_}.")
        if not truth.nnz:
            raise InputError("Y has no labels: there is nothing to weigh the learners by.")
        with self._whole_or_unchanged():
            self.learners = [clone(part) for part in learners]
            self._join(learners, X, truth, is_unseen=True)
        return self

    def _join(self, learners: Sequence[Learner], X: Any, truth: sp.csr_array, is_unseen: bool) -> None:
        """Take trained learners; they are weighed only by rows that they haven't seen."""
        self.learners_ = list(learners)
        first = self.learners_[0]
        self.n_labels_, self.n_rows_, self.label_counts_ = first.n_labels_, first.n_rows_, first.label_counts_
        self.n_features_in_ = first.n_features_in_
        tops = self._tops(self._check_rows(X), int(self.candidates), None)
        if truth.shape[0] != len(tops[0]):
            raise InputError(f"X has {len(tops[0])} rows and Y has {truth.shape[0]}: they must be the same rows.")
        lines = np.array([fit_link(top, truth, _LEAST_SLOPE) for top in tops])
        self.slopes_, self.offsets_ = lines[:, 0], lines[:, 1]
        parts = self._linked(tops)
        weights = np.ones(len(learners)) if self.weights is None else np.asarray(self.weights, np.float64)
        if self.weights is None and is_unseen:
            weights = find_weights(parts, truth)
        self.weights_ = weights / weights.sum()
        blended = merged(parts, self.weights_, int(self.candidates), self.n_labels_)
        self.slope_, self.offset_ = fit_link(blended, truth, _LEAST_SLOPE)

    def estimate(self, X: Any, Y: Any) -> Estimate:
        """Tell what `fit` would take: all learners, one after the other."""
        self._check_parameters()
        found = [part.estimate(X, Y) for part in self.learners]
        return replace(
            found[0],
            seconds=sum(part.seconds for part in found),
            peak_memory_mb=max(part.peak_memory_mb for part in found),
            model_mb=sum(part.model_mb for part in found),
            block_mb=max(part.block_mb for part in found),
        )

    def explain(self, X: Any, labels: Any = None, *, k: int = 5) -> list[Explanation]:
        """Say what made up some labels' scores for one row, by features and by learners; see `Learner.explain`."""
        check_is_fitted(self, "n_labels_")
        rows = self._check_rows(X)
        if _count(rows) != 1:
            raise InputError(f"X has {_count(rows)} rows: explain one row at a time.")
        if labels is None:
            best = self._topk(rows, checked_k(k), None).labels[0]
            labels = best[best >= 0]
        chosen = self._label_ids("labels", labels)
        unseen = next((int(label) for label in chosen if self.label_counts_[label] == 0), None)
        if unseen is not None:
            raise InputError(f"Label {unseen} has no training row, so there is no score to explain.")
        linked = self._linked(self._tops(rows, max(len(chosen), int(self.candidates)), None))
        asked = np.unique(np.concatenate([chosen, *(part.labels[0][part.labels[0] >= 0] for part in linked)]))
        said = log_odds(linked, np.zeros(len(asked), np.int64), asked.astype(np.int64), self.n_labels_)
        of_label = dict(zip(asked.tolist(), said, strict=True))
        return [self._why(label, of_label[label], X, linked) for label in chosen.tolist()]

    def _why(self, label: int, said: npt.NDArray[np.float64], X: Any, linked: Sequence[Links]) -> Explanation:
        """Share a label's score out: over the learners, and over the features of those that have it as a candidate."""
        shares = self.slope_ * self.weights_ * said
        score = float(shares.sum()) + self.offset_
        effects: dict[str, float] = {}
        for number, (part, learner) in enumerate(zip(linked, self.learners_, strict=True)):
            if label in part.labels[0, : part.candidates] and self.weights_[number]:
                steep = float(self.slope_ * self.weights_[number] * self.slopes_[number])
                for name, effect in _explained(learner, X, label):
                    effects[name] = effects.get(name, 0.0) + steep * effect
        ordered = sorted(((name, effect) for name, effect in effects.items() if effect), key=lambda e: -abs(e[1]))
        why = Explanation(label, str(label), score, score - sum(effect for _, effect in ordered), ordered)
        return why.with_sources([*zip(self._names(), shares.tolist(), strict=True), ("offset", float(self.offset_))])

    def _names(self) -> list[str]:
        if self.names is not None:
            return [str(name) for name in self.names]
        inner = [getattr(part, "learner_", part) for part in self.learners_]
        return [f"{type(part).__name__} {number + 1}" for number, part in enumerate(inner)]

    def _tops(self, X: Any, k: int, allowed: npt.NDArray[np.bool_] | None) -> list[TopK]:
        return [part._topk(part._check_rows(X), k, allowed) for part in self.learners_]

    def _linked(self, tops: Sequence[TopK]) -> list[Links]:
        lines = zip(tops, self.slopes_.tolist(), self.offsets_.tolist(), strict=True)
        return [Links.of(top, slope, offset, int(self.candidates)) for top, slope, offset in lines]

    def _topk(self, X: Any, k: int, allowed: npt.NDArray[np.bool_] | None) -> TopK:
        tops = self._tops(X, max(k, int(self.candidates)), allowed)
        top = merged(self._linked(tops), self.weights_, k, self.n_labels_)
        scores = np.where(top.labels >= 0, top.scores * self.slope_ + self.offset_, -np.inf).astype(np.float32)
        return TopK(top.labels, scores)

    def _fit(self, X: Any, Y: sp.csr_array) -> None:
        counts = np.bincount(Y.indices, minlength=Y.shape[1])
        chosen, held_out = split_rows(Y, counts, float(self.held_out), int(self.seed))
        trained = [clone(part).fit(_some(X, chosen), Y[chosen]) for part in self.learners]
        judged = held_out if len(held_out) else chosen
        self._join(trained, _some(X, judged), Y[judged], is_unseen=len(held_out) > 0)
        self._remember_labels(Y)

    def _log_scores(self, scores: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.floating[Any]]:
        return np.asarray(-np.logaddexp(0, -scores), scores.dtype)

    def _takes_texts(self) -> bool:
        parts = self.learners_ if hasattr(self, "learners_") else self.learners
        return any(get_tags(part).input_tags.string for part in parts)

    def _read(self, X: Any) -> Any:
        return as_texts(X) if self._takes_texts() else as_rows(X)

    def _check_rows(self, X: Any) -> Any:
        return as_texts(X) if self._takes_texts() else super()._check_rows(X)

    def _check_joined(self, learners: Sequence[Learner]) -> None:
        if len(learners) < 2:
            raise ParameterError("learners", list(learners), "must be two learners at least")
        for part in learners:
            check_is_fitted(part, "n_labels_")
        if len({part.n_labels_ for part in learners}) > 1:
            raise InputError("The learners have different numbers of labels: train them on the same data.")
        if len({bool(get_tags(part).input_tags.string) for part in learners}) > 1:
            raise InputError("Some learners take texts and some features: a blend takes one or the other.")
        self._check_weights(len(learners))

    def _check_parameters(self) -> None:
        if isinstance(self.learners, Learner | str) or not all(isinstance(part, Learner) for part in self.learners):
            raise ParameterError("learners", self.learners, "must be a sequence of learners")
        if len(self.learners) < 2:
            raise ParameterError("learners", list(self.learners), "must be two learners at least")
        self._check_weights(len(self.learners))
        check_shares(self, "held_out")
        if not self.held_out:
            raise ParameterError("held_out", self.held_out, "must be above 0: the learners are weighed by those rows")
        for part in self.learners:
            part._check_parameters()

    def _check_weights(self, n: int) -> None:
        check_whole(self, candidates=1, seed=0)
        if self.names is not None and len(self.names) != n:
            raise ParameterError("names", self.names, f"must be {n} names, one for each learner")
        if self.weights is None:
            return
        given = list(self.weights)
        if len(given) != n or not all(is_number(weight) and 0 <= weight < np.inf for weight in given) or not sum(given):
            raise ParameterError("weights", self.weights, f"must be {n} numbers of at least 0, not all 0")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if self.learners and self._takes_texts():
            tags.input_tags.string = True
            tags.input_tags.two_d_array = False
            tags.input_tags.sparse = False
        return tags


def _explained(part: Learner, X: Any, label: int) -> list[tuple[str, float]]:
    """What a learner says made up the score of a label; nothing where it can't say."""
    try:
        return list(part.explain(X, [label])[0].parts)
    except InputError:
        return []


def _count(rows: Any) -> int:
    return int(rows.shape[0]) if hasattr(rows, "shape") else len(rows)


def _some(rows: Any, chosen: npt.NDArray[np.int64]) -> Any:
    return [rows[row] for row in chosen] if isinstance(rows, list) else rows[chosen]

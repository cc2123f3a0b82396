"""Ensembles: the weighted sum of the log-odds of several learners."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from longtail.data.sparse import as_indicator, as_rows, column_counts
from longtail.errors import InputError, ParameterError
from longtail.features.texts import as_texts, tagged_as_texts
from longtail.kernels.types import Float64, Int32, Int64
from longtail.learners.base import Allowed, Learner
from longtail.learners.cost import TrainingCost
from longtail.learners.explanation import Explanation
from longtail.learners.held_out import split_rows
from longtail.learners.platt import fit_platt
from longtail.learners.prediction import checked_k
from longtail.metrics import evaluate
from longtail.topk import TopK
from longtail.validation import SEED, Constraint, Integer, Number, SequenceOf, as_list, check, parameters_of

_LEARNERS = SequenceOf(Learner, "learner", 2)
_LEAST_SLOPE = 0.01
_STEPS = (0.5, 0.25, 0.1, 0.05, 0.02)  # of the search for weights


class Blend(Learner):
    """Rank by the weighted sum of the log-odds of several learners.

    The scores of each learner are first turned into log-odds by Platt scaling. A label that is not among the best
    `top_k` of a learner gets its lowest log-odds. With equal weights this is the ensemble of the papers: the same
    network with other encoders, clusterings or seeds.

    Parameters
    ----------
    learners : sequence of Learner
        All for texts, or all for the same features.
    names : sequence of str, optional
        For explanations; the names of the classes by default.
    weights : sequence of float, optional
        One per learner, at least 0; by default found on held-out rows.
    top_k : int
        Candidates per learner and row.
    validation_fraction : float
        Share of the rows held out for Platt scaling and weights; if fewer than 20, none are held out and the weights
        are equal.
    random_state : int
        Seed of the split.

    Attributes
    ----------
    learners_ : list of Learner
        Fitted.
    weights_ : ndarray of float64
        Weights, with sum 1.
    slope_, offset_ : float
        Platt scaling of the weighted sum.

    Examples
    --------
    >>> from longtail import Blend, LabelTree, OneVsRest, datasets
    >>> from longtail.features import Tfidf
    >>> data = datasets.load("debian-tags:train")
    >>> X, Y = Tfidf().fit_transform(data.texts[:800]), data.Y[:800]
    >>> blend = Blend(learners=[OneVsRest(), LabelTree()], weights=[1, 1]).fit(X, Y)
    >>> blend.predict_topk(X[:2], k=3).labels.shape
    (2, 3)
    """

    _stored: ClassVar[tuple[str, ...]] = ("learners_", "weights_", "slopes_", "offsets_", "slope_", "offset_")

    learners_: list[Learner]
    weights_: Float64
    slopes_: Float64
    offsets_: Float64
    slope_: float
    offset_: float

    _constraints: ClassVar[Mapping[str, Constraint]] = {
        "top_k": Integer(1),
        "validation_fraction": Number(above=0, below=1),
        "random_state": SEED,
    }

    _gives_probabilities = True
    _log_odds_slope = 1.0

    def __init__(
        self,
        *,
        learners: Sequence[Learner] = (),
        names: Sequence[str] | None = None,
        weights: Sequence[float] | None = None,
        top_k: int = 50,
        validation_fraction: float = 0.1,
        random_state: int = 0,
    ) -> None:
        self.learners = learners
        self.names = names
        self.weights = weights
        self.top_k = top_k
        self.validation_fraction = validation_fraction
        self.random_state = random_state

    def _fit_unchecked(self, X: Any, y: Any) -> Self:
        """Train all learners on most of the rows, and find their weights on the others."""
        rows, labels = self._read(X), as_indicator(y, name="y")
        if _count(rows) != labels.shape[0]:
            raise InputError(f"X has {_count(rows)} rows and y has {labels.shape[0]}: they must be the same rows.")
        with self._whole_or_unchanged():
            self._fit(rows, labels)
            self._check_feature_names(X, reset=True)
        return self

    @classmethod
    def from_fitted(cls, learners: Sequence[Learner], X: Any, y: Any, **params: Any) -> Self:
        """Blend fitted learners, with weights found on held-out rows.

        Parameters
        ----------
        learners : sequence of Learner
            Fitted with the same labels.
        X : matrix or sequence of texts
            Rows that none of the learners was trained on.
        y : matrix, rows by labels
        **params
            Parameters of the blend: `names`, `weights`, `top_k`.

        Returns
        -------
        Blend
            Fitted.

        Examples
        --------
        >>> from longtail import Blend, OneVsRest, Popularity
        >>> X, Y = [[1, 0], [0, 1], [1, 1]], [[1, 0], [0, 1], [1, 1]]
        >>> learners = [OneVsRest().fit(X, Y), Popularity().fit(X, Y)]
        >>> Blend.from_fitted(learners, X, Y, weights=[3, 1]).weights_
        array([0.75, 0.25])
        """
        blend = cls(**params)
        super(Blend, blend)._check_parameters()
        blend._check_fitted(learners)
        truth = as_indicator(y, name="y")
        if truth.shape[1] != learners[0].n_labels_:
            raise InputError(f"y has {truth.shape[1]} labels, and the learners have {learners[0].n_labels_}.")
        if not truth.nnz:
            raise InputError("y has no labels: there is nothing to find the weights on.")
        blend.learners = [clone(part) for part in learners]
        if hasattr(learners[0], "feature_names_in_"):
            blend.feature_names_in_ = learners[0].feature_names_in_
        blend._combine([_without_names(part) for part in learners], X, truth, is_unseen=True)
        return blend

    def _combine(self, learners: Sequence[Learner], X: Any, truth: sp.csr_array, is_unseen: bool) -> None:
        """Combine fitted learners; weights are found only on rows that none was trained on."""
        self.learners_ = list(learners)
        first = self.learners_[0]
        self.n_labels_, self.n_rows_, self.label_counts_ = first.n_labels_, first.n_rows_, first.label_counts_
        self.n_features_in_ = first.n_features_in_
        tops = self._tops(self._check_rows(X), int(self.top_k), None)
        if truth.shape[0] != len(tops[0]):
            raise InputError(f"X has {len(tops[0])} rows and y has {truth.shape[0]}: they must be the same rows.")
        lines = np.array([fit_platt(top, truth, _LEAST_SLOPE) for top in tops])
        self.slopes_, self.offsets_ = lines[:, 0], lines[:, 1]
        parts = self._as_log_odds(tops)
        weights = np.ones(len(learners)) if self.weights is None else np.asarray(self.weights, np.float64)
        if self.weights is None and is_unseen:
            weights = find_weights(parts, truth)
        self.weights_ = weights / weights.sum()
        blended = merged(parts, self.weights_, int(self.top_k), self.n_labels_)
        self.slope_, self.offset_ = fit_platt(blended, truth, _LEAST_SLOPE)

    def estimate(self, X: Any, y: Any) -> TrainingCost:
        """Estimate the cost of `fit`: all learners in turn."""
        self._check_parameters()
        return TrainingCost.in_turn([part.estimate(X, y) for part in self.learners])

    def _explain(self, X: Any, labels: Int32) -> list[Explanation]:
        tops = self._as_log_odds(self._tops(X, max(len(labels), int(self.top_k)), None))
        asked = np.unique(np.concatenate([labels, *(part.labels[0][part.labels[0] >= 0] for part in tops)]))
        found = log_odds(tops, np.zeros(len(asked), np.int64), asked.astype(np.int64), self.n_labels_)
        of_label = dict(zip(asked.tolist(), found, strict=True))
        return [self._explain_one(label, of_label[label], X, tops) for label in labels.tolist()]

    def _explain_one(self, label: int, log_odds: Float64, X: Any, tops: Sequence[LogOdds]) -> Explanation:
        """Distribute a label's score over the learners, and over the features of those that have it as a candidate."""
        shares = self.slope_ * self.weights_ * log_odds
        score = float(shares.sum()) + self.offset_
        effects: dict[str, float] = {}
        for number, (part, learner) in enumerate(zip(tops, self.learners_, strict=True)):
            if label in part.labels[0, : part.candidates] and self.weights_[number]:
                steep = float(self.slope_ * self.weights_[number] * self.slopes_[number])
                for name, effect in _explained(learner, X, label):
                    effects[name] = effects.get(name, 0.0) + steep * effect
        ordered = sorted(((name, effect) for name, effect in effects.items() if effect), key=lambda e: -abs(e[1]))
        explanation = Explanation(label, str(label), score, score - sum(effect for _, effect in ordered), ordered)
        return explanation.with_sources(
            [*zip(self._names(), shares.tolist(), strict=True), ("offset", float(self.offset_))]
        )

    def _names(self) -> list[str]:
        if self.names is not None:
            return [str(name) for name in self.names]
        return [f"{part.display_name} {number + 1}" for number, part in enumerate(self.learners_)]

    def _tops(self, X: Any, k: int, allowed: Allowed) -> list[TopK]:
        return [part._topk(part._check_rows(X), k, allowed) for part in self.learners_]

    def _as_log_odds(self, tops: Sequence[TopK]) -> list[LogOdds]:
        lines = zip(tops, self.slopes_.tolist(), self.offsets_.tolist(), strict=True)
        return [LogOdds.of(top, slope, offset, int(self.top_k)) for top, slope, offset in lines]

    def _topk(self, X: Any, k: int, allowed: Allowed) -> TopK:
        checked_k(self.top_k, "top_k")  # it may be set on a fitted learner
        tops = self._tops(X, max(k, int(self.top_k)), allowed)
        top = merged(self._as_log_odds(tops), self.weights_, k, self.n_labels_)
        scores = np.where(top.labels >= 0, top.scores * self.slope_ + self.offset_, -np.inf).astype(np.float32)
        return TopK(top.labels, scores)

    def _fit(self, X: Any, Y: sp.csr_array) -> None:
        counts = column_counts(Y)
        chosen, held_out = split_rows(Y, counts, float(self.validation_fraction), int(self.random_state))
        trained = [clone(part)._fit_unchecked(_some(X, chosen), Y[chosen]) for part in self.learners]
        evaluated = held_out if len(held_out) else chosen
        self._combine(trained, _some(X, evaluated), Y[evaluated], is_unseen=len(held_out) > 0)
        self._remember_labels(Y)

    @property
    def _merged_candidates(self) -> int:
        return len(self.learners_) * int(self.top_k)

    def _takes_texts(self) -> bool:
        parts = self.learners_ if hasattr(self, "learners_") else self.learners
        return any(get_tags(part).input_tags.string for part in parts)

    def _read(self, X: Any) -> Any:
        return as_texts(X, name="X") if self._takes_texts() else as_rows(X)

    def _check_rows(self, X: Any) -> Any:
        return as_texts(X, name="X") if self._takes_texts() else super()._check_rows(X)

    def _check_fitted(self, learners: Sequence[Learner]) -> None:
        check("learners", learners, _LEARNERS)
        for part in learners:
            check_is_fitted(part, "n_labels_")
        if len({part.n_labels_ for part in learners}) > 1:
            raise InputError("The learners have different numbers of labels: train them on the same data.")
        if len({bool(get_tags(part).input_tags.string) for part in learners}) > 1:
            raise InputError("Some learners take texts and some features: a blend takes one or the other.")
        if len({tuple(getattr(part, "feature_names_in_", ())) for part in learners}) > 1:
            raise InputError("The learners have different feature names: train them on the same columns.")
        self._check_weights(len(learners))

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check("learners", self.learners, _LEARNERS)
        self._check_weights(len(self.learners))
        for number, part in enumerate(self.learners):
            with parameters_of(f"learners.{number}"):
                part._check_parameters()

    def _check_weights(self, n: int) -> None:
        if self.names is not None and len(as_list(self.names) or ()) != n:
            raise ParameterError("names", self.names, f"must be {n} names, one for each learner")
        if self.weights is None:
            return
        weights = as_list(self.weights) or ()
        for number, weight in enumerate(weights):
            check(f"weights[{number}]", weight, Number(low=0))
        if len(weights) != n or not any(weights):
            raise ParameterError("weights", self.weights, f"must be {n} numbers, not all 0")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        return tagged_as_texts(tags) if self.learners and self._takes_texts() else tags


def _without_names(learner: Learner) -> Learner:
    """Return a learner that doesn't check the names of features, which the blend does."""
    if not hasattr(learner, "feature_names_in_"):
        return learner
    plain = copy.copy(learner)
    del plain.feature_names_in_
    return plain


def _explained(part: Learner, X: Any, label: int) -> list[tuple[str, float]]:
    """Effects of the features on the score of a label; none where a learner has no explanations."""
    try:
        return list(part.explain(X, [label])[0].parts)
    except InputError:
        return []


def _count(rows: Any) -> int:
    return int(rows.shape[0]) if hasattr(rows, "shape") else len(rows)


def _some(rows: Any, chosen: Int64) -> Any:
    return [rows[row] for row in chosen] if isinstance(rows, list) else rows[chosen]


@dataclass(frozen=True)
class LogOdds:
    """A ranking whose scores are log-odds.

    Labels are padded with -1. The first `candidates` of a row are candidates; those at later ranks only order labels
    that are nobody's candidates.
    """

    labels: Int32
    scores: Float64
    candidates: int

    @classmethod
    def of(cls, top: TopK, slope: float, offset: float, candidates: int) -> LogOdds:
        """Turn scores into log-odds by slope and offset."""
        used = top.labels >= 0
        return cls(top.labels, np.where(used, slope * np.where(used, top.scores, 0) + offset, -np.inf), candidates)

    def floor(self, places: int) -> Float64:
        """Return the lowest log-odds among the first ranks of each row; 0 for an empty ranking."""
        lowest = np.where(self.labels >= 0, self.scores, np.inf)[:, :places].min(axis=1, initial=np.inf)
        return np.where(np.isfinite(lowest), lowest, 0.0)


def log_odds(parts: Sequence[LogOdds], of_row: Int64, labels: Int64, n_labels: int) -> Float64:
    """Return the log-odds of some labels of some rows, sorted by row and label, with a column per part.

    A label that is a candidate of some part gets the lowest log-odds of the candidates in the other parts. A label that
    is nobody's candidate keeps its log-odds, or gets the lowest of the ranking.
    """
    keys = of_row * n_labels + labels
    is_candidate = np.zeros(len(keys), np.bool_)
    places = [_places(part, keys, n_labels) for part in parts]
    for part, place in zip(parts, places, strict=True):
        is_candidate |= (place >= 0) & (place < part.candidates)
    found = np.empty((len(keys), len(parts)))
    for number, (part, place) in enumerate(zip(parts, places, strict=True)):
        floors = np.where(is_candidate, part.floor(part.candidates)[of_row], part.floor(part.labels.shape[1])[of_row])
        counts = (place >= 0) & ((place < part.candidates) | ~is_candidate)
        found[:, number] = np.where(counts, part.scores[of_row, np.maximum(place, 0)], floors)
    return found


def _places(part: LogOdds, keys: Int64, n_labels: int) -> Int64:
    """Return the ranks of labels, -1 for unranked ones; `keys` are row * n_labels + label, ascending."""
    rows, places = np.nonzero(part.labels >= 0)
    own = rows * n_labels + part.labels[rows, places].astype(np.int64)
    found = np.full(len(keys), -1, np.int64)
    at = np.minimum(np.searchsorted(keys, own), max(len(keys) - 1, 0))
    is_asked = keys[at] == own if len(keys) else np.zeros(len(own), np.bool_)
    found[at[is_asked]] = places[is_asked]
    return found


@dataclass(frozen=True)
class _Pool:
    """All labels that any part ranks, row by row, and their log-odds in each part, ready for any weights."""

    n_rows: int
    of_row: Int64
    labels: Int64
    log_odds: Float64

    @classmethod
    def of(cls, parts: Sequence[LogOdds], n_labels: int) -> _Pool:
        """Collect the labels of some parts."""
        ranked = [np.nonzero(part.labels >= 0) for part in parts]
        pairs = zip(parts, ranked, strict=True)
        keys = [row * n_labels + part.labels[row, place].astype(np.int64) for part, (row, place) in pairs]
        of_row, labels = np.divmod(np.unique(np.concatenate(keys)), max(n_labels, 1))
        return cls(len(parts[0].labels), of_row, labels, log_odds(parts, of_row, labels, n_labels))

    def by(self, weights: Float64, k: int) -> TopK:
        """Rank by weighted sums."""
        counts = np.bincount(self.of_row, minlength=self.n_rows)
        width = max(int(counts.max(initial=0)), 1)
        places = np.arange(width)[None] < counts[:, None]
        labels = np.full((self.n_rows, width), -1, np.int32)
        scores = np.full((self.n_rows, width), -np.inf, np.float32)
        labels[places], scores[places] = self.labels, self.log_odds @ weights
        return TopK(labels, scores).ranked_by(scores, k)


def merged(parts: Sequence[LogOdds], weights: Float64, k: int, n_labels: int) -> TopK:
    """Rank the labels that any part ranks by the weighted sum of their log-odds.

    Examples
    --------
    >>> one = LogOdds(np.array([[3, 1]], np.int32), np.array([[2.0, 0.0]]), 2)
    >>> other = LogOdds(np.array([[1, 2]], np.int32), np.array([[3.0, 1.0]]), 2)
    >>> merged([one, other], np.array([0.5, 0.5]), k=2, n_labels=4)
    TopK(labels=array([[1, 3]], dtype=int32), scores=array([[1.5, 1.5]], dtype=float32))
    """
    return _Pool.of(parts, n_labels).by(weights, k)


def find_weights(parts: Sequence[LogOdds], Y: sp.csr_array) -> Float64:
    """Return the weights with the best nDCG@5, by coordinate ascent from equal weights and from each part alone.

    Against local optima, the result of each start is also averaged with the best one and improved again.
    """
    ranked = _Pool.of(parts, Y.shape[1])
    known: dict[bytes, float] = {}

    def objective(weights: Float64) -> float:
        key = np.round(weights, 9).tobytes()
        if key not in known:
            known[key] = float(evaluate(ranked.by(weights, 5), Y, ks=(5,))["nDCG@5"])
        return known[key]

    starts = [np.full(len(parts), 1 / len(parts)), *np.eye(len(parts))]
    found = sorted((_ascended(start, objective) for start in starts), key=objective)
    mixed = [_ascended((found[-1] + other) / 2, objective) for other in found[:-1]]
    return max([found[-1], *mixed], key=objective)


def _ascended(weights: Float64, objective: Callable[[Float64], float]) -> Float64:
    """Coordinate ascent with decreasing step sizes."""
    best = objective(weights)
    for step in _STEPS:
        moved = True
        while moved:
            moved = False
            for part in range(len(weights)):
                for towards in (step, -step):
                    tried = weights.copy()
                    tried[part] = max(tried[part] + towards, 0.0)
                    if not tried.sum():
                        continue
                    tried /= tried.sum()
                    found = objective(tried)
                    if found > best + 1e-9:
                        weights, best, moved = tried, found, True
    return np.asarray(weights, np.float64)

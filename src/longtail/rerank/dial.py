"""The tail dial as part of a model: scores times inverse propensities to a power."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from longtail.data import Dataset
from longtail.data.splits import random_split
from longtail.errors import InputError, ParameterError
from longtail.kernels.types import Float64, Int32
from longtail.learners import Explanation, Learner, OneVsRest, TrainingCost
from longtail.learners.base import Allowed, Factors
from longtail.learners.composite import GrowsLabels, MetaLearner, probability_threshold, unit_scores
from longtail.learners.prediction import checked_k
from longtail.metrics import Evaluator
from longtail.propensity import Propensity
from longtail.runtime.progress import progress_bar, show_progress
from longtail.topk import TopK
from longtail.validation import SEED, TAIL, Constraint, Number, Optional, SequenceOf, check

TAILS = tuple(step / 20 for step in range(21))


class DialPoint(NamedTuple):
    """Metrics at one position of the dial, in percent."""

    tail: float
    p_at_1: float
    p_at_k: float
    psp_at_1: float
    psp_at_k: float

    @classmethod
    def of(cls, tail: float, top: TopK, Y: Any, inverse_propensity: Float64, k: int) -> Self:
        """Evaluate a ranking."""
        found = Evaluator(len(inverse_propensity), inverse_propensity=inverse_propensity, ks=(1, k)).update(top, Y)
        scores = found.scores()
        return cls(float(tail), *(scores[name] for name in ("P@1", f"P@{k}", "PSP@1", f"PSP@{k}")))


def dial_curve(learner: Learner, X: Any, y: Any, *, tails: Sequence[float] = TAILS, k: int = 5) -> list[DialPoint]:
    """Evaluate positions of the dial on held-out rows.

    Parameters
    ----------
    learner : Learner
        Fitted.
    X, y : matrices
        Held-out rows and their labels.
    tails : sequence of float
        Positions, each from 0 to 1.
    k : int
        Cutoff.

    Returns
    -------
    list of DialPoint
        P@1, P@k, PSP@1 and PSP@k of each position.

    Examples
    --------
    >>> from longtail import Popularity
    >>> learner = Popularity().fit([[1], [1], [1]], [[1, 0], [1, 0], [1, 1]])
    >>> [round(point.psp_at_1) for point in dial_curve(learner, [[1]], [[0, 1]], tails=[0, 1], k=1)]
    [0, 0]
    """
    check_is_fitted(learner, "n_labels_")
    at = checked_k(k)
    check("tails", tails, SequenceOf(Real, "position"))
    inverse = learner._tail_factors(1.0).astype(np.float64)
    rankings = []
    with progress_bar("trying positions of the dial", len(tails), "positions") as advance:
        for tail in tails:
            with show_progress(False):
                rankings.append(learner.predict_topk(X, at, tail=tail))
            advance(1)
    return [DialPoint.of(tail, top, y, inverse, at) for tail, top in zip(tails, rankings, strict=True)]


def choose_tail(curve: Sequence[DialPoint], max_loss: float = 1.0) -> float:
    """Return the position with the highest PSP@k among those whose P@1 is at most `max_loss` points below the best.

    Examples
    --------
    >>> choose_tail([DialPoint(0.0, 90, 60, 40, 50), DialPoint(0.5, 89.5, 60, 45, 55), DialPoint(1.0, 80, 50, 60, 60)])
    0.5
    """
    check("curve", curve, SequenceOf(DialPoint, "position"))
    check("max_loss", max_loss, Number(low=0, may_be_infinite=True))
    least = max(point.p_at_1 for point in curve) - max_loss
    allowed = [point for point in curve if point.p_at_1 >= least]
    return max(allowed, key=lambda point: (point.psp_at_k, -point.tail)).tail


class TailDial(MetaLearner, GrowsLabels):
    """Rank labels by the score of a learner times their inverse propensity to the power `tail`.

    A larger `tail` favours rare labels: 0 ranks as the learner does, and 1 is best for propensity-scored precision
    where scores are probabilities. Nothing is trained for it, and ``predict_topk(X, k, tail=...)`` overrides it. Scores
    that can be negative, such as margins, are replaced by 1 / (1 + exp(-3 margin)).

    Parameters
    ----------
    learner : Learner, optional
        Any learner; ``OneVsRest()`` by default.
    tail : float or "auto"
        Position of the dial, from 0 to 1. "auto" holds rows out, takes the position with the highest PSP@5 on them
        among those whose P@1 is at most `max_loss` below the best, and then refits on all rows.
    first_tail : float or "auto", optional
        Position of the dial for the first label alone; `tail` by default. A low value here and a high `tail` keep P@1
        and raise PSP@k. With "auto", `tail` is chosen without regard to P@1.
    propensity : Propensity or str, optional
        By default that of the learner's weighting, or that of Jain et al.
    max_loss : float
        Points of P@1 that "auto" may lose.
    validation_fraction : float
        Share of the rows held out for "auto".
    random_state : int
        Seed of the split.

    Attributes
    ----------
    learner_ : Learner
        The fitted learner.
    tail_, first_tail_ : float
        Position of the dial, and that for the first label.

    References
    ----------
    Improving Tail Label Prediction for Extreme Multi-label Learning. Under review for ICLR 2021, authors not named:
    there the simple form of RankNet, with tail = 1.

    Examples
    --------
    >>> from longtail import Popularity, TailDial
    >>> X, Y = [[1]] * 4, [[1, 0], [1, 0], [1, 1], [1, 0]]
    >>> TailDial(learner=Popularity(), tail=1.0).fit(X, Y).predict_topk([[1]], k=1).labels
    array([[0]], dtype=int32)
    """

    _stored: ClassVar[tuple[str, ...]] = ("learner_", "tail_", "first_tail_")

    learner_: Learner
    tail_: float
    first_tail_: float

    _constraints: ClassVar[Mapping[str, Constraint]] = {
        "tail": Optional(TAIL, "auto"),
        "first_tail": Optional(Optional(TAIL, "auto")),
        "max_loss": Number(low=0),
        "validation_fraction": Number(above=0, below=1),
        "random_state": SEED,
    }

    def __init__(
        self,
        *,
        learner: Learner | None = None,
        tail: float | Literal["auto"] = 0.5,
        first_tail: float | Literal["auto"] | None = None,
        propensity: Propensity | str | None = None,
        max_loss: float = 1.0,
        validation_fraction: float = 0.1,
        random_state: int = 0,
    ) -> None:
        self.learner = learner
        self.tail = tail
        self.first_tail = first_tail
        self.propensity = propensity
        self.max_loss = max_loss
        self.validation_fraction = validation_fraction
        self.random_state = random_state

    @property
    def _decision_threshold(self) -> float:  # type: ignore[override]
        """The learner's own on the scale of probabilities: with tail = 1, the score is one of a true label."""
        return probability_threshold(self.learner_)

    @property
    def _gives_probabilities(self) -> bool:  # type: ignore[override]
        dial = (self.tail_, self.first_tail_) if hasattr(self, "tail_") else (self.tail, self.first_tail or 0)
        return dial == (0, 0) and self._base()._gives_probabilities

    def _check_parameters(self) -> None:
        if isinstance(self.learner, TailDial):
            raise ParameterError("learner", "TailDial", "has a dial of its own: set that one")
        super()._check_parameters()

    def _default(self) -> Learner:
        return OneVsRest()

    def _fit(self, X: sp.csr_array, Y: sp.csr_array) -> None:
        curve = self._curve(X, Y) if "auto" in (self.tail, self.first_tail) else []
        if isinstance(self.tail, str):
            self.tail_ = choose_tail(curve, self.max_loss if self.first_tail is None else math.inf)
        else:
            self.tail_ = float(self.tail)
        if isinstance(self.first_tail, str):
            at_1 = [point._replace(psp_at_k=point.psp_at_1) for point in curve]
            self.first_tail_ = choose_tail(at_1, self.max_loss)
        else:
            self.first_tail_ = self.tail_ if self.first_tail is None else float(self.first_tail)
        self.learner_ = self._base()._fit_checked(X, Y)

    def _curve(self, X: sp.csr_array, Y: sp.csr_array) -> list[DialPoint]:
        if X.shape[0] < 2:
            raise InputError('X has 1 row: tail="auto" holds rows out, so give more, or a number.')
        if Y.shape[1] == 0:
            return [DialPoint(0.0, 0.0, 0.0, 0.0, 0.0)]
        train, held_out = random_split(
            Dataset(X, Y), test_size=self.validation_fraction, random_state=self.random_state
        )
        trial = clone(self).set_params(tail=0.0, first_tail=None)._fit_checked(train.X, train.Y)
        return dial_curve(trial, held_out.X, held_out.Y)

    def _topk(self, X: sp.csr_array, k: int, allowed: Allowed) -> TopK:
        factors = self._tail_factors(self.tail_)
        if self.first_tail_ == self.tail_ or not len(factors):
            return self._weighted_topk(X, k, allowed, factors)
        self._check_labels()
        wanted = [(k, factors), (1, self._tail_factors(self.first_tail_))]
        top, first = self.learner_._weighted_topks(X, wanted, allowed)
        return _put_first(top, first.labels)

    def _weighted_topk(self, X: sp.csr_array, k: int, allowed: Allowed, factors: Factors) -> TopK:
        self._check_labels()
        return self.learner_._weighted_topk(X, k, allowed, factors)

    def _explain(self, X: sp.csr_array, labels: Int32) -> list[Explanation]:
        factors = self._tail_factors(self.tail_)
        best = self._topk(X, 1, None) if self.first_tail_ != self.tail_ else None
        explanations = []
        for explanation in self.learner_._explain(X, labels):
            factor = float(factors[explanation.label])
            plain, start = unit_scores(self.learner_, explanation.score, explanation.bias)
            dialled = explanation.rescaled(factor * plain, factor * (plain - start))
            sources = [(type(self.learner_).__name__, plain), ("tail dial", (factor - 1) * plain)]
            if best is not None and explanation.label == best.labels[0, 0]:  # its score puts it above the others
                lifted = float(best.scores[0, 0]) - dialled.score
                dialled = replace(dialled, score=float(best.scores[0, 0]), bias=dialled.bias + lifted)
                sources.append(("first place", lifted))
            explanations.append(dialled.with_sources(sources))
        return explanations

    def _estimate(self, X: sp.csr_array, Y: sp.csr_array) -> TrainingCost:
        base = self._base()._estimate(X, Y)
        return base.times(1.9) if "auto" in (self.tail, self.first_tail) else base


def _put_first(top: TopK, first: Int32) -> TopK:
    """Move the labels `first`, of shape (rows, 1), to the first rank of each row; the others keep their order."""
    known, at = first >= 0, np.argmax(top.labels == first, axis=1)[:, None]
    among = (top.labels == first).any(axis=1, keepdims=True)
    own = np.where(among, np.take_along_axis(top.scores, at, axis=1), -np.float32(np.inf))
    best = np.max(top.scores, axis=1, keepdims=True, initial=-np.inf)
    lifted = np.where(among & (at == 0), own, np.nextafter(best, np.float32(np.inf)))
    places = np.arange(top.k)[None, :]
    leaving = np.where(among, at, top.k - 1)  # a new label replaces the last one
    source = np.where(places <= leaving, places - 1, places)
    labels = np.where(places == 0, first, np.take_along_axis(top.labels, np.maximum(source, 0), axis=1))
    scores = np.where(places == 0, lifted, np.take_along_axis(top.scores, np.maximum(source, 0), axis=1))
    return TopK(np.where(known, labels, top.labels), np.where(known, scores, top.scores).astype(np.float32))

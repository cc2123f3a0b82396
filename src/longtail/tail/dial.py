"""The tail dial as part of a model: a learner whose scores are multiplied by inverse propensities to a power."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from longtail.corpus import Dataset
from longtail.corpus.splits import random_split
from longtail.engine.progress import progress_bar, show_progress
from longtail.engine.topk import TopK
from longtail.errors import InputError, ModelError, ParameterError
from longtail.learners import Estimate, Explanation, Learner, OneVsRest
from longtail.learners.base import checked_k
from longtail.learners.checks import check_whole
from longtail.learners.dial import checked_tail
from longtail.learners.updates import MoreRows
from longtail.metrics import evaluate
from longtail.propensity import Propensity, get_propensity
from longtail.propensity.base import is_number
from longtail.tail.around import Around, linked_threshold

TAILS = tuple(step / 20 for step in range(21))


class DialPoint(NamedTuple):
    """What one position of the dial gives, in percent."""

    tail: float
    precision_at_1: float
    precision: float
    ps_precision_at_1: float
    ps_precision: float


def dial_curve(learner: Learner, X: Any, Y: Any, *, tails: Sequence[float] = TAILS, k: int = 5) -> list[DialPoint]:
    """Measure positions of the dial on rows that the learner wasn't trained on.

    Parameters
    ----------
    learner : Learner
        Fitted.
    X, Y : matrices
        Held-out rows and their labels.
    tails : sequence of float
        Positions, each from 0 to 1.
    k : int
        Places that count.

    Returns
    -------
    list of DialPoint
        P@1, P@k, PSP@1 and PSP@k of each position.

    Examples
    --------
    >>> from longtail import Popularity
    >>> learner = Popularity().fit([[1], [1], [1]], [[1, 0], [1, 0], [1, 1]])
    >>> [round(point.ps_precision_at_1) for point in dial_curve(learner, [[1]], [[0, 1]], tails=[0, 1], k=1)]
    [0, 0]
    """
    check_is_fitted(learner, "n_labels_")
    at = checked_k(k)
    if not isinstance(tails, Iterable) or not len(tails):
        raise ParameterError("tails", tails, "must hold at least one position of the dial")
    inverse = learner._tail_factors(1.0).astype(np.float64)
    curve = []
    with progress_bar("trying positions of the dial", len(tails), "positions") as advance:
        rankings = []
        for tail in tails:
            with show_progress(False):
                rankings.append(learner.predict_topk(X, at, tail=checked_tail(tail)))
            advance(1)
    for tail, top in zip(tails, rankings, strict=True):
        found = evaluate(top, Y, inverse_propensity=inverse, ks=(1, at))
        curve.append(DialPoint(float(tail), found["P@1"], found[f"P@{at}"], found["PSP@1"], found[f"PSP@{at}"]))
    return curve


def choose_tail(curve: Sequence[DialPoint], most_loss: float = 1.0) -> float:
    """Position with the highest PSP@k among those whose P@1 is at most `most_loss` points below the best.

    Examples
    --------
    >>> choose_tail([DialPoint(0.0, 90, 60, 40, 50), DialPoint(0.5, 89.5, 60, 45, 55), DialPoint(1.0, 80, 50, 60, 60)])
    0.5
    """
    if not curve:
        raise ParameterError("curve", curve, "must hold at least one position of the dial")
    if not (is_number(most_loss) or most_loss == math.inf) or most_loss < 0:
        raise ParameterError("most_loss", most_loss, "must be a number of at least 0")
    least = max(point.precision_at_1 for point in curve) - most_loss
    fair = [point for point in curve if point.precision_at_1 >= least]
    return max(fair, key=lambda point: (point.ps_precision, -point.tail)).tail


class TailDial(Around):
    """A learner with the tail dial set: it ranks labels by their score times their inverse propensity to a power.

    Rare labels come up as `tail` rises from 0, which ranks as the learner does, to 1, which is best for
    propensity-scored precision where scores are probabilities. Nothing is trained for it, and
    ``predict_topk(X, k, tail=...)`` still overrides it. Where scores can be negative, as margins are,
    1 / (1 + exp(-3 margin)) takes their place.

    Parameters
    ----------
    learner : Learner, optional
        Any learner; ``OneVsRest()`` when left out.
    tail : float or "auto"
        Position of the dial, from 0 to 1. "auto" trains on a part of the rows, takes the position with the highest
        PSP@5 on the others whose P@1 is not much below the best, and then trains on all rows.
    first : float or "auto", optional
        Position of the dial for the first place alone; `tail` when left out. A low one here and a high one for the
        other places keeps P@1 and gains PSP@k. With "auto", `tail` may be high too, whatever P@1 says of it.
    propensity : Propensity or str, optional
        Of which the inverse is taken; that of the learner's weighting when left out, or that of Jain et al.
    most_loss : float
        Points of P@1 that "auto" may give up.
    held_out : float
        Share of the rows on which "auto" measures.
    seed : int
        Decides which rows these are.

    Attributes
    ----------
    learner_ : Learner
        The fitted learner.
    tail_, first_ : float
        Position of the dial, and of that for the first place.

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

    _stored: ClassVar[tuple[str, ...]] = ("learner_", "tail_", "first_")

    learner_: Learner
    tail_: float
    first_: float

    def __init__(
        self,
        *,
        learner: Learner | None = None,
        tail: float | Literal["auto"] = 0.5,
        first: float | Literal["auto"] | None = None,
        propensity: Propensity | str | None = None,
        most_loss: float = 1.0,
        held_out: float = 0.1,
        seed: int = 0,
    ) -> None:
        self.learner = learner
        self.tail = tail
        self.first = first
        self.propensity = propensity
        self.most_loss = most_loss
        self.held_out = held_out
        self.seed = seed

    @property
    def _decision_threshold(self) -> float:  # type: ignore[override]
        """The learner's own, as what is multiplied: with tail = 1, the chance of a label to be true counts."""
        return linked_threshold(self.learner_)

    def add_trees(self, X: Any, Y: Any, trees: int) -> Self:
        """Grow more trees over rows in the learner inside; see `InstanceForest.add_trees`."""
        grown = self._grown("add_trees", "trees over rows that more could join", X, Y, trees)
        with self._whole_or_unchanged():
            self.learner, self.learner_ = clone(grown), grown
            self.n_rows_, self.label_counts_ = grown.n_rows_, grown.label_counts_
        return self

    def add_labels(self, X: Any, Y: Any) -> Self:
        """Learn new labels in the learner inside; see `OneVsRest.add_labels`."""
        grown = self._grown("add_labels", "way to learn labels later", X, Y)
        with self._whole_or_unchanged():
            self.learner_, self.n_labels_, self.label_counts_ = grown, grown.n_labels_, grown.label_counts_
        return self

    def _update(self, more: MoreRows) -> None:
        """Update the learner inside; the dial stays where it is."""
        self.learner_ = self.learner_._updated(more)

    def _grown(self, method: str, what: str, *arguments: Any) -> Learner:
        """Copy of the learner inside that has learned more."""
        check_is_fitted(self, "n_labels_")
        grown: Any = copy.copy(self.learner_)
        if not hasattr(grown, method):
            raise InputError(f"{type(grown).__name__} has no {what}: train it anew.")
        getattr(grown, method)(*arguments)
        return grown  # type: ignore[no-any-return]

    def _check_parameters(self) -> None:
        for name, value in (("tail", self.tail), ("first", self.tail if self.first is None else self.first)):
            try:
                checked_tail(0.0 if isinstance(value, str) and value == "auto" else value)
            except ParameterError:
                raise ParameterError(name, value, 'must be a number from 0 to 1, or "auto"') from None
        if not (is_number(self.most_loss) and self.most_loss >= 0):
            raise ParameterError("most_loss", self.most_loss, "must be a number of at least 0")
        if not (is_number(self.held_out) and 0 < self.held_out < 1):
            raise ParameterError("held_out", self.held_out, "must be a number between 0 and 1")
        check_whole(self, seed=0)
        get_propensity(self.propensity)
        self._check_learner()
        if isinstance(self.learner, TailDial):
            raise ParameterError("learner", "TailDial", "has a dial of its own: set that one")
        self._base()._check_parameters()

    def _default(self) -> Learner:
        return OneVsRest()

    def _fit(self, X: sp.csr_array, Y: sp.csr_array) -> None:
        alone = self.first is None
        curve = self._curve(X, Y) if "auto" in (self.tail, self.first) else []
        self.tail_ = self._chosen(curve, alone) if isinstance(self.tail, str) else float(self.tail)
        if self.first is None:
            self.first_ = self.tail_
        else:
            self.first_ = self._chosen_first(curve) if isinstance(self.first, str) else float(self.first)
        self.learner_ = self._base().fit(X, Y)

    def _chosen(self, curve: list[DialPoint], alone: bool) -> float:
        return choose_tail(curve, self.most_loss if alone else math.inf)

    def _chosen_first(self, curve: list[DialPoint]) -> float:
        return choose_tail([point._replace(ps_precision=point.ps_precision_at_1) for point in curve], self.most_loss)

    def _curve(self, X: sp.csr_array, Y: sp.csr_array) -> list[DialPoint]:
        if X.shape[0] < 2:
            raise InputError('X has 1 row: tail="auto" holds rows out, so give more, or a number.')
        if Y.shape[1] == 0:
            return [DialPoint(0.0, 0.0, 0.0, 0.0, 0.0)]
        train, held_out = random_split(Dataset(X, Y), test_share=self.held_out, seed=self.seed)
        trial = clone(self).set_params(tail=0.0, first=None).fit(train.X, train.Y)
        return dial_curve(trial, held_out.X, held_out.Y)

    def _topk(self, X: sp.csr_array, k: int, allowed: npt.NDArray[np.bool_] | None) -> TopK:
        factors = self._tail_factors(self.tail_)
        if self.first_ == self.tail_ or not len(factors):
            return self._weighted_topk(X, k, allowed, factors)
        self._check_inside()
        wanted = [(k, factors), (1, self._tail_factors(self.first_))]
        top, first = self.learner_._weighted_topks(X, wanted, allowed)
        return _put_first(top, first.labels)

    def _weighted_topk(
        self,
        X: sp.csr_array,
        k: int,
        allowed: npt.NDArray[np.bool_] | None,
        factors: npt.NDArray[np.float32] | None,
    ) -> TopK:
        self._check_inside()
        return self.learner_._weighted_topk(X, k, allowed, factors)

    def _check_inside(self) -> None:
        if self.learner_.n_labels_ != self.n_labels_:
            raise ModelError("The learner inside has other labels than the dial: train it again.")

    def _explain(self, X: sp.csr_array, labels: npt.NDArray[np.int32]) -> list[Explanation]:
        factors = self._tail_factors(self.tail_)
        best = self._topk(X, 1, None) if self.first_ != self.tail_ else None
        whys = []
        for why in self.learner_._explain(X, labels):
            factor = float(factors[why.label])
            plain, start = np.exp(self.learner_._log_scores(np.array([why.score, why.bias], np.float64)))
            effects = sum(effect for _, effect in why.parts)
            scale = factor * (plain - start) / effects if effects else 0.0
            bias = factor * (start if effects else plain)
            parts = [(feature, effect * scale) for feature, effect in why.parts]
            dialled = replace(why, score=float(factor * plain), bias=float(bias), parts=parts)
            sources = [(type(self.learner_).__name__, float(plain)), ("tail dial", float((factor - 1) * plain))]
            if best is not None and why.label == best.labels[0, 0]:  # its score puts it above the others
                lifted = float(best.scores[0, 0]) - dialled.score
                dialled = replace(dialled, score=float(best.scores[0, 0]), bias=dialled.bias + lifted)
                sources.append(("first place", lifted))
            whys.append(dialled.with_sources(sources))
        return whys

    def _estimate(self, X: sp.csr_array, Y: sp.csr_array) -> Estimate:
        inner = self._base()._estimate(X, Y)
        return inner.times(1.9) if "auto" in (self.tail, self.first) else inner


def _put_first(top: TopK, first: npt.NDArray[np.int32]) -> TopK:
    """Move the labels `first`, of shape (rows, 1), to the first place of each row; the others keep their order."""
    known, at = first >= 0, np.argmax(top.labels == first, axis=1)[:, None]
    among = (top.labels == first).any(axis=1, keepdims=True)
    own = np.where(among, np.take_along_axis(top.scores, at, axis=1), -np.float32(np.inf))
    best = np.max(top.scores, axis=1, keepdims=True, initial=-np.inf)
    lifted = np.where(among & (at == 0), own, np.nextafter(best, np.float32(np.inf)))
    places = np.arange(top.k)[None, :]
    leaving = np.where(among, at, top.k - 1)  # where it is not among them, the last one goes
    source = np.where(places <= leaving, places - 1, places)
    labels = np.where(places == 0, first, np.take_along_axis(top.labels, np.maximum(source, 0), axis=1))
    scores = np.where(places == 0, lifted, np.take_along_axis(top.scores, np.maximum(source, 0), axis=1))
    return TopK(np.where(known, labels, top.labels), np.where(known, scores, top.scores).astype(np.float32))

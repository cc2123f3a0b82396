"""TAug: separate learners for head and tail labels, the tail with augmented rows."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import ClassVar, Literal, NamedTuple, get_args

import numpy as np
import scipy.sparse as sp

from longtail.config import at_most, thread_count
from longtail.data.sparse import chosen_rows, column_counts
from longtail.errors import ModelError, ParameterError
from longtail.kernels.augmentation import Augmentation, labelled_rows
from longtail.kernels.types import Float64, Floating, Int32, Int64
from longtail.learners import Explanation, Learner, TrainingCost
from longtail.learners.base import Allowed, Factors
from longtail.learners.composite import MetaLearner, probability_threshold, unit_scores
from longtail.learners.norms import label_norms
from longtail.learners.updates import UpdateBatch
from longtail.propensity import GivenPropensity
from longtail.rerank.dial import TailDial
from longtail.rerank.ranknet import RankNet
from longtail.rerank.stacking import Stacked
from longtail.runtime.block_file import is_resumable
from longtail.runtime.pool import StopFlag, run_blocks
from longtail.topk import TopK
from longtail.validation import SEED, Boolean, Constraint, Integer, Number, OneOf, Optional, check

RowChoice = Literal["all", "own"]


class _Side(NamedTuple):
    name: str
    learner: Learner
    labels: Int32


class TAug(MetaLearner):
    """Train separate learners for frequent and rare labels, the latter on augmented copies of their rows.

    In one learner for all labels the rare ones have few positive rows and get small weights. Here the most frequent
    labels, the head, and all others, the tail, have separate learners. The learner of the tail also gets `copies` of
    each row: each non-zero is dropped with probability `input_dropout`, then two of them exchange their values `swaps`
    times. Costs of labels, where the learner has a weighting, are computed without copies. Label trees and one-vs-rest
    make the copies per node or block and never hold them all; instance trees get one copy per tree; other learners get
    all copies at once.

    Parameters
    ----------
    learner : Learner, optional
        Any learner over matrices, for both sides, except re-rankers (`TailDial`, `RankNet`, `Stacked`), which wrap
        `TAug`; the label trees of the recipe "bonsai" by default.
    tau : float
        Share of the labels with a training row that form the head, from 0 to 1. With 1, or if no label is left for a
        side, there is one learner only.
    copies : int
        Copies of each row of the tail; 0 for none.
    input_dropout : float
        Probability that a non-zero is dropped from a copy; each copy keeps at least one.
    swaps : int
        Number of exchanges of two values in a copy.
    merge : "scores" or float
        How the rankings of the two sides are merged: by score, or with the scores of the tail multiplied by a number
        above 0. Scores that may be negative, such as margins, are then first mapped to numbers from 0 to 1.
    rows : {"all", "own"}
        A side is trained on all rows, or only on those with any of its labels. Label trees without `n_hard_negatives`
        never use rows without labels, so it only affects the costs of a weighting, which depend on the number of rows.
    parallel : bool
        Train both sides at the same time, each with half of the threads; in turn on one thread, and in a run that can
        be resumed.
    random_state : int
        Seed of the copies.
    n_jobs : int, optional
        Threads; None as `longtail.config_context` says. The result does not depend on it.

    Attributes
    ----------
    head_learner_, tail_learner_ : Learner or None
        The fitted learners, None for a side without labels.
    head_labels_, tail_labels_ : ndarray of int32
        Labels of each side, ascending; label l of a side's learner is ``head_labels_[l]`` or ``tail_labels_[l]`` here.
        Labels without a training row are in the tail, where there is one.

    References
    ----------
    Improving Tail Label Prediction for Extreme Multi-label Learning. Under review for ICLR 2021, authors not named.

    Examples
    --------
    >>> from longtail import OneVsRest, TAug
    >>> X, Y = [[1, 0, 0], [1, 0, 1], [0, 1, 1], [1, 1, 0]], [[1, 0], [1, 0], [0, 1], [1, 0]]
    >>> learner = TAug(learner=OneVsRest(), tau=0.5).fit(X, Y)
    >>> learner.head_labels_, learner.tail_labels_
    (array([0], dtype=int32), array([1], dtype=int32))
    >>> learner.predict_topk([[0, 1, 1]], k=2).labels
    array([[1, 0]], dtype=int32)
    """

    _stored: ClassVar[tuple[str, ...]] = ("head_learner_", "tail_learner_", "head_labels_", "tail_labels_")

    _validated: object = None

    head_learner_: Learner | None
    tail_learner_: Learner | None
    head_labels_: Int32
    tail_labels_: Int32

    _constraints: ClassVar[Mapping[str, Constraint]] = {
        "tau": Number(low=0, high=1),
        "merge": Optional(Number(above=0, below=1e30), "scores"),
        "input_dropout": Number(low=0, below=1),
        "copies": Integer(0, 2**16 - 1),
        "swaps": Integer(0),
        "random_state": SEED,
        "rows": OneOf(*get_args(RowChoice)),
        "parallel": Boolean(),
    }

    def __init__(
        self,
        *,
        learner: Learner | None = None,
        tau: float = 0.1,
        copies: int = 4,
        input_dropout: float = 0.3,
        swaps: int = 16,
        merge: float | Literal["scores"] = "scores",
        rows: RowChoice = "all",
        parallel: bool = False,
        random_state: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.learner = learner
        self.tau = tau
        self.copies = copies
        self.input_dropout = input_dropout
        self.swaps = swaps
        self.merge = merge
        self.rows = rows
        self.parallel = parallel
        self.random_state = random_state
        self.n_jobs = n_jobs

    @property
    def _decision_threshold(self) -> float:  # type: ignore[override]
        learner = self._sides()[0].learner
        return learner._decision_threshold if isinstance(self.merge, str) else probability_threshold(learner)

    @property
    def _gives_probabilities(self) -> bool:  # type: ignore[override]
        return isinstance(self.merge, str) and self._base()._gives_probabilities

    def _check_parameters(self) -> None:
        super()._check_parameters()
        base = self._base()
        for _, part in base.parts():
            if isinstance(part, TailDial | RankNet | Stacked):
                raise ParameterError("learner", type(part).__name__, "must wrap TAug, not be wrapped by it")
            by_label = getattr(part, "tree", None), getattr(getattr(part, "weighting", None), "propensity", None)
            if (
                by_label[0] is not None
                or isinstance(by_label[1], GivenPropensity)
                or not isinstance(getattr(part, "representation", ""), str)
            ):
                raise ParameterError(
                    "learner", type(part).__name__, "must not have parameters of single labels: each side has its own"
                )

    def _default(self) -> Learner:
        from longtail.learners import bonsai_trees

        return bonsai_trees()

    def _fit(self, X: sp.csr_array, Y: sp.csr_array) -> None:
        self.head_labels_, self.tail_labels_ = _split(self.label_counts_, float(self.tau))
        has_both = len(self.head_labels_) > 0 < len(self.tail_labels_)
        in_parallel = bool(self.parallel) and has_both and thread_count() > 1 and not is_resumable()

        def train(side: str, stop: StopFlag | None = None) -> Learner | None:
            return self._trained(side, X, Y, in_parallel)

        if in_parallel:
            learners = list(run_blocks(train, ["head", "tail"], description="training both sides"))
        else:
            learners = [train("head"), train("tail")]
        self.head_learner_, self.tail_learner_ = learners
        self._sides()  # which are valid, since they were made here

    def _update(self, batch: UpdateBatch) -> None:
        """Update both sides, without copies; new labels join the tail, if there is one."""
        new = np.arange(self.n_labels_, batch.n_labels, dtype=np.int32)
        if self.tail_learner_ is not None:
            self.tail_labels_ = np.concatenate([self.tail_labels_, new])
        else:
            self.head_labels_ = np.concatenate([self.head_labels_, new])
        sides = (self.head_learner_, self.head_labels_), (self.tail_learner_, self.tail_labels_)
        self.head_learner_, self.tail_learner_ = (
            None if learner is None else self._side_updated(learner, labels, batch) for learner, labels in sides
        )

    def _side_updated(self, learner: Learner, labels: Int32, batch: UpdateBatch) -> Learner:
        """Update one side; it stays unchanged if none of its rows are new or removed."""
        of_side = self._batch_of(learner, labels, batch)
        is_same = of_side.n_labels == learner.n_labels_ and np.array_equal(of_side.label_counts, of_side.before)
        return learner if is_same and not of_side.X.shape[0] else learner._updated(of_side)

    def _batch_of(self, learner: Learner, labels: Int32, batch: UpdateBatch) -> UpdateBatch:
        """Rows for one side; counts of a side with its own rows are those of its training.

        As in training, all rows if it has none of its own.
        """
        of_side = batch.of_labels(labels, own=self.rows == "own")
        if self.rows == "all" or (batch.earlier is not None and not of_side.n_rows):
            return batch.of_labels(labels, own=False)
        return UpdateBatch.of(of_side.X, of_side.Y, of_side.earlier, learner.label_counts_, learner.n_rows_)

    def _trained(self, side: str, X: sp.csr_array, Y: sp.csr_array, in_parallel: bool) -> Learner | None:
        """Train one side; None if it has no labels and the other has some."""
        labels = self.head_labels_ if side == "head" else self.tail_labels_
        if len(labels) == 0 and (side == "head" or len(self.head_labels_)):
            return None
        learner = self._base()
        rows, of_side = self._rows_of(X, Y, labels)
        with at_most(thread_count() // 2) if in_parallel else nullcontext():
            if side == "tail" and self.copies:
                learner.n_features_in_ = int(X.shape[1])
                learner._remember_labels(of_side)
                copies = Augmentation(
                    int(self.copies), float(self.input_dropout), int(self.swaps), int(self.random_state)
                )
                learner._fit_augmented(rows, of_side, copies)
            else:
                learner._fit_checked(rows, of_side)
        return learner

    def _rows_of(self, X: sp.csr_array, Y: sp.csr_array, labels: Int32) -> tuple[sp.csr_array, sp.csr_array]:
        """Rows that a side learns from, and their labels of that side."""
        of_side = sp.csr_array(Y[:, labels])
        own = labelled_rows(of_side)
        if self.rows == "all" or len(own) in (0, X.shape[0]):
            return X, of_side
        return chosen_rows(X, own), of_side[own]

    def _sides(self) -> list[_Side]:
        """Learners with their labels, checked once."""
        parts = (self.head_learner_, self.tail_learner_, self.head_labels_, self.tail_labels_)
        if not (
            isinstance(self._validated, tuple) and all(a is b for a, b in zip(self._validated, parts, strict=True))
        ):
            self._check_sides()
            self._validated = parts
        named = (("head", *parts[0::2]), ("tail", *parts[1::2]))
        return [_Side(name, learner, labels) for name, learner, labels in named if learner is not None]

    def _check_sides(self) -> None:
        labels = np.concatenate([self.head_labels_, self.tail_labels_])
        whole = np.array_equal(np.sort(labels), np.arange(self.n_labels_)) and all(
            (np.diff(own) > 0).all() and (len(own) == 0 if learner is None else learner.n_labels_ == len(own))
            for learner, own in ((self.head_learner_, self.head_labels_), (self.tail_learner_, self.tail_labels_))
        )
        if not whole or (self.head_learner_ is None and self.tail_learner_ is None):
            raise ModelError("The two sides of the model don't fit together: its files were changed; train it again.")

    def _topk(self, X: sp.csr_array, k: int, allowed: Allowed) -> TopK:
        return self._weighted_topk(X, k, allowed, None)

    def _weighted_topk(self, X: sp.csr_array, k: int, allowed: Allowed, factors: Factors) -> TopK:
        """Merge the best labels of both sides."""
        check("merge", self.merge, TAug._constraints["merge"])  # it may be set on a fitted learner
        if not isinstance(self.merge, str):
            factors = np.ones(self.n_labels_, np.float32) if factors is None else factors.copy()
            factors[self.tail_labels_] *= np.float32(self.merge)
        tops = []
        for _, learner, labels in self._sides():
            top = learner._weighted_topk(
                X, k, None if allowed is None else allowed[labels], None if factors is None else factors[labels]
            )
            tops.append(TopK(np.append(labels, np.int32(-1))[top.labels], top.scores))
        if len(tops) == 1:
            return tops[0]
        both = TopK.concat(tops, axis=1)
        return both.ranked_by(both.scores, k)

    def _log_scores(self, scores: Floating) -> Floating:
        if isinstance(self.merge, str):
            return self._sides()[0].learner._log_scores(scores)
        return super()._log_scores(scores)

    def _explain(self, X: sp.csr_array, labels: Int32) -> list[Explanation]:
        found: dict[int, Explanation] = {}
        for name, learner, own in self._sides():
            mine = labels[np.isin(labels, own)]
            for base in learner._explain(X, np.searchsorted(own, mine).astype(np.int32)):
                label, shares = int(own[base.label]), base.sources or [(type(learner).__name__, base.score)]
                sources = [(f"{name}: {source}", share) for source, share in shares]
                base = replace(base, label=label, name=str(label), sources=sources)
                found[label] = base if isinstance(self.merge, str) else self._multiplied(base, name, learner)
        return [found[label] for label in labels.tolist()]

    def _multiplied(self, explanation: Explanation, side: str, learner: Learner) -> Explanation:
        """Explain the score after multiplication by `merge`."""
        factor = float(self.merge) if side == "tail" else 1.0
        score, start = (factor * scaled for scaled in unit_scores(learner, explanation.score, explanation.bias))
        ratio = score / explanation.score if explanation.score else 0.0
        return replace(
            explanation.rescaled(score, score - start),
            sources=[(name, share * ratio) for name, share in explanation.sources],
        )

    def _label_norms(self) -> Float64 | None:
        """Norms of both sides."""
        norms, known = np.full(self.n_labels_, np.nan), False
        for _, learner, labels in self._sides():
            of_side = label_norms(learner)
            if of_side is not None:
                norms[labels], known = of_side, True
        return norms if known else None

    def _estimate(self, X: sp.csr_array, Y: sp.csr_array) -> TrainingCost:
        """Sum of both sides; a copy takes about a quarter of the time of its row, which visits all nodes."""
        counts = column_counts(Y)
        head, tail = _split(counts, float(self.tau))
        sides = [labels for labels in (head, tail) if len(labels)] or [tail]
        estimates = [self._base()._estimate(*self._rows_of(X, Y, labels)) for labels in sides]
        if len(tail):
            estimates[-1] = estimates[-1].times(1 + self.copies / 4)
        whole = TrainingCost.in_turn(estimates)
        return replace(whole, model_mb=whole.model_mb + 12 * Y.shape[1] / 1e6)


def _split(label_counts: Int64, tau: float) -> tuple[Int32, Int32]:
    """Labels of the head and of the tail, ascending; ties go to the head by the lower id."""
    n_head = int(tau * np.count_nonzero(label_counts) + 1e-9)
    order = np.argsort(-label_counts, kind="stable").astype(np.int32)
    if n_head == np.count_nonzero(label_counts) > 0:
        n_head = len(order)
    return np.sort(order[:n_head]), np.sort(order[n_head:])

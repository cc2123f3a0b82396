"""TAug: head and tail labels learnt apart, the tail from augmented copies of its rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from longtail.corpus.sparse import chosen_rows
from longtail.engine.augmentation import Augmentation, labelled_rows
from longtail.engine.pool import StopFlag, run_blocks, thread_count
from longtail.engine.spool import is_resumable
from longtail.engine.topk import TopK
from longtail.errors import ModelError, ParameterError
from longtail.learners import Estimate, Explanation, Learner, bonsai_trees
from longtail.learners.base import nested
from longtail.learners.updates import MoreRows
from longtail.propensity import GivenPropensity
from longtail.propensity.base import is_number
from longtail.tail.around import Around
from longtail.tail.dial import TailDial
from longtail.tail.ranknet import RankNet
from longtail.tail.stacked import Stacked

RowChoice = Literal["all", "own"]
Int32 = npt.NDArray[np.int32]

_MOST = 1e30


class _Side(NamedTuple):
    name: str
    learner: Learner
    labels: Int32


class TAug(Around):
    """Learn the frequent labels and the rare ones apart, and the rare ones from augmented copies of their rows.

    In one learner for all labels the rare ones have few rows against many, and end with small weights. Here the most
    frequent labels, the head, have a learner of their own, and so have all others, the tail. Of each row of the tail
    the learner also sees `copies` with other values: each non-zero stays with the chance `keep`, then two of them
    exchange their values `swaps` times. Costs of labels, where the learner has a weighting, go by the rows without
    copies. Label trees and one-vs-rest make the copies node by node or block by block and never hold them all; trees
    over rows get one copy a tree; other learners get all copies at once.

    Parameters
    ----------
    learner : Learner, optional
        Any learner over matrices, for both sides, but for those that learn where labels should stand (`TailDial`,
        `RankNet`, `Stacked`), which go around `TAug`; the label trees of the recipe "bonsai" when left out.
    tau : float
        Share of the labels with a training row that are the head, the most frequent ones, from 0 to 1. With 1, or where
        no label is left for a side, there is one learner only.
    copies : int
        Copies of each row of the tail; 0 for none.
    keep : float
        Chance of a non-zero to stay in a copy, above 0 and at most 1; each copy keeps at least one.
    swaps : int
        How often two non-zeros of a copy exchange their values.
    merge : "scores" or float
        How the rankings of the two sides become one: by the scores as they are, or with those of the tail multiplied
        by a number above 0, so that the tail counts for more above 1 and for less below. Scores that may be negative,
        as margins, are then turned into numbers from 0 to 1 first.
    rows : {"all", "own"}
        A side learns from all rows, or only from those that have any of its labels. Label trees without `negatives`
        never look at rows without labels, so it makes no difference to them but for the costs of a weighting, which go
        by the number of rows.
    parallel : bool
        Train both sides at once, each with half of the threads; one after the other in a run that can be resumed.
    seed : int
        Decides the copies.
    threads : int, optional
        For the default learner, and for `parallel`; a learner that is given has its own.

    Attributes
    ----------
    head_learner_, tail_learner_ : Learner or None
        The fitted learners, None for a side without labels.
    head_labels_, tail_labels_ : ndarray of int32
        Labels of each side, rising; label l of a side's learner is ``head_labels_[l]`` or ``tail_labels_[l]`` here.
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

    _sound: object = None

    head_learner_: Learner | None
    tail_learner_: Learner | None
    head_labels_: Int32
    tail_labels_: Int32

    def __init__(
        self,
        *,
        learner: Learner | None = None,
        tau: float = 0.1,
        copies: int = 4,
        keep: float = 0.7,
        swaps: int = 16,
        merge: float | Literal["scores"] = "scores",
        rows: RowChoice = "all",
        parallel: bool = False,
        seed: int = 0,
        threads: int | None = None,
    ) -> None:
        self.learner = learner
        self.tau = tau
        self.copies = copies
        self.keep = keep
        self.swaps = swaps
        self.merge = merge
        self.rows = rows
        self.parallel = parallel
        self.seed = seed
        self.threads = threads

    @property
    def _decision_threshold(self) -> float:  # type: ignore[override]
        learner = self._sides()[0].learner
        own = learner._decision_threshold
        return own if isinstance(self.merge, str) else float(np.exp(learner._log_scores(np.array([own])))[0])

    def _check_parameters(self) -> None:
        if not (is_number(self.tau) and 0 <= self.tau <= 1):
            raise ParameterError("tau", self.tau, "must be a number from 0 to 1")
        if not (is_number(self.keep) and 0 < self.keep <= 1):
            raise ParameterError("keep", self.keep, "must be a number above 0 and at most 1")
        for name, most in (("copies", 2**16), ("swaps", 2**31), ("seed", 2**32)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 0 <= value < most:
                raise ParameterError(name, value, f"must be a whole number from 0 to {most - 1}")
        self._check_merge()
        if self.rows not in get_args(RowChoice):
            raise ParameterError("rows", self.rows, f"must be one of {', '.join(get_args(RowChoice))}")
        if not isinstance(self.parallel, bool | np.bool_):
            raise ParameterError("parallel", self.parallel, "must be True or False")
        thread_count(self.threads)
        self._check_learner()
        base = self._base()
        for _, part in nested(base):
            if isinstance(part, TailDial | RankNet | Stacked):
                raise ParameterError("learner", type(part).__name__, "must go around TAug, not inside of it")
            by_label = getattr(part, "tree", None), getattr(getattr(part, "weighting", None), "propensity", None)
            if (
                by_label[0] is not None
                or isinstance(by_label[1], GivenPropensity)
                or not isinstance(getattr(part, "representation", ""), str)
            ):
                raise ParameterError(
                    "learner", type(part).__name__, "must not be told anything of single labels: each side has its own"
                )
        base._check_parameters()

    def _check_merge(self) -> None:
        """Refuse what can't merge; it may be set on a fitted learner, so every ranking asks."""
        if self.merge != "scores" and not (is_number(self.merge) and 0 < self.merge < _MOST):
            raise ParameterError("merge", self.merge, 'must be "scores" or a number above 0')

    def _default(self) -> Learner:
        return bonsai_trees(threads=self.threads)

    def _fit(self, X: sp.csr_array, Y: sp.csr_array) -> None:
        self.head_labels_, self.tail_labels_ = _parted(self.label_counts_, float(self.tau))
        at_once = bool(self.parallel) and len(self.head_labels_) > 0 < len(self.tail_labels_) and not is_resumable()

        def train(side: str, stop: StopFlag | None = None) -> Learner | None:
            return self._trained(side, X, Y, at_once)

        if at_once:
            learners = list(run_blocks(train, ["head", "tail"], threads=2, description="training both sides"))
        else:
            learners = [train("head"), train("tail")]
        self.head_learner_, self.tail_learner_ = learners
        self._sides()  # which are sound, since they were made here

    def _update(self, more: MoreRows) -> None:
        """Update both sides, without copies; new labels join the tail, where there is one."""
        new = np.arange(self.n_labels_, more.n_labels, dtype=np.int32)
        if self.tail_learner_ is not None:
            self.tail_labels_ = np.concatenate([self.tail_labels_, new])
        else:
            self.head_labels_ = np.concatenate([self.head_labels_, new])
        sides = (self.head_learner_, self.head_labels_), (self.tail_learner_, self.tail_labels_)
        self.head_learner_, self.tail_learner_ = (
            None if learner is None else self._side_updated(learner, labels, more) for learner, labels in sides
        )

    def _side_updated(self, learner: Learner, labels: Int32, more: MoreRows) -> Learner:
        """Update one side; it stays as it is where none of the new rows is its own, and none of its own was taken."""
        of_side = self._more_of(learner, labels, more)
        is_same = of_side.n_labels == learner.n_labels_ and np.array_equal(of_side.label_counts, of_side.before)
        return learner if is_same and not of_side.X.shape[0] else learner._updated(of_side)

    def _more_of(self, learner: Learner, labels: Int32, more: MoreRows) -> MoreRows:
        """Rows for one side; those of a side that learns from its own rows are counted by what it has seen.

        As in training, all rows where there are none of its own.
        """
        of_side = more.of_labels(labels, own=self.rows == "own")
        if self.rows == "all" or (more.earlier is not None and not of_side.n_rows):
            return more.of_labels(labels, own=False)
        return MoreRows.of(of_side.X, of_side.Y, of_side.earlier, learner.label_counts_, learner.n_rows_)

    def _trained(self, side: str, X: sp.csr_array, Y: sp.csr_array, at_once: bool) -> Learner | None:
        """Train one side; None where it has no labels and the other has some."""
        labels = self.head_labels_ if side == "head" else self.tail_labels_
        if len(labels) == 0 and (side == "head" or len(self.head_labels_)):
            return None
        learner = self._base()
        own = {path + "threads": part.threads for path, part in nested(learner) if hasattr(part, "threads")}
        if at_once:
            half = max(1, thread_count(self.threads) // 2)
            learner.set_params(**{name: min(half, thread_count(threads)) for name, threads in own.items()})
        rows, of_side = self._rows_of(X, Y, labels)
        if side == "tail" and self.copies:
            learner.n_features_in_ = int(X.shape[1])
            learner._remember_labels(of_side)
            copies = Augmentation(int(self.copies), float(self.keep), int(self.swaps), int(self.seed))
            learner._fit_augmented(rows, of_side, copies)
        else:
            learner.fit(rows, of_side)
        learner.set_params(**own)
        return learner

    def _rows_of(self, X: sp.csr_array, Y: sp.csr_array, labels: Int32) -> tuple[sp.csr_array, sp.csr_array]:
        """Rows that a side learns from, and their labels of that side."""
        of_side = sp.csr_array(Y[:, labels])
        own = labelled_rows(of_side)
        if self.rows == "all" or len(own) in (0, X.shape[0]):
            return X, of_side
        return chosen_rows(X, own), of_side[own]

    def _sides(self) -> list[_Side]:
        """Learners with the labels that theirs are, checked once."""
        parts = (self.head_learner_, self.tail_learner_, self.head_labels_, self.tail_labels_)
        if not (isinstance(self._sound, tuple) and all(a is b for a, b in zip(self._sound, parts, strict=True))):
            self._check_sides()
            self._sound = parts
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

    def _topk(self, X: sp.csr_array, k: int, allowed: npt.NDArray[np.bool_] | None) -> TopK:
        return self._weighted_topk(X, k, allowed, None)

    def _weighted_topk(
        self,
        X: sp.csr_array,
        k: int,
        allowed: npt.NDArray[np.bool_] | None,
        factors: npt.NDArray[np.float32] | None,
    ) -> TopK:
        """Merge the best labels of both sides."""
        self._check_merge()
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
        both = TopK(*(np.hstack([getattr(top, part) for top in tops]) for part in ("labels", "scores")))
        return both.ranked_by(both.scores, k)

    def _log_scores(self, scores: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.floating[Any]]:
        if isinstance(self.merge, str):
            return self._sides()[0].learner._log_scores(scores)
        return super()._log_scores(scores)

    def _explain(self, X: sp.csr_array, labels: Int32) -> list[Explanation]:
        found: dict[int, Explanation] = {}
        for name, learner, own in self._sides():
            mine = labels[np.isin(labels, own)]
            for why in learner._explain(X, np.searchsorted(own, mine).astype(np.int32)):
                label, shares = int(own[why.label]), why.sources or [(type(learner).__name__, why.score)]
                why = replace(why, label=label, name=str(label), sources=[(f"{name}: {of}", at) for of, at in shares])
                found[label] = why if isinstance(self.merge, str) else self._multiplied(why, name, learner)
        return [found[label] for label in labels.tolist()]

    def _multiplied(self, why: Explanation, side: str, learner: Learner) -> Explanation:
        """Explain the score that merging with a number gives, its parts in proportion to what they were."""
        factor = float(self.merge) if side == "tail" else 1.0
        score, start = (factor * np.exp(learner._log_scores(np.array([why.score, why.bias])))).tolist()
        effects = sum(effect for _, effect in why.parts)
        bias = start if effects else score
        ratio = (score - start) / effects if effects else 0.0
        of_whole = score / why.score if why.score else 0.0
        return replace(
            why,
            score=score,
            bias=bias,
            parts=[(feature, effect * ratio) for feature, effect in why.parts],
            sources=[(name, share * of_whole) for name, share in why.sources],
        )

    def _estimate(self, X: sp.csr_array, Y: sp.csr_array) -> Estimate:
        """What both sides take; a copy takes about a quarter of the time of its row, which goes through all nodes."""
        counts = np.bincount(Y.indices, minlength=Y.shape[1]).astype(np.int64)
        head, tail = _parted(counts, float(self.tau))
        sides = [labels for labels in (head, tail) if len(labels)] or [tail]
        estimates = [self._base()._estimate(*self._rows_of(X, Y, labels)) for labels in sides]
        if len(tail):
            estimates[-1] = estimates[-1].times(1 + self.copies / 4)
        return Estimate(
            seconds=sum(estimate.seconds for estimate in estimates),
            peak_memory_mb=max(estimate.peak_memory_mb for estimate in estimates),
            model_mb=sum(estimate.model_mb for estimate in estimates) + 12 * Y.shape[1] / 1e6,
            block_mb=max(estimate.block_mb for estimate in estimates),
            threads=max(estimate.threads for estimate in estimates),
            blocks=min(estimate.blocks for estimate in estimates),
            least_seconds=sum(estimate.times(1).least_seconds or 0.0 for estimate in estimates),
        )


def _parted(label_counts: npt.NDArray[np.int64], tau: float) -> tuple[Int32, Int32]:
    """Labels of the head and of the tail, rising: equally frequent ones go to the head by the lower id."""
    n_head = int(tau * np.count_nonzero(label_counts) + 1e-9)
    order = np.argsort(-label_counts, kind="stable").astype(np.int32)
    if n_head == np.count_nonzero(label_counts) > 0:
        n_head = len(order)
    return np.sort(order[:n_head]), np.sort(order[n_head:])

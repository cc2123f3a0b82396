"""RankNet: residual blocks that rank a learner's labels anew, trained to bring the rare ones up."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from longtail.engine.checkpoint import Checkpoint, as_numbers, from_numbers
from longtail.engine.pool import in_chunks, run_blocks, thread_count
from longtail.engine.ranknet import (
    LINEAR,
    SIGMOID,
    TANH,
    PopulationLoss,
    ResidualBlocks,
    rescore,
    train_rows,
)
from longtail.engine.topk import TopK
from longtail.errors import Interrupted, ModelError, ParameterError
from longtail.learners import Estimate, Explanation, Learner, bonsai_trees
from longtail.learners.base import checked_k
from longtail.learners.checks import check_whole
from longtail.learners.dial import checked_tail, propensity_of
from longtail.learners.linear.training import digest_of
from longtail.learners.updates import MoreRows
from longtail.metrics import evaluate
from longtail.propensity import Propensity, get_propensity
from longtail.propensity.base import is_number
from longtail.tail.around import Around, linked_threshold
from longtail.tail.dial import TAILS, DialPoint, choose_tail
from longtail.tail.folds import Candidates, linked, out_of_fold

Activation = Literal["tanh", "sigmoid", "linear"]

_CODES = {"linear": LINEAR, "sigmoid": SIGMOID, "tanh": TANH}
_ROWS_AT_ONCE = 4096
_FIRST_SQUARES = 0.1
_SPREAD = 0.3
_SECONDS_A_VISIT = 2e-9  # of a row, times candidates and width


class RankNet(Around):
    """Rank a learner's best labels anew by residual blocks that see all of them at once.

    A block takes the scores y of a row's candidates to ``gain_l y_l + out_l . sigma(bias + sum_j y_j into_j)``: what is
    learned is one gain and 2 `width` numbers for each label, so labels that are often true together can help each
    other. Training goes over candidates that learners ranked for rows they had not seen, and minimises a loss by which
    a rare true label should score higher than a frequent one, and a true label higher than one that is not.

    The gains begin as the inverse propensities to the power `tail`: a RankNet that learns nothing is the tail dial.

    Parameters
    ----------
    learner : Learner, optional
        Any learner; a `LabelTree` as of the recipe bonsai when left out.
    blocks : int
        Residual blocks, one on top of the other.
    width : int
        Numbers of a label on each side of a block.
    activation : {"tanh", "sigmoid", "linear"}
        With "linear" a block is W y + y, where W is the gains on the diagonal and a product of two thin matrices.
    candidates : int
        Labels of a row that are ranked anew.
    tail : float or "auto"
        Where the gains begin, from 0 to 1. "auto" takes the position of the dial with the highest PSP@5 on the
        candidates whose P@1 is not more than `most_loss` below the best.
    most_loss : float
        Points of P@1 that "auto" may give up.
    weight : float
        Weight of the second term of the loss, which keeps precision.
    margin : float
        By how much a true label should score higher than one that is not.
    negatives : int
        Candidates that are not true which are drawn for each true label; 0 for all of them.
    folds : int
        Rows are ranked by learners that were trained on the other folds. 1 for one learner that has seen them all: the
        blocks then learn from scores that are too good to be true.
    passes : int
        Passes over the rows.
    rate, gain_rate : float
        Length of the steps; that of the gains, which 0 leaves where they begin.
    propensity : Propensity or str, optional
        That of the learner's weighting when left out, or that of Jain et al.
    seed : int
    threads : int, optional
        For prediction; the blocks are trained by one thread.

    Attributes
    ----------
    learner_ : Learner
        The fitted learner.
    tail_ : float
        Where the gains began.
    log_gains_, into_, bias_, out_ : ndarray of float32
        Parameters of the blocks, of shape (blocks, labels), (blocks, labels, width), (blocks, width) and as `into_`.

    References
    ----------
    Improving Tail Label Prediction for Extreme Multi-label Learning. Under review for ICLR 2021, authors not named.

    Examples
    --------
    >>> from longtail import OneVsRest, RankNet
    >>> X, Y = [[1, 0], [0, 1], [1, 0], [0, 1]], [[1, 0], [0, 1], [1, 0], [0, 1]]
    >>> RankNet(learner=OneVsRest(threads=1), width=2, tail=0.5).fit(X, Y).predict_topk([[1, 0]], k=1).labels
    array([[0]], dtype=int32)
    """

    _stored: ClassVar[tuple[str, ...]] = ("learner_", "tail_", "log_gains_", "into_", "bias_", "out_")

    learner_: Learner
    tail_: float
    log_gains_: npt.NDArray[np.float32]
    into_: npt.NDArray[np.float32]
    bias_: npt.NDArray[np.float32]
    out_: npt.NDArray[np.float32]

    def __init__(
        self,
        *,
        learner: Learner | None = None,
        blocks: int = 1,
        width: int = 16,
        activation: Activation = "tanh",
        candidates: int = 50,
        tail: float | Literal["auto"] = "auto",
        most_loss: float = 2.0,
        weight: float = 10.0,
        margin: float = 0.1,
        negatives: int = 0,
        folds: int = 2,
        passes: int = 2,
        rate: float = 0.001,
        gain_rate: float = 0.001,
        propensity: Propensity | str | None = None,
        seed: int = 0,
        threads: int | None = None,
    ) -> None:
        self.learner = learner
        self.blocks = blocks
        self.width = width
        self.activation = activation
        self.candidates = candidates
        self.tail = tail
        self.most_loss = most_loss
        self.weight = weight
        self.margin = margin
        self.negatives = negatives
        self.folds = folds
        self.passes = passes
        self.rate = rate
        self.gain_rate = gain_rate
        self.propensity = propensity
        self.seed = seed
        self.threads = threads

    @property
    def _decision_threshold(self) -> float:  # type: ignore[override]
        return linked_threshold(self.learner_)

    def _check_parameters(self) -> None:
        check_whole(self, blocks=1, width=1, negatives=0, folds=1, passes=0, seed=0)
        for name in ("most_loss", "weight", "margin", "rate", "gain_rate"):
            value = getattr(self, name)
            if not (is_number(value) and value >= 0):
                raise ParameterError(name, value, "must be a number of at least 0")
        if not (isinstance(self.tail, str) and self.tail == "auto"):
            try:
                checked_tail(self.tail)
            except ParameterError:
                raise ParameterError("tail", self.tail, 'must be a number from 0 to 1, or "auto"') from None
        get_propensity(self.propensity)
        self._check_learner()
        self._check_ranking()
        self._base()._check_parameters()

    def _check_ranking(self) -> None:
        """Refuse what ranking can't work with; these may be set on a fitted learner."""
        if self.activation not in get_args(Activation):
            raise ParameterError("activation", self.activation, f"must be one of {', '.join(get_args(Activation))}")
        checked_k(self.candidates, "candidates")
        thread_count(self.threads)

    def _default(self) -> Learner:
        return bonsai_trees(threads=self.threads)

    def _fit(self, X: sp.csr_array, Y: sp.csr_array) -> None:
        found = out_of_fold(
            self._base(), X, Y, folds=int(self.folds), candidates=int(self.candidates), seed=int(self.seed)
        )
        inverse = propensity_of(self, self._data_propensity).inverse(self.label_counts_, self.n_rows_)
        self.tail_ = self._chosen_tail(found, Y, inverse) if isinstance(self.tail, str) else float(self.tail)
        self._train(found, np.log(inverse).astype(np.float32) * np.float32(self.tail_))
        self.learner_ = self._base().fit(X, Y)

    def _update(self, more: MoreRows) -> None:
        """Update the learner inside; the blocks stay, and a new label begins with the gain of its propensity."""
        self.learner_ = self.learner_._updated(more)
        new = more.n_labels - self.n_labels_
        if not new:
            return
        inverse = propensity_of(self, self._data_propensity).inverse(more.label_counts, more.n_rows)
        gains = np.zeros((len(self.log_gains_), new), np.float32)
        gains[0] = np.log(inverse[-new:]).astype(np.float32) * np.float32(self.tail_)
        self.log_gains_ = np.concatenate([self.log_gains_, gains], axis=1)
        self.into_, self.out_ = (np.pad(part, ((0, 0), (0, new), (0, 0))) for part in (self.into_, self.out_))

    def _chosen_tail(self, found: Candidates, Y: sp.csr_array, inverse: npt.NDArray[np.float64]) -> float:
        if not Y.shape[1]:
            return 0.0
        curve = []
        for tail in TAILS:
            factors = (inverse**tail).astype(np.float32)
            top = found.top.ranked_by(found.top.scores * factors[found.top.labels], 5)
            measured = evaluate(top, Y, inverse_propensity=inverse, ks=(1, 5))
            curve.append(DialPoint(tail, *(measured[name] for name in ("P@1", "P@5", "PSP@1", "PSP@5"))))
        return choose_tail(curve, self.most_loss)

    def _train(self, found: Candidates, log_gains: npt.NDArray[np.float32]) -> None:
        """Train the blocks; only the first one begins with gains."""
        rng = np.random.default_rng(self.seed)
        shape = int(self.blocks), self.n_labels_, int(self.width)
        self.log_gains_ = np.zeros(shape[:2], np.float32)
        self.log_gains_[0] = log_gains
        self.into_ = rng.normal(scale=_SPREAD, size=shape).astype(np.float32)
        self.bias_ = np.zeros((shape[0], shape[2]), np.float32)
        self.out_ = np.zeros(shape, np.float32)
        blocks = self._arrays
        squares = ResidualBlocks(*(np.full_like(part, _FIRST_SQUARES) for part in blocks))
        loss = PopulationLoss(
            self.label_counts_.astype(np.float64), float(self.weight), float(self.margin), int(self.negatives)
        )
        state = np.array([self.seed], np.uint64)
        arrays: list[npt.NDArray[Any]] = [*blocks, *squares, state]
        checkpoint = self._checkpoint(found, log_gains)
        saved = checkpoint.load()
        if saved is not None:
            rng.bit_generator.state = from_numbers(saved[1])
            for array, kept in zip(arrays, saved[2:], strict=True):
                array[...] = kept
        done = 0 if saved is None else int(saved[0][0])

        def learn(number: int, stop: npt.NDArray[np.uint8]) -> None:
            train_rows(
                rng.permutation(len(found.truth)), found.top.labels, found.top.scores, found.truth, blocks, squares,
                _CODES[self.activation], loss, float(self.rate), float(self.gain_rate), state, stop,
            )  # fmt: skip

        while done < int(self.passes):  # one at a time: the next pass would change what is being kept
            try:
                list(run_blocks(learn, [done], threads=1, description="training RankNet", unit="passes"))
            except Interrupted as error:
                error.args = (f"Stopped while training RankNet: {done:,} of {self.passes:,} passes were done.",)
                raise
            done += 1
            checkpoint.save([np.array([done]), as_numbers(rng.bit_generator.state), *arrays])

    def _checkpoint(self, found: Candidates, log_gains: npt.NDArray[np.float32]) -> Checkpoint:
        """Where the blocks are kept after every pass."""
        names = ("blocks", "width", "activation", "weight", "margin", "negatives", "rate", "gain_rate", "seed")
        described = [getattr(self, name) for name in names], found.truth.shape
        return Checkpoint(
            digest_of(described, (log_gains, self.label_counts_, found.top.labels, found.top.scores, found.truth))
        )

    @property
    def _arrays(self) -> ResidualBlocks:
        return ResidualBlocks(self.log_gains_, self.into_, self.bias_, self.out_)

    def _sound_arrays(self) -> ResidualBlocks:
        """Arrays for the kernels; a kernel trusts their shapes."""
        arrays = self._arrays
        n_blocks, width = arrays.bias.shape
        shapes = (n_blocks, self.n_labels_), (n_blocks, self.n_labels_, width)
        wanted = (shapes[0], shapes[1], (n_blocks, width), shapes[1])
        if any(part.dtype != np.float32 or part.shape != shape for part, shape in zip(arrays, wanted, strict=True)):
            raise ModelError("The blocks of the model don't fit its labels: its files were changed; train it again.")
        if self.learner_.n_labels_ != self.n_labels_:
            raise ModelError("The learner inside has other labels than the re-ranker: train it again.")
        return arrays

    def _topk(self, X: sp.csr_array, k: int, allowed: npt.NDArray[np.bool_] | None) -> TopK:
        self._check_ranking()
        blocks, n = self._sound_arrays(), X.shape[0]
        top = TopK(np.full((n, k), -1, np.int32), np.full((n, k), -np.inf, np.float32))
        seen = self._found(X, None)
        found = seen if allowed is None else self._found(X, allowed)

        def rank(first: int, last: int) -> None:
            part = slice(first, last)
            rescore(
                seen.labels[part], seen.scores[part], found.labels[part], found.scores[part], blocks,
                _CODES[self.activation], top.labels[part], top.scores[part],
            )  # fmt: skip

        in_chunks(rank, n, _ROWS_AT_ONCE, self.threads, "ranking anew")
        return top

    def _found(self, X: sp.csr_array, allowed: npt.NDArray[np.bool_] | None) -> TopK:
        """Candidates of the learner, with scores from 0 to 1."""
        k = min(int(self.candidates), max(self.n_labels_, 1))
        return linked(self.learner_, self.learner_._topk(X, k, allowed))

    def _explain(self, X: sp.csr_array, labels: npt.NDArray[np.int32]) -> list[Explanation]:
        """Share the score out: the learner's part over the features, what the other candidates add as a bias."""
        only = np.zeros(self.n_labels_, np.bool_)
        only[labels] = True
        ranked = self._topk(X, max(len(labels), 1), only)
        scores = dict(zip(ranked.labels[0].tolist(), ranked.scores[0].tolist(), strict=True))
        whys = []
        for why in self.learner_._explain(X, labels):
            plain, start = np.exp(self.learner_._log_scores(np.array([why.score, why.bias], np.float64)))
            gain = math.exp(float(self.log_gains_[:, why.label].sum()))
            score = scores.get(why.label, gain * float(plain))
            effects = sum(effect for _, effect in why.parts)
            scale = gain * float(plain - start) / effects if effects else 0.0
            parts = [(feature, effect * scale) for feature, effect in why.parts]
            bias = score - sum(effect for _, effect in parts)
            sources = [
                (type(self.learner_).__name__, float(plain)),
                ("gain", (gain - 1) * float(plain)),
                ("other labels", score - gain * float(plain)),
            ]
            whys.append(replace(why, score=score, bias=bias, parts=parts).with_sources(sources))
        return whys

    def _estimate(self, X: sp.csr_array, Y: sp.csr_array) -> Estimate:
        inner = self._base()._estimate(X, Y)
        visits = X.shape[0] * min(int(self.candidates), max(Y.shape[1], 1)) * int(self.width) * int(self.blocks)
        size = 4 * int(self.blocks) * Y.shape[1] * (2 * int(self.width) + 1) / 1e6
        others = max(int(self.folds) - 1, 1)  # the folds together see the rows so many times
        return replace(
            inner.times(1 + others, alone=_SECONDS_A_VISIT * visits * int(self.passes)),
            model_mb=inner.model_mb + size,
            peak_memory_mb=inner.peak_memory_mb + 2 * size + 13e-6 * X.shape[0] * int(self.candidates),
        )

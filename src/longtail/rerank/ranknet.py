"""RankNet: residual blocks that re-rank the labels of a learner, trained to favour rare ones."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Literal, get_args

import numpy as np
import scipy.sparse as sp

from longtail.errors import Interrupted, ModelError
from longtail.kernels.types import Array, Float32, Float64, Int32, UInt8
from longtail.learners import Explanation, Learner, TrainingCost
from longtail.learners.base import Allowed
from longtail.learners.composite import MetaLearner, probability_threshold, unit_scores
from longtail.learners.rows import digest_of
from longtail.learners.updates import UpdateBatch
from longtail.propensity import Propensity
from longtail.rerank.dial import TAILS, DialPoint, choose_tail
from longtail.rerank.folds import OutOfFoldCandidates, find_candidates, out_of_fold
from longtail.rerank.ranknet_kernels import LINEAR, SIGMOID, TANH, PopulationLoss, ResidualBlocks, rescore, train_rows
from longtail.runtime.checkpoint import Checkpoint, as_numbers, from_numbers
from longtail.runtime.pool import in_chunks, run_blocks
from longtail.topk import TopK
from longtail.validation import SEED, TAIL, Constraint, Integer, Number, OneOf, Optional, Validated

RankNetActivation = Literal["tanh", "sigmoid", "linear"]

_CODES = {"linear": LINEAR, "sigmoid": SIGMOID, "tanh": TANH}
_ROWS_AT_ONCE = 4096
_FIRST_SQUARES = 0.1
_SPREAD = 0.3
_SECONDS_PER_VISIT = 2e-9  # per row, candidate and hidden unit


class RankNet(MetaLearner):
    """Re-rank the best labels of a learner by residual blocks over all of them.

    A block maps the scores y of a row's candidates to ``gain_l y_l + out_l . sigma(bias + sum_j y_j into_j)``: it has
    one gain and 2 `width` weights per label, so labels that often occur together can support each other. It is trained
    on out-of-fold candidates with a ranking loss: a rare true label should score higher than a frequent one, and a
    true label higher than a false one.

    The gains are initialised to the inverse propensities to the power `tail`: without training, RankNet is the tail
    dial.

    Parameters
    ----------
    learner : Learner, optional
        Any learner; the `LabelTree` of the recipe bonsai by default.
    blocks : int
        Number of residual blocks.
    width : int
        Hidden units of a block.
    activation : {"tanh", "sigmoid", "linear"}
        With "linear" a block is W y + y, where W is the diagonal of gains plus a low-rank matrix.
    top_k : int
        Candidates per row.
    tail : float or "auto"
        Position of the tail dial for the initial gains, from 0 to 1. "auto" takes the one with the highest PSP@5 on the
        candidates whose P@1 is at most `max_loss` below the best.
    max_loss : float
        Points of P@1 that "auto" may lose.
    weight : float
        Weight of the second term of the loss, which keeps precision.
    margin : float
        Margin by which a true label should score higher than a false one.
    n_negatives : int
        False candidates sampled per true label; 0 for all of them.
    folds : int
        Number of folds for the out-of-fold candidates. 1 trains on the scores of training rows, which are too high.
    epochs : int
    learning_rate, gain_learning_rate : float
        Step size of Adagrad, and that for the gains; 0 keeps the initial gains.
    propensity : Propensity or str, optional
        By default that of the learner's weighting, or that of Jain et al.
    random_state : int
    n_jobs : int, optional
        Threads; None as `longtail.config_context` says. The result does not depend on it.

    Attributes
    ----------
    learner_ : Learner
        The fitted learner.
    tail_ : float
        Position of the tail dial for the initial gains.
    log_gains_, into_, bias_, out_ : ndarray of float32
        Parameters of the blocks, of shape (blocks, labels), (blocks, labels, width), (blocks, width) and as `into_`.

    References
    ----------
    Improving Tail Label Prediction for Extreme Multi-label Learning. Under review for ICLR 2021, authors not named.

    Examples
    --------
    >>> from longtail import OneVsRest, RankNet
    >>> X, Y = [[1, 0], [0, 1], [1, 0], [0, 1]], [[1, 0], [0, 1], [1, 0], [0, 1]]
    >>> RankNet(learner=OneVsRest(n_jobs=1), width=2, tail=0.5).fit(X, Y).predict_topk([[1, 0]], k=1).labels
    array([[0]], dtype=int32)
    """

    _stored: ClassVar[tuple[str, ...]] = ("learner_", "tail_", "log_gains_", "into_", "bias_", "out_")

    learner_: Learner
    tail_: float
    log_gains_: Float32
    into_: Float32
    bias_: Float32
    out_: Float32

    _constraints: ClassVar[Mapping[str, Constraint]] = {
        "activation": OneOf(*get_args(RankNetActivation)),
        "top_k": Integer(1),
        "blocks": Integer(1),
        "width": Integer(1),
        "n_negatives": Integer(0),
        "folds": Integer(1),
        "epochs": Integer(0),
        "random_state": SEED,
        "tail": Optional(TAIL, "auto"),
        "max_loss": Number(low=0),
        "weight": Number(low=0),
        "margin": Number(low=0),
        "learning_rate": Number(low=0),
        "gain_learning_rate": Number(low=0),
    }

    def __init__(
        self,
        *,
        learner: Learner | None = None,
        blocks: int = 1,
        width: int = 16,
        activation: RankNetActivation = "tanh",
        top_k: int = 50,
        tail: float | Literal["auto"] = "auto",
        max_loss: float = 2.0,
        weight: float = 10.0,
        margin: float = 0.1,
        n_negatives: int = 0,
        folds: int = 2,
        epochs: int = 2,
        learning_rate: float = 0.001,
        gain_learning_rate: float = 0.001,
        propensity: Propensity | str | None = None,
        random_state: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.learner = learner
        self.blocks = blocks
        self.width = width
        self.activation = activation
        self.top_k = top_k
        self.tail = tail
        self.max_loss = max_loss
        self.weight = weight
        self.margin = margin
        self.n_negatives = n_negatives
        self.folds = folds
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.gain_learning_rate = gain_learning_rate
        self.propensity = propensity
        self.random_state = random_state
        self.n_jobs = n_jobs

    @property
    def _decision_threshold(self) -> float:  # type: ignore[override]
        return probability_threshold(self.learner_)

    def _default(self) -> Learner:
        from longtail.learners import bonsai_trees

        return bonsai_trees()

    def _fit(self, X: sp.csr_array, Y: sp.csr_array) -> None:
        found = out_of_fold(
            self._base(), X, Y, folds=int(self.folds), top_k=int(self.top_k), random_state=int(self.random_state)
        )
        inverse = self.propensity_model(self._data_propensity).inverse(self.label_counts_, self.n_rows_)
        self.tail_ = self._chosen_tail(found, Y, inverse) if isinstance(self.tail, str) else float(self.tail)
        self._train(found, np.log(inverse).astype(np.float32) * np.float32(self.tail_))
        self.learner_ = self._base()._fit_checked(X, Y)

    def _update(self, batch: UpdateBatch) -> None:
        """Update the wrapped learner; the blocks stay, and new labels get the gain of their propensity."""
        super()._update(batch)
        new = batch.n_labels - self.n_labels_
        if not new:
            return
        inverse = self.propensity_model(self._data_propensity).inverse(batch.label_counts, batch.n_rows)
        gains = np.zeros((len(self.log_gains_), new), np.float32)
        gains[0] = np.log(inverse[-new:]).astype(np.float32) * np.float32(self.tail_)
        self.log_gains_ = np.concatenate([self.log_gains_, gains], axis=1)
        self.into_, self.out_ = (np.pad(part, ((0, 0), (0, new), (0, 0))) for part in (self.into_, self.out_))

    def _chosen_tail(self, found: OutOfFoldCandidates, Y: sp.csr_array, inverse: Float64) -> float:
        if not Y.shape[1]:
            return 0.0
        curve = []
        for tail in TAILS:
            factors = (inverse**tail).astype(np.float32)
            top = found.top.ranked_by(found.top.scores * factors[found.top.labels], 5)
            curve.append(DialPoint.of(tail, top, Y, inverse, 5))
        return choose_tail(curve, self.max_loss)

    def _train(self, found: OutOfFoldCandidates, log_gains: Float32) -> None:
        """Train the blocks; only the first one has initial gains."""
        rng = np.random.default_rng(self.random_state)
        shape = int(self.blocks), self.n_labels_, int(self.width)
        self.log_gains_ = np.zeros(shape[:2], np.float32)
        self.log_gains_[0] = log_gains
        self.into_ = rng.normal(scale=_SPREAD, size=shape).astype(np.float32)
        self.bias_ = np.zeros((shape[0], shape[2]), np.float32)
        self.out_ = np.zeros(shape, np.float32)
        blocks = self._arrays
        squares = ResidualBlocks(*(np.full_like(part, _FIRST_SQUARES) for part in blocks))
        loss = PopulationLoss(
            self.label_counts_.astype(np.float64), float(self.weight), float(self.margin), int(self.n_negatives)
        )
        state = np.array([self.random_state], np.uint64)
        arrays: list[Array] = [*blocks, *squares, state]
        checkpoint = self._checkpoint(found, log_gains)
        saved = checkpoint.load()
        if saved is not None:
            rng.bit_generator.state = from_numbers(saved[1])
            for array, kept in zip(arrays, saved[2:], strict=True):
                array[...] = kept
        done = 0 if saved is None else int(saved[0][0])

        def learn(number: int, stop: UInt8) -> None:
            train_rows(
                rng.permutation(len(found.truth)), found.top.labels, found.top.scores, found.truth, blocks, squares,
                _CODES[self.activation], loss, float(self.learning_rate), float(self.gain_learning_rate), state, stop,
            )  # fmt: skip

        while done < int(self.epochs):  # one at a time: the next epoch would change the arrays that are being saved
            try:
                list(run_blocks(learn, [done], description="training RankNet", unit="epochs"))
            except Interrupted as error:
                error.args = (f"Stopped while training RankNet: {done:,} of {self.epochs:,} epochs were done.",)
                raise
            done += 1
            checkpoint.save([np.array([done]), as_numbers(rng.bit_generator.state), *arrays])

    def _checkpoint(self, found: OutOfFoldCandidates, log_gains: Float32) -> Checkpoint:
        """The checkpoint of the blocks after every epoch."""
        names = "blocks width activation weight margin n_negatives learning_rate gain_learning_rate random_state"
        described = [getattr(self, name) for name in names.split()], found.truth.shape
        return Checkpoint(
            digest_of(described, (log_gains, self.label_counts_, found.top.labels, found.top.scores, found.truth))
        )

    @property
    def _arrays(self) -> ResidualBlocks:
        return ResidualBlocks(self.log_gains_, self.into_, self.bias_, self.out_)

    def _sound_arrays(self) -> ResidualBlocks:
        """Arrays for the kernels, with their shapes checked."""
        arrays = self._arrays
        n_blocks, width = arrays.bias.shape
        shapes = (n_blocks, self.n_labels_), (n_blocks, self.n_labels_, width)
        wanted = (shapes[0], shapes[1], (n_blocks, width), shapes[1])
        if any(part.dtype != np.float32 or part.shape != shape for part, shape in zip(arrays, wanted, strict=True)):
            raise ModelError("The blocks of the model don't fit its labels: its files were changed; train it again.")
        self._check_labels()
        return arrays

    def _topk(self, X: sp.csr_array, k: int, allowed: Allowed) -> TopK:
        Validated._check_parameters(self)  # may be set on a fitted learner
        blocks, n = self._sound_arrays(), X.shape[0]
        top = TopK.empty(n, k)
        seen = find_candidates(self.learner_, X, int(self.top_k))
        found = seen if allowed is None else find_candidates(self.learner_, X, int(self.top_k), allowed)

        def rank(first: int, last: int) -> None:
            part = slice(first, last)
            rescore(
                seen.labels[part], seen.scores[part], found.labels[part], found.scores[part], blocks,
                _CODES[self.activation], top.labels[part], top.scores[part],
            )  # fmt: skip

        in_chunks(rank, n, _ROWS_AT_ONCE, "re-ranking")
        return top

    def _explain(self, X: sp.csr_array, labels: Int32) -> list[Explanation]:
        """Distribute the learner's part over the features; the effect of the other candidates is bias."""
        scores = self._scores_of(X, labels)
        explanations = []
        for explanation in self.learner_._explain(X, labels):
            plain, start = unit_scores(self.learner_, explanation.score, explanation.bias)
            gain = math.exp(float(self.log_gains_[:, explanation.label].sum()))
            score = scores.get(explanation.label, gain * plain)
            sources = [
                (type(self.learner_).__name__, plain),
                ("gain", (gain - 1) * plain),
                ("other labels", score - gain * plain),
            ]
            explanations.append(explanation.rescaled(score, gain * (plain - start)).with_sources(sources))
        return explanations

    def _estimate(self, X: sp.csr_array, Y: sp.csr_array) -> TrainingCost:
        base = self._base()._estimate(X, Y)
        visits = X.shape[0] * min(int(self.top_k), max(Y.shape[1], 1)) * int(self.width) * int(self.blocks)
        size = 4 * int(self.blocks) * Y.shape[1] * (2 * int(self.width) + 1) / 1e6
        others = max(int(self.folds) - 1, 1)  # the folds together train on the rows this often
        return replace(
            base.times(1 + others, alone=_SECONDS_PER_VISIT * visits * int(self.epochs)),
            model_mb=base.model_mb + size,
            peak_memory_mb=base.peak_memory_mb + 2 * size + 13e-6 * X.shape[0] * int(self.top_k),
        )

"""One linear classifier a label, trained exactly, sixty-four labels at a time."""

from __future__ import annotations

import math
from contextlib import closing
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from longtail.engine.augmentation import Augmentation
from longtail.engine.block_solver import HINGE, LOGISTIC, SQUARED_HINGE
from longtail.engine.memory import affordable_threads, parse_memory
from longtail.engine.pool import thread_count
from longtail.engine.spool import BlockSpool, is_resumable
from longtail.engine.topk import TopK
from longtail.errors import ParameterError
from longtail.learners.base import Learner
from longtail.learners.estimate import Estimate
from longtail.learners.explanation import Explanation
from longtail.learners.linear.pilot import estimate_blocks
from longtail.learners.linear.problem import Settings
from longtail.learners.linear.training import BlockTrainer, Centre, block_bytes, row_scales
from longtail.learners.linear.updating import updated_weights
from longtail.learners.linear.weights import BlockWeights, Precision
from longtail.learners.norms import norms_of_blocks
from longtail.learners.updates import MoreRows
from longtail.losses import Corrected, Hinge, Logistic, Loss, SquaredHinge, get_loss, margin_form
from longtail.weighting import Costs, PropensityWeighting, Weighting, get_weighting

_HINGE_SLOPE = 3.0  # turns margins of the hinges into something like probabilities
_CODES = {SquaredHinge: SQUARED_HINGE, Hinge: HINGE, Logistic: LOGISTIC}


class OneVsRest(Learner):
    """One linear classifier a label, with L2 regularisation and per-label costs.

    For each label l it minimises

        1/2 |w - w0|^2 + C (c+ sum over positive rows of loss(w.x) + c- sum over negative rows of loss(-w.x))

    where C is `regularisation`, c+ and c- come from `weighting`, and w0 is zero but for the bias, which is drawn
    towards `bias_centre`. A label that no training row has gets no classifier and is never predicted.

    Parameters
    ----------
    loss : {"squared-hinge", "hinge", "logistic"} or Loss
        What a wrong or hesitant answer costs. `Surrogate` and `Rebalanced` of one of the three bring a cost for
        positive rows, which multiplies that of the weighting; unbiased losses have no lower bound and are refused.
    regularisation : float
        C: the larger, the closer the fit to the training rows.
    weighting : Weighting or str, optional
        Per-label costs, for instance ``PW()`` or ``"pw-cb"``; all 1 when left out.
    normalise : bool
        Scale every row to length 1 before the bias is added, in training and prediction.
    bias : float
        Value of the bias feature that every row gets; 0 for none.
    bias_centre : float, optional
        Where the regulariser draws the bias. By default -1 for the hinges, where a row that says nothing is rejected
        with just enough confidence, and the log-odds of the label for the logistic loss. 0 gives the problem that
        LIBLINEAR solves.
    prune_below : float
        Weights smaller than this are dropped after training; the bias stays. 0.05 halves the model and its time to
        predict, and changes P@k by no more than another seed does.
    prune_rise : float, optional
        Prune each label as far as its training loss, measured after every step, rises by no more than this share of
        its objective; the search begins at `prune_below`, or at 0.001. A label that would lose more stays whole.
        Training takes two to three times as long.
    tolerance : float
        Training of a block of labels stops when no gradient of the dual is larger.
    max_passes : int, optional
        Most passes over the rows. By default as many as make 470,000 visits of rows, at least 8 and at most 50: few
        rows need more passes to settle, and with many rows more passes change the ranking little.
    precision : {"bfloat16", "float32"}
        How weights are kept after training.
    seed : int
        Decides the order in which rows are visited.
    threads : int, optional
        Threads for training and prediction, all cores by default; the result is the same for any number.
    memory_limit : int or str, optional
        Memory that the process should hold at most while blocks are trained, in bytes or as text such as ``"2GB"``:
        fewer threads are used where it would be passed, and training is refused where even one doesn't fit. Where the
        finished blocks don't fit together into what is left, the model lies in temporary files, mapped into memory.

    Attributes
    ----------
    weights_ : BlockWeights
        The weights as they are kept.
    coef_ : csr_array of float32, shape (n_labels_, n_features_in_)
        The weights as a matrix, made on request.
    intercept_ : ndarray of float32, shape (n_labels_,)
        What the bias adds to each score; -inf for labels without a classifier.

    References
    ----------
    Babbar and Schölkopf: DiSMEC: Distributed Sparse Machines for Extreme Multi-label Classification. WSDM 2017.

    Examples
    --------
    >>> from longtail import OneVsRest
    >>> X = [[1, 0], [0, 1], [1, 1]]
    >>> Y = [[1, 0], [0, 1], [1, 1]]
    >>> OneVsRest(threads=1).fit(X, Y).predict_topk([[1, 0]], k=1).labels
    array([[0]], dtype=int32)
    """

    _stored: ClassVar[tuple[str, ...]] = ("weights_",)

    weights_: BlockWeights

    def __init__(
        self,
        *,
        loss: str | Loss = "squared-hinge",
        regularisation: float = 1.0,
        weighting: Weighting | str | None = None,
        normalise: bool = True,
        bias: float = 1.0,
        bias_centre: float | None = None,
        prune_below: float = 0.01,
        prune_rise: float | None = None,
        tolerance: float = 0.05,
        max_passes: int | None = None,
        precision: Precision = "bfloat16",
        seed: int = 0,
        threads: int | None = None,
        memory_limit: int | str | None = None,
    ) -> None:
        self.loss = loss
        self.regularisation = regularisation
        self.weighting = weighting
        self.normalise = normalise
        self.bias = bias
        self.bias_centre = bias_centre
        self.prune_below = prune_below
        self.prune_rise = prune_rise
        self.tolerance = tolerance
        self.max_passes = max_passes
        self.precision = precision
        self.seed = seed
        self.threads = threads
        self.memory_limit = memory_limit

    @property
    def coef_(self) -> sp.csr_array:
        """Weights as a sparse matrix of shape (n_labels_, n_features_in_)."""
        return self.weights_.matrix(self.n_labels_)

    @property
    def intercept_(self) -> npt.NDArray[np.float32]:
        """What the bias adds to the score of each label; -inf for labels without a classifier."""
        intercept = np.full(self.n_labels_, -np.inf, np.float32)
        lanes = self.weights_.lane_labels_ >= 0
        intercept[self.weights_.lane_labels_[lanes]] = self.bias * self.weights_.lane_bias_[lanes]
        return intercept

    def _check_parameters(self) -> None:
        for name, least, exclusive in (
            ("regularisation", 0.0, True),
            ("bias", 0.0, False),
            ("prune_below", 0.0, False),
            ("tolerance", 0.0, True),
        ):
            value = getattr(self, name)
            if not (_is_number(value) and math.isfinite(value) and (value > least if exclusive else value >= least)):
                wanted = f"{'above' if exclusive else 'of at least'} {least:g}"
                raise ParameterError(name, value, f"must be a number {wanted}")
        if self.bias_centre is not None and not (_is_number(self.bias_centre) and math.isfinite(self.bias_centre)):
            raise ParameterError("bias_centre", self.bias_centre, "must be a number or None")
        for name, least_int in (("max_passes", 1), ("seed", 0)):
            value = getattr(self, name)
            if name == "max_passes" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least_int <= value < 2**32:
                raise ParameterError(name, value, f"must be a whole number from {least_int} to {2**32 - 1}")
        if not isinstance(self.normalise, bool | np.bool_):
            raise ParameterError("normalise", self.normalise, "must be True or False")
        if self.precision not in ("bfloat16", "float32"):
            raise ParameterError("precision", self.precision, "must be bfloat16 or float32")
        if self.prune_rise is not None and not (_is_number(self.prune_rise) and 0 <= self.prune_rise < math.inf):
            raise ParameterError("prune_rise", self.prune_rise, "must be a number of at least 0, or None")
        if self.memory_limit is not None:
            parse_memory(self.memory_limit)
        if type(margin_form(self.loss).loss) not in _CODES:
            raise ParameterError("loss", self.loss, "must be squared-hinge, hinge or logistic")
        weighting = get_weighting(self.weighting)
        if isinstance(weighting, PropensityWeighting) and isinstance(get_loss(self.loss), Corrected):
            raise ParameterError(
                "weighting", self.weighting, "must not use propensities, because the loss does already"
            )
        thread_count(self.threads)

    def add_labels(self, X: Any, Y: Any) -> Self:
        """Learn new labels and leave the classifiers of the others as they are, to the last bit.

        Parameters
        ----------
        X : matrix, shape (n, n_features_in_)
            Rows of which it is known whether they have the new labels: the training rows, or others, whose counts
            are then scaled to as many rows as the first training had.
        Y : matrix, shape (n, new labels)
            The new labels of these rows; they get the ids from the old `n_labels_` on.

        Returns
        -------
        self

        Examples
        --------
        >>> X = [[1, 0], [0, 1], [1, 1]]
        >>> learner = OneVsRest(threads=1).fit(X, [[1, 0], [0, 1], [1, 1]])
        >>> learner.add_labels(X, [[0], [1], [0]]).n_labels_
        3
        """
        rows, labels = self._check_new_labels(X, Y)
        counts = np.bincount(labels.indices, minlength=labels.shape[1]).astype(np.int64)
        old = list(self.weights_.blocks())
        precision: Precision = "bfloat16" if self.weights_.panels_.dtype == np.uint16 else "float32"
        trainer = self._trainer(rows, labels, counts, precision)
        blocks = [block_labels for _, block_labels in old] + BlockTrainer.blocks_by_frequency(counts)
        with BlockSpool() as spool:
            for block, _ in old:
                spool.append(block)
            self._train(trainer, blocks, spool)
            blocks[len(old) :] = [block_labels + np.int32(self.n_labels_) for block_labels in blocks[len(old) :]]
            weights = BlockWeights.assemble(spool, blocks, self.n_features_in_, precision, self.memory_limit)
        with self._whole_or_unchanged():
            self.weights_ = weights
            self._remember_new_labels(labels)
        return self

    def _fit(self, X: sp.csr_array, Y: sp.csr_array) -> None:
        self._fit_blocks(self._trainer(X, Y, self.label_counts_))

    def _fit_augmented(self, X: sp.csr_array, Y: sp.csr_array, augmentation: Augmentation) -> None:
        self._fit_blocks(self._trainer(X, Y, self.label_counts_, augmentation=augmentation))

    def _update(self, more: MoreRows) -> None:
        self.weights_ = updated_weights(self, more)

    def _fit_blocks(self, trainer: BlockTrainer) -> None:
        blocks = BlockTrainer.blocks_by_frequency(self.label_counts_)
        with BlockSpool(trainer.fingerprint(blocks) if is_resumable() else None) as spool:
            self._train(trainer, blocks, spool)
            trainer.release_rows()
            self.weights_ = BlockWeights.assemble(spool, blocks, self.n_features_in_, self.precision, self.memory_limit)

    def _trainer(
        self,
        X: sp.csr_array,
        Y: sp.csr_array,
        counts: npt.NDArray[np.int64],
        precision: Precision | None = None,
        augmentation: Augmentation | None = None,
        *,
        n_rows: int | None = None,
        centre: Centre | None = None,
        bias_share: float = 1.0,
        negative_weight: float = 1.0,
        max_passes: int | None = None,
    ) -> BlockTrainer:
        """Trainer of blocks; where the rows are not all, `n_rows` says how many there are for the costs."""
        settings = Settings(
            loss=_CODES[type(margin_form(self.loss).loss)],
            regularisation=float(self.regularisation),
            bias=float(self.bias) * bias_share,
            bias_centre=self.bias_centre,
            prune_below=float(self.prune_below),
            prune_rise=self.prune_rise if centre is None else None,
            tolerance=float(self.tolerance),
            max_passes=self.max_passes or max_passes,
            seed=int(self.seed),
        )
        costs = get_weighting(self.weighting).costs(counts, n_rows or X.shape[0])
        corrected = costs.positive * margin_form(self.loss).costs(len(counts))
        costs = Costs(corrected.astype(np.float32), costs.negative * np.float32(negative_weight))
        return BlockTrainer(
            settings,
            X,
            Y.tocsc(),
            row_scales(X, self.normalise),
            costs,
            precision or self.precision,
            augmentation,
            bool(self.normalise),
            centre,
        )

    def _train(self, trainer: BlockTrainer, blocks: list[npt.NDArray[np.int32]], spool: BlockSpool) -> None:
        """Train the blocks that the spool doesn't hold yet, in as many threads as the memory allows."""
        threads = self._affordable_threads(*trainer.X.shape, trainer.copy_bytes(blocks[len(spool) :]))
        with closing(trainer.train(blocks, first=len(spool), threads=threads)) as solved:
            spool.append_all(solved)

    def _affordable_threads(self, n_rows: int, n_features: int, copies: int = 0) -> int:
        """Threads that `memory_limit` leaves room for, and at most `threads`; the result is the same for any number."""
        threads = thread_count(self.threads)
        each = block_bytes(n_rows, n_features, bounded=self.prune_rise is not None) + copies
        return affordable_threads(threads, each, self.memory_limit, "a block of labels", fewer="features or rows")

    def _estimate(self, X: sp.csr_array, Y: sp.csr_array) -> Estimate:
        counts = np.bincount(Y.indices, minlength=Y.shape[1]).astype(np.int64)
        return estimate_blocks(
            self._trainer(X, Y, counts),
            BlockTrainer.blocks_by_frequency(counts),
            self._affordable_threads(*X.shape),
        )

    def _log_scores(self, scores: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.floating[Any]]:
        """Logarithm of 1 / (1 + exp(-3 margin)), or of the probability that the logistic loss estimates."""
        return np.asarray(-np.logaddexp(0, -self._slope * scores), scores.dtype)

    @property
    def _slope(self) -> float:
        return 1.0 if isinstance(margin_form(self.loss).loss, Logistic) else _HINGE_SLOPE

    def _label_norms(self) -> npt.NDArray[np.float64]:
        return norms_of_blocks(self.weights_, self.n_labels_)

    def _explain(self, X: sp.csr_array, labels: npt.NDArray[np.int32]) -> list[Explanation]:
        lane_of_label = np.full(self.n_labels_, -1, np.int64)
        used = np.flatnonzero(self.weights_.lane_labels_ >= 0)
        lane_of_label[self.weights_.lane_labels_[used]] = used
        known = lane_of_label[labels] >= 0
        effects = np.zeros((X.nnz, len(labels)))
        effects[:, known] = self.weights_.of_features(X.indices, lane_of_label[labels[known]])
        effects *= (X.data * row_scales(X, self.normalise)[0])[:, None]
        return [
            Explanation.from_effects(int(label), float(bias), X.indices, effects[:, column])
            for column, (label, bias) in enumerate(zip(labels, self.intercept_[labels], strict=True))
        ]

    def _topk(self, X: sp.csr_array, k: int, allowed: npt.NDArray[np.bool_] | None) -> TopK:
        self.weights_.check(self.n_labels_)
        scales, limit = row_scales(X, self.normalise), self.memory_limit
        return self.weights_.rank(X, scales, self.bias, k, allowed, self.threads, memory_limit=limit)

    def _weighted_topk(
        self,
        X: sp.csr_array,
        k: int,
        allowed: npt.NDArray[np.bool_] | None,
        factors: npt.NDArray[np.float32] | None,
    ) -> TopK:
        """Exact: among all labels."""
        if factors is None:
            return self._topk(X, k, allowed)
        self.weights_.check(self.n_labels_)
        lane_factors = self.weights_.lane_factors(factors, self._slope)
        scales = row_scales(X, self.normalise)
        return self.weights_.rank(X, scales, self.bias, k, allowed, self.threads, lane_factors, self.memory_limit)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)

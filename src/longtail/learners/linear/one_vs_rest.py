"""One-vs-rest linear classifiers, trained for 64 labels at a time."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp

from longtail.data.sparse import column_counts
from longtail.errors import ParameterError
from longtail.kernels.augmentation import Augmentation
from longtail.kernels.types import Flags, Float32, Float64, Int32, Int64
from longtail.learners.base import Learner
from longtail.learners.cost import TrainingCost
from longtail.learners.explanation import Explanation
from longtail.learners.linear.problem import LOSS_CODES, SOLVER_CONSTRAINTS, SolverSettings
from longtail.learners.linear.training import BlockTrainer, Centre, block_bytes, estimate_blocks
from longtail.learners.linear.updating import updated_weights
from longtail.learners.linear.weights import NO_FACTORS, BlockWeights, Precision
from longtail.learners.rows import row_scales
from longtail.learners.updates import UpdateBatch
from longtail.losses import Corrected, Logistic, Loss, get_loss, margin_form
from longtail.runtime.block_file import BlockFile, is_resumable
from longtail.runtime.memory import affordable_threads
from longtail.topk import TopK
from longtail.validation import Constraint, Number, OneOf, Optional
from longtail.weighting import Costs, PropensityWeighting, Weighting, get_weighting

_HINGE_SLOPE = 3.0  # of the sigmoid that maps margins of the hinges to probabilities, roughly


class OneVsRest(Learner):
    """One linear classifier per label, with L2 regularisation and per-label costs.

    For each label it minimises

        1/2 |w - w0|^2 + C (c+ sum over positive rows of loss(w.x) + c- sum over negative rows of loss(-w.x))

    where c+ and c- come from `weighting`, and w0 is zero except for the bias, which is regularised toward
    `bias_centre`. Labels without training rows get no classifier and are never predicted.

    Parameters
    ----------
    loss : {"squared-hinge", "hinge", "logistic"} or Loss
        `Surrogate` and `Rebalanced` of one of the three multiply the costs of positive rows. Unbiased losses have no
        lower bound and are refused.
    C : float
        Inverse regularisation strength: the larger, the closer the fit to the training rows.
    weighting : Weighting or str, optional
        Per-label costs, for instance ``PW()`` or ``"pw-cb"``; all 1 by default.
    normalise : bool
        Scale every row to unit length before the bias is added, in training and prediction.
    bias : float
        Value of the bias feature that is added to every row; 0 for none.
    bias_centre : float, optional
        Value that the bias is regularised toward. By default -1 for the hinges, which rejects a row without known
        features exactly at the margin, and the log-odds of the label for the logistic loss. 0 gives the problem that
        LIBLINEAR solves.
    prune_below : float
        Weights smaller than this are dropped after training; the bias is kept. 0.05 halves the model and the
        prediction time, and changes P@k by no more than another random seed does.
    prune_rise : float, optional
        Prune each label as long as its training loss rises by no more than this share of its objective. Thresholds
        from `prune_below` (at least 0.001) on are tried; a label that loses more with each of them is not pruned.
        Training takes two to three times as long.
    tol : float
        Training of a block of labels stops when no gradient of the dual is larger.
    max_iter : int, optional
        Maximum number of epochs. By default as many as visit 470,000 rows, at least 8 and at most 50: few rows need
        more epochs to converge, and with many rows further epochs hardly change the ranking.
    precision : {"bfloat16", "float32"}
        Storage type of the weights.
    random_state : int
        Seeds the order in which rows are visited.
    n_jobs : int, optional
        Threads; None as `longtail.config_context` says. The result does not depend on it.

    Attributes
    ----------
    weights_ : BlockWeights
    coef_ : csr_array of float32, shape (n_labels_, n_features_in_)
        Weights as a matrix, computed on access.
    intercept_ : ndarray of float32, shape (n_labels_,)
        Bias term of each label; -inf for labels without a classifier.

    References
    ----------
    Babbar and Schölkopf: DiSMEC: Distributed Sparse Machines for Extreme Multi-label Classification. WSDM 2017.

    Examples
    --------
    >>> from longtail import OneVsRest
    >>> X = [[1, 0], [0, 1], [1, 1]]
    >>> Y = [[1, 0], [0, 1], [1, 1]]
    >>> OneVsRest(n_jobs=1).fit(X, Y).predict_topk([[1, 0]], k=1).labels
    array([[0]], dtype=int32)
    """

    _stored: ClassVar[tuple[str, ...]] = ("weights_",)

    weights_: BlockWeights

    _constraints: ClassVar[Mapping[str, Constraint]] = {
        **SOLVER_CONSTRAINTS,
        "prune_rise": Optional(Number(low=0)),
        "precision": OneOf("bfloat16", "float32"),
    }

    @property
    def _gives_probabilities(self) -> bool:  # type: ignore[override]
        return isinstance(margin_form(self.loss).loss, Logistic)

    def __init__(
        self,
        *,
        loss: str | Loss = "squared-hinge",
        C: float = 1.0,
        weighting: Weighting | str | None = None,
        normalise: bool = True,
        bias: float = 1.0,
        bias_centre: float | None = None,
        prune_below: float = 0.01,
        prune_rise: float | None = None,
        tol: float = 0.05,
        max_iter: int | None = None,
        precision: Precision = "bfloat16",
        random_state: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.loss = loss
        self.C = C
        self.weighting = weighting
        self.normalise = normalise
        self.bias = bias
        self.bias_centre = bias_centre
        self.prune_below = prune_below
        self.prune_rise = prune_rise
        self.tol = tol
        self.max_iter = max_iter
        self.precision = precision
        self.random_state = random_state
        self.n_jobs = n_jobs

    @property
    def coef_(self) -> sp.csr_array:
        """Weights as a sparse matrix of shape (n_labels_, n_features_in_)."""
        return self.weights_.matrix(self.n_labels_)

    @property
    def intercept_(self) -> Float32:
        """Bias term of each label; -inf for labels without a classifier."""
        intercept = np.full(self.n_labels_, -np.inf, np.float32)
        lanes = self.weights_.lane_labels_ >= 0
        intercept[self.weights_.lane_labels_[lanes]] = self.bias * self.weights_.lane_bias_[lanes]
        return intercept

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if type(margin_form(self.loss).loss) not in LOSS_CODES:
            raise ParameterError("loss", self.loss, "must be squared-hinge, hinge or logistic")
        weighting = get_weighting(self.weighting)
        if isinstance(weighting, PropensityWeighting) and isinstance(get_loss(self.loss), Corrected):
            raise ParameterError("weighting", self.weighting, "must not use propensities, which the loss uses already")

    def add_labels(self, X: Any, y: Any) -> Self:
        """Train classifiers for new labels; those of the others do not change by a bit.

        Parameters
        ----------
        X : matrix, shape (n, n_features_in_)
            Rows annotated with the new labels: the training rows, or others, whose counts are then scaled to the
            number of training rows.
        y : matrix, shape (n, new labels)
            New labels of these rows; their ids follow the known ones.

        Returns
        -------
        self

        Examples
        --------
        >>> X = [[1, 0], [0, 1], [1, 1]]
        >>> learner = OneVsRest(n_jobs=1).fit(X, [[1, 0], [0, 1], [1, 1]])
        >>> learner.add_labels(X, [[0], [1], [0]]).n_labels_
        3
        """
        rows, labels = self._check_new_labels(X, y)
        counts = column_counts(labels)
        old = list(self.weights_.blocks())
        precision = self.weights_.precision
        trainer = self._trainer(rows, labels, counts, precision)
        blocks = [block_labels for _, block_labels in old] + BlockTrainer.blocks_by_frequency(counts)
        with BlockFile() as block_file:
            for block, _ in old:
                block_file.append(block)
            self._train(trainer, blocks, block_file)
            blocks[len(old) :] = [block_labels + np.int32(self.n_labels_) for block_labels in blocks[len(old) :]]
            weights = BlockWeights.assemble(block_file, blocks, self.n_features_in_, precision)
        with self._whole_or_unchanged():
            self.weights_ = weights
            self._remember_new_labels(labels)
        return self

    def _fit(self, X: sp.csr_array, Y: sp.csr_array) -> None:
        self._fit_blocks(self._trainer(X, Y, self.label_counts_))

    def _fit_augmented(self, X: sp.csr_array, Y: sp.csr_array, augmentation: Augmentation) -> None:
        self._fit_blocks(self._trainer(X, Y, self.label_counts_, augmentation=augmentation))

    def _update(self, batch: UpdateBatch) -> None:
        self.weights_ = updated_weights(self, batch)

    def _fit_blocks(self, trainer: BlockTrainer) -> None:
        blocks = BlockTrainer.blocks_by_frequency(self.label_counts_)
        with BlockFile(trainer.fingerprint(blocks) if is_resumable() else None) as block_file:
            self._train(trainer, blocks, block_file)
            trainer.release_rows()
            self.weights_ = BlockWeights.assemble(block_file, blocks, self.n_features_in_, self.precision)

    def _trainer(
        self,
        X: sp.csr_array,
        Y: sp.csr_array,
        counts: Int64,
        precision: Precision | None = None,
        augmentation: Augmentation | None = None,
        *,
        n_rows: int | None = None,
        centre: Centre | None = None,
        bias_share: float = 1.0,
        negative_weight: float = 1.0,
        max_iter: int | None = None,
    ) -> BlockTrainer:
        """Trainer of blocks; `n_rows` is the number of rows for the costs where X holds only some of them."""
        settings = replace(
            SolverSettings.of(self, margin_form(self.loss).loss),
            bias=float(self.bias) * bias_share,
            prune_rise=self.prune_rise if centre is None else None,
            max_iter=self.max_iter or max_iter,
        )
        costs = get_weighting(self.weighting)._costs(counts, n_rows or X.shape[0])
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

    def _train(self, trainer: BlockTrainer, blocks: list[Int32], block_file: BlockFile) -> None:
        """Train the blocks that the block file does not hold yet, in as many threads as memory allows."""
        threads = self._affordable_threads(*trainer.X.shape, trainer.copy_bytes(blocks[len(block_file) :]))
        with closing(trainer.train(blocks, first=len(block_file), threads=threads)) as solved:
            block_file.append_all(solved)

    def _affordable_threads(self, n_rows: int, n_features: int, copies: int = 0) -> int:
        """Number of threads that fit into the memory limit, at most `n_jobs`; the result does not depend on it."""
        each = block_bytes(n_rows, n_features, bounded=self.prune_rise is not None) + copies
        return affordable_threads(each, "a block of labels", fewer="features or rows")

    def _estimate(self, X: sp.csr_array, Y: sp.csr_array) -> TrainingCost:
        counts = column_counts(Y)
        return estimate_blocks(
            self._trainer(X, Y, counts), BlockTrainer.blocks_by_frequency(counts), self._affordable_threads(*X.shape)
        )

    @property
    def _log_odds_slope(self) -> float:  # type: ignore[override]
        return 1.0 if isinstance(margin_form(self.loss).loss, Logistic) else _HINGE_SLOPE

    def _label_norms(self) -> Float64:
        return self.weights_.norms(self.n_labels_)

    def _explain(self, X: sp.csr_array, labels: Int32) -> list[Explanation]:
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

    def _topk(self, X: sp.csr_array, k: int, allowed: Flags | None) -> TopK:
        return self._weighted_topk(X, k, allowed, None)

    def _weighted_topk(self, X: sp.csr_array, k: int, allowed: Flags | None, factors: Float32 | None) -> TopK:
        """Exact: all labels are scored."""
        self.weights_.check(self.n_labels_)
        lane_factors = NO_FACTORS if factors is None else self.weights_.lane_factors(factors, self._log_odds_slope)
        return self.weights_.rank(X, row_scales(X, self.normalise), self.bias, k, allowed, lane_factors)

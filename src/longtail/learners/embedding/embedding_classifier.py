"""Embedding of rows and labels on one sphere, with the GLaS regulariser."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from itertools import pairwise
from typing import ClassVar, Literal, get_args

import numpy as np
import scipy.sparse as sp

from longtail.config import thread_count
from longtail.data.sparse import column_counts
from longtail.kernels.arrays import unit_rows
from longtail.kernels.augmentation import Augmentation, with_copies
from longtail.learners.cost import TrainingCost
from longtail.learners.embedding.adjacency import Adjacency
from longtail.learners.embedding.network import EmbeddingActivation, folded
from longtail.learners.embedding.ranking import EmbeddingRanker
from longtail.learners.embedding.regularisers import Regulariser, Sampling
from longtail.learners.embedding.search import IndexKind, Lanes, check_search
from longtail.learners.embedding.training import Optimiser, TrainableEmbedding
from longtail.learners.held_out import split_rows
from longtail.learners.platt import fit_platt
from longtail.learners.rows import digest_of
from longtail.learners.training.averaging import Weights, WindowAverage
from longtail.learners.training.fit import Schedule, fit, time_steps
from longtail.losses import TORCH_LOSSES, TorchLossName
from longtail.metrics import evaluate
from longtail.runtime.checkpoint import Checkpoint
from longtail.runtime.library_threads import one_torch_thread, require_torch
from longtail.runtime.memory import check_memory, resident_memory
from longtail.runtime.progress import show_progress
from longtail.validation import SEED, Boolean, Constraint, Integer, Integers, Number, OneOf, Optional
from longtail.weighting import Weighting, get_weighting

Precision = Literal["float32", "bfloat16"]

_CALIBRATION_ROWS, _CALIBRATION_CUTOFF, _EVALUATED_ROWS = 4000, 50, 4000
_PILOT_STEPS = 4
_BYTES_PER_PAIR = 50  # of labels that share a row, while the label graph is computed


class EmbeddingClassifier(EmbeddingRanker):
    """Embed rows and labels as vectors of norm 1; labels are ranked by inner product with the row.

    Rows are embedded by an embedding bag over their features, with layers on top if `hidden_layer_sizes` has any.
    Weights are normalised: the neurons of a layer share one trained norm. A regulariser keeps label embeddings from
    overfitting the training rows: GLaS pulls the inner product of two labels toward the frequency with which they
    occur together.

    Training needs torch (``pip install 'longtail[neural]'``); prediction doesn't. Scores are log-odds.

    Parameters
    ----------
    embedding_dim : int
        Width of the embeddings.
    hidden_layer_sizes : sequence of int
        Widths of layers with ReLU below the embedding.
    activation : {"relu", "linear"}
        Activation of the embedding. "linear" without hidden layers is a linear map.
    loss : {"logistic", "grank", "softmax", "margin", "negative-mining"}
        One of `longtail.losses.TORCH_LOSSES`, over the labels of a step: logistic loss of each label; group-wise
        ranking loss; softmax; the margin loss of equation 1 of the paper, with one sampled true label per row; or the
        same with hard negatives only.
    margin : float
        For "margin" and "negative-mining".
    n_hard_negatives : int
        For "negative-mining": labels with the largest violations that count.
    n_negatives : int
        Labels sampled per step, in addition to those of its rows.
    regulariser : {"glas", "spread-out", "laplacian", "gravity"}, optional
        Regulariser of the label embeddings.
    regulariser_weight : float, optional
        Default: a tenth of the number of labels. The regulariser is a mean over pairs of labels, so its effect per
        label falls with their number.
    sampling : {"even", "rows"}
        Labels in the regulariser at each step: 1,024 sampled uniformly, as the equations weigh them, or with "rows" the
        sampled label of each row, as in algorithm 2 of the paper, so that frequent labels count more.
    adjacency : {"arithmetic", "geometric", "pmi", "jaccard"}
        Adjacency of labels for "glas" and "laplacian": arithmetic or geometric mean of the conditional frequencies,
        normalised pointwise mutual information, or Jaccard similarity of their rows.
    weighting : Weighting or str, optional
        Per-label costs, for instance ``PW()`` or ``"pw-cb"``, scaled to mean 1.
    input_dropout : float
        Share of a row's features dropped at each step.
    batch_size : int
        Rows per step.
    epochs : int
        Maximum number of epochs.
    optimiser : {"adam", "sgd"}
        Adam, which updates the moments of a feature or label only at steps that use it, or plain gradient descent as
        in the algorithms of the paper, which needs much larger learning rates.
    learning_rate : float
        Highest learning rate: it rises over the first steps (warm-up), then falls to 2 % along a cosine.
    label_learning_rate : float, optional
        Learning rate of the label embeddings; `learning_rate` by default.
    validation_fraction : float
        Share of the rows held out for early stopping and Platt scaling; none if there would be fewer than 20. The only
        row of a label is never held out.
    patience : int
        Epochs without progress on these rows until training stops early.
    average : int
        Number of last epochs whose weights are averaged.
    search : {"auto", "exact", "hnsw", "ivf"}
        How the best labels are found. "auto" is exact below 50,000 labels, and uses an index of faiss above if that is
        installed. An index is used only if it finds more than 99 % of the ten best labels.
    precision : {"float32", "bfloat16"}
        Of matrix products in training.
    normalise : bool
        Whether to scale rows to norm 1.
    random_state : int
    n_jobs : int, optional
        Threads; None as `longtail.config_context` says. The result does not depend on it.

    Attributes
    ----------
    label_embeddings_ : ndarray of float32, shape (n_labels_, embedding_dim)
        With norm 1; 0 for labels without a training row.
    history_ : dict of list
        Per epoch: loss, regularisation, gradient_norm, rows_per_second, and validation, which is nDCG@5.
    recall_ : float
        Share of the ten best labels that the search finds on training rows; 1 for exact search.

    References
    ----------
    Guo, Mousavi, Wu, Holtmann-Rice, Kale, Reddi and Kumar: Breaking the Glass Ceiling for Embedding-Based Classifiers
    for Large Output Spaces. NeurIPS 2019.

    Examples
    --------
    >>> from longtail import EmbeddingClassifier
    >>> X, Y = [[1, 0], [0, 1]] * 8, [[1, 0], [0, 1]] * 8
    >>> learner = EmbeddingClassifier(embedding_dim=8, batch_size=4).fit(X, Y)
    >>> learner.predict_topk([[1, 0]], k=1).labels
    array([[0]], dtype=int32)
    """

    _constraints: ClassVar[Mapping[str, Constraint]] = {
        "embedding_dim": Integer(1),
        "hidden_layer_sizes": Integers(may_be_empty=True),
        "n_hard_negatives": Integer(1),
        "n_negatives": Integer(0),
        "batch_size": Integer(1),
        "epochs": Integer(1),
        "patience": Integer(1),
        "average": Integer(1),
        "random_state": SEED,
        "margin": Number(low=0),
        "learning_rate": Number(above=0),
        "label_learning_rate": Optional(Number(above=0)),
        "regulariser_weight": Optional(Number(low=0)),
        "input_dropout": Number(low=0, below=1),
        "validation_fraction": Number(low=0, below=1),
        "activation": OneOf(*get_args(EmbeddingActivation)),
        "precision": OneOf(*get_args(Precision)),
        "loss": OneOf(*TORCH_LOSSES),
        "regulariser": Optional(OneOf(*get_args(Regulariser))),
        "search": OneOf(*get_args(IndexKind)),
        "sampling": OneOf(*get_args(Sampling)),
        "adjacency": OneOf(*get_args(Adjacency)),
        "optimiser": OneOf(*get_args(Optimiser)),
        "normalise": Boolean(),
    }

    _gives_probabilities = True

    def __init__(
        self,
        *,
        embedding_dim: int = 512,
        hidden_layer_sizes: Sequence[int] = (),
        activation: EmbeddingActivation = "relu",
        loss: TorchLossName = "logistic",
        margin: float = 0.3,
        n_hard_negatives: int = 10,
        n_negatives: int = 4096,
        regulariser: Regulariser | None = "glas",
        regulariser_weight: float | None = None,
        sampling: Sampling = "even",
        adjacency: Adjacency = "arithmetic",
        weighting: Weighting | str | None = None,
        input_dropout: float = 0.3,
        batch_size: int = 512,
        epochs: int = 5,
        optimiser: Optimiser = "adam",
        learning_rate: float = 0.01,
        label_learning_rate: float | None = None,
        validation_fraction: float = 0.02,
        patience: int = 3,
        average: int = 1,
        search: IndexKind = "auto",
        precision: Precision = "float32",
        normalise: bool = True,
        random_state: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.embedding_dim = embedding_dim
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.loss = loss
        self.margin = margin
        self.n_hard_negatives = n_hard_negatives
        self.n_negatives = n_negatives
        self.regulariser = regulariser
        self.regulariser_weight = regulariser_weight
        self.sampling = sampling
        self.adjacency = adjacency
        self.weighting = weighting
        self.input_dropout = input_dropout
        self.batch_size = batch_size
        self.epochs = epochs
        self.optimiser = optimiser
        self.learning_rate = learning_rate
        self.label_learning_rate = label_learning_rate
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.average = average
        self.search = search
        self.precision = precision
        self.normalise = normalise
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_search(self.search)

    def _widths(self) -> tuple[int, ...]:
        return (*(int(width) for width in self.hidden_layer_sizes), int(self.embedding_dim))

    def _fit_augmented(self, X: sp.csr_array, Y: sp.csr_array, augmentation: Augmentation) -> None:
        """Copy training rows only: a copy of a held-out row would leak it."""
        self._fit(X, Y, augmentation)

    def _fit(self, X: sp.csr_array, Y: sp.csr_array, augmentation: Augmentation | None = None) -> None:
        require_torch("Training an EmbeddingClassifier")
        check_memory(self._bytes(X, Y), "training", "features or a smaller embedding_dim")
        rows, held_out = split_rows(Y, self.label_counts_, float(self.validation_fraction), int(self.random_state))
        trained, labels = X[rows], Y[rows]
        if augmentation is not None:
            trained, labels = with_copies(trained, labels, augmentation)
        scaled = self._scaled(X)
        costs = get_weighting(self.weighting)._costs(self.label_counts_, self.n_rows_).rescaled().positive
        model = TrainableEmbedding(self._scaled(trained), labels, costs, self)
        arrays = (X.indptr, X.indices, X.data, Y.indptr, Y.indices, costs)
        params = {name: value for name, value in self._model_params().items() if name != "weighting"}
        described = (params, X.shape, Y.shape, augmentation)

        def evaluate_weights(weights: Weights) -> float:
            self._take(weights, model)
            some = held_out[:_EVALUATED_ROWS]
            with show_progress(False):  # the bar of the training stays
                top = self._exact(scaled[some], 5, None, None)
            return evaluate(top, Y[some], ks=(5,))["nDCG@5"]

        with closing(model), one_torch_thread():
            best, self.history_ = fit(
                model,
                Schedule(int(self.epochs) if labels.nnz else 0, int(self.patience)),
                WindowAverage(int(self.average)),
                evaluate_weights if len(held_out) else None,
                Checkpoint(digest_of(described, arrays)),
                "training embeddings",
            )
        self._take(best, model)
        known = (held_out if len(held_out) else rows)[:_CALIBRATION_ROWS]
        with show_progress(False):  # Platt scaling, from inner products to log-odds
            top = self._exact(scaled[known], min(_CALIBRATION_CUTOFF, max(self.n_labels_, 1)), None, None)
        self.slope_, self.offset_ = fit_platt(top, Y[known])
        self._build_index(scaled)

    def _take(self, weights: Weights, model: TrainableEmbedding) -> None:
        """Set the fitted attributes from trained weights; scores are inner products until they are calibrated."""
        features, labels, *layers = weights
        self.weights_, self.biases_ = folded(features, dict(zip(model.layers, layers, strict=True)), len(model.widths))
        self.lanes_, self.lane_labels_ = Lanes.of(unit_rows(labels), self.label_counts_ > 0)
        self.slope_, self.offset_ = 1.0, 0.0
        self.recall_, self.index_kind_, self.index_effort_, self.index_bytes_ = 1.0, None, 0, None

    def _estimate(self, X: sp.csr_array, Y: sp.csr_array) -> TrainingCost:
        """Time a few steps of the training itself."""
        require_torch("Training an EmbeddingClassifier")
        counts = column_counts(Y)
        costs = get_weighting(self.weighting)._costs(counts, X.shape[0]).rescaled().positive
        model = TrainableEmbedding(self._scaled(X), Y, costs, self)
        with closing(model), one_torch_thread():
            seconds_per_row = min(time_steps(model, min(_PILOT_STEPS, model.steps_per_epoch)))
        return TrainingCost(
            seconds=seconds_per_row * X.shape[0] * int(self.epochs) * (1 - self.validation_fraction),
            peak_memory_mb=(resident_memory() + self._bytes(X, Y)) / 1e6,
            model_mb=4e-6 * self._values(X.shape[1], Y.shape[1]),
            block_mb=0.0,
            threads=thread_count(),
        )

    def _values(self, n_features: int, n_labels: int) -> int:
        widths = self._widths()
        return n_features * widths[0] + n_labels * widths[-1] + sum(below * above for below, above in pairwise(widths))

    def _bytes(self, X: sp.csr_array, Y: sp.csr_array) -> int:
        """Return the memory of training without the data: tables with both moments, averages, and arrays of a step."""
        copies = 3 + int(self.average) + 2
        step = int(self.batch_size) * (
            2 * sum(self._widths()) + 12 * min(int(self.n_negatives) + 6 * int(self.batch_size), Y.shape[1])
        )
        pairs = 0
        if self.regulariser in ("glas", "laplacian"):
            pairs = min(int(np.square(np.diff(Y.indptr).astype(np.int64)).sum()), Y.shape[1] ** 2)
        return 4 * (copies * self._values(X.shape[1], Y.shape[1]) + step) + 20 * X.nnz + _BYTES_PER_PAIR * pairs

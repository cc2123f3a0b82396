"""Rows and labels as points on one sphere: the embedding model with the GLaS regulariser."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import closing
from importlib.util import find_spec
from itertools import pairwise
from typing import Literal, get_args

import numpy as np
import scipy.sparse as sp

from longtail.engine.augmentation import Augmentation, with_copies
from longtail.engine.checkpoint import Checkpoint
from longtail.engine.memory import check_room, parse_memory, resident_memory
from longtail.engine.pool import thread_count
from longtail.engine.progress import show_progress
from longtail.engine.torch_threads import one_torch_thread
from longtail.errors import MissingExtraError, ParameterError
from longtail.learners.embedding import fitting
from longtail.learners.embedding.adjacency import Adjacency, check_adjacency
from longtail.learners.embedding.losses import LossName, check_loss
from longtail.learners.embedding.mapping import unit_rows
from longtail.learners.embedding.network import Activation, folded
from longtail.learners.embedding.ranking import EmbeddingRanker
from longtail.learners.embedding.regularisers import Regulariser, Sampling, check_regulariser, check_sampling
from longtail.learners.embedding.search import (
    Lanes,
    Search,
    check_search,
)
from longtail.learners.embedding.training import Optimiser, Settings, Trainer
from longtail.learners.estimate import Estimate
from longtail.learners.held_out import split_rows
from longtail.learners.linear.training import digest_of
from longtail.learners.links import fit_link
from longtail.metrics import evaluate
from longtail.propensity.base import is_number
from longtail.weighting import Weighting, get_weighting

Precision = Literal["float32", "bfloat16"]

_LINK_ROWS, _LINK_PLACES, _MEASURED_ROWS = 4000, 50, 4000
_PILOT_STEPS = 3
_STRENGTH_A_LABEL = 0.1  # of the regulariser
_BYTES_A_PAIR = 50  # of labels in one row, while the label graph is made


class EmbeddingClassifier(EmbeddingRanker):
    """Embed rows and labels as vectors of length 1; the larger their inner product, the likelier the label.

    The map of the rows is an embedding bag over their features, with layers on top if `hidden` has any. Weights are
    normalised: the neurons of a layer share one trained length. A regulariser keeps label embeddings from learning the
    training rows by heart: GLaS wants the inner product of two labels to be as large as they are often together.

    Training needs torch (``pip install 'longtail[neural]'``); prediction doesn't. Scores are log-odds.

    Parameters
    ----------
    dimensions : int
        Of the embeddings.
    hidden : sequence of int
        Widths of layers with ReLU below the embedding.
    activation : {"relu", "linear"}
        What the embedding goes through before it is scaled to length 1. "linear" without hidden layers is a linear map.
    loss : {"logistic", "softmax", "margin", "negative-mining"}
        Each label of a step on its own; the row's labels against all of the step; the margin loss (1) of the paper
        with one label of each row drawn at random; or the same with the worst violations alone.
    margin : float
        For "margin" and "negative-mining".
    mined : int
        Violations that "negative-mining" counts.
    negatives : int
        Labels drawn at random that are scored in a step, besides those of its rows.
    regulariser : {"glas", "spread-out", "laplacian", "gravity"}, optional
        What draws label embeddings together or apart.
    strength : float, optional
        Weight of the regulariser. When left out, a tenth of the number of labels: a regulariser is a mean over pairs,
        so that what each label feels of it falls with their number.
    sampling : {"even", "rows"}
        Which labels the regulariser looks at in a step. "even" draws 1,024 of all labels, each as likely as the other,
        as the equations weigh them; "rows" takes the one that was drawn for each row, as algorithm 2 of the paper does,
        so that frequent labels count more.
    adjacency : {"arithmetic", "geometric", "pmi", "jaccard"}
        How near labels are, for "glas" and "laplacian": mean of the conditional frequencies, of either kind, pointwise
        mutual information over the most it can be, or rows with both over rows with one.
    weighting : Weighting or str, optional
        Per-label costs, for instance ``PW()`` or ``"pw-cb"``, scaled so that their mean is 1.
    keep : float
        Input dropout: share of a row's features that are kept at a step.
    batch : int
        Rows of a step.
    passes : int
        Most passes over the rows.
    optimiser : {"adam", "sgd"}
        How steps are made of gradients: by Adam, whose memory of a feature or label changes only when it is used, or
        plainly, as the algorithms of the paper are written; these need much higher rates.
    rate : float
        Length of the first steps; it falls to almost nothing over the passes.
    label_rate : float, optional
        The same for the labels; `rate` when left out.
    held_out : float
        Share of the rows that are not trained on, by which training is stopped and scores become log-odds; where they
        would be fewer than 20, none. A row that is the only one of some label is never held out.
    patience : int
        Passes without progress on these rows after which training ends.
    average : int
        Take the mean of the values after so many passes, the last ones.
    search : {"auto", "exact", "hnsw", "ivf"}
        How the best labels are found. "auto" is exact below 50,000 labels, and builds an index above where faiss is
        installed. An index is one that finds more than 99 % of the ten best labels, and looks further where more are
        asked for; where none does, the search stays exact.
    precision : {"float32", "bfloat16"}
        Of the matrix products while training.
    normalise : bool
        Scale every row to length 1 first.
    seed : int
    threads : int, optional
        Threads for training and prediction, all cores by default; the result is the same for any number.
    memory_limit : int or str, optional
        Refuse to train where the process would hold more, in bytes or as text such as ``"2GB"``.

    Attributes
    ----------
    label_embeddings_ : ndarray of float32, shape (n_labels_, dimensions)
        Of length 1; 0 for labels without a training row.
    history_ : dict of list
        Of each pass: loss, regularisation, gradient_norm, rows_per_second, and held_out, which is nDCG@5.
    recall_ : float
        Share of the ten best labels that the search finds, as measured on training rows; 1 where it is exact.

    References
    ----------
    Guo, Mousavi, Wu, Holtmann-Rice, Kale, Reddi and Kumar: Breaking the Glass Ceiling for Embedding-Based Classifiers
    for Large Output Spaces. NeurIPS 2019.

    Examples
    --------
    >>> from longtail import EmbeddingClassifier
    >>> X, Y = [[1, 0], [0, 1]] * 8, [[1, 0], [0, 1]] * 8
    >>> learner = EmbeddingClassifier(dimensions=8, batch=4).fit(X, Y)
    >>> learner.predict_topk([[1, 0]], k=1).labels
    array([[0]], dtype=int32)
    """

    def __init__(
        self,
        *,
        dimensions: int = 512,
        hidden: Sequence[int] = (),
        activation: Activation = "relu",
        loss: LossName = "logistic",
        margin: float = 0.3,
        mined: int = 10,
        negatives: int = 4096,
        regulariser: Regulariser | None = "glas",
        strength: float | None = None,
        sampling: Sampling = "even",
        adjacency: Adjacency = "arithmetic",
        weighting: Weighting | str | None = None,
        keep: float = 0.7,
        batch: int = 512,
        passes: int = 5,
        optimiser: Optimiser = "adam",
        rate: float = 0.01,
        label_rate: float | None = None,
        held_out: float = 0.02,
        patience: int = 3,
        average: int = 1,
        search: Search = "auto",
        precision: Precision = "float32",
        normalise: bool = True,
        seed: int = 0,
        threads: int | None = None,
        memory_limit: int | str | None = None,
    ) -> None:
        self.dimensions = dimensions
        self.hidden = hidden
        self.activation = activation
        self.loss = loss
        self.margin = margin
        self.mined = mined
        self.negatives = negatives
        self.regulariser = regulariser
        self.strength = strength
        self.sampling = sampling
        self.adjacency = adjacency
        self.weighting = weighting
        self.keep = keep
        self.batch = batch
        self.passes = passes
        self.optimiser = optimiser
        self.rate = rate
        self.label_rate = label_rate
        self.held_out = held_out
        self.patience = patience
        self.average = average
        self.search = search
        self.precision = precision
        self.normalise = normalise
        self.seed = seed
        self.threads = threads
        self.memory_limit = memory_limit

    def _check_parameters(self) -> None:
        whole = dict.fromkeys(("dimensions", "mined", "batch", "passes", "patience", "average"), 1)
        for name, least in {**whole, "negatives": 0, "seed": 0}.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value < 2**31:
                raise ParameterError(name, value, f"must be a whole number from {least} to {2**31 - 1}")
        for name, most in (("margin", math.inf), ("keep", 1.0), ("rate", math.inf)):
            value = getattr(self, name)
            least_open = name in ("keep", "rate")
            if not (is_number(value) and 0 <= value <= most and not (least_open and value == 0)):
                wanted = "above 0 and at most 1" if name == "keep" else f"{'above' if least_open else 'of at least'} 0"
                raise ParameterError(name, value, f"must be a number {wanted}")
        if not (self.strength is None or (is_number(self.strength) and 0 <= self.strength < math.inf)):
            raise ParameterError("strength", self.strength, "must be a number of at least 0, or None")
        if not (self.label_rate is None or (is_number(self.label_rate) and self.label_rate > 0)):
            raise ParameterError("label_rate", self.label_rate, "must be a number above 0, or None")
        if not (is_number(self.held_out) and 0 <= self.held_out < 1):
            raise ParameterError("held_out", self.held_out, "must be a number of at least 0 and below 1")
        self._widths()
        for name, known in (("activation", Activation), ("precision", Precision), ("optimiser", Optimiser)):
            if getattr(self, name) not in get_args(known):
                raise ParameterError(name, getattr(self, name), f"must be one of {', '.join(get_args(known))}")
        if not isinstance(self.normalise, bool | np.bool_):
            raise ParameterError("normalise", self.normalise, "must be True or False")
        check_loss(self.loss)
        check_regulariser(self.regulariser)
        check_sampling(self.sampling)
        check_adjacency(self.adjacency)
        check_search(self.search)
        get_weighting(self.weighting)
        thread_count(self.threads)
        if self.memory_limit is not None:
            parse_memory(self.memory_limit)

    def _widths(self) -> tuple[int, ...]:
        try:
            hidden = tuple(self.hidden)
        except TypeError:
            hidden = (0,)
        if any(isinstance(w, bool) or not isinstance(w, int | np.integer) or not 1 <= w < 2**31 for w in hidden):
            raise ParameterError("hidden", self.hidden, "must be a sequence of widths of at least 1, such as [512]")
        return (*(int(width) for width in hidden), int(self.dimensions))

    def _settings(self, n_labels: int) -> Settings:
        return Settings(
            widths=self._widths(),
            activation=self.activation,
            loss=self.loss,
            margin=float(self.margin),
            mined=int(self.mined),
            negatives=int(self.negatives),
            regulariser=self.regulariser,
            strength=float(_STRENGTH_A_LABEL * n_labels if self.strength is None else self.strength),
            sampling=self.sampling,
            adjacency=self.adjacency,
            keep=float(self.keep),
            batch=int(self.batch),
            passes=int(self.passes),
            optimiser=self.optimiser,
            rate=float(self.rate),
            label_rate=float(self.rate if self.label_rate is None else self.label_rate),
            precision=self.precision,
            seed=int(self.seed),
        )

    def _fit(self, X: sp.csr_array, Y: sp.csr_array) -> None:
        self._train(X, Y, None)

    def _fit_augmented(self, X: sp.csr_array, Y: sp.csr_array, augmentation: Augmentation) -> None:
        """Copy the rows that are trained on alone: a copy of a row that is held out would give it away."""
        self._train(X, Y, augmentation)

    def _train(self, X: sp.csr_array, Y: sp.csr_array, augmentation: Augmentation | None) -> None:
        _require_torch()
        check_room(self.memory_limit, self._bytes(X, Y), "training", "features or dimensions")
        rows, held_out = split_rows(Y, self.label_counts_, float(self.held_out), int(self.seed))
        trained, labels = X[rows], Y[rows]
        if augmentation is not None:
            trained, labels = with_copies(trained, labels, augmentation)
        scaled = self._scaled(X)
        costs = get_weighting(self.weighting).costs(self.label_counts_, self.n_rows_).rescaled().positive
        trainer = Trainer(self._scaled(trained), labels, costs, self._settings(Y.shape[1]), thread_count(self.threads))
        arrays = (X.indptr, X.indices, X.data, Y.indptr, Y.indices, costs)
        chosen = (self.held_out, self.average, self.patience, self.normalise)
        described = (trainer.settings, *chosen, X.shape, Y.shape, augmentation)

        def measure(snapshot: fitting.Snapshot) -> float:
            self._take(snapshot)
            some = held_out[:_MEASURED_ROWS]
            with show_progress(False):  # the bar of the training stays
                top = self._exact(scaled[some], 5, None, None)
            return evaluate(top, Y[some], ks=(5,))["nDCG@5"]

        with closing(trainer), one_torch_thread():
            best, self.history_ = fitting.run(
                trainer,
                measure if len(held_out) else None,
                Checkpoint(digest_of(described, arrays)),
                average=int(self.average),
                patience=int(self.patience),
            )
        self._take(best)
        judged = (held_out if len(held_out) else rows)[:_LINK_ROWS]
        with show_progress(False):
            self._link(scaled[judged], Y[judged])
        self._build_index(scaled)

    def _take(self, snapshot: fitting.Snapshot) -> None:
        """Become what was trained; scores are inner products until they are linked to odds."""
        self.weights_, self.biases_ = folded(snapshot.features, snapshot.parameters, len(self._widths()))
        self.lanes_, self.lane_labels_ = Lanes.of(unit_rows(snapshot.labels), self.label_counts_ > 0)
        self.slope_, self.offset_ = 1.0, 0.0
        self.recall_, self.index_kind_, self.index_effort_, self.index_bytes_ = 1.0, None, 0, None

    def _link(self, X: sp.csr_array, Y: sp.csr_array) -> None:
        top = self._exact(X, min(_LINK_PLACES, max(self.n_labels_, 1)), None, None)
        self.slope_, self.offset_ = fit_link(top, Y)

    def _estimate(self, X: sp.csr_array, Y: sp.csr_array) -> Estimate:
        """From a few steps of the training itself."""
        _require_torch()
        counts = np.bincount(Y.indices, minlength=Y.shape[1]).astype(np.int64)
        costs = get_weighting(self.weighting).costs(counts, X.shape[0]).rescaled().positive
        threads = thread_count(self.threads)
        trainer = Trainer(self._scaled(X), Y, costs, self._settings(Y.shape[1]), threads)
        times = []
        with closing(trainer), one_torch_thread():
            start = time.perf_counter()
            for _ in trainer.steps(trainer.begin(), 0):
                now = time.perf_counter()
                times.append(now - start)
                start = now
                if len(times) > _PILOT_STEPS:
                    break
        steps = trainer.batches * int(self.passes)
        model = 4e-6 * self._values(X.shape[1], Y.shape[1])
        return Estimate(
            seconds=steps * min(times) * (1 - self.held_out),
            peak_memory_mb=(resident_memory() + self._bytes(X, Y)) / 1e6,
            model_mb=model,
            block_mb=0.0,
            threads=threads,
        )

    def _values(self, n_features: int, n_labels: int) -> int:
        widths = self._widths()
        return n_features * widths[0] + n_labels * widths[-1] + sum(below * above for below, above in pairwise(widths))

    def _bytes(self, X: sp.csr_array, Y: sp.csr_array) -> int:
        """Memory that training takes besides the data: values, gradients' means and squares, and copies."""
        copies = 3 + int(self.average) + 2
        step = int(self.batch) * (
            2 * sum(self._widths()) + 12 * min(int(self.negatives) + 6 * int(self.batch), Y.shape[1])
        )
        pairs = 0
        if self.regulariser in ("glas", "laplacian"):
            pairs = min(int(np.square(np.diff(Y.indptr).astype(np.int64)).sum()), Y.shape[1] ** 2)
        return 4 * (copies * self._values(X.shape[1], Y.shape[1]) + step) + 20 * X.nnz + _BYTES_A_PAIR * pairs


def _require_torch() -> None:
    if find_spec("torch") is None:
        raise MissingExtraError("Training an EmbeddingClassifier", "neural")

"""One linear classifier a label, trained exactly, sixty-four labels at a time."""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import closing
from queue import Empty, SimpleQueue
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from longtail.engine.block_solver import HINGE, LOGISTIC, SQUARED_HINGE, Memory, Problem, Rows, solve_block
from longtail.engine.lanes import LANES
from longtail.engine.pool import StopFlag, run_blocks, thread_count
from longtail.engine.rows import count_features, squared_lengths
from longtail.engine.topk import TopK
from longtail.errors import ParameterError
from longtail.learners.base import Learner
from longtail.learners.linear.weights import BlockWeights, Precision, SolvedBlock
from longtail.losses import Hinge, Logistic, Loss, SquaredHinge, get_loss
from longtail.weighting import Costs, Weighting, get_weighting

_VISITS, _PASSES = 470_000, (8, 50)
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
        What a wrong or hesitant answer costs.
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
        tolerance: float = 0.05,
        max_passes: int | None = None,
        precision: Precision = "bfloat16",
        seed: int = 0,
        threads: int | None = None,
    ) -> None:
        self.loss = loss
        self.regularisation = regularisation
        self.weighting = weighting
        self.normalise = normalise
        self.bias = bias
        self.bias_centre = bias_centre
        self.prune_below = prune_below
        self.tolerance = tolerance
        self.max_passes = max_passes
        self.precision = precision
        self.seed = seed
        self.threads = threads

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
        if type(get_loss(self.loss)) not in _CODES:
            raise ParameterError("loss", self.loss, "must be squared-hinge, hinge or logistic")
        get_weighting(self.weighting)
        thread_count(self.threads)

    def _fit(self, X: sp.csr_array, Y: sp.csr_array) -> None:
        costs = get_weighting(self.weighting).costs(self.label_counts_, self.n_rows_)
        present = np.flatnonzero(self.label_counts_)
        by_frequency = present[np.argsort(-self.label_counts_[present], kind="stable")].astype(np.int32)
        block_labels = [by_frequency[start : start + LANES] for start in range(0, len(by_frequency), LANES)]
        with closing(self._solve(X, Y.tocsc(), costs, block_labels)) as solved:
            self.weights_ = BlockWeights.assemble(solved, block_labels, self.n_features_in_, self.precision)

    def _solve(
        self, X: sp.csr_array, Y: sp.csc_array, costs: Costs, block_labels: list[npt.NDArray[np.int32]]
    ) -> Generator[SolvedBlock]:
        """Solve the blocks one after the other; features are renumbered so that frequent ones lie close together."""
        occurrences = np.zeros(X.shape[1], np.int64)
        count_features(X.indices, occurrences)
        by_frequency = np.argsort(-occurrences, kind="stable").astype(np.int32)
        renumbered = np.empty(X.shape[1], np.int32)
        renumbered[by_frequency] = np.arange(X.shape[1], dtype=np.int32)
        squared = _squared_lengths(X)
        scales = self._scales(squared)
        rows = Rows(
            indptr=X.indptr.astype(np.int64, copy=False),
            indices=renumbered[X.indices],
            values=X.data,
            scales=scales,
            squares=(squared * scales * scales + self.bias**2).astype(np.float32),
            bias=np.float32(self.bias),
        )
        code = _CODES[type(get_loss(self.loss))]
        max_passes = self.max_passes or int(np.clip(_VISITS // X.shape[0], *_PASSES))
        spare: SimpleQueue[Memory] = SimpleQueue()

        def work(block: int, stop: StopFlag) -> SolvedBlock:
            try:
                memory = spare.get_nowait()
            except Empty:
                memory = Memory.allocate(*X.shape)
            labels = block_labels[block]
            diagonal, bound = self._dual_limits(code, costs.take(labels))
            screen = self._screen(code, bound, rows.squares)
            memory.weights[:] = 0
            memory.bias_weights[:] = self._bias_start(code, labels)
            state = np.array([self.seed + (block << 32)], np.uint64)
            tolerance = np.float32(self.tolerance)
            problem = Problem(*_positives(Y, labels), code, diagonal, bound, screen, tolerance, max_passes)
            solve_block(rows, problem, memory, state, stop)
            kept = SolvedBlock.pruned(
                memory.weights, memory.bias_weights, len(labels), self.prune_below, self.precision
            )
            spare.put(memory)
            return kept._replace(features=by_frequency[kept.features])

        return run_blocks(
            work,
            range(len(block_labels)),
            threads=self.threads,
            description="training labels",
            unit="labels",
            size=lambda block: len(block_labels[block]),
        )

    def _topk(self, X: sp.csr_array, k: int, allowed: npt.NDArray[np.bool_] | None) -> TopK:
        return self.weights_.rank(X, self._scales(_squared_lengths(X)), self.bias, k, allowed, self.threads)

    def _scales(self, squared_lengths: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        if not self.normalise:
            return np.ones(len(squared_lengths))
        return np.asarray(1 / np.sqrt(np.where(squared_lengths > 0, squared_lengths, 1)))

    def _dual_limits(self, code: int, costs: Costs) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Diagonal and upper bound of the dual problem, for negative (row 0) and positive labels (row 1)."""
        cost = np.ones((2, LANES), np.float32)
        cost[0, : len(costs)], cost[1, : len(costs)] = costs.negative, costs.positive
        cost *= np.float32(self.regularisation)
        if code == SQUARED_HINGE:
            return np.float32(0.5) / cost, np.full_like(cost, np.float32(3e38))
        return np.zeros_like(cost), cost

    def _bias_start(self, code: int, labels: npt.NDArray[np.int32]) -> npt.NDArray[np.float32]:
        """Bias weight that the regulariser draws each lane to; lanes without a label are kept quiet."""
        start = np.full(LANES, -1.0 if code != LOGISTIC else -40.0, np.float32)
        if self.bias_centre is not None:
            start[: len(labels)] = self.bias_centre
        elif code == LOGISTIC:
            counts = self.label_counts_[labels]
            start[: len(labels)] = np.log((counts + 0.5) / (self.n_rows_ - counts + 0.5))
        return start / np.float32(self.bias) if self.bias else np.zeros(LANES, np.float32)

    def _screen(self, code: int, bound: npt.NDArray[np.float32], squares: npt.NDArray[np.float32]) -> np.float32:
        """Score up to which a row without any label of the block violates nothing by more than the tolerance."""
        if code != LOGISTIC:
            return np.float32(-1 + self.tolerance)
        share = self.tolerance / (4 + float(bound[0].max()) * float(squares.max()))
        return np.float32(math.log(share / (1 - share)) if share < 1 else math.inf)


def _positives(
    Y: sp.csc_array, labels: npt.NDArray[np.int32]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """Rows with any of these labels, and for each the lanes it has."""
    columns = [Y.indices[Y.indptr[label] : Y.indptr[label + 1]] for label in labels]
    rows = np.concatenate(columns).astype(np.int64)
    lanes = np.repeat(np.arange(len(labels), dtype=np.int32), [len(column) for column in columns])
    order = np.argsort(rows, kind="stable")
    distinct, first = np.unique(rows[order], return_index=True)
    return distinct, np.append(first, len(rows)).astype(np.int64), lanes[order]


def _squared_lengths(X: sp.csr_array) -> npt.NDArray[np.float64]:
    lengths = np.empty(X.shape[0])
    squared_lengths(X.indptr.astype(np.int64, copy=False), X.data, lengths)
    return lengths


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)

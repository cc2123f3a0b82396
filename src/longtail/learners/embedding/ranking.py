"""A fitted embedding, without torch: embeds rows, ranks labels, explains, and finds similar labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from longtail.config import thread_count
from longtail.data.label_index import LabelIndex
from longtail.errors import InputError, ModelError
from longtail.kernels.types import Flags, Float32, Int32, UInt8
from longtail.learners.base import Learner
from longtail.learners.embedding.mapping import embed_rows, linear_parts
from longtail.learners.embedding.network import EmbeddingActivation
from longtail.learners.embedding.search import (
    MAX_K,
    IndexKind,
    Lanes,
    PlattScaling,
    VectorIndex,
    exact_topk,
    has_faiss,
    kind_of_index,
    omp_threads,
)
from longtail.learners.explanation import Explanation
from longtail.learners.prediction import checked_k
from longtail.learners.rows import row_scales
from longtail.runtime.library_threads import one_blas_thread
from longtail.runtime.pool import in_chunks
from longtail.topk import TopK

_ROWS_AT_ONCE, _INDEX_ROWS = 256, 500


class EmbeddingRanker(Learner):
    """Base class of learners that rank labels by inner products with an embedded row; a subclass trains it."""

    _log_odds_slope = 1.0

    activation: EmbeddingActivation
    search: IndexKind
    normalise: bool
    random_state: int

    _stored: ClassVar[tuple[str, ...]] = (
        "weights_", "biases_", "lanes_", "lane_labels_", "slope_", "offset_", "history_", "recall_", "index_kind_",
        "index_effort_", "index_bytes_",
    )  # fmt: skip

    weights_: list[Float32]
    biases_: list[Float32]
    lanes_: Float32
    lane_labels_: Int32
    slope_: float
    offset_: float
    history_: dict[str, list[float]]
    recall_: float
    index_kind_: str | None
    index_effort_: int
    index_bytes_: UInt8 | None

    @property
    def label_embeddings_(self) -> Float32:
        """Embedding of each label, with norm 1; 0 for labels without a training row."""
        check_is_fitted(self, "n_labels_")
        return self.lanes_[: self.n_labels_]

    def embed(self, X: Any) -> Float32:
        """Embed rows as vectors of norm 1, of shape (n, dimensions); a row without features may stay 0."""
        check_is_fitted(self, "n_labels_")
        self._check_map()
        rows = self._scaled(self._check_rows(X))
        found = np.empty((rows.shape[0], self.lanes_.shape[1]), np.float32)

        def part(first: int, last: int) -> None:
            found[first:last] = embed_rows(rows, self.weights_, self.biases_, self.activation, first, last)

        with one_blas_thread():
            in_chunks(part, rows.shape[0], _ROWS_AT_ONCE, "embedding rows")
        return found

    def similar(self, label: int, k: int = 10) -> list[tuple[int, float]]:
        """Return the labels nearest to a label, with the inner products of embeddings, nearest first."""
        check_is_fitted(self, "n_labels_")
        count = min(checked_k(k), max(self.n_labels_, 1))
        chosen = LabelIndex(n_labels=self.n_labels_).id_of(label)
        if self.label_counts_[chosen] == 0:
            raise InputError(f"Label {label} has no training row, so it has no embedding.")
        allowed = np.ones(self.n_labels_, np.bool_)
        allowed[chosen] = False
        lanes, unscaled = self._lanes, PlattScaling(np.float32(1), np.float32(0))
        top = exact_topk(lanes.embeddings[chosen : chosen + 1], lanes, unscaled, count, allowed)
        return [
            (int(near), float(score)) for near, score in zip(top.labels[0], top.scores[0], strict=True) if near >= 0
        ]

    def _scaled(self, X: sp.csr_array) -> sp.csr_array:
        """Return rows scaled as in training, without stored zeros, which would change what dropout samples."""
        if not X.data.all():
            X = X.copy()
            X.eliminate_zeros()
        if not self.normalise:
            return X
        scales = np.repeat(row_scales(X, True), np.diff(X.indptr))
        return sp.csr_array(((X.data * scales).astype(np.float32), X.indices, X.indptr), shape=X.shape)

    def _build_index(self, X: sp.csr_array) -> None:
        """Index the labels if there are many, and measure recall on a sample of the rows."""
        kind = kind_of_index(self.search, int((self.lane_labels_ >= 0).sum()))
        if kind is None:
            return
        rows = np.random.default_rng([self.random_state, X.shape[0]]).permutation(X.shape[0])[:_INDEX_ROWS]
        queries = embed_rows(X[np.sort(rows)], self.weights_, self.biases_, self.activation, 0, len(rows))
        queries = queries[queries.any(axis=1)]  # for a row at the origin all labels are equally good
        with omp_threads(thread_count()):
            index = VectorIndex.build(self._lanes, kind, queries, int(self.random_state))
        if index is not None:
            self.index_kind_, self.index_effort_, self.recall_ = kind, index.effort, index.recall
            self.index_bytes_ = index.to_bytes()

    @property
    def _lanes(self) -> Lanes:
        """The label embeddings, with checked shapes, on which kernels rely."""
        lanes = Lanes(self.lanes_, self.lane_labels_)
        if not lanes.is_sound(self.n_labels_):
            raise ModelError("The label embeddings don't fit the model: its files were changed; train it again.")
        return lanes

    def _check_map(self) -> None:
        """Refuse weights whose shapes don't fit each other: kernels rely on them."""
        width, is_sound = self.n_features_in_, len(self.weights_) == len(self.biases_) > 0
        for weights, bias in zip(self.weights_, self.biases_, strict=False):
            is_sound = is_sound and weights.ndim == 2 and weights.shape[0] == width and bias.shape == weights.shape[1:]
            is_sound = is_sound and weights.dtype == bias.dtype == np.float32 and weights.flags.c_contiguous
            width = weights.shape[-1]
        if not is_sound or width != self.lanes_.shape[-1]:
            raise ModelError("The weights don't fit the model: its files were changed; train it again.")

    def _topk(self, X: sp.csr_array, k: int, allowed: Flags | None) -> TopK:
        index = self._label_index() if allowed is None and k <= MAX_K else None
        if index is None:
            return self._exact(self._scaled(X), k, allowed, None)
        with omp_threads(1):  # the rows are already spread over threads

            def search(queries: Float32) -> TopK:
                return index.topk(queries, self._lanes, self._scaling, k)

            return self._ranked(self._scaled(X), k, search)

    def _weighted_topk(self, X: sp.csr_array, k: int, allowed: Flags | None, factors: Float32 | None) -> TopK:
        """Rank exactly among all labels, or among the candidates of the index if there is one."""
        if factors is None:
            return self._topk(X, k, allowed)
        if self._label_index() is not None:
            return self._reranked_topks(X, [(k, factors)], allowed)[0]
        return self._exact(self._scaled(X), k, allowed, factors)

    def _exact(self, X: sp.csr_array, k: int, allowed: Flags | None, factors: Float32 | None) -> TopK:
        lanes, scaling = self._lanes, self._scaling
        return self._ranked(X, k, lambda queries: exact_topk(queries, lanes, scaling, k, allowed, factors))

    def _ranked(self, X: sp.csr_array, k: int, search: Callable[[Float32], TopK]) -> TopK:
        """Embed and search rows in chunks."""
        self._check_map()
        n = X.shape[0]
        top = TopK.empty(n, k)

        def rank(first: int, last: int) -> None:
            found = search(embed_rows(X, self.weights_, self.biases_, self.activation, first, last))
            top.labels[first:last], top.scores[first:last] = found.labels, found.scores

        with one_blas_thread():
            in_chunks(rank, n, _ROWS_AT_ONCE, "predicting")
        return top

    @property
    def _scaling(self) -> PlattScaling:
        return PlattScaling(np.float32(self.slope_), np.float32(self.offset_))

    def _label_index(self) -> VectorIndex | None:
        """The index, read from its bytes once; None if there is none or faiss isn't installed."""
        stored = self.index_bytes_
        if stored is None or self.index_kind_ is None or self.search == "exact" or not has_faiss():
            return None
        found = _indexes.get(self)
        if found is None or found[0] is not stored:
            index = VectorIndex.from_bytes(stored, self.index_kind_, self.index_effort_, self.recall_)
            if not index.fits(self._lanes):
                raise ModelError("The index doesn't fit the model: its files were changed; train it again.")
            found = _indexes[self] = stored, index
        return found[1]

    def _explain(self, X: sp.csr_array, labels: Int32) -> list[Explanation]:
        self._check_map()
        rows = self._scaled(X)
        parts, rest = linear_parts(rows, self.weights_, self.biases_, self.activation)
        vectors = self._lanes.embeddings[labels].T
        effects, biases = self.slope_ * (parts @ vectors), self.slope_ * (rest @ vectors) + self.offset_
        return [
            Explanation.from_effects(int(label), float(biases[at]), rows.indices, effects[:, at].astype(np.float64))
            for at, label in enumerate(labels)
        ]


_indexes: WeakKeyDictionary[EmbeddingRanker, tuple[object, VectorIndex]] = WeakKeyDictionary()

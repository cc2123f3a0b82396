"""What a fitted embedding does, without torch: embed rows, rank labels, explain, and find labels that are alike."""

from __future__ import annotations

from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from longtail.engine.pool import in_chunks
from longtail.engine.topk import TopK
from longtail.errors import InputError, ModelError
from longtail.learners.base import Learner, checked_k
from longtail.learners.embedding.mapping import embed_rows, linear_parts
from longtail.learners.embedding.network import Activation
from longtail.learners.embedding.search import (
    LabelIndex,
    Lanes,
    Link,
    Search,
    exact_topk,
    has_faiss,
    kind_of_index,
    omp_threads,
    serves,
)
from longtail.learners.explanation import Explanation
from longtail.learners.linear.training import row_scales

_ROWS_AT_ONCE = 256


class EmbeddingRanker(Learner):
    """A learner that ranks labels by their inner products with an embedded row; a subclass says how it is trained."""

    activation: Activation
    search: Search
    normalise: bool
    seed: int
    threads: int | None

    _stored: ClassVar[tuple[str, ...]] = (
        "weights_", "biases_", "lanes_", "lane_labels_", "slope_", "offset_", "history_", "recall_", "index_kind_",
        "index_effort_", "index_bytes_",
    )  # fmt: skip

    weights_: list[npt.NDArray[np.float32]]
    biases_: list[npt.NDArray[np.float32]]
    lanes_: npt.NDArray[np.float32]
    lane_labels_: npt.NDArray[np.int32]
    slope_: float
    offset_: float
    history_: dict[str, list[float]]
    recall_: float
    index_kind_: str | None
    index_effort_: int
    index_bytes_: npt.NDArray[np.uint8] | None

    @property
    def label_embeddings_(self) -> npt.NDArray[np.float32]:
        """Embedding of each label, of length 1; 0 for labels without a training row."""
        return self.lanes_[: self.n_labels_]

    def embed(self, X: Any) -> npt.NDArray[np.float32]:
        """Embed rows as vectors of length 1, of shape (n, dimensions); a row without features may stay at 0."""
        rows = self._scaled(self._check_rows(X))
        found = np.empty((rows.shape[0], self.lanes_.shape[1]), np.float32)

        def part(first: int, last: int) -> None:
            found[first:last] = embed_rows(rows, self.weights_, self.biases_, self.activation, first, last)

        in_chunks(part, rows.shape[0], _ROWS_AT_ONCE, self.threads, "embedding rows")
        return found

    def similar(self, label: int, k: int = 10) -> list[tuple[int, float]]:
        """Labels whose embeddings are nearest to that of a label, with the inner products, nearest first."""
        (chosen,) = self._label_ids("label", [label])
        if self.label_counts_[chosen] == 0:
            raise InputError(f"Label {label} has no training row, so it has no embedding.")
        allowed = np.ones(self.n_labels_, np.bool_)
        allowed[chosen] = False
        top = exact_topk(
            self.lanes_[chosen : chosen + 1], self._lanes, Link(np.float32(1), np.float32(0)), checked_k(k), allowed
        )
        return [
            (int(near), float(score)) for near, score in zip(top.labels[0], top.scores[0], strict=True) if near >= 0
        ]

    def _scaled(self, X: sp.csr_array) -> sp.csr_array:
        """Rows scaled as the model wants them, without zeros: which entries are dropped goes by their number."""
        if not X.data.all():
            X = X.copy()
            X.eliminate_zeros()
        if not self.normalise:
            return X
        scales = np.repeat(row_scales(X, True), np.diff(X.indptr)).astype(np.float32)
        return sp.csr_array((X.data * scales, X.indices, X.indptr), shape=X.shape)

    def _build_index(self, X: sp.csr_array) -> None:
        kind = kind_of_index(self.search, int((self.lane_labels_ >= 0).sum()))
        if kind is None:
            return
        queries = embed_rows(X, self.weights_, self.biases_, self.activation, 0, X.shape[0])
        with omp_threads(self.threads):
            index = LabelIndex.build(self._lanes, kind, queries, int(self.seed))
        if index is not None:
            self.index_kind_, self.index_effort_, self.recall_ = kind, index.effort, index.recall
            self.index_bytes_ = index.to_bytes()

    @property
    def _lanes(self) -> Lanes:
        lanes = Lanes(self.lanes_, self.lane_labels_)
        if lanes.labels.shape != lanes.embeddings.shape[:1] or not len(lanes.labels) >= self.n_labels_:
            raise ModelError("The label embeddings don't fit the model: its files were changed; train it again.")
        return lanes

    def _topk(self, X: sp.csr_array, k: int, allowed: npt.NDArray[np.bool_] | None) -> TopK:
        index = self._label_index() if allowed is None and serves(k) else None
        if index is None:
            return self._exact(self._scaled(X), k, allowed, None)
        rows, link = self._scaled(X), Link(np.float32(self.slope_), np.float32(self.offset_))
        queries = embed_rows(rows, self.weights_, self.biases_, self.activation, 0, rows.shape[0])
        with omp_threads(self.threads):
            return index.topk(queries, self._lanes, link, k)

    def _weighted_topk(
        self,
        X: sp.csr_array,
        k: int,
        allowed: npt.NDArray[np.bool_] | None,
        factors: npt.NDArray[np.float32] | None,
    ) -> TopK:
        """Exact: among all labels, unless there is an index, which gives candidates."""
        if factors is None:
            return self._topk(X, k, allowed)
        if self.index_kind_ is not None:
            return super()._weighted_topk(X, k, allowed, factors)
        return self._exact(self._scaled(X), k, allowed, factors)

    def _exact(
        self,
        X: sp.csr_array,
        k: int,
        allowed: npt.NDArray[np.bool_] | None,
        factors: npt.NDArray[np.float32] | None,
    ) -> TopK:
        lanes, link = self._lanes, Link(np.float32(self.slope_), np.float32(self.offset_))
        n = X.shape[0]
        top = TopK(np.full((n, k), -1, np.int32), np.full((n, k), -np.inf, np.float32))

        def rank(first: int, last: int) -> None:
            queries = embed_rows(X, self.weights_, self.biases_, self.activation, first, last)
            found = exact_topk(queries, lanes, link, k, allowed, factors)
            top.labels[first:last], top.scores[first:last] = found.labels, found.scores

        in_chunks(rank, n, _ROWS_AT_ONCE, self.threads, "predicting")
        return top

    def _label_index(self) -> LabelIndex | None:
        """The index, read from its bytes once; None where there is none or faiss isn't installed."""
        stored = self.index_bytes_
        if stored is None or self.index_kind_ is None or not has_faiss():
            return None
        found = _indexes.get(self)
        if found is None or found[0] is not stored:
            index = LabelIndex.from_bytes(stored, self.index_kind_, self.index_effort_, self.recall_)
            found = _indexes[self] = stored, index
        return found[1]

    def _log_scores(self, scores: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.floating[Any]]:
        """Logarithm of the probability that a score stands for."""
        return np.asarray(-np.logaddexp(0, -scores), scores.dtype)

    def _explain(self, X: sp.csr_array, labels: npt.NDArray[np.int32]) -> list[Explanation]:
        rows = self._scaled(X)
        parts, rest = linear_parts(rows, self.weights_, self.biases_, self.activation)
        vectors = self.lanes_[labels].T
        effects, biases = self.slope_ * (parts @ vectors), self.slope_ * (rest @ vectors) + self.offset_
        return [
            Explanation.from_effects(int(label), float(biases[at]), rows.indices, effects[:, at].astype(np.float64))
            for at, label in enumerate(labels)
        ]


_indexes: WeakKeyDictionary[EmbeddingRanker, tuple[object, LabelIndex]] = WeakKeyDictionary()

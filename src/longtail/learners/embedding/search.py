"""Maximum inner product search over label embeddings: exact in blocks, or approximate with an index of faiss."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple

import numpy as np

from longtail.errors import MissingExtraError, ModelError
from longtail.kernels.lanes import LANES
from longtail.kernels.selection import rank_block, rank_weighted_block
from longtail.kernels.types import Flags, Float32, Int32, UInt8
from longtail.topk import TopK

IndexKind = Literal["auto", "exact", "hnsw", "ivf"]

RECALL_TARGET, RECALL_CUTOFF = 0.99, 10
_HNSW_FROM, _IVF_FROM = 50_000, 400_000  # labels from which "auto" builds an index
_BLOCK = 16_384  # labels that are scored at once
MAX_K = 200  # that an index is asked for
_HNSW_LINKS, _EF_CONSTRUCTION = 32, 120
_SAMPLE = 100_000  # labels on which the cells of IVF are trained


class Lanes(NamedTuple):
    """Label embeddings of length 1, padded to a multiple of 64 rows, with the label of each row or -1."""

    embeddings: Float32
    labels: Int32

    @classmethod
    def of(cls, embeddings: Float32, known: Flags) -> Lanes:
        """Pad the embeddings, one per label; labels outside `known` get empty lanes."""
        n, width = embeddings.shape
        padded = np.zeros((-(-n // LANES) * LANES, width), np.float32)
        padded[:n][known] = embeddings[known]
        labels = np.full(len(padded), -1, np.int32)
        labels[:n][known] = np.flatnonzero(known)
        return cls(padded, labels)

    def is_sound(self, n_labels: int) -> bool:
        """Return whether shapes and types are what the kernels rely on."""
        vectors, labels = self
        if vectors.ndim != 2 or labels.shape != vectors.shape[:1] or not n_labels <= len(labels) <= n_labels + LANES:
            return False
        if len(labels) % LANES or vectors.dtype != np.float32 or labels.dtype != np.int32:
            return False
        return bool(
            vectors.flags.c_contiguous
            and ((labels == -1) | (labels == np.arange(len(labels)))).all()
            and labels.max(initial=-1) < n_labels
        )


class PlattScaling(NamedTuple):
    """Turns inner products into scores, which are log-odds."""

    slope: np.float32
    offset: np.float32


def exact_topk(
    queries: Float32, lanes: Lanes, scaling: PlattScaling, k: int, allowed: Flags | None, factors: Float32 | None = None
) -> TopK:
    """Rank all labels for some rows; with factors, by factor times probability."""
    n = len(queries)
    top = TopK.empty(n, k)
    admitted = np.empty(0, np.bool_) if allowed is None else allowed
    # Score a block of labels for all rows, and merge it into the rankings.
    for first in range(0, len(lanes.labels), _BLOCK):
        block = slice(first, first + _BLOCK)
        scores = queries @ lanes.embeddings[block].T
        scores *= scaling.slope
        scores += scaling.offset
        labels = lanes.labels[block]
        if factors is None:
            rank_block(scores, labels, admitted, top.labels, top.scores)
        else:
            by_lane = np.where(labels >= 0, factors[labels], np.float32(1))
            rank_weighted_block(scores, labels, admitted, by_lane, np.log(by_lane), top.labels, top.scores)
    return top


@dataclass
class VectorIndex:
    """An index of faiss over label embeddings.

    `kind` is "hnsw" or "ivf", `index` the object of faiss, `effort` the search width (candidates that HNSW keeps, or
    cells that IVF visits), and `recall` the measured share of the exact ten best labels that it finds.
    """

    kind: str
    index: Any
    effort: int
    recall: float

    @classmethod
    def build(
        cls, lanes: Lanes, kind: str, queries: Float32, seed: int, wanted: float = RECALL_TARGET
    ) -> VectorIndex | None:
        """Index the labels with the least effort that reaches the wanted recall on `queries`; None if none does."""
        faiss = _faiss()
        known = lanes.labels >= 0
        embeddings, width = lanes.embeddings[known], lanes.embeddings.shape[1]
        if not len(embeddings) or not len(queries):
            return None
        if kind == "hnsw":
            index = faiss.IndexHNSWFlat(width, _HNSW_LINKS, faiss.METRIC_INNER_PRODUCT)
            index.hnsw.efConstruction = _EF_CONSTRUCTION
            most = 2048
        else:
            cells = max(1, min(int(4 * len(embeddings) ** 0.5), len(embeddings) // 39))
            coarse = faiss.IndexFlatIP(width)
            index = faiss.IndexIVFFlat(coarse, width, cells, faiss.METRIC_INNER_PRODUCT)
            index.cp.seed, index.cp.niter = seed, 8
            sample = np.random.default_rng(seed).permutation(len(embeddings))[: max(_SAMPLE, 39 * cells)]
            index.train(embeddings[np.sort(sample)])
            most = cells
        index.add(embeddings)
        found = cls(kind, index, 0, 0.0)
        best = exact_topk(queries, lanes, PlattScaling(np.float32(1), np.float32(0)), RECALL_CUTOFF, None).labels
        # Double the search width until the recall is high enough.
        found.effort = 16 if kind == "hnsw" else 1
        while True:
            found.recall = found.recall_of(queries, best, lanes)
            if found.recall >= wanted + (1 - wanted) / 2:  # a margin, so that other rows reach it too
                return found
            if found.effort >= most:
                return None
            found.effort = min(2 * found.effort, most)

    def recall_of(self, queries: Float32, best: Int32, lanes: Lanes) -> float:
        """Return the share of the best labels that the index finds."""
        found = self.candidates(queries, best.shape[1], lanes)
        hits = (found[:, :, None] == best[:, None, :]) & (best[:, None, :] >= 0)
        return float(hits.any(axis=1).sum() / max((best >= 0).sum(), 1))

    def candidates(self, queries: Float32, k: int, lanes: Lanes) -> Int32:
        """Return the labels that the index finds for each row, padded with -1 if fewer than k."""
        faiss = _faiss()
        effort = self.effort * -(-k // RECALL_CUTOFF)  # tuned for ten labels; more need a wider search
        if self.kind == "hnsw":
            how = faiss.SearchParametersHNSW(efSearch=max(effort, 2 * k))
        else:
            how = faiss.SearchParametersIVF(nprobe=effort)
        _, places = self.index.search(queries, k, params=how)
        known = np.append(lanes.labels[lanes.labels >= 0], np.int32(-1))
        return np.asarray(known[places], np.int32)

    def topk(self, queries: Float32, lanes: Lanes, scaling: PlattScaling, k: int) -> TopK:
        """Rank the labels that the index finds by exact scores."""
        labels = self.candidates(queries, k, lanes)
        scores = np.einsum("nd,nkd->nk", queries, lanes.embeddings[labels]) * scaling.slope + scaling.offset
        top = TopK(labels, labels * np.float32(0)).ranked_by(scores, k)
        short = (top.labels < 0).any(axis=1) & (k <= self.index.ntotal)  # the visited cells hold too few
        if short.any():
            whole = exact_topk(queries[short], lanes, scaling, k, None)
            top.labels[short], top.scores[short] = whole.labels, whole.scores
        return top

    def to_bytes(self) -> UInt8:
        """Serialise the index."""
        return np.asarray(_faiss().serialize_index(self.index), np.uint8)

    @classmethod
    def from_bytes(cls, stored: UInt8, kind: str, effort: int, recall: float) -> VectorIndex:
        """Read an index that `to_bytes` wrote."""
        try:
            return cls(kind, _faiss().deserialize_index(np.array(stored)), effort, recall)
        except RuntimeError:
            raise ModelError("The index of the model can't be read: its files were changed; train it again.") from None

    def fits(self, lanes: Lanes) -> bool:
        """Return whether the index has the type and size of these embeddings."""
        kinds = {"hnsw": "IndexHNSWFlat", "ivf": "IndexIVFFlat"}
        return (
            type(self.index).__name__ == kinds.get(self.kind)
            and self.index.d == lanes.embeddings.shape[1]
            and self.index.ntotal == int((lanes.labels >= 0).sum())
            and self.effort >= 1
        )


def _faiss() -> Any:
    """Import faiss, whose type annotations are wrong."""
    return importlib.import_module("faiss")


def has_faiss() -> bool:
    """Return whether faiss is installed."""
    return find_spec("faiss") is not None


def kind_of_index(search: IndexKind, n_labels: int) -> str | None:
    """Return the kind of index for a number of labels, None for exact search.

    Examples
    --------
    >>> kind_of_index("auto", 4000)
    """
    if search == "exact" or (search == "auto" and (n_labels < _HNSW_FROM or not has_faiss())):
        return None
    return search if search != "auto" else "ivf" if n_labels >= _IVF_FROM else "hnsw"


def check_search(search: object) -> None:
    """Refuse an index if faiss isn't installed."""
    if search in ("hnsw", "ivf") and not has_faiss():
        raise MissingExtraError(f"search={search!r}", "neural")


@contextmanager
def omp_threads(threads: int) -> Iterator[None]:
    """Run faiss on a number of threads inside."""
    faiss = _faiss()
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(threads)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)

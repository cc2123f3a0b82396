"""Maximum inner product search over label embeddings: exact in blocks, or by an index of faiss that is nearly so."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from longtail.engine.lanes import LANES
from longtail.engine.pool import thread_count
from longtail.engine.topk import TopK
from longtail.engine.topk_kernels import rank_block, rank_weighted_block
from longtail.errors import MissingExtraError, ModelError, ParameterError

Search = Literal["auto", "exact", "hnsw", "ivf"]

RECALL_WANTED, RECALL_PLACES = 0.99, 10
_FROM, _IVF_FROM = 50_000, 400_000  # labels, from which "auto" takes an index, and this one
_BLOCK = 16_384  # labels that are scored at once
_MOST_PLACES = 200  # that an index is asked for
_LINKS, _BUILD_WIDTH = 32, 120  # of HNSW
_SAMPLE = 100_000  # labels from which the cells of IVF are learned


class Lanes(NamedTuple):
    """Label embeddings of length 1, padded to a multiple of 64 rows, with the label of each row or -1."""

    embeddings: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int32]

    @classmethod
    def of(cls, embeddings: npt.NDArray[np.float32], known: npt.NDArray[np.bool_]) -> Lanes:
        """Pad embeddings, one a label; labels that are not known become empty lanes."""
        n, width = embeddings.shape
        padded = np.zeros((-(-n // LANES) * LANES, width), np.float32)
        padded[:n][known] = embeddings[known]
        labels = np.full(len(padded), -1, np.int32)
        labels[:n][known] = np.flatnonzero(known)
        return cls(padded, labels)

    def is_sound(self, n_labels: int) -> bool:
        """Whether a kernel may trust them."""
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


class Link(NamedTuple):
    """How inner products become scores, which are log-odds."""

    slope: np.float32
    offset: np.float32


def exact_topk(
    queries: npt.NDArray[np.float32],
    lanes: Lanes,
    link: Link,
    k: int,
    allowed: npt.NDArray[np.bool_] | None,
    factors: npt.NDArray[np.float32] | None = None,
) -> TopK:
    """Rank all labels for some rows; with factors, by factor times the probability that the score stands for."""
    n = len(queries)
    top = TopK(np.full((n, k), -1, np.int32), np.full((n, k), -np.inf, np.float32))
    admitted = np.empty(0, np.bool_) if allowed is None else allowed
    for first in range(0, len(lanes.labels), _BLOCK):
        block = slice(first, first + _BLOCK)
        scores = queries @ lanes.embeddings[block].T
        scores *= link.slope
        scores += link.offset
        labels = lanes.labels[block]
        if factors is None:
            rank_block(scores, labels, admitted, top.labels, top.scores)
        else:
            by_lane = np.where(labels >= 0, factors[labels], np.float32(1))
            rank_weighted_block(scores, labels, admitted, by_lane, np.log(by_lane), top.labels, top.scores)
    return top


@dataclass
class LabelIndex:
    """An index of faiss over label embeddings.

    Parameters
    ----------
    kind : {"hnsw", "ivf"}
    index
        Of faiss.
    effort : int
        How far a search goes: candidates that HNSW keeps, cells that IVF visits.
    recall : float
        Share of the ten best labels by the exact search that it finds, as measured.
    """

    kind: str
    index: Any
    effort: int
    recall: float

    @classmethod
    def build(
        cls, lanes: Lanes, kind: str, queries: npt.NDArray[np.float32], seed: int, wanted: float = RECALL_WANTED
    ) -> LabelIndex | None:
        """Index the labels, and find the least effort that reaches the wanted recall; None if none does.

        Parameters
        ----------
        lanes : Lanes
        kind : {"hnsw", "ivf"}
        queries : ndarray of float32
            Embedded rows on which recall is measured.
        seed : int
        wanted : float
        """
        faiss = _faiss()
        known = lanes.labels >= 0
        embeddings, width = lanes.embeddings[known], lanes.embeddings.shape[1]
        if not len(embeddings) or not len(queries):
            return None
        if kind == "hnsw":
            index = faiss.IndexHNSWFlat(width, _LINKS, faiss.METRIC_INNER_PRODUCT)
            index.hnsw.efConstruction = _BUILD_WIDTH
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
        best = exact_topk(queries, lanes, Link(np.float32(1), np.float32(0)), RECALL_PLACES, None).labels
        found.effort = 16 if kind == "hnsw" else 1
        while True:
            found.recall = found.recall_of(queries, best, lanes)
            if found.recall >= wanted + (1 - wanted) / 2:  # so that other rows reach it too
                return found
            if found.effort >= most:
                return None
            found.effort = min(2 * found.effort, most)

    def recall_of(self, queries: npt.NDArray[np.float32], best: npt.NDArray[np.int32], lanes: Lanes) -> float:
        """Share of the best labels that the index finds."""
        found = self.candidates(queries, best.shape[1], lanes)
        hits = (found[:, :, None] == best[:, None, :]) & (best[:, None, :] >= 0)
        return float(hits.any(axis=1).sum() / max((best >= 0).sum(), 1))

    def candidates(self, queries: npt.NDArray[np.float32], k: int, lanes: Lanes) -> npt.NDArray[np.int32]:
        """Labels that the index finds for each row, -1 where it finds fewer than k."""
        faiss = _faiss()
        effort = self.effort * -(-k // RECALL_PLACES)  # it was set up for ten labels, and more take a wider search
        if self.kind == "hnsw":
            how = faiss.SearchParametersHNSW(efSearch=max(effort, 2 * k))
        else:
            how = faiss.SearchParametersIVF(nprobe=effort)
        _, places = self.index.search(queries, k, params=how)
        known = np.append(lanes.labels[lanes.labels >= 0], np.int32(-1))
        return np.asarray(known[places], np.int32)

    def topk(self, queries: npt.NDArray[np.float32], lanes: Lanes, link: Link, k: int) -> TopK:
        """Rank the labels that the index finds by their exact scores."""
        labels = self.candidates(queries, k, lanes)
        scores = np.einsum("nd,nkd->nk", queries, lanes.embeddings[labels]) * link.slope + link.offset
        top = TopK(labels, labels * np.float32(0)).ranked_by(scores, k)
        short = (top.labels < 0).any(axis=1) & (k <= self.index.ntotal)  # the cells that were visited hold too few
        if short.any():
            whole = exact_topk(queries[short], lanes, link, k, None)
            top.labels[short], top.scores[short] = whole.labels, whole.scores
        return top

    def to_bytes(self) -> npt.NDArray[np.uint8]:
        """Everything of the index as bytes."""
        faiss = _faiss()
        return np.asarray(faiss.serialize_index(self.index), np.uint8)

    @classmethod
    def from_bytes(cls, stored: npt.NDArray[np.uint8], kind: str, effort: int, recall: float) -> LabelIndex:
        """Read the index that `to_bytes` wrote."""
        faiss = _faiss()
        try:
            return cls(kind, faiss.deserialize_index(np.array(stored)), effort, recall)
        except RuntimeError:
            raise ModelError("The index of the model can't be read: its files were changed; train it again.") from None

    def fits(self, lanes: Lanes) -> bool:
        """Whether the index is one over these embeddings."""
        kinds = {"hnsw": "IndexHNSWFlat", "ivf": "IndexIVFFlat"}
        return (
            type(self.index).__name__ == kinds.get(self.kind)
            and self.index.d == lanes.embeddings.shape[1]
            and self.index.ntotal == int((lanes.labels >= 0).sum())
            and self.effort >= 1
        )


def _faiss() -> Any:
    """faiss, whose own types are not those that it has."""
    return importlib.import_module("faiss")


def has_faiss() -> bool:
    """Whether faiss is installed."""
    return find_spec("faiss") is not None


def kind_of_index(search: Search, n_labels: int) -> str | None:
    """Which index to build for so many labels; None for the exact search.

    Examples
    --------
    >>> kind_of_index("auto", 4000)
    """
    if search == "auto":
        if n_labels < _FROM or not has_faiss():
            return None
        return "ivf" if n_labels >= _IVF_FROM else "hnsw"
    return None if search == "exact" else search


def serves(k: int) -> bool:
    """Whether an index is asked for so many labels a row."""
    return k <= _MOST_PLACES


def check_search(search: object) -> None:
    """Refuse what is no name of a search, or one that isn't installed."""
    if search not in get_args(Search):
        raise ParameterError("search", search, f"must be one of {', '.join(get_args(Search))}")
    if search in ("hnsw", "ivf") and not has_faiss():
        raise MissingExtraError(f"search={search!r}", "neural")


@contextmanager
def omp_threads(threads: int | None) -> Iterator[None]:
    """Let faiss use so many threads."""
    faiss = _faiss()

    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(thread_count(threads))
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)

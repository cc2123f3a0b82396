"""Heads, which score labels for encoded texts: ranking with retrieval, label attention and adaptive clusters."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator

from longtail.data.sparse import column_counts
from longtail.kernels.types import Array, Float32, Int64
from longtail.learners.neural.batches import TokenRows
from longtail.learners.neural.clusters import LabelClusters, cluster_labels
from longtail.losses import TORCH_LOSSES, TorchLossName
from longtail.validation import Boolean, Constraint, Integer, Integers, Number, Optional, Validated
from longtail.weighting import Weighting

if TYPE_CHECKING:
    from torch import Tensor

    from longtail.learners.neural.modules.encoder import EncoderModule
    from longtail.learners.neural.modules.head import HeadModule

LevelArrays = dict[str, Array]

_WORD = re.compile(r"\w+")

_INITIAL_BIAS = {"logistic": 1.0, "grank": 0.75}
"""Initial biases as a share of the labels' log-odds.

Among scores that are equal for all rows these have about the least loss. For GRank the best share is between 1, where
rows have one label, and a half, where they have many.
"""


@dataclass(frozen=True)
class Level:
    """One network of a head, with the arrays from which it is rebuilt.

    Most heads have one level. In a tree, the labels of all levels but the last are clusters.
    """

    arrays: LevelArrays
    Y: Any  # csr_array; None after training
    n_labels: int

    @property
    def children(self) -> Int64 | None:
        """Labels of this level in each cluster of the level above, padded with -1."""
        return self.arrays.get("children")


@dataclass(frozen=True)
class LabelCosts:
    """Costs and initial biases of labels or clusters, from their numbers of rows; copies by TAug don't count."""

    weighting: Weighting
    n_rows: int
    copies: int = 0

    def costs(self, counts: Int64) -> Float32:
        """Return costs with mean 1."""
        return self.weighting._costs(counts // (1 + self.copies), self.n_rows).rescaled().positive

    def costs_in_parts(self, counts: Int64, parts: Sequence[Int64]) -> Float32:
        """Return costs whose mean in each part is the number of all labels over those of the part.

        The published code of PW-APLC-XLNet scales them so: the cost of a frequent label depends on the other frequent
        ones, not on the number of rare ones.
        """
        found = self.weighting._costs(counts // (1 + self.copies), self.n_rows).positive.copy()
        if (found == 1).all():
            return found
        for part in parts:
            found[part] *= len(found) / found[part].sum()
        return found

    def first_biases(self, counts: Int64, among: Int64 | None = None, costs: Float32 | None = None) -> Float32:
        """Return the prior log-odds of labels, weighted by costs.

        `among` are the rows in which a label is scored, all by default. From 0, the bias of a rare label would take
        thousands of steps to get there, at one learning rate per step. `costs` replace `self.costs(counts)`.
        """
        own = counts / (1 + self.copies)
        others = (self.n_rows if among is None else among / (1 + self.copies)) - own
        costs = self.costs(counts) if costs is None else costs
        return np.log(costs * (own + 0.5) / (others + 0.5)).astype(np.float32)


class Head(Validated, BaseEstimator):
    """Base class of heads, which score labels for encoded texts.

    `reads_texts` is true if it uses the texts of labels, `reads_states` if it uses the states of tokens.
    """

    losses: tuple[TorchLossName, ...] = tuple(TORCH_LOSSES)
    reads_texts: bool = False
    reads_states: bool = False

    @abstractmethod
    def levels(self, rows: TokenRows, Y: sp.csr_array, label_texts: Sequence[str] | None, seed: int) -> list[Level]:
        """Plan the networks from training rows, the highest level first."""

    @abstractmethod
    def build(
        self, level: Level, encoder: EncoderModule, loss: TorchLossName, label_costs: LabelCosts | None
    ) -> HeadModule:
        """Build the module of a level; `label_costs` is None if it won't be trained."""

    def proposals(self) -> int:
        """Return the number of clusters passed on to the level below."""
        return 1


class RankingHead(Head):
    """Inner products of text and label vectors, of all labels or of those in retrieved clusters.

    With clusters this is the head of X-GRank (loss "grank") and of LightXML (loss "logistic"): a retriever scores
    clusters, and a ranker the labels in the best ones; both are trained together.

    Parameters
    ----------
    embedding_dim : int
        Width of label vectors; if labels have texts, half of it is the mean vector of their words.
    texts : bool
        Whether to use texts of labels, if they are given.
    cluster_size : int, optional
        Maximum labels per cluster; None for no clusters.
    flat_below : int
        Up to this number of labels, all are scored without clusters, as on X-GRank's data sets of up to 31,000 labels.
    retrieved : int
        Clusters retrieved per row.
    ramp : bool
        Whether the weight of the ranker's loss rises over the epochs, as in X-GRank; equal weights otherwise.
    dropout : float
        Dropout of the text vector.

    Examples
    --------
    >>> RankingHead(cluster_size=32, retrieved=16)
    RankingHead(cluster_size=32, retrieved=16)
    """

    _constraints: ClassVar[Mapping[str, Constraint]] = {
        "embedding_dim": Integer(2),
        "retrieved": Integer(1),
        "flat_below": Integer(0),
        "cluster_size": Optional(Integer(1)),
        "dropout": Number(low=0, below=1),
        "texts": Boolean(),
        "ramp": Boolean(),
    }

    def __init__(
        self,
        *,
        embedding_dim: int = 512,
        texts: bool = True,
        cluster_size: int | None = 64,
        flat_below: int = 32_000,
        retrieved: int = 32,
        ramp: bool = True,
        dropout: float = 0.5,
    ) -> None:
        self.embedding_dim = embedding_dim
        self.texts = texts
        self.cluster_size = cluster_size
        self.flat_below = flat_below
        self.retrieved = retrieved
        self.ramp = ramp
        self.dropout = dropout

    def levels(self, rows: TokenRows, Y: sp.csr_array, label_texts: Sequence[str] | None, seed: int) -> list[Level]:
        """Cluster the labels if there are many, and number the words of their texts."""
        arrays: LevelArrays = {}
        if self.cluster_size is not None and Y.shape[1] > self.flat_below and Y.nnz:
            clusters = cluster_labels(rows, Y, int(self.cluster_size), seed)
            arrays |= {"of_label": clusters.of_label, "members": clusters.labels, "counts": clusters.counts(Y)}
        if label_texts is not None and self.texts:
            arrays["word_indptr"], arrays["words"] = _words_of(label_texts)
        return [Level(arrays, Y, Y.shape[1])]

    def build(
        self, level: Level, encoder: EncoderModule, loss: TorchLossName, label_costs: LabelCosts | None
    ) -> HeadModule:
        """Build it with or without clusters."""
        from longtail.learners.neural.modules.ranking import ClusteredRanking, FlatRanking, LabelVectors, LabelWords

        arrays, words = level.arrays, None
        if "words" in arrays:
            listed = _tensor(arrays["words"])
            words = LabelWords(_tensor(arrays["word_indptr"]), listed, int(listed.max()) + 1 if len(listed) else 1)
        is_clustered = "members" in arrays
        vectors = LabelVectors(level.n_labels, int(self.embedding_dim), words, sparse=is_clustered)
        costs = _costs(label_costs, level)
        begins = label_costs if loss in _INITIAL_BIAS and level.Y is not None else None
        if begins is not None:
            counts = _counts(level)
            among = _rows_around(arrays, counts) if is_clustered and loss == "logistic" else None
            vectors.begin_at(_tensor(_INITIAL_BIAS[loss] * begins.first_biases(counts, among)))
        if not is_clustered:
            return FlatRanking(encoder.vector_width, vectors, float(self.dropout), TORCH_LOSSES[loss], costs)
        above = None if label_costs is None else _cost_tensor(label_costs.costs(arrays["counts"]))
        module = ClusteredRanking(
            encoder.vector_width, vectors, _tensor(arrays["of_label"]), _tensor(arrays["members"]),
            int(self.retrieved), float(self.dropout), TORCH_LOSSES[loss],
            loss == "logistic", bool(self.ramp), costs, above,
        )  # fmt: skip
        if begins is not None:
            module.retrieve.bias.data.copy_(_tensor(_INITIAL_BIAS[loss] * begins.first_biases(arrays["counts"])))
        return module

    @property
    def reads_texts(self) -> bool:  # type: ignore[override]
        """Whether it uses texts of labels."""
        return bool(self.texts)


class AttentionHead(Head):
    """Attention of each label over the states of a text, as in AttentionXML.

    Few labels are scored all at once; many level by level: clusters of labels first, then the labels in the best ones.

    Parameters
    ----------
    hidden_layer_sizes : sequence of int
        Widths of the dense layers that all labels share.
    flat_below : int
        Above this number of labels, they are clustered, and the clusters again, one level each.
    cluster_size : int
        Maximum labels per cluster.
    top_k : int
        Clusters passed on to the level below.

    Examples
    --------
    >>> AttentionHead(flat_below=1000)
    AttentionHead(flat_below=1000)
    """

    reads_states = True

    _constraints: ClassVar[Mapping[str, Constraint]] = {
        "flat_below": Integer(1),
        "cluster_size": Integer(2),
        "top_k": Integer(1),
        "hidden_layer_sizes": Integers(may_be_empty=True),
    }

    def __init__(
        self,
        *,
        hidden_layer_sizes: Sequence[int] = (256,),
        flat_below: int = 6000,
        cluster_size: int = 8,
        top_k: int = 20,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.flat_below = flat_below
        self.cluster_size = cluster_size
        self.top_k = top_k

    def levels(self, rows: TokenRows, Y: sp.csr_array, label_texts: Sequence[str] | None, seed: int) -> list[Level]:
        """Cluster the labels, and the clusters, until `flat_below` or fewer are left."""
        found = [Level({}, Y, Y.shape[1])]
        while found[0].n_labels > self.flat_below:
            level = found[0]
            clusters: LabelClusters = cluster_labels(rows, level.Y, int(self.cluster_size), seed)
            if len(clusters.labels) >= level.n_labels:
                break
            found[0] = Level({"children": clusters.labels}, level.Y, level.n_labels)
            found.insert(0, Level({}, clusters.indicator(level.Y), len(clusters.labels)))
        return found

    def build(
        self, level: Level, encoder: EncoderModule, loss: TorchLossName, label_costs: LabelCosts | None
    ) -> HeadModule:
        """Build the module of a level."""
        from longtail.learners.neural.modules.attention import LabelAttention

        hidden = [int(width) for width in self.hidden_layer_sizes]
        is_below = level.children is not None
        costs = _costs(label_costs, level)
        module = LabelAttention(
            encoder.width, level.n_labels, hidden, TORCH_LOSSES[loss], costs, multiplied=loss == "logistic",
            sparse=is_below,
        )  # fmt: skip
        if loss == "logistic" and label_costs is not None and level.Y is not None:
            # All labels share one bias: the log-odds of the mean label.
            looked_at = level.n_labels
            if level.children is not None:
                looked_at = min(looked_at, self.proposals() * int(level.children.shape[1]))
            share = (level.Y.nnz + 0.5) / (level.Y.shape[0] * looked_at + 1)
            module.out.bias.data.fill_(float(np.log(share / (1 - share))) if share < 1 else 0.0)
        return module

    def proposals(self) -> int:
        """Return the number of clusters passed on."""
        return int(self.top_k)


class AdaptiveHead(Head):
    """Adaptive probabilistic label clusters, as in APLC-XLNet: frequent labels directly, rare ones behind gates.

    Parameters
    ----------
    n_clusters : int
        Clusters of labels by frequency, of about equal size; the first is the head.
    hidden_size : int
        Width of the head's layer.
    shrink : int
        The layer of each further cluster is this many times narrower than the one before.
    dropout : float

    Examples
    --------
    >>> AdaptiveHead(n_clusters=3)
    AdaptiveHead(n_clusters=3)
    """

    losses = ("logistic",)

    _constraints: ClassVar[Mapping[str, Constraint]] = {
        "n_clusters": Integer(1),
        "hidden_size": Integer(1),
        "shrink": Integer(1),
        "dropout": Number(low=0, below=1),
    }

    def __init__(self, *, n_clusters: int = 2, hidden_size: int = 768, shrink: int = 2, dropout: float = 0.1) -> None:
        self.n_clusters = n_clusters
        self.hidden_size = hidden_size
        self.shrink = shrink
        self.dropout = dropout

    def levels(self, rows: TokenRows, Y: sp.csr_array, label_texts: Sequence[str] | None, seed: int) -> list[Level]:
        """Order the labels by frequency."""
        counts = column_counts(Y)
        order = np.argsort(-counts, kind="stable").astype(np.int64)
        parts = max(min(int(self.n_clusters), Y.shape[1]), 1)
        ends = np.unique(np.round(np.arange(1, parts + 1) * Y.shape[1] / parts).astype(np.int64))
        return [Level({"order": order, "ends": ends}, Y, Y.shape[1])]

    def build(
        self, level: Level, encoder: EncoderModule, loss: TorchLossName, label_costs: LabelCosts | None
    ) -> HeadModule:
        """Build the module."""
        from longtail.learners.neural.modules.adaptive import AdaptiveClusters

        order, ends = level.arrays["order"], [int(end) for end in level.arrays["ends"]]
        parts, counts, costs = np.split(order, ends[:-1]), None, None
        if label_costs is not None and level.Y is not None:
            counts = _counts(level)
            costs = label_costs.costs_in_parts(counts, parts)
        module = AdaptiveClusters(
            encoder.vector_width, _tensor(order), ends, int(self.hidden_size), int(self.shrink), float(self.dropout),
            None if costs is None else _cost_tensor(costs),
        )  # fmt: skip
        if label_costs is not None and counts is not None:
            rows = [int((np.diff(level.Y[:, part].indptr) > 0).sum()) for part in parts[1:]]
            among = np.full(level.n_labels, level.Y.shape[0], np.int64)
            for part, own in zip(parts[1:], rows, strict=True):
                among[part] = own
            gates = label_costs.first_biases(np.array(rows, np.int64), costs=np.ones(len(rows), np.float32))
            module.begin_at(_tensor(label_costs.first_biases(counts, among, costs)), _tensor(gates))
        return module


def _tensor(array: Array) -> Tensor:
    import torch

    return torch.from_numpy(np.array(array))


def _cost_tensor(costs: Float32) -> Tensor | None:
    """Costs as a tensor; None if all are 1."""
    return None if (costs == 1).all() else _tensor(costs)


def _costs(label_costs: LabelCosts | None, level: Level) -> Tensor | None:
    if label_costs is None or level.Y is None:
        return None
    return _cost_tensor(label_costs.costs(_counts(level)))


def _counts(level: Level) -> Int64:
    """Rows of each label."""
    return np.bincount(level.Y.indices, minlength=level.n_labels).astype(np.int64)


def _rows_around(arrays: LevelArrays, counts: Int64) -> Int64:
    """Rows of the cluster of each label; those of the label if it has none."""
    cluster = arrays["of_label"]
    return np.where(cluster >= 0, np.asarray(arrays["counts"])[np.maximum(cluster, 0)], counts)


def _words_of(texts: Sequence[str]) -> tuple[Int64, Int64]:
    """Number the words of texts: those of text t are ``words[indptr[t] : indptr[t + 1]]``.

    >>> indptr, words = _words_of(["implemented-in::c", "implemented-in::java"])
    >>> indptr.tolist(), words.tolist()
    ([0, 3, 6], [0, 1, 2, 0, 1, 3])
    """
    numbers: dict[str, int] = {}
    indptr, words = [0], []
    for text in texts:
        words += [numbers.setdefault(word, len(numbers)) for word in _WORD.findall(text.lower())]
        indptr.append(len(words))
    return np.array(indptr, np.int64), np.array(words, np.int64)

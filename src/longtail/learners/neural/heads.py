"""Heads by their parameters: how labels are scored, and what has to be known of them first."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import BaseEstimator

from longtail.errors import ParameterError
from longtail.learners.checks import check_shares, check_whole
from longtail.learners.neural.batches import TokenRows
from longtail.learners.neural.clusters import LabelClusters, cluster_labels
from longtail.learners.neural.label_words import words_of
from longtail.weighting import Weighting

if TYPE_CHECKING:
    from torch import Tensor

    from longtail.learners.neural.modules.encoder import EncoderModule
    from longtail.learners.neural.modules.head import HeadModule

Arrays = dict[str, npt.NDArray[Any]]

_STARTS = {"bce": 1.0, "grank": 0.75}
"""Share of their log-odds at which biases begin.

Of all scores that are the same for every row, about these cost the least. For GRank it is 1 where rows have one label
and a half where they have many: what a label pulls up is shared by a row's labels, what the others push down is not.
"""


@dataclass(frozen=True)
class Level:
    """One network of a head: which labels it scores, and the arrays from which it is made again.

    Most heads have one level. In a tree, the levels above have clusters for labels, and `children` says which labels of
    a level lie under each of the level before.
    """

    arrays: Arrays
    Y: Any  # csr_array; None once it is trained
    n_labels: int

    @property
    def children(self) -> npt.NDArray[np.int64] | None:
        """Labels of this level under each label of the one above, -1 for none."""
        return self.arrays.get("children")


@dataclass(frozen=True)
class Costing:
    """How true labels are weighted: gives the costs of labels, or of clusters, from how many rows they have.

    Copies of a row, as TAug makes them, are not counted.
    """

    weighting: Weighting
    n_rows: int
    copies: int = 0

    def costs(self, counts: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """Costs whose mean is 1."""
        return self.weighting.costs(counts // (1 + self.copies), self.n_rows).rescaled().positive

    def costs_in_parts(
        self, counts: npt.NDArray[np.int64], parts: Sequence[npt.NDArray[np.int64]]
    ) -> npt.NDArray[np.float32]:
        """Costs whose mean in each part of the labels is the number of all labels over those of the part.

        So the published code of PW-APLC-XLNet scales them: the cost of a frequent label then depends on the other
        frequent ones, not on how many rare ones there are.
        """
        found = self.weighting.costs(counts // (1 + self.copies), self.n_rows).positive.copy()
        if (found == 1).all():
            return found
        for part in parts:
            found[part] *= len(found) / found[part].sum()
        return found

    def first_biases(
        self,
        counts: npt.NDArray[np.int64],
        among: npt.NDArray[np.int64] | None = None,
        costs: npt.NDArray[np.float32] | None = None,
    ) -> npt.NDArray[np.float32]:
        """Log-odds of labels before anything is known of a row: of what their own rows cost to what the others do.

        `among` are the rows that a label is looked for in, all of them when left out. From 0, a bias of a rare label
        would take thousands of steps to get there: it moves by one rate a step at most. `costs` are those of the labels
        where they are not scaled together.
        """
        own = counts / (1 + self.copies)
        others = (self.n_rows if among is None else among / (1 + self.copies)) - own
        costs = self.costs(counts) if costs is None else costs
        return np.log(costs * (own + 0.5) / (others + 0.5)).astype(np.float32)


class Head(BaseEstimator):
    """What scores labels for encoded texts.

    `reads_texts` says whether it has a use for texts of labels, `reads_places` whether it looks at states of places.
    """

    losses: tuple[str, ...] = ("bce", "grank", "margin", "negative-mining")
    reads_texts: bool = False
    reads_places: bool = False

    @abstractmethod
    def levels(
        self, rows: TokenRows, Y: sp.csr_array, label_texts: Sequence[str] | None, seed: int, threads: int | None
    ) -> list[Level]:
        """Plan the networks for some training rows."""

    @abstractmethod
    def build(self, level: Level, encoder: EncoderModule, loss: str, costing: Costing | None) -> HeadModule:
        """Make the module of a level; `costing` is None where it won't be trained."""

    def proposals(self) -> int:
        """How many labels a level passes on to the one below."""
        return 1

    @abstractmethod
    def _check_parameters(self) -> None: ...


class RankingHead(Head):
    """Inner products of text and label; with clusters, of the labels in those that are retrieved first.

    With clusters this is the head of X-GRank (loss "grank") and of LightXML (loss "bce"): the retriever scores
    clusters, and the ranker the labels in the best ones; both are trained together.

    Parameters
    ----------
    dimensions : int
        Of the labels' vectors; where labels have texts, half of them is the mean of the vectors of their words.
    cluster_size : int, optional
        Most labels of a cluster; None for no clusters.
    flat_below : int
        So many labels or fewer have no clusters and are scored all at once; all labels are in X-GRank's sets of up to
        31,000.
    texts : bool
        Whether texts of labels, where they are given, are read.
    retrieved : int
        Clusters of a row that are looked into.
    ramp : bool
        Whether the ranker's weight rises over the passes, as in X-GRank; both weigh the same if not.
    dropout : float
        Of the text's vector.
    """

    def __init__(
        self,
        *,
        dimensions: int = 512,
        texts: bool = True,
        cluster_size: int | None = 64,
        flat_below: int = 32_000,
        retrieved: int = 32,
        ramp: bool = True,
        dropout: float = 0.5,
    ) -> None:
        self.dimensions = dimensions
        self.texts = texts
        self.cluster_size = cluster_size
        self.flat_below = flat_below
        self.retrieved = retrieved
        self.ramp = ramp
        self.dropout = dropout

    def levels(
        self, rows: TokenRows, Y: sp.csr_array, label_texts: Sequence[str] | None, seed: int, threads: int | None
    ) -> list[Level]:
        """Cluster the labels, where they are many, and find the words of their texts."""
        arrays: Arrays = {}
        if self.cluster_size is not None and Y.shape[1] > self.flat_below and Y.nnz:
            clusters = cluster_labels(rows, Y, int(self.cluster_size), seed, threads)
            arrays |= {"of_label": clusters.of_label, "members": clusters.labels, "counts": clusters.counts(Y)}
        if label_texts is not None and self.texts:
            arrays["word_indptr"], arrays["words"] = words_of(label_texts)
        return [Level(arrays, Y, Y.shape[1])]

    def build(self, level: Level, encoder: EncoderModule, loss: str, costing: Costing | None) -> HeadModule:
        """Make it flat or with clusters."""
        from longtail.learners.neural.modules.losses import LOSSES
        from longtail.learners.neural.modules.ranking import (
            ClusteredRanking,
            Clusters,
            FlatRanking,
            LabelVectors,
            LabelWords,
        )

        arrays, words = level.arrays, None
        if "words" in arrays:
            listed = _tensor(arrays["words"])
            words = LabelWords(_tensor(arrays["word_indptr"]), listed, int(listed.max()) + 1 if len(listed) else 1)
        is_clustered = "members" in arrays
        vectors = LabelVectors(level.n_labels, int(self.dimensions), words, sparse=is_clustered)
        costs = _costs(costing, level)
        begins = costing if loss in _STARTS and level.Y is not None else None
        if begins is not None:
            counts = _counts(level)
            among = _rows_around(arrays, counts) if is_clustered and loss == "bce" else None
            vectors.begin_at(_tensor(_STARTS[loss] * begins.first_biases(counts, among)))
        if not is_clustered:
            return FlatRanking(encoder.vector_width, vectors, float(self.dropout), LOSSES[loss], costs)
        above = None if costing is None else torch_costs(costing.costs(arrays["counts"]))
        clusters = Clusters(_tensor(arrays["of_label"]), _tensor(arrays["members"]))
        made = ClusteredRanking(
            encoder.vector_width,
            vectors,
            clusters,
            int(self.retrieved),
            float(self.dropout),
            LOSSES[loss],
            loss == "bce",
            bool(self.ramp),
            costs,
            above,
        )
        if begins is not None:
            made.retrieve.bias.data.copy_(_tensor(_STARTS[loss] * begins.first_biases(arrays["counts"])))
        return made

    @property
    def reads_texts(self) -> bool:  # type: ignore[override]
        """Whether it has a use for texts of labels."""
        return bool(self.texts)

    def _check_parameters(self) -> None:
        check_whole(self, dimensions=2, retrieved=1, flat_below=0)
        check_shares(self, "dropout")
        if self.cluster_size is not None:
            check_whole(self, cluster_size=1)
        for name in ("ramp", "texts"):
            if not isinstance(getattr(self, name), bool | np.bool_):
                raise ParameterError(name, getattr(self, name), "must be True or False")


class AttentionHead(Head):
    """Each label looks at the states of a text with attention of its own, as in AttentionXML.

    Few labels are scored all at once; many level by level: clusters of clusters of labels first, then what lies under
    the best of them.

    Parameters
    ----------
    hidden : sequence of int
        Widths of the dense layers that all labels share.
    flat_below : int
        A level of so many labels or fewer is scored all at once; where there are more, levels of clusters go before.
    cluster_size : int
        Labels of a cluster.
    candidates : int
        Clusters that are passed on to the level below.
    """

    reads_places = True

    def __init__(
        self, *, hidden: Sequence[int] = (256,), flat_below: int = 6000, cluster_size: int = 8, candidates: int = 20
    ) -> None:
        self.hidden = hidden
        self.flat_below = flat_below
        self.cluster_size = cluster_size
        self.candidates = candidates

    def levels(
        self, rows: TokenRows, Y: sp.csr_array, label_texts: Sequence[str] | None, seed: int, threads: int | None
    ) -> list[Level]:
        """Cluster the labels, and the clusters, until few are left."""
        found = [Level({}, Y, Y.shape[1])]
        while found[0].n_labels > self.flat_below:
            level = found[0]
            clusters: LabelClusters = cluster_labels(rows, level.Y, int(self.cluster_size), seed, threads)
            if len(clusters.labels) >= level.n_labels:
                break
            found[0] = Level({"children": clusters.labels}, level.Y, level.n_labels)
            found.insert(0, Level({}, clusters.indicator(level.Y), len(clusters.labels)))
        return found

    def build(self, level: Level, encoder: EncoderModule, loss: str, costing: Costing | None) -> HeadModule:
        """Make the module of a level."""
        from longtail.learners.neural.modules.attention import LabelAttention
        from longtail.learners.neural.modules.losses import LOSSES

        hidden = [int(width) for width in self.hidden]
        is_below = level.children is not None
        costs = _costs(costing, level)
        made = LabelAttention(
            encoder.width, level.n_labels, hidden, LOSSES[loss], costs, multiplied=loss == "bce", sparse=is_below
        )
        if loss == "bce" and costing is not None and level.Y is not None:  # all labels share one bias: their mean share
            looked_at = level.n_labels
            if level.children is not None:
                looked_at = min(looked_at, self.proposals() * int(level.children.shape[1]))
            share = (level.Y.nnz + 0.5) / (level.Y.shape[0] * looked_at + 1)
            made.out.bias.data.fill_(float(np.log(share / (1 - share))) if share < 1 else 0.0)
        return made

    def proposals(self) -> int:
        """Clusters that are passed on."""
        return int(self.candidates)

    def _check_parameters(self) -> None:
        check_whole(self, flat_below=1, cluster_size=2, candidates=1)
        try:
            hidden = list(self.hidden)
        except TypeError:
            hidden = [0]
        if any(isinstance(w, bool) or not isinstance(w, int | np.integer) or w < 1 for w in hidden):
            raise ParameterError("hidden", self.hidden, "must be a sequence of widths of at least 1, such as [256]")


class AdaptiveHead(Head):
    """Adaptive probabilistic label clusters, as in APLC-XLNet: frequent labels at once, rare ones behind gates.

    Parameters
    ----------
    clusters : int
        Parts of the labels by frequency, all of about as many labels; the first is the head.
    hidden : int
        Width of the head's layer.
    shrink : int
        Each further cluster's layer is so many times thinner than the one before.
    dropout : float
    """

    losses = ("bce",)

    def __init__(self, *, clusters: int = 2, hidden: int = 768, shrink: int = 2, dropout: float = 0.1) -> None:
        self.clusters = clusters
        self.hidden = hidden
        self.shrink = shrink
        self.dropout = dropout

    def levels(
        self, rows: TokenRows, Y: sp.csr_array, label_texts: Sequence[str] | None, seed: int, threads: int | None
    ) -> list[Level]:
        """Order the labels by frequency."""
        counts = np.bincount(Y.indices, minlength=Y.shape[1])
        order = np.argsort(-counts, kind="stable").astype(np.int64)
        parts = max(min(int(self.clusters), Y.shape[1]), 1)
        ends = np.unique(np.round(np.arange(1, parts + 1) * Y.shape[1] / parts).astype(np.int64))
        return [Level({"order": order, "ends": ends}, Y, Y.shape[1])]

    def build(self, level: Level, encoder: EncoderModule, loss: str, costing: Costing | None) -> HeadModule:
        """Make the module."""
        from longtail.learners.neural.modules.adaptive import AdaptiveClusters

        order, ends = level.arrays["order"], [int(end) for end in level.arrays["ends"]]
        parts, counts, costs = np.split(order, ends[:-1]), None, None
        if costing is not None and level.Y is not None:
            counts = _counts(level)
            costs = costing.costs_in_parts(counts, parts)
        made = AdaptiveClusters(
            encoder.vector_width, _tensor(order), ends, int(self.hidden), int(self.shrink), float(self.dropout),
            None if costs is None else torch_costs(costs),
        )  # fmt: skip
        if costing is not None and counts is not None:
            rows = [int((np.diff(level.Y[:, part].indptr) > 0).sum()) for part in parts[1:]]
            among = np.full(level.n_labels, level.Y.shape[0], np.int64)
            for part, own in zip(parts[1:], rows, strict=True):
                among[part] = own
            gates = costing.first_biases(np.array(rows, np.int64), costs=np.ones(len(rows), np.float32))
            made.begin_at(_tensor(costing.first_biases(counts, among, costs)), _tensor(gates))
        return made

    def _check_parameters(self) -> None:
        check_whole(self, clusters=1, hidden=1, shrink=1)
        check_shares(self, "dropout")


def _tensor(array: npt.NDArray[Any]) -> Tensor:
    import torch

    return torch.from_numpy(np.array(array))


def torch_costs(costs: npt.NDArray[np.float32]) -> Tensor | None:
    """Costs for torch; None where all are 1."""
    return None if (costs == 1).all() else _tensor(costs)


def _costs(costing: Costing | None, level: Level) -> Tensor | None:
    if costing is None or level.Y is None:
        return None
    return torch_costs(costing.costs(_counts(level)))


def _counts(level: Level) -> npt.NDArray[np.int64]:
    """Rows of each label."""
    return np.bincount(level.Y.indices, minlength=level.n_labels).astype(np.int64)


def _rows_around(arrays: Arrays, counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Rows of each label's cluster; for a label without one, its own."""
    cluster = arrays["of_label"]
    return np.where(cluster >= 0, np.asarray(arrays["counts"])[np.maximum(cluster, 0)], counts)

"""Scores as inner products of text and label, of all labels or of those in the clusters that are retrieved first."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.functional import embedding_bag, logsigmoid

from longtail.engine.topk import TopK
from longtail.learners.neural.modules.encoder import Dropout, Encoded
from longtail.learners.neural.modules.head import (
    Candidates,
    HeadModule,
    Truth,
    are_own,
    log_odds_of,
    table,
    top_of,
    top_of_some,
)
from longtail.learners.neural.modules.losses import Loss, dense_truth


class LabelWords(NamedTuple):
    """Words of each label's text: those of label l are ``words[indptr[l] : indptr[l + 1]]``, of `n_words` in all."""

    indptr: Tensor
    words: Tensor
    n_words: int


class LabelVectors(nn.Module):
    """A vector for each label: one of its own beside the mean of the vectors of its text's words.

    Parameters
    ----------
    n_labels : int
    dimensions : int
        Of both together; a half each where there are words.
    words : LabelWords or None
    sparse : bool
        Whether a step changes the vectors of few labels.
    """

    def __init__(self, n_labels: int, dimensions: int, words: LabelWords | None, sparse: bool) -> None:
        super().__init__()
        self.sparse, self.dimensions = sparse, dimensions
        own = dimensions if words is None else dimensions - dimensions // 2
        self.own = table(n_labels, own, dimensions**-0.5, sparse)
        self.bias = table(n_labels, 1, 0.0, sparse)
        self.words: nn.Embedding | None = None
        if words is not None:
            self.register_buffer("indptr", words.indptr)
            self.register_buffer("listed", words.words)
            self.words = table(words.n_words, dimensions // 2, dimensions**-0.5, sparse)

    def begin_at(self, biases: Tensor) -> None:
        """Set the biases."""
        self.bias.weight.data[:, 0] = biases

    def all(self) -> tuple[Tensor, Tensor]:
        """Vectors and biases of all labels."""
        if self.words is None:
            return self.own.weight, self.bias.weight[:, 0]
        indptr, listed = self.get_buffer("indptr"), self.get_buffer("listed")
        texts = embedding_bag(listed, self.words.weight, indptr[:-1], mode="mean")
        return torch.cat([self.own.weight, texts], dim=1), self.bias.weight[:, 0]

    def some(self, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Vectors and biases of labels, of whatever shape."""
        own: Tensor = self.own(labels)
        bias = self.bias(labels)[..., 0]
        if self.words is None:
            return own, bias
        different, places = torch.unique(labels.reshape(-1), return_inverse=True)
        indptr, listed = self.get_buffer("indptr"), self.get_buffer("listed")
        counts = indptr[different + 1] - indptr[different]
        begins = counts.cumsum(0) - counts
        within = torch.arange(int(counts.sum()), device=labels.device) - begins.repeat_interleave(counts)
        words = listed[indptr[different].repeat_interleave(counts) + within]
        texts = embedding_bag(words, self.words.weight, begins, mode="mean", sparse=self.sparse)
        return torch.cat([own, texts[places].reshape(*labels.shape, texts.shape[1])], dim=-1), bias

    def tables(self) -> list[Tensor]:
        """Parameters with sparse gradients."""
        if not self.sparse:
            return []
        return [part.weight for part in (self.own, self.bias, self.words) if part is not None]


class FlatRanking(HeadModule):
    """Every label's inner product with the text, projected.

    Parameters
    ----------
    vector_width : int
        Of the texts.
    vectors : LabelVectors
    dropout : float
        Of the texts.
    loss : Loss
    costs : Tensor or None
        Of each label where it is true.
    """

    costs: Tensor | None

    def __init__(
        self, vector_width: int, vectors: LabelVectors, dropout: float, loss: Loss, costs: Tensor | None
    ) -> None:
        super().__init__()
        self.vectors, self.measure, self.dropout = vectors, loss, Dropout(dropout)
        self.project = nn.Linear(vector_width, vectors.dimensions)
        self.n_labels = vectors.own.num_embeddings
        self.register_buffer("costs", costs, persistent=False)

    def loss(self, encoded: Encoded, truth: Truth, share: float, candidates: Candidates | None) -> Tensor:
        """Loss over all labels."""
        return self.measure(self._scores(encoded), dense_truth(*truth, self.n_labels), None, self.costs)

    def ranked(self, encoded: Encoded, k: int, allowed: npt.NDArray[np.bool_], candidates: Candidates | None) -> TopK:
        """Rank all labels."""
        return top_of(self._scores(encoded), k, allowed)

    def log_odds(self, encoded: Encoded, labels: Tensor) -> Tensor:
        """Scores of chosen labels."""
        return self._scores(encoded)[:, labels]

    def _scores(self, encoded: Encoded) -> Tensor:
        vectors, bias = self.vectors.all()
        scores: Tensor = self.project(self.dropout(encoded.vector)) @ vectors.T
        return scores + bias


class Clusters(NamedTuple):
    """Clusters of labels: the one of each label, -1 for none, and the labels of each, -1 where there are no more."""

    of_label: Tensor
    labels: Tensor


class ClusteredRanking(HeadModule):
    """A retriever of clusters, and a ranker of the labels in those that it retrieves, trained together.

    Parameters
    ----------
    vector_width : int
    vectors : LabelVectors
        With sparse gradients.
    clusters : Clusters
    retrieved : int
        Clusters that are looked into.
    dropout : float
    loss : Loss
        Of both.
    multiplied : bool
        Whether scores stand for probabilities, so that the retriever's are multiplied in; otherwise the ranker alone
        decides among what is retrieved.
    ramp : bool
        Whether the ranker's weight rises from 0 to 0.5 over the training as in equation (9); it is 0.5 if not.
    costs, cluster_costs : Tensor or None
    """

    costs: Tensor | None
    cluster_costs: Tensor | None
    of_label: Tensor
    members: Tensor

    def __init__(
        self,
        vector_width: int,
        vectors: LabelVectors,
        clusters: Clusters,
        retrieved: int,
        dropout: float,
        loss: Loss,
        multiplied: bool,
        ramp: bool,
        costs: Tensor | None,
        cluster_costs: Tensor | None,
    ) -> None:
        super().__init__()
        self.vectors, self.measure, self.multiplied, self.ramp = vectors, loss, multiplied, ramp
        self.dropout = Dropout(dropout)
        self.n_labels, self.retrieved = vectors.own.num_embeddings, min(retrieved, len(clusters.labels))
        self.retrieve = nn.Linear(vector_width, len(clusters.labels))
        self.project = nn.Linear(vector_width, vectors.dimensions)
        self.register_buffer("of_label", clusters.of_label)
        self.register_buffer("members", clusters.labels)
        self.register_buffer("costs", costs, persistent=False)
        self.register_buffer("cluster_costs", cluster_costs, persistent=False)

    def loss(self, encoded: Encoded, truth: Truth, share: float, candidates: Candidates | None) -> Tensor:
        """Equation (9): that of the retriever, and that of the ranker over what is retrieved and the true clusters."""
        vector = self.dropout(encoded.vector)
        scores = self.retrieve(vector)
        own = dense_truth(truth.indptr, self.of_label[truth.labels], len(self.members))
        retrieving = self.measure(scores, own, None, self.cluster_costs)
        wanted = own.sum(dim=1).clamp(min=self.retrieved)
        chosen = (scores.detach() + own * 1e4).topk(int(wanted.max()), dim=1).indices
        is_looked_into = torch.arange(chosen.shape[1], device=own.device) < wanted[:, None]
        labels = torch.where(is_looked_into[:, :, None], self.members[chosen], -1).flatten(1)
        is_own = are_own(labels, truth)
        costs = None if self.costs is None else self.costs[labels.clamp(min=0)]
        ranking = self.measure(self._label_scores(vector, labels), is_own, labels >= 0, costs)
        weight = 0.5 * share if self.ramp else 0.5
        return (1 - weight) * retrieving + weight * ranking

    def ranked(self, encoded: Encoded, k: int, allowed: npt.NDArray[np.bool_], candidates: Candidates | None) -> TopK:
        """Rank the labels of the best clusters among those with an allowed label."""
        members = self.members.cpu().numpy()
        has_allowed = torch.from_numpy((allowed[members] & (members >= 0)).any(axis=1)).to(self.members.device)
        scores = self.retrieve(encoded.vector).masked_fill(~has_allowed, -torch.inf)
        best = scores.topk(self.retrieved, dim=1)
        labels = self.members[best.indices].flatten(1)
        above = best.values.repeat_interleave(self.members.shape[1], dim=1)
        return top_of_some(labels, self._combined(above, self._label_scores(encoded.vector, labels)), k, allowed)

    def log_odds(self, encoded: Encoded, labels: Tensor) -> Tensor:
        """Scores of chosen labels, whether their clusters would be retrieved or not."""
        above = self.retrieve(encoded.vector)[:, self.of_label[labels]]
        vectors, bias = self.vectors.all()
        own = self.project(encoded.vector) @ vectors[labels].T + bias[labels]
        return self._combined(above, own)

    def _combined(self, above: Tensor, own: Tensor) -> Tensor:
        return log_odds_of(logsigmoid(above) + logsigmoid(own)) if self.multiplied else own

    def retrieved_labels(self, encoded: Encoded) -> Tensor:
        """Labels of the best clusters of each row, best cluster first; -1 for none."""
        best = self.retrieve(encoded.vector).topk(self.retrieved, dim=1).indices
        return self.members[best].flatten(1)

    def _label_scores(self, vector: Tensor, labels: Tensor) -> Tensor:
        vectors, bias = self.vectors.some(labels.clamp(min=0))
        return torch.einsum("nd,nmd->nm", self.project(vector), vectors) + bias

    def tables(self) -> list[Tensor]:
        """Vectors of the labels."""
        return self.vectors.tables()

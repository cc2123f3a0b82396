"""Inner products of text and label vectors, of all labels or of those in retrieved clusters."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding_bag, logsigmoid

from longtail.kernels.types import Flags
from longtail.learners.neural.modules.encoder import Dropout, Encoded
from longtail.learners.neural.modules.head import (
    HeadModule,
    ScoredCandidates,
    Truth,
    are_own,
    dense_truth,
    log_odds_of,
    table,
    top_of,
    top_of_some,
)
from longtail.losses import TorchLoss
from longtail.topk import TopK


class LabelWords(NamedTuple):
    """Words of label texts: those of label l are ``words[indptr[l] : indptr[l + 1]]``, out of `n_words` words."""

    indptr: Tensor
    words: Tensor
    n_words: int


class LabelVectors(nn.Module):
    """A vector per label: its own, concatenated with the mean vector of the words of its text.

    `embedding_dim` is the total width, of which the words have half; with `sparse`, a step uses few labels.
    """

    def __init__(self, n_labels: int, embedding_dim: int, words: LabelWords | None, sparse: bool) -> None:
        super().__init__()
        self.sparse, self.embedding_dim = sparse, embedding_dim
        own = embedding_dim if words is None else embedding_dim - embedding_dim // 2
        self.own = table(n_labels, own, embedding_dim**-0.5, sparse)
        self.bias = table(n_labels, 1, 0.0, sparse)
        self.words: nn.Embedding | None = None
        if words is not None:
            self.register_buffer("indptr", words.indptr)
            self.register_buffer("listed", words.words)
            self.words = table(words.n_words, embedding_dim // 2, embedding_dim**-0.5, sparse)

    def begin_at(self, biases: Tensor) -> None:
        """Set the biases."""
        self.bias.weight.data[:, 0] = biases

    def all(self) -> tuple[Tensor, Tensor]:
        """Return vectors and biases of all labels."""
        if self.words is None:
            return self.own.weight, self.bias.weight[:, 0]
        indptr, listed = self.get_buffer("indptr"), self.get_buffer("listed")
        texts = embedding_bag(listed, self.words.weight, indptr[:-1], mode="mean")
        return torch.cat([self.own.weight, texts], dim=1), self.bias.weight[:, 0]

    def some(self, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return vectors and biases of labels, in an array of any shape."""
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
        """Return the parameters with sparse gradients."""
        if not self.sparse:
            return []
        return [part.weight for part in (self.own, self.bias, self.words) if part is not None]


class FlatRanking(HeadModule):
    """The inner product of each label vector with the projected text vector."""

    costs: Tensor | None

    def __init__(
        self, vector_width: int, vectors: LabelVectors, dropout: float, loss: TorchLoss, costs: Tensor | None
    ) -> None:
        super().__init__()
        self.vectors, self.loss_function, self.dropout = vectors, loss, Dropout(dropout)
        self.project = nn.Linear(vector_width, vectors.embedding_dim)
        self.n_labels = vectors.own.num_embeddings
        self.register_buffer("costs", costs, persistent=False)

    def loss(self, encoded: Encoded, truth: Truth, progress: float, candidates: ScoredCandidates | None) -> Tensor:
        """Return the loss over all labels."""
        return self.loss_function(self._scores(encoded), dense_truth(*truth, self.n_labels), None, self.costs)

    def ranked(self, encoded: Encoded, k: int, allowed: Flags, candidates: ScoredCandidates | None) -> TopK:
        """Return the k best of all labels."""
        return top_of(self._scores(encoded), k, allowed)

    def log_odds(self, encoded: Encoded, labels: Tensor) -> Tensor:
        """Return the scores of chosen labels."""
        return self._scores(encoded)[:, labels]

    def _scores(self, encoded: Encoded) -> Tensor:
        vectors, bias = self.vectors.all()
        scores: Tensor = self.project(self.dropout(encoded.vector)) @ vectors.T
        return scores + bias


class ClusteredRanking(HeadModule):
    """A retriever of clusters, and a ranker of the labels in those that it retrieves, trained together.

    `of_label` is the cluster of each label, -1 for none, and `members` the labels of each cluster, padded with -1. With
    `multiplied`, probabilities of the ranker are multiplied by those of the retriever; otherwise the ranker alone
    orders what is retrieved. With `ramp`, its weight rises from 0 to 0.5 as in equation 9; else it is 0.5.
    """

    costs: Tensor | None
    cluster_costs: Tensor | None
    of_label: Tensor
    members: Tensor

    def __init__(
        self,
        vector_width: int,
        vectors: LabelVectors,
        of_label: Tensor,
        members: Tensor,
        retrieved: int,
        dropout: float,
        loss: TorchLoss,
        multiplied: bool,
        ramp: bool,
        costs: Tensor | None,
        cluster_costs: Tensor | None,
    ) -> None:
        super().__init__()
        self.vectors, self.loss_function, self.multiplied, self.ramp = vectors, loss, multiplied, ramp
        self.dropout = Dropout(dropout)
        self.n_labels, self.retrieved = vectors.own.num_embeddings, min(retrieved, len(members))
        self.retrieve = nn.Linear(vector_width, len(members))
        self.project = nn.Linear(vector_width, vectors.embedding_dim)
        self.register_buffer("of_label", of_label)
        self.register_buffer("members", members)
        self.register_buffer("costs", costs, persistent=False)
        self.register_buffer("cluster_costs", cluster_costs, persistent=False)

    def loss(self, encoded: Encoded, truth: Truth, progress: float, candidates: ScoredCandidates | None) -> Tensor:
        """Return equation 9: the losses of the retriever, and of the ranker over retrieved and true clusters."""
        vector = self.dropout(encoded.vector)
        scores = self.retrieve(vector)
        # The retriever: all clusters are scored, those with a true label are true.
        own = dense_truth(truth.indptr, self.of_label[truth.labels], len(self.members))
        retrieving = self.loss_function(scores, own, None, self.cluster_costs)
        # The ranker: labels of the best clusters and of all true ones.
        wanted = own.sum(dim=1).clamp(min=self.retrieved)
        chosen = (scores.detach() + own * 1e4).topk(int(wanted.max()), dim=1).indices
        is_chosen = torch.arange(chosen.shape[1], device=own.device) < wanted[:, None]
        labels = torch.where(is_chosen[:, :, None], self.members[chosen], -1).flatten(1)
        is_own = are_own(labels, truth)
        costs = None if self.costs is None else self.costs[labels.clamp(min=0)]
        ranking = self.loss_function(self._label_scores(vector, labels), is_own, labels >= 0, costs)
        weight = 0.5 * progress if self.ramp else 0.5
        return (1 - weight) * retrieving + weight * ranking

    def ranked(self, encoded: Encoded, k: int, allowed: Flags, candidates: ScoredCandidates | None) -> TopK:
        """Return the k best labels in the best clusters among those with an allowed label."""
        members = self.members.cpu().numpy()
        has_allowed = torch.from_numpy((allowed[members] & (members >= 0)).any(axis=1)).to(self.members.device)
        scores = self.retrieve(encoded.vector).masked_fill(~has_allowed, -torch.inf)
        best = scores.topk(self.retrieved, dim=1)
        labels = self.members[best.indices].flatten(1)
        above = best.values.repeat_interleave(self.members.shape[1], dim=1)
        return top_of_some(labels, self._combined(above, self._label_scores(encoded.vector, labels)), k, allowed)

    def log_odds(self, encoded: Encoded, labels: Tensor) -> Tensor:
        """Return the scores of chosen labels, whether or not their clusters would be retrieved."""
        above = self.retrieve(encoded.vector)[:, self.of_label[labels]]
        vectors, bias = self.vectors.all()
        own = self.project(encoded.vector) @ vectors[labels].T + bias[labels]
        return self._combined(above, own)

    def _combined(self, above: Tensor, own: Tensor) -> Tensor:
        return log_odds_of(logsigmoid(above) + logsigmoid(own)) if self.multiplied else own

    def retrieved_labels(self, encoded: Encoded) -> Tensor:
        """Return the labels of the best clusters of each row, best cluster first, padded with -1."""
        best = self.retrieve(encoded.vector).topk(self.retrieved, dim=1).indices
        return self.members[best].flatten(1)

    def _label_scores(self, vector: Tensor, labels: Tensor) -> Tensor:
        vectors, bias = self.vectors.some(labels.clamp(min=0))
        return torch.einsum("nd,nmd->nm", self.project(vector), vectors) + bias

    def tables(self) -> list[Tensor]:
        """Return the vectors of the labels."""
        return self.vectors.tables()

"""Adaptive probabilistic label clusters: frequent labels directly, rare ones behind gates, in narrower layers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid, softplus

from longtail.kernels.types import Flags
from longtail.learners.neural.modules.encoder import Dropout, Encoded
from longtail.learners.neural.modules.head import HeadModule, ScoredCandidates, Truth, dense_truth, log_odds_of, top_of
from longtail.losses import gated_logistic_loss, logistic_loss
from longtail.topk import TopK


class AdaptiveClusters(HeadModule):
    """Labels in clusters by frequency: the first is the head, which also has an output, the gate, for each other one.

    The probability of a label in another cluster is that of the gate times its own behind the gate. A cluster without a
    true label of a row trains its gate only.

    `order` has the labels, the most frequent first, and `ends` the end of each cluster in it; the layer of each further
    cluster is `shrink` times narrower than the one before. `costs` are those of true labels.
    """

    order: Tensor
    places: Tensor
    costs: Tensor | None

    def __init__(
        self,
        vector_width: int,
        order: Tensor,
        ends: Sequence[int],
        hidden_size: int,
        shrink: int,
        dropout: float,
        costs: Tensor | None,
    ) -> None:
        super().__init__()
        self.n_labels, self.ends = len(order), list(ends)
        self.dropout = Dropout(dropout)
        self.project = nn.Linear(vector_width, hidden_size)
        n_tails = len(ends) - 1
        self.head = nn.Linear(hidden_size, ends[0] + n_tails)
        tails = []
        for number in range(n_tails):
            thin = max(1, hidden_size // shrink ** (number + 1))
            size = ends[number + 1] - ends[number]
            tails.append(
                nn.Sequential(nn.Linear(hidden_size, thin), nn.LayerNorm(thin), nn.ReLU(), nn.Linear(thin, size))
            )
        self.tails = nn.ModuleList(tails)
        self.register_buffer("order", order)
        self.register_buffer("places", torch.argsort(order))
        self.register_buffer("costs", None if costs is None else costs[order], persistent=False)

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *args: Any) -> None:
        """Load models of older versions too, whose heads have no biases."""
        if f"{prefix}head.weight" in state_dict:
            state_dict.setdefault(f"{prefix}head.bias", torch.zeros_like(self.head.bias))
        super()._load_from_state_dict(state_dict, prefix, *args)

    def begin_at(self, labels: Tensor, gates: Tensor) -> None:
        """Initialise the biases of labels and gates with log-odds."""
        ordered, first = labels[self.order], self.ends[0]
        self.head.bias.data.copy_(torch.cat([ordered[:first], gates]))
        for tail, (begin, end) in zip(self.tails, pairwise(self.ends), strict=True):
            *_, last = tail.parameters()  # the bias of its last layer
            last.data.copy_(ordered[begin:end])

    def loss(self, encoded: Encoded, truth: Truth, progress: float, candidates: ScoredCandidates | None) -> Tensor:
        """Return the mean of the head's loss and of the losses of clusters with a true label of the row."""
        hidden = self._hidden(encoded)
        outputs, first = self.head(hidden), self.ends[0]
        # Labels in the order of the clusters, and which clusters hold a true label of each row.
        own = dense_truth(truth.indptr, self.places[truth.labels], self.n_labels)
        parts = [own[:, begin:end] for begin, end in pairwise(self.ends)]
        is_active = torch.stack([part.any(dim=1) for part in parts], dim=1) if parts else own.new_zeros((len(own), 0))
        # The head: labels of its own, and the gates of clusters that hold no true label.
        gates = softplus(outputs[:, first:]) * ~is_active.bool()
        costs = self._costs(0, first)
        labels = logistic_loss(outputs[:, :first], own[:, :first], None, costs, reduction="sum")
        counted = first + (~is_active.bool()).sum(dim=1)
        total = (labels + gates.sum(dim=1)) / counted.clamp(min=1)
        # The other clusters: labels behind a gate, for the rows with a true label in the cluster.
        for number, part in enumerate(parts):
            rows = torch.nonzero(is_active[:, number])[:, 0]
            if not len(rows):
                continue
            begin, end = self.ends[number], self.ends[number + 1]
            gate, inside = outputs[rows, first + number][:, None], self.tails[number](hidden[rows])
            each = gated_logistic_loss(gate, inside, part[rows], None, self._costs(begin, end))
            total = total.index_add(0, rows, each)
        return total / (1 + is_active.sum(dim=1))

    def ranked(self, encoded: Encoded, k: int, allowed: Flags, candidates: ScoredCandidates | None) -> TopK:
        """Return the k best of all labels."""
        return top_of(self._log_odds(encoded), k, allowed)

    def log_odds(self, encoded: Encoded, labels: Tensor) -> Tensor:
        """Return the scores of chosen labels."""
        return self._log_odds(encoded)[:, labels]

    def _log_odds(self, encoded: Encoded) -> Tensor:
        hidden = self._hidden(encoded)
        outputs, first = self.head(hidden), self.ends[0]
        found = [outputs[:, :first]]
        for number, tail in enumerate(self.tails):
            gate = logsigmoid(outputs[:, first + number])[:, None]
            found.append(log_odds_of(gate + logsigmoid(tail(hidden))))
        return torch.cat(found, dim=1)[:, self.places]

    def _hidden(self, encoded: Encoded) -> Tensor:
        found: Tensor = self.dropout(self.project(encoded.vector).relu())
        return found

    def _costs(self, begin: int, end: int) -> Tensor | None:
        return None if self.costs is None else self.costs[begin:end]

"""Adaptive probabilistic label clusters: frequent labels at once, rare ones behind a gate, in ever thinner layers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid, softplus

from longtail.engine.topk import TopK
from longtail.learners.neural.modules.encoder import Dropout, Encoded
from longtail.learners.neural.modules.head import Candidates, HeadModule, Truth, log_odds_of, top_of
from longtail.learners.neural.modules.losses import dense_truth


class AdaptiveClusters(HeadModule):
    """Labels by frequency in clusters: the first is the head, each other has a gate among the head's outputs.

    The probability of a label in another cluster is that of its gate times its own behind the gate. A cluster without a
    true label of a row trains its gate alone.

    Parameters
    ----------
    vector_width : int
    order : Tensor of int64
        Labels, the most frequent first.
    ends : sequence of int
        Where each cluster ends in that order; the last is the number of labels.
    hidden : int
        Width of the head's layer.
    shrink : int
        Each further cluster's layer is so many times thinner than the one before.
    dropout : float
    costs : Tensor or None
        Of each label where it is true.
    """

    order: Tensor
    places: Tensor
    costs: Tensor | None

    def __init__(
        self,
        vector_width: int,
        order: Tensor,
        ends: Sequence[int],
        hidden: int,
        shrink: int,
        dropout: float,
        costs: Tensor | None,
    ) -> None:
        super().__init__()
        self.n_labels, self.ends = len(order), list(ends)
        self.dropout = Dropout(dropout)
        self.project = nn.Linear(vector_width, hidden)
        n_tails = len(ends) - 1
        self.head = nn.Linear(hidden, ends[0] + n_tails)
        tails = []
        for number in range(n_tails):
            thin = max(1, hidden // shrink ** (number + 1))
            size = ends[number + 1] - ends[number]
            tails.append(nn.Sequential(nn.Linear(hidden, thin), nn.LayerNorm(thin), nn.ReLU(), nn.Linear(thin, size)))
        self.tails = nn.ModuleList(tails)
        self.register_buffer("order", order)
        self.register_buffer("places", torch.argsort(order))
        self.register_buffer("costs", None if costs is None else costs[order], persistent=False)

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *args: Any) -> None:
        """Take up the head of older models too, which had no biases."""
        if f"{prefix}head.weight" in state_dict:
            state_dict.setdefault(f"{prefix}head.bias", torch.zeros_like(self.head.bias))
        super()._load_from_state_dict(state_dict, prefix, *args)

    def begin_at(self, labels: Tensor, gates: Tensor) -> None:
        """Let the biases of labels and gates begin at these log-odds."""
        ordered, first = labels[self.order], self.ends[0]
        self.head.bias.data.copy_(torch.cat([ordered[:first], gates]))
        for tail, (begin, end) in zip(self.tails, pairwise(self.ends), strict=True):
            *_, last = tail.parameters()  # the bias of its last layer
            last.data.copy_(ordered[begin:end])

    def loss(self, encoded: Encoded, truth: Truth, share: float, candidates: Candidates | None) -> Tensor:
        """Mean of the head's loss and of the losses of the clusters with a true label of the row."""
        hidden = self._hidden(encoded)
        outputs, first = self.head(hidden), self.ends[0]
        own = dense_truth(truth.indptr, self.places[truth.labels], self.n_labels)
        parts = [own[:, begin:end] for begin, end in pairwise(self.ends)]
        is_active = torch.stack([part.any(dim=1) for part in parts], dim=1) if parts else own.new_zeros((len(own), 0))
        gates = softplus(outputs[:, first:]) * ~is_active.bool()
        labels = self._bce(outputs[:, :first], own[:, :first], 0, first)
        counted = first + (~is_active.bool()).sum(dim=1)
        total = (labels.sum(dim=1) + gates.sum(dim=1)) / counted.clamp(min=1)
        for number, part in enumerate(parts):
            rows = torch.nonzero(is_active[:, number])[:, 0]
            if not len(rows):
                continue
            begin, end = self.ends[number], self.ends[number + 1]
            gate, inside = outputs[rows, first + number][:, None], self.tails[number](hidden[rows])
            each = self._gated(gate, inside, part[rows], begin, end).mean(dim=1)
            total = total.index_add(0, rows, each)
        return total / (1 + is_active.sum(dim=1))

    def ranked(self, encoded: Encoded, k: int, allowed: npt.NDArray[np.bool_], candidates: Candidates | None) -> TopK:
        """Rank all labels."""
        return top_of(self._log_odds(encoded), k, allowed)

    def log_odds(self, encoded: Encoded, labels: Tensor) -> Tensor:
        """Scores of chosen labels."""
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

    def _bce(self, scores: Tensor, truth: Tensor, begin: int, end: int) -> Tensor:
        plain = softplus(scores)
        return plain + truth * ((plain - scores) * self._costs(begin, end) - plain)

    def _gated(self, gate: Tensor, inside: Tensor, truth: Tensor, begin: int, end: int) -> Tensor:
        """Binary cross-entropy of a product of two probabilities, with logarithms alone."""
        missed = softplus(-gate) + softplus(-inside)  # -log p
        wide = gate.expand_as(inside)
        none = missed - torch.stack([-wide, -inside, -wide - inside]).logsumexp(dim=0)  # -log(1 - p)
        return none + truth * (missed * self._costs(begin, end) - none)

    def _costs(self, begin: int, end: int) -> Tensor | float:
        return 1.0 if self.costs is None else self.costs[begin:end]

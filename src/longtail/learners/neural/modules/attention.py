"""Label attention: each label attends to the states of a text with its own vector (AttentionXML)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from longtail.kernels.types import Flags
from longtail.learners.neural.modules.encoder import Encoded
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


class LabelAttention(HeadModule):
    """Each label scores its attention-weighted mean of the states of a text, by dense layers that all labels share.

    With `multiplied`, probabilities are multiplied by those of the level above; with `sparse`, a step uses few labels,
    the candidates of its rows. `costs` are those of true labels.
    """

    costs: Tensor | None

    def __init__(
        self,
        width: int,
        n_labels: int,
        hidden_layer_sizes: Sequence[int],
        loss: TorchLoss,
        costs: Tensor | None,
        multiplied: bool,
        sparse: bool,
    ) -> None:
        super().__init__()
        self.n_labels, self.sparse, self.loss_function, self.multiplied = n_labels, sparse, loss, multiplied
        self.looks = table(n_labels, width, (2 / (n_labels + width)) ** 0.5, sparse)
        widths = [width, *hidden_layer_sizes]
        layers = [nn.Linear(below, above) for below, above in pairwise(widths)]
        self.layers = nn.ModuleList(layers)
        self.out = nn.Linear(widths[-1], 1)
        for layer in (*layers, self.out):
            nn.init.xavier_uniform_(layer.weight)
        self.register_buffer("costs", costs, persistent=False)

    def loss(self, encoded: Encoded, truth: Truth, progress: float, candidates: ScoredCandidates | None) -> Tensor:
        """Return the loss over all labels, or over the candidates of each row."""
        if candidates is None:
            scores = self._scores(encoded, self.looks.weight)
            return self.loss_function(scores, dense_truth(*truth, self.n_labels), None, self.costs)
        labels = candidates.labels
        costs = None if self.costs is None else self.costs[labels.clamp(min=0)]
        return self.loss_function(self._some(encoded, labels), are_own(labels, truth), labels >= 0, costs)

    def ranked(self, encoded: Encoded, k: int, allowed: Flags, candidates: ScoredCandidates | None) -> TopK:
        """Return the k best of all labels, or of the candidates."""
        if candidates is None:
            return top_of(self._scores(encoded, self.looks.weight), k, allowed)
        scores = self._some(encoded, candidates.labels)
        if self.multiplied:
            scores = log_odds_of(logsigmoid(scores) + candidates.scores)
        return top_of_some(candidates.labels, scores, k, allowed)

    def log_odds(self, encoded: Encoded, labels: Tensor) -> Tensor:
        """Return the scores of chosen labels, without those of a level above."""
        return self._scores(encoded, self.looks.weight[labels])

    def _some(self, encoded: Encoded, labels: Tensor) -> Tensor:
        return self._scores(encoded, self.looks(labels.clamp(min=0)))

    def _scores(self, encoded: Encoded, looks: Tensor) -> Tensor:
        """Scores of labels by their attention vectors, the same for all rows or a set per row."""
        states, mask = encoded.states, encoded.mask
        attention = looks @ states.transpose(1, 2)  # rows, labels, tokens
        seen = attention.masked_fill(~mask[:, None], -1e30).softmax(dim=2) @ states
        for layer in self.layers:
            seen = layer(seen).relu()
        found: Tensor = self.out(seen)[..., 0]
        return found

    def tables(self) -> list[Tensor]:
        """Return the attention vectors if a step uses few of them."""
        return [self.looks.weight] if self.sparse else []

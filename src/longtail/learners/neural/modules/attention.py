"""Label attention: each label looks at the states of a text with a vector of its own (AttentionXML)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from longtail.engine.topk import TopK
from longtail.learners.neural.modules.encoder import Encoded
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


class LabelAttention(HeadModule):
    """What a label sees of a text is a mean of its states, weighted by attention; dense layers that all share score it.

    Parameters
    ----------
    width : int
        Of the states.
    n_labels : int
    hidden : sequence of int
        Widths of the shared layers, with ReLU.
    loss : Loss
    costs : Tensor or None
        Of each label where it is true.
    multiplied : bool
        Whether scores stand for probabilities, so that those of the level above are multiplied in.
    sparse : bool
        Whether a row comes with candidates, so that few labels are looked at in a step.
    """

    costs: Tensor | None

    def __init__(
        self,
        width: int,
        n_labels: int,
        hidden: Sequence[int],
        loss: Loss,
        costs: Tensor | None,
        multiplied: bool,
        sparse: bool,
    ) -> None:
        super().__init__()
        self.n_labels, self.sparse, self.measure, self.multiplied = n_labels, sparse, loss, multiplied
        self.looks = table(n_labels, width, (2 / (n_labels + width)) ** 0.5, sparse)
        widths = [width, *hidden]
        layers = [nn.Linear(below, above) for below, above in pairwise(widths)]
        self.layers = nn.ModuleList(layers)
        self.out = nn.Linear(widths[-1], 1)
        for layer in (*layers, self.out):
            nn.init.xavier_uniform_(layer.weight)
        self.register_buffer("costs", costs, persistent=False)

    def loss(self, encoded: Encoded, truth: Truth, share: float, candidates: Candidates | None) -> Tensor:
        """Loss over all labels, or over the candidates of each row."""
        if candidates is None:
            scores = self._scores(encoded, self.looks.weight)
            return self.measure(scores, dense_truth(*truth, self.n_labels), None, self.costs)
        labels = candidates.labels
        costs = None if self.costs is None else self.costs[labels.clamp(min=0)]
        return self.measure(self._some(encoded, labels), are_own(labels, truth), labels >= 0, costs)

    def ranked(self, encoded: Encoded, k: int, allowed: npt.NDArray[np.bool_], candidates: Candidates | None) -> TopK:
        """Rank all labels, or the candidates."""
        if candidates is None:
            return top_of(self._scores(encoded, self.looks.weight), k, allowed)
        scores = self._some(encoded, candidates.labels)
        if self.multiplied:
            scores = log_odds_of(logsigmoid(scores) + candidates.scores)
        return top_of_some(candidates.labels, scores, k, allowed)

    def log_odds(self, encoded: Encoded, labels: Tensor) -> Tensor:
        """Scores of chosen labels, without those of a level above."""
        return self._scores(encoded, self.looks.weight[labels])

    def _some(self, encoded: Encoded, labels: Tensor) -> Tensor:
        return self._scores(encoded, self.looks(labels.clamp(min=0)))

    def _scores(self, encoded: Encoded, looks: Tensor) -> Tensor:
        """Scores of labels whose vectors are given, the same for all rows or for each row its own."""
        states, mask = encoded.states, encoded.mask
        nearness = looks @ states.transpose(1, 2)  # rows, labels, places
        seen = nearness.masked_fill(~mask[:, None], -1e30).softmax(dim=2) @ states
        for layer in self.layers:
            seen = layer(seen).relu()
        found: Tensor = self.out(seen)[..., 0]
        return found

    def tables(self) -> list[Tensor]:
        """The labels' vectors, where few are looked at."""
        return [self.looks.weight] if self.sparse else []

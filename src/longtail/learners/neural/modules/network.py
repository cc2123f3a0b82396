"""Encoder and head as one network."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from longtail.learners.neural.modules.encoder import Below, EncoderModule
from longtail.learners.neural.modules.head import HeadModule, ScoredCandidates, Truth


class Network(nn.Module):
    """An encoder and a head; the loss of a row is weighted by its number of labels to the power `row_power`."""

    def __init__(self, encoder: EncoderModule, head: HeadModule, row_power: float = 0.0) -> None:
        super().__init__()
        self.encoder, self.head, self.row_power = encoder, head, row_power

    def forward(
        self,
        tokens: Tensor | Below,
        mask: Tensor,
        truth: Truth,
        progress: float,
        candidates: ScoredCandidates | None = None,
    ) -> Tensor:
        """Return the summed loss of some rows, given by tokens or by the output of the frozen layers."""
        encoded = self.encoder.above(tokens, mask) if isinstance(tokens, Below) else self.encoder(tokens, mask)
        losses = self.head.loss(encoded, truth, progress, candidates)
        if self.row_power:
            losses = losses * truth.indptr.diff().clamp(min=1).float() ** self.row_power
        return losses.sum()

    def groups(self) -> tuple[list[list[nn.Parameter]], list[nn.Parameter]]:
        """Return the trained parameters with dense gradients: the encoder's by layer, and the head's."""
        sparse = {id(table) for table in self.tables()}
        layers = [
            [part for part in layer if part.requires_grad and id(part) not in sparse] for layer in self.encoder.layers()
        ]
        return layers, [part for part in self.head.parameters() if id(part) not in sparse]

    def tables(self) -> list[Tensor]:
        """Return the parameters with sparse gradients: the encoder's, then the head's."""
        return [*self.encoder.tables(), *self.head.tables()]

    @property
    def device(self) -> torch.device:
        """The device of the network."""
        return next(self.parameters()).device

"""Encoder and head as one network."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from longtail.learners.neural.modules.encoder import Below, EncoderModule
from longtail.learners.neural.modules.head import Candidates, HeadModule, Truth


class Network(nn.Module):
    """An encoder and a head.

    Parameters
    ----------
    encoder : EncoderModule
    head : HeadModule
    row_power : float
        A row's loss counts as often as it has labels, to this power.
    """

    def __init__(self, encoder: EncoderModule, head: HeadModule, row_power: float = 0.0) -> None:
        super().__init__()
        self.encoder, self.head, self.row_power = encoder, head, row_power

    def forward(
        self,
        tokens: Tensor | Below,
        mask: Tensor,
        truth: Truth,
        share: float,
        candidates: Candidates | None = None,
    ) -> Tensor:
        """Sum of the losses of some rows, given by their tokens or by what the frozen layers made of those."""
        encoded = self.encoder.above(tokens, mask) if isinstance(tokens, Below) else self.encoder(tokens, mask)
        losses = self.head.loss(encoded, truth, share, candidates)
        if self.row_power:
            losses = losses * truth.indptr.diff().clamp(min=1).float() ** self.row_power
        return losses.sum()

    def groups(self) -> tuple[list[list[nn.Parameter]], list[nn.Parameter]]:
        """Parameters with dense gradients that are trained: the encoder's layers, and the head's."""
        sparse = {id(table) for table in self.tables()}
        layers = [
            [part for part in layer if part.requires_grad and id(part) not in sparse] for layer in self.encoder.layers()
        ]
        return layers, [part for part in self.head.parameters() if id(part) not in sparse]

    def tables(self) -> list[Tensor]:
        """Parameters with sparse gradients: the encoder's, then the head's."""
        return [*self.encoder.tables(), *self.head.tables()]

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return next(self.parameters()).device

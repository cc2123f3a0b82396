"""Encoders of the library transformers: BERT, RoBERTa, XLNet and their kin."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from longtail.errors import InputError
from longtail.learners.neural.modules.encoder import Encoded, EncoderModule, masked_mean, with_own_dropout

Pooling = Literal["cls", "mean"]


class PretrainedEncoder(EncoderModule):
    """A transformer; its vector is the states of the [CLS] token in the last layers, side by side, or the mean state.

    Parameters
    ----------
    model : PreTrainedModel
    layers : int
        Last layers whose [CLS] is taken.
    pooling : {"cls", "mean"}
    freeze : int
        Lowest layers that are not trained, with the token embeddings if there are any.
    """

    def __init__(self, model: Any, layers: int, pooling: Pooling, freeze: int) -> None:
        super().__init__()
        model.config.use_cache = False
        self.model = model
        self.pooling = pooling
        self.config = model.config.to_json_string(use_diff=False)
        self.width = int(model.config.hidden_size)
        self.is_xlnet = model.config.model_type == "xlnet"
        self.padding = int(model.config.pad_token_id or 0)
        self.taken = min(layers, int(model.config.num_hidden_layers))
        self.vector_width = self.width * (self.taken if pooling == "cls" else 1)
        with_own_dropout(model)
        for module in model.modules():  # drawn inside of the kernels of torch, from its global generator
            if hasattr(module, "num_attention_heads") and hasattr(getattr(module, "dropout", None), "p"):
                module.dropout.p = 0.0
        self._unused(model)
        for layer in self.layers()[: freeze + 1] if freeze else []:
            for parameter in layer:
                parameter.requires_grad_(False)

    @staticmethod
    def _unused(model: Any) -> None:
        """Take out what has no part in the result, so that every trained parameter has a gradient."""
        if getattr(model, "pooler", None) is not None:
            model.pooler = None
        if hasattr(model, "mask_emb"):
            model.mask_emb.requires_grad_(False)

    @property
    def longest(self) -> int | None:
        """Most tokens of a text; None for any number."""
        most = getattr(self.model.config, "max_position_embeddings", None)
        if most is None or self.is_xlnet:
            return None
        return int(most) - (self.padding + 1 if self.model.config.model_type in ("roberta", "xlm-roberta") else 0)

    def forward(self, tokens: Tensor, mask: Tensor) -> Encoded:
        """Encode texts; XLNet, whose [CLS] is last, gets its padding on the left."""
        if self.is_xlnet:
            tokens, mask = _shifted(tokens, mask, self.padding)
        found = self.model(input_ids=tokens, attention_mask=mask.to(torch.long), output_hidden_states=True)
        states = found.hidden_states[-1]
        if self.pooling == "mean":
            return Encoded(states, mask, masked_mean(states, mask))
        place = -1 if self.is_xlnet else 0
        last = [layer[:, place] for layer in found.hidden_states[-self.taken :]]
        return Encoded(states, mask, torch.cat(last, dim=1))

    def layers(self) -> list[list[nn.Parameter]]:
        """Embeddings, then each block; what belongs to no block goes with the last one."""
        stack = max(
            (part for part in self.model.modules() if isinstance(part, nn.ModuleList)), key=len, default=nn.ModuleList()
        )
        blocks = [list(block.parameters()) for block in stack]
        if not blocks:
            raise InputError(f"The encoder {type(self.model).__name__} has no layers that can be told apart.")
        embedded = list(self.embedding().parameters())
        if hasattr(self.model, "embeddings"):
            embedded = list(self.model.embeddings.parameters())
        listed = {id(parameter) for layer in (*blocks, embedded) for parameter in layer}
        blocks[-1] += [parameter for parameter in self.model.parameters() if id(parameter) not in listed]
        return [embedded, *blocks]

    def embedding(self) -> nn.Module:
        """Embeddings of the tokens."""
        found: nn.Module = self.model.get_input_embeddings()
        return found


def _shifted(tokens: Tensor, mask: Tensor, padding: int) -> tuple[Tensor, Tensor]:
    """Move the padding from the right to the left."""
    width = tokens.shape[1]
    places = torch.arange(width, device=tokens.device)[None] - (width - mask.sum(dim=1, keepdim=True))
    inside = places >= 0
    moved = tokens.gather(1, places.clamp(min=0))
    return torch.where(inside, moved, torch.full_like(moved, padding)), inside

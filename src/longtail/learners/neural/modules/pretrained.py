"""Encoders of the library transformers, such as BERT, RoBERTa and XLNet."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn

from longtail.errors import InputError
from longtail.features.pretrained import longest_of
from longtail.learners.neural.modules.encoder import Below, Encoded, EncoderModule, masked_mean, with_own_dropout

Pooling = Literal["cls", "mean"]

_here = threading.local()


class PretrainedEncoder(EncoderModule):
    """A transformer; its vector is the concatenated [CLS] states of the last layers, or the mean state.

    `layers` is the number of last layers whose [CLS] states are used. The `freeze` lowest layers, and the token
    embeddings below them, are not trained and have no dropout.
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
        self._unused(model)
        self.frozen = min(freeze, int(model.config.num_hidden_layers))
        for layer in self.layers()[: freeze + 1] if freeze else []:
            for parameter in layer:
                parameter.requires_grad_(False)
        for block in self._blocks():
            block.register_forward_hook(self._keep_mark)
        self._halves: tuple[Any, Any] | None = None

    @staticmethod
    def _unused(model: Any) -> None:
        """Remove parts that don't affect the result, so that every trained parameter has a gradient."""
        if getattr(model, "pooler", None) is not None:
            model.pooler = None
        if hasattr(model, "mask_emb"):
            model.mask_emb.requires_grad_(False)

    @property
    def longest(self) -> int | None:
        """Maximum tokens of a text; None for any number."""
        return longest_of(self.model.config)

    def forward(self, tokens: Tensor, mask: Tensor) -> Encoded:
        """Encode texts; XLNet, whose [CLS] token is last, is padded on the left."""
        if self.is_xlnet:
            tokens, mask = _shifted(tokens, mask, self.padding)
        with _cls_states() as cls_states:
            states = self.model(input_ids=tokens, attention_mask=mask.to(torch.long)).last_hidden_state
        return self._encoded(states, mask, cls_states)

    def _encoded(self, states: Tensor, mask: Tensor, cls_states: list[Tensor]) -> Encoded:
        if self.pooling == "mean":
            return Encoded(states, mask, masked_mean(states, mask))
        if len(cls_states) < self.taken:
            raise InputError(f"The encoder {type(self.model).__name__} has no layers that can be told apart.")
        last = states[:, -1 if self.is_xlnet else 0]
        return Encoded(states, mask, torch.cat([*cls_states[len(cls_states) - self.taken : -1], last], dim=1))

    @property
    def is_split(self) -> bool:
        """Whether the frozen layers can run separately from the others."""
        families = ("deberta", "deberta-v2", "mpnet")  # their layers need more than the states of those below
        stack = getattr(getattr(self.model, "encoder", None), "layer", None)
        is_stack = isinstance(stack, nn.ModuleList) and hasattr(self.model, "embeddings")
        return is_stack and self.frozen > 0 and self.model.config.model_type not in families

    def below(self, tokens: Tensor, mask: Tensor) -> Below:
        """Run the frozen layers."""
        with _cls_states() as cls_states:
            states = self._split()[0](input_ids=tokens, attention_mask=mask.to(torch.long)).last_hidden_state
        own = self.model.config.num_hidden_layers - self.frozen
        needed = cls_states[len(cls_states) - max(self.taken - own, 0) :] if self.pooling == "cls" else []
        return Below(states, torch.stack(needed, dim=1) if needed else states[:, :0])

    def above(self, below: Below, mask: Tensor) -> Encoded:
        """Run the layers above the frozen ones."""
        with _cls_states() as cls_states:
            states = self._split()[1](inputs_embeds=below.states, attention_mask=mask.to(torch.long)).last_hidden_state
        return self._encoded(states, mask, [*below.cls_states.unbind(dim=1), *cls_states])

    def train(self, mode: bool = True) -> PretrainedEncoder:
        """Set the mode of the trained layers; frozen ones stay in evaluation mode."""
        super().train(mode)
        for part in self._frozen_parts():
            part.eval()
        return self

    def _frozen_parts(self) -> list[nn.Module]:
        if not self.frozen:
            return []
        embedded = getattr(self.model, "embeddings", None)
        return [self.embedding() if embedded is None else embedded, *self._blocks()[: self.frozen]]

    def _split(self) -> tuple[Any, Any]:
        """Return two models that share this one's layers: the frozen ones, and those above."""
        if self._halves is None:
            lower, upper = _shallow(self.model), _shallow(self.model)
            for half, some in ((lower, slice(None, self.frozen)), (upper, slice(self.frozen, None))):
                half._modules["encoder"] = _shallow(half.encoder)
                half.encoder._modules["layer"] = nn.ModuleList(list(self._blocks())[some])
            upper._modules["embeddings"] = _Given()
            self._halves = lower, upper
        return self._halves

    def _keep_mark(self, module: nn.Module, inputs: Any, output: Any) -> None:
        cls_states = getattr(_here, "cls_states", None)
        if cls_states is not None:
            states = output[0] if isinstance(output, tuple) else output
            cls_states.append(states[-1] if self.is_xlnet else states[:, 0])

    def _blocks(self) -> nn.ModuleList:
        stacks = (part for part in self.model.modules() if isinstance(part, nn.ModuleList))
        return max(stacks, key=len, default=nn.ModuleList())

    def layers(self) -> list[list[nn.Parameter]]:
        """Return the embeddings, then each block; parameters of no block go with the last one."""
        blocks = [list(block.parameters()) for block in self._blocks()]
        if not blocks:
            raise InputError(f"The encoder {type(self.model).__name__} has no layers that can be told apart.")
        embedded = list(self.embedding().parameters())
        if hasattr(self.model, "embeddings"):
            embedded = list(self.model.embeddings.parameters())
        listed = {id(parameter) for layer in (*blocks, embedded) for parameter in layer}
        blocks[-1] += [parameter for parameter in self.model.parameters() if id(parameter) not in listed]
        return [embedded, *blocks]

    def embedding(self) -> nn.Module:
        """Return the token embeddings."""
        found: nn.Module = self.model.get_input_embeddings()
        return found


class _Given(nn.Module):
    """Replaces the embeddings of a model that is given states instead of tokens."""

    def forward(self, *, inputs_embeds: Tensor, **others: Any) -> Tensor:
        return inputs_embeds


def _shallow(module: Any) -> Any:
    """Return another module with the same parts."""
    found = copy.copy(module)
    found._modules = dict(module._modules)
    return found


@contextmanager
def _cls_states() -> Iterator[list[Tensor]]:
    """Collect the states of the [CLS] token in all layers that this thread runs inside."""
    _here.cls_states = cls_states = list[Tensor]()
    try:
        yield cls_states
    finally:
        _here.cls_states = None


def _shifted(tokens: Tensor, mask: Tensor, padding: int) -> tuple[Tensor, Tensor]:
    """Move the padding from the right to the left."""
    width = tokens.shape[1]
    places = torch.arange(width, device=tokens.device)[None] - (width - mask.sum(dim=1, keepdim=True))
    inside = places >= 0
    moved = tokens.gather(1, places.clamp(min=0))
    return torch.where(inside, moved, torch.full_like(moved, padding)), inside

"""The base class of encoders, their output, and dropout with a generator per thread."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

_here = threading.local()


class Encoded(NamedTuple):
    """Output of an encoder: states of shape (texts, tokens, width), the mask of real tokens, and a vector per text."""

    states: Tensor
    mask: Tensor
    vector: Tensor


class Below(NamedTuple):
    """Output of the lowest layers: states of all tokens, and those of the [CLS] token in each layer."""

    states: Tensor
    cls_states: Tensor


class EncoderModule(nn.Module):
    """An encoder, from tokens to states and a vector."""

    width: int  # of the states
    vector_width: int
    padding: int = 0  # token id
    config: str  # JSON from which an encoder of the same shape can be built

    @abstractmethod
    def forward(self, tokens: Tensor, mask: Tensor) -> Encoded:
        """Encode texts, given by token ids of shape (texts, tokens) and the mask of real tokens."""

    @property
    def is_split(self) -> bool:
        """Whether the frozen layers can run separately from the others."""
        return False

    def below(self, tokens: Tensor, mask: Tensor) -> Below:
        """Run the frozen layers."""
        raise NotImplementedError

    def above(self, below: Below, mask: Tensor) -> Encoded:
        """Run the layers above the frozen ones."""
        raise NotImplementedError

    @abstractmethod
    def layers(self) -> list[list[nn.Parameter]]:
        """Return the parameters of each layer, the lowest first, for learning rates by layer."""

    @abstractmethod
    def embedding(self) -> nn.Module:
        """Return the module that embeds tokens."""

    def tables(self) -> list[Tensor]:
        """Return the parameters with sparse gradients."""
        return []

    def plain(self) -> EncoderModule:
        """Return the same encoder for prediction, without operations that ONNX lacks."""
        return self


class Dropout(nn.Module):
    """Dropout with the generator of the thread; the identity outside of `dropout_generator`, and in evaluation.

    So the result doesn't depend on the order of the threads. `p` is 0 for kernels that read it and sample with torch's
    global generator, as the attention of most transformers does.
    """

    p = 0.0

    def __init__(self, p: float) -> None:
        super().__init__()
        self._p = float(p)

    def forward(self, values: Tensor) -> Tensor:
        """Set some values to 0 and scale up the others."""
        generator = getattr(_here, "generator", None)
        if not self.training or self._p == 0 or generator is None:
            return values
        kept = torch.empty(values.shape, dtype=values.dtype, device=values.device)
        kept.bernoulli_(1 - self._p, generator=generator).div_(1 - self._p)
        return values * kept


@contextmanager
def dropout_generator(generator: torch.Generator) -> Iterator[None]:
    """Use this generator for dropout in this thread."""
    _here.generator = generator
    try:
        yield
    finally:
        _here.generator = None


def with_own_dropout(module: nn.Module) -> None:
    """Replace torch's dropout by `Dropout` everywhere in a module."""
    if isinstance(getattr(module, "attention_dropout", None), float):
        module.attention_dropout = 0.0  # type: ignore[assignment]
    for name, child in list(module.named_children()):
        if isinstance(child, nn.Dropout):
            setattr(module, name, Dropout(child.p))
        else:
            with_own_dropout(child)


def masked_mean(states: Tensor, mask: Tensor) -> Tensor:
    """Return the mean state of each text."""
    weights = mask.to(states.dtype)
    total: Tensor = (states * weights[:, :, None]).sum(dim=1)
    return total / weights.sum(dim=1, keepdim=True).clamp(min=1)

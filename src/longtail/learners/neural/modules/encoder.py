"""What every encoder gives, and dropout that is drawn from a generator of one's own."""

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
    """Texts after the encoder.

    `states` has a vector for each token, of shape (texts, places, width); `mask` is true where there is a token;
    `vector` stands for the whole text.
    """

    states: Tensor
    mask: Tensor
    vector: Tensor


class Below(NamedTuple):
    """What the lowest layers made of texts: states of all tokens, and those of the [CLS] token in each layer."""

    states: Tensor
    marks: Tensor


class EncoderModule(nn.Module):
    """An encoder: from tokens to states and a vector.

    Attributes
    ----------
    width, vector_width : int
        Of the states and of the vector.
    padding : int
        Token that fills up short texts.
    config : str
        JSON from which an encoder of the same shape can be made.
    """

    width: int
    vector_width: int
    padding: int = 0
    config: str

    @abstractmethod
    def forward(self, tokens: Tensor, mask: Tensor) -> Encoded:
        """Encode texts; `tokens` holds ids, of shape (texts, places), and `mask` is true where there is one."""

    @property
    def is_parted(self) -> bool:
        """Whether its lowest layers are frozen and can run apart from the others."""
        return False

    def below(self, tokens: Tensor, mask: Tensor) -> Below:
        """What the frozen layers make of texts."""
        raise NotImplementedError

    def above(self, below: Below, mask: Tensor) -> Encoded:
        """Encode texts from what the frozen layers made of them."""
        raise NotImplementedError

    @abstractmethod
    def layers(self) -> list[list[nn.Parameter]]:
        """Parameters layer by layer, the lowest first: each may have a rate of its own or be frozen."""

    @abstractmethod
    def embedding(self) -> nn.Module:
        """The module that turns tokens into vectors."""

    def tables(self) -> list[Tensor]:
        """Parameters of which a step changes only some rows: their gradients are sparse."""
        return []

    def plain(self) -> EncoderModule:
        """The same encoder, made of parts that other runtimes know, after `embedding`; for prediction."""
        return self


class Dropout(nn.Module):
    """Dropout drawn from the generator of the thread; none outside of `drawn_from`, or in evaluation.

    With it, what is dropped doesn't depend on which thread asks first. Kernels that ask for `p` and draw by themselves,
    from the one generator of all threads, are told 0: transformers' attention is such a kernel in most families.
    """

    p = 0.0

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = float(rate)

    def forward(self, values: Tensor) -> Tensor:
        """Drop some values and scale the others up."""
        generator = getattr(_here, "generator", None)
        if not self.training or self.rate == 0 or generator is None:
            return values
        kept = torch.empty(values.shape, dtype=values.dtype, device=values.device)
        kept.bernoulli_(1 - self.rate, generator=generator).div_(1 - self.rate)
        return values * kept


@contextmanager
def drawn_from(generator: torch.Generator) -> Iterator[None]:
    """Draw dropout from this generator, in this thread."""
    _here.generator = generator
    try:
        yield
    finally:
        _here.generator = None


def with_own_dropout(module: nn.Module) -> None:
    """Put `Dropout` in the place of torch's dropout everywhere in a module."""
    if isinstance(getattr(module, "attention_dropout", None), float):
        module.attention_dropout = 0.0  # type: ignore[assignment]
    for name, child in list(module.named_children()):
        if isinstance(child, nn.Dropout):
            setattr(module, name, Dropout(child.p))
        else:
            with_own_dropout(child)


def masked_mean(states: Tensor, mask: Tensor) -> Tensor:
    """Mean of the states of each text."""
    weights = mask.to(states.dtype)
    total: Tensor = (states * weights[:, :, None]).sum(dim=1)
    return total / weights.sum(dim=1, keepdim=True).clamp(min=1)

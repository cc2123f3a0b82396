"""An encoder that reads a text as a bag: vectors of its words, weighted as in tf-idf and added up."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from longtail.learners.neural.modules.encoder import Dropout, Encoded, EncoderModule
from longtail.learners.neural.modules.words import WordTable


class WordBagEncoder(EncoderModule):
    """The sum of the vectors of a text's words, each by (1 + log of its count) times its rarity, over its length.

    The length is that of the weights, so a text of many words has no longer a vector than one of few. The order of the
    words is lost; a text has one state, its vector. The words of a batch are a small part of all, and each of them is
    looked up once: a product of texts by words and words by dimensions is far less work than gradients place by place.

    Parameters
    ----------
    words : WordTable
    rarity : Tensor
        Of each word in the table, and 0 for the words that are not in it.
    dropout : float
        Share of the words that are left out in training.
    """

    rarity: Tensor

    def __init__(self, words: WordTable, rarity: Tensor, dropout: float) -> None:
        super().__init__()
        self.words, self.dropout = words, Dropout(dropout)
        self.register_buffer("rarity", rarity)
        self.width = self.vector_width = words.table.embedding_dim
        self.config = words.config

    def forward(self, tokens: Tensor, mask: Tensor) -> Encoded:
        """Encode texts."""
        different, places = torch.unique(self.words.rows(tokens), return_inverse=True)
        times = torch.zeros(len(tokens), len(different), device=tokens.device)
        times.scatter_add_(1, places, mask.to(times.dtype))
        weights = (1 + times.clamp(min=1).log()) * self.rarity[different] * (times > 0)
        weights = weights / weights.square().sum(dim=1, keepdim=True).clamp(min=1e-12).sqrt()
        return bag_of(self.dropout(weights) @ self.words.table(different))

    def layers(self) -> list[list[nn.Parameter]]:
        """Word vectors."""
        return [list(self.words.parameters())]

    def tables(self) -> list[Tensor]:
        """Word vectors."""
        return self.words.tables()

    def embedding(self) -> nn.Module:
        """The word vectors."""
        return self.words

    def plain(self) -> EncoderModule:
        """Word by word."""
        return WordByWord(self)


class WordByWord(EncoderModule):
    """What a `WordBagEncoder` does, with a vector for each place and without a search; for prediction.

    Parameters
    ----------
    encoder : WordBagEncoder
    """

    rarity: Tensor

    def __init__(self, encoder: WordBagEncoder) -> None:
        super().__init__()
        self.words, self.config = encoder.words, encoder.config
        self.width, self.vector_width = encoder.width, encoder.vector_width
        self.register_buffer("rarity", encoder.rarity)

    def forward(self, tokens: Tensor, mask: Tensor) -> Encoded:
        """Encode texts."""
        found = self.words.rows(tokens)
        times = ((found[:, :, None] == found[:, None]) & mask[:, None]).sum(dim=2)
        often = times.clamp(min=1)
        of_word = (1 + often.log()) * self.rarity[found] * mask
        of_place = of_word / often
        length = (of_place * of_word).sum(dim=1, keepdim=True).clamp(min=1e-12).sqrt()
        return bag_of((self.words(tokens, mask) * (of_place / length)[:, :, None]).sum(dim=1))

    def layers(self) -> list[list[nn.Parameter]]:
        """All that it has; it isn't trained."""
        return [list(self.parameters())]

    def embedding(self) -> nn.Module:
        """The word vectors."""
        return self.words


def bag_of(sums: Tensor) -> Encoded:
    """A text as one state."""
    vector = sums.relu()
    return Encoded(vector[:, None], torch.ones_like(vector[:, :1], dtype=torch.bool), vector)

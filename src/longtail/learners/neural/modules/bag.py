"""An encoder that reads a text as a bag of words: their vectors, weighted by tf-idf, are added up."""

from __future__ import annotations

import torch
from torch import Tensor

from longtail.learners.neural.modules.encoder import Dropout, Encoded, EncoderModule
from longtail.learners.neural.modules.words import WordEncoder, WordTable


class WordBagEncoder(WordEncoder):
    """The sum of the vectors of a text's words, weighted by (1 + log of the count) times rarity, scaled to norm 1.

    The order of the words is lost; a text has one state, its vector. Each word of a batch is looked up once: a matrix
    product of texts by words and words by dimensions is far less work than gradients token by token.
    `rarity` is the inverse document frequency of each word in the table, 0 for unknown words.
    """

    rarity: Tensor

    def __init__(self, words: WordTable, rarity: Tensor, dropout: float) -> None:
        super().__init__(words)
        self.dropout = Dropout(dropout)
        self.register_buffer("rarity", rarity)
        self.width = self.vector_width = words.table.embedding_dim

    def forward(self, tokens: Tensor, mask: Tensor) -> Encoded:
        """Encode texts."""
        different, places = torch.unique(self.words.rows(tokens), return_inverse=True)
        times = torch.zeros(len(tokens), len(different), device=tokens.device)
        times.scatter_add_(1, places, mask.to(times.dtype))
        weights = (1 + times.clamp(min=1).log()) * self.rarity[different] * (times > 0)
        weights = weights / weights.square().sum(dim=1, keepdim=True).clamp(min=1e-12).sqrt()
        return _as_state(self.dropout(weights) @ self.words.table(different))

    def plain(self) -> EncoderModule:
        """Return it with a lookup per token."""
        return WordByWord(self)


class WordByWord(WordEncoder):
    """A `WordBagEncoder` for prediction, which looks up a vector per token and needs no `unique`."""

    rarity: Tensor

    def __init__(self, encoder: WordBagEncoder) -> None:
        super().__init__(encoder.words)
        self.width, self.vector_width = encoder.width, encoder.vector_width
        self.register_buffer("rarity", encoder.rarity)

    def forward(self, tokens: Tensor, mask: Tensor) -> Encoded:
        """Encode texts."""
        found = self.words.rows(tokens)
        times = ((found[:, :, None] == found[:, None]) & mask[:, None]).sum(dim=2)
        often = times.clamp(min=1)
        of_word = (1 + often.log()) * self.rarity[found] * mask
        of_token = of_word / often
        norm = (of_token * of_word).sum(dim=1, keepdim=True).clamp(min=1e-12).sqrt()
        return _as_state((self.words(tokens, mask) * (of_token / norm)[:, :, None]).sum(dim=1))


def _as_state(sums: Tensor) -> Encoded:
    """A text as one state."""
    vector = sums.relu()
    return Encoded(vector[:, None], torch.ones_like(vector[:, :1], dtype=torch.bool), vector)

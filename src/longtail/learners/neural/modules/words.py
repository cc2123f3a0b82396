"""Encoders over word vectors: a BiLSTM as in AttentionXML, and a CNN with dynamic max pooling as in XML-CNN."""

from __future__ import annotations

import json
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from longtail.learners.neural.modules.encoder import Dropout, Encoded, EncoderModule, masked_mean


class WordTable(nn.Module):
    """Vectors of the words that occur in training; all other words share one vector.

    `places` is the row of each word id in the table, -1 for words that don't occur, which share row `n_words`.
    """

    places: Tensor

    def __init__(self, places: Tensor, n_words: int, width: int, trained: bool) -> None:
        super().__init__()
        self.register_buffer("places", places)
        self.n_words = n_words
        self.table = nn.Embedding(n_words + 1, width, sparse=True)
        self.table.weight.requires_grad_(trained)

    @property
    def config(self) -> str:
        """JSON that describes its shape."""
        shape = {"ids": len(self.places), "words": self.n_words, "dimensions": self.table.embedding_dim}
        return json.dumps(shape)

    def rows(self, tokens: Tensor) -> Tensor:
        """Return the row of each token in the table."""
        size = len(self.places)
        found = self.places[tokens.clamp(max=size - 1)]
        return torch.where((tokens < size) & (found >= 0), found, self.n_words)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Embed words; 0 where there is none."""
        vectors: Tensor = self.table(self.rows(tokens))
        return vectors * mask[:, :, None]


class WordEncoder(EncoderModule):
    """An encoder over a table of words, with a single layer unless a subclass has more."""

    def __init__(self, words: WordTable) -> None:
        super().__init__()
        self.words, self.config = words, words.config

    def layers(self) -> list[list[nn.Parameter]]:
        """Return all parameters as one layer."""
        return [list(self.parameters())]

    def embedding(self) -> nn.Module:
        """Return the table of words."""
        return self.words

    def tables(self) -> list[Tensor]:
        """Return the word vectors if they are trained."""
        weight = self.words.table.weight
        return [weight] if weight.requires_grad else []


class BiLSTMEncoder(WordEncoder):
    """A bidirectional LSTM with learned initial states over word vectors; its vector is the mean state."""

    def __init__(
        self, words: WordTable, hidden_size: int, num_layers: int, dropout: float, state_dropout: float
    ) -> None:
        super().__init__(words)
        self.lstm = nn.LSTM(words.table.embedding_dim, hidden_size, num_layers, batch_first=True, bidirectional=True)
        self.first_hidden = nn.Parameter(torch.zeros(2 * num_layers, 1, hidden_size))
        self.first_cell = nn.Parameter(torch.zeros(2 * num_layers, 1, hidden_size))
        self.dropout, self.state_dropout = Dropout(dropout), Dropout(state_dropout)
        self.width = self.vector_width = 2 * hidden_size

    def forward(self, tokens: Tensor, mask: Tensor) -> Encoded:
        """Encode texts; both directions read each text up to its own end."""
        vectors = self.dropout(self.words(tokens, mask))
        n, lengths = len(tokens), mask.sum(dim=1).cpu()
        first = (self.first_hidden.repeat(1, n, 1), self.first_cell.repeat(1, n, 1))
        with torch.autocast(tokens.device.type, enabled=False):  # not every CPU has an LSTM of half precision
            packed = pack_padded_sequence(vectors.float(), lengths, batch_first=True, enforce_sorted=False)
            states, _ = pad_packed_sequence(self.lstm(packed, first)[0], batch_first=True, total_length=tokens.shape[1])
        states = self.state_dropout(states)
        return Encoded(states, mask, masked_mean(states, mask))

    def layers(self) -> list[list[nn.Parameter]]:
        """Return the word vectors, then the LSTM."""
        return [list(self.words.parameters()), [*self.lstm.parameters(), self.first_hidden, self.first_cell]]

    def plain(self) -> EncoderModule:
        """Return it without packed sequences."""
        return UnpackedBiLSTM(self)


class UnpackedBiLSTM(WordEncoder):
    """A `BiLSTMEncoder` for prediction, without packed sequences, which ONNX lacks.

    Each direction of each layer is a separate LSTM; the backward ones read every text reversed.
    """

    def __init__(self, encoder: BiLSTMEncoder) -> None:
        super().__init__(encoder.words)
        self.width, self.vector_width = encoder.width, encoder.vector_width
        self.first_hidden, self.first_cell = encoder.first_hidden, encoder.first_cell
        lstm = encoder.lstm
        self.directions = nn.ModuleList()
        for layer in range(lstm.num_layers):
            for end in ("", "_reverse"):
                wide = lstm.input_size if layer == 0 else 2 * lstm.hidden_size
                one = nn.LSTM(wide, lstm.hidden_size, batch_first=True)
                for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                    getattr(one, f"{name}_l0").data.copy_(getattr(lstm, f"{name}_l{layer}{end}").data)
                self.directions.append(one)

    def forward(self, tokens: Tensor, mask: Tensor) -> Encoded:
        """Encode texts."""
        states = self.words(tokens, mask)
        n, length = tokens.shape
        lengths, order = mask.sum(dim=1, keepdim=True), torch.arange(length, device=tokens.device)[None]
        turned = torch.where(order < lengths, lengths - 1 - order, order)
        for number in range(0, len(self.directions), 2):
            found = []
            for direction in (number, number + 1):
                first = [
                    part[direction : direction + 1].expand(1, n, part.shape[2]).contiguous()
                    for part in (self.first_hidden, self.first_cell)
                ]
                read = _reordered(states, turned) if direction % 2 else states
                written = self.directions[direction](read, (first[0], first[1]))[0]
                found.append(_reordered(written, turned) if direction % 2 else written)
            states = torch.cat(found, dim=2) * mask[:, :, None]
        return Encoded(states, mask, masked_mean(states, mask))


def _reordered(states: Tensor, order: Tensor) -> Tensor:
    return states.gather(1, order[:, :, None].expand(-1, -1, states.shape[2]))


class CNNEncoder(WordEncoder):
    """Convolutions of several sizes over word vectors, pooled by their maxima in `pool_chunks` parts of a text."""

    def __init__(
        self,
        words: WordTable,
        n_filters: int,
        kernel_sizes: Sequence[int],
        pool_chunks: int,
        hidden_size: int,
        dropout: float,
    ) -> None:
        super().__init__(words)
        width = words.table.embedding_dim
        self.convolutions = nn.ModuleList(nn.Conv1d(width, n_filters, size) for size in kernel_sizes)
        self.pool_chunks = pool_chunks
        self.pads = [((size - 1) // 2, size - 1 - (size - 1) // 2) for size in kernel_sizes]
        self.width, self.vector_width = n_filters * len(kernel_sizes), hidden_size
        self.bottleneck = nn.Linear(self.width * pool_chunks, hidden_size)
        self.dropout = Dropout(dropout)

    def forward(self, tokens: Tensor, mask: Tensor) -> Encoded:
        """Encode texts; padding is 0 and never pooled."""
        vectors = self.dropout(self.words(tokens, mask)).transpose(1, 2)
        pairs = zip(self.convolutions, self.pads, strict=True)
        states = torch.cat([layer(nn.functional.pad(vectors, pad)) for layer, pad in pairs], dim=1).transpose(1, 2)
        pooled = self._pooled(states, mask).relu()
        return Encoded(states.relu(), mask, self.bottleneck(pooled).relu())

    def _pooled(self, states: Tensor, mask: Tensor) -> Tensor:
        """Maximum of each filter in each part of a text, 0 in parts without a word.

        The words of a part are gathered as whole rows: a training step takes two thirds of the time that it takes
        with `scatter_reduce`.
        """
        n, places, width = states.shape
        lengths = mask.sum(dim=1, keepdim=True).clamp(min=1)
        chunks = self.pool_chunks
        ends = (torch.arange(chunks + 1, device=states.device)[None] * lengths + chunks - 1) // chunks
        first, last = ends[:, :-1, None], ends[:, 1:, None]
        at = first + torch.arange((places + chunks - 1) // chunks, device=states.device)
        at = torch.where(at < last, at, first).clamp(max=places - 1)
        at = at + torch.arange(n, device=states.device)[:, None, None] * places
        rows = states.reshape(n * places, width).index_select(0, at.reshape(-1))
        best = rows.view(*at.shape, width).max(dim=2).values * (last > first)
        return best.transpose(1, 2).reshape(n, width * chunks)

    def layers(self) -> list[list[nn.Parameter]]:
        """Return the word vectors, the convolutions, and the layer above."""
        return [
            list(self.words.parameters()), list(self.convolutions.parameters()), list(self.bottleneck.parameters())
        ]  # fmt: skip

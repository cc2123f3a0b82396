"""Texts as rows of token ids, the input of neural learners."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from longtail.data.sparse import canonical_rows
from longtail.errors import InputError, MissingExtraError, ModelError, ParameterError
from longtail.features.pretrained import load_tokenizer
from longtail.features.texts import TextInput, as_texts
from longtail.features.word_vectors import read_words
from longtail.kernels.types import Int32, Int64, UInt8
from longtail.runtime.disk_cache import cached, digest_of_texts
from longtail.runtime.progress import progress_bar
from longtail.validation import Boolean, Constraint, Integer

WORDS = "words"
PADDING, UNKNOWN, FIRST_WORD = 0, 1, 2
"""Ids of the word tokenizer: padding, unknown words, and the first word."""

_AT_ONCE = 2048  # texts
_CACHED_FROM = 256  # texts


class Tokens(TextInput, BaseEstimator):
    """Turn texts into rows of tokens: column c holds the id of the token at position c, plus 1.

    A text is thus a row of a sparse matrix like any other features.

    Parameters
    ----------
    tokenizer : str
        "words" for words and punctuation, or the name or directory of a pretrained encoder with its tokenizer.
    vectors : str, optional
        For "words": file of word vectors (see `longtail.features.word_vectors`), whose order gives the ids.
    max_length : int
        Tokens per row; longer texts are truncated.
    max_words : int
        For "words": size of the vocabulary, which keeps the most frequent words.
    lowercase : bool
        For "words": lower-case the texts first.

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

    tokenizer_bytes_: UInt8

    _constraints: ClassVar[Mapping[str, Constraint]] = {
        "max_length": Integer(4, 2**24 - 1),
        "max_words": Integer(1, 2**24 - 1),
        "lowercase": Boolean(),
    }

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

    def _fit(self, texts: list[str]) -> None:
        if not texts:
            raise InputError("There are no texts: give at least one.")
        made = self._words(texts) if self.tokenizer == WORDS else load_tokenizer(self.tokenizer)
        self.tokenizer_bytes_ = np.frombuffer(made.encode(), np.uint8)

    def transform(self, texts: Iterable[str]) -> sp.csr_array:
        """Return the tokens of texts, a csr_array of float32 with `max_length` columns."""
        listed, tokenizer = as_texts(texts), self._made()
        if len(listed) < _CACHED_FROM:
            lengths, ids = self._read(listed, tokenizer)
        else:
            digest = digest_of_texts(listed, self.tokenizer_bytes_.tobytes(), int(self.max_length))
            lengths, ids = cached("tokens", digest, lambda: self._read(listed, tokenizer))
        indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
        places = np.arange(len(ids), dtype=np.int64) - np.repeat(indptr[:-1], lengths)
        kind = np.int32 if len(ids) < 2**31 else np.int64
        shape = len(listed), int(self.max_length)
        return canonical_rows((ids + 1).astype(np.float32), places.astype(np.int32), indptr.astype(kind), shape)

    def names_of(self, row: sp.csr_array) -> list[str]:
        """Return the token in each column of one row, empty if there is none."""
        tokenizer = self._made()
        names = [""] * row.shape[1]
        for place, value in zip(row.indices.tolist(), row.data.tolist(), strict=True):
            names[place] = tokenizer.id_to_token(int(value) - 1) or ""
        return names

    def _read(self, texts: list[str], tokenizer: Any) -> tuple[Int64, Int32]:
        lengths, ids = np.empty(len(texts), np.int64), []
        with progress_bar("reading tokens", len(texts), "texts") as advance:
            for first in range(0, len(texts), _AT_ONCE):
                part = [text.encode("utf-8", "replace").decode() for text in texts[first : first + _AT_ONCE]]
                found = tokenizer.encode_batch_fast(part)  # computes no offsets in the text
                lengths[first : first + len(found)] = [len(encoding.ids) for encoding in found]
                ids.append(np.array([token for encoding in found for token in encoding.ids], np.int32))
                advance(len(found))
        return lengths, np.concatenate(ids) if ids else np.empty(0, np.int32)

    def _words(self, texts: list[str]) -> str:
        """Return a tokenizer with the most frequent words of texts as vocabulary, as JSON."""
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
        return str(tokenizer.to_str())

    def _made(self) -> Any:
        """Return the tokenizer, built from its JSON once."""
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
        super()._check_parameters()
        if not isinstance(self.tokenizer, str) or not self.tokenizer:
            raise ParameterError("tokenizer", self.tokenizer, "must be 'words', or the name of a pretrained encoder")
        if self.vectors is not None and self.tokenizer != WORDS:
            raise ParameterError("vectors", self.vectors, "is for tokenizer='words': a pretrained encoder has its own")
        _tokenizers()


def _tokenizers() -> Any:
    if find_spec("tokenizers") is None:
        raise MissingExtraError("Reading texts as tokens", "neural")
    import tokenizers
    from tokenizers import models, normalizers, pre_tokenizers, trainers  # noqa: F401

    return tokenizers

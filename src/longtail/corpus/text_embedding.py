"""Texts as vectors of a pretrained encoder that stays as it is, alone or beside tf-idf."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from math import isfinite
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError

from longtail.corpus.pretrained import check_length, encoder_like, load_encoder, longest_of
from longtail.corpus.text import Tfidf
from longtail.corpus.texts import as_texts
from longtail.corpus.token_rows import Tokens
from longtail.engine.disk_cache import cached, digest_of_texts
from longtail.engine.pool import in_chunks
from longtail.engine.tensors import Tensors
from longtail.engine.torch_threads import one_torch_thread
from longtail.errors import ModelError, ParameterError

Float32 = npt.NDArray[np.float32]

_AT_ONCE = 32  # texts
_CACHED_FROM = 256  # texts


class TextEmbedding(BaseEstimator):
    """Turn texts into vectors of length 1: the mean state of a pretrained encoder.

    Vectors of many texts are kept in the cache of the user, under a hash of the texts and the encoder.

    Parameters
    ----------
    encoder : str
        Name or directory of a pretrained encoder; see `Pretrained`.
    max_length : int
        Tokens of a text that are read.
    threads : int, optional

    Attributes
    ----------
    tokens_ : Tokens
        The encoder's tokenizer.
    config_ : str
        Its shape, as JSON.
    tensors_ : Tensors
        Its weights.
    """

    _stored: ClassVar[tuple[str, ...]] = ("tokens_", "config_", "tensors_")

    tokens_: Tokens
    config_: str
    tensors_: Tensors

    def __init__(self, *, encoder: str = "minilm", max_length: int = 128, threads: int | None = None) -> None:
        self.encoder = encoder
        self.max_length = max_length
        self.threads = threads

    def fit(self, texts: Iterable[str], y: Any = None) -> Self:
        """Load the encoder; nothing is learned from the texts.

        Returns
        -------
        self
        """
        self._check_parameters()
        tokens = Tokens(tokenizer=self.encoder, max_length=self.max_length).fit(as_texts(texts))
        model = load_encoder(self.encoder)
        check_length(longest_of(model.config), int(self.max_length), self.encoder)
        self.config_ = model.config.to_json_string(use_diff=False)
        self.tensors_ = Tensors({name: np.array(part.numpy()) for name, part in model.state_dict().items()})
        self.tokens_ = tokens
        return self

    def transform(self, texts: Iterable[str]) -> Float32:
        """Vectors of texts, of shape (n_texts, width)."""
        if not hasattr(self, "tensors_"):
            raise NotFittedError("This TextEmbedding has no encoder yet: call fit first.")
        listed = as_texts(texts)
        if len(listed) < _CACHED_FROM:
            return self._embedded(listed)
        digest = digest_of_texts(listed, self._fingerprint(), int(self.max_length))
        return np.asarray(cached("embeddings", digest, lambda: [self._embedded(listed)])[0], np.float32)

    def fit_transform(self, texts: Iterable[str], y: Any = None) -> Float32:
        """Load the encoder and give the vectors of texts."""
        listed = as_texts(texts)
        return self.fit(listed).transform(listed)

    def _embedded(self, texts: list[str]) -> Float32:
        import torch

        model, rows = self._made(), self.tokens_.transform(texts)
        lengths = np.diff(rows.indptr)
        order = np.argsort(-lengths, kind="stable")
        found = np.zeros((len(texts), int(model.config.hidden_size)), np.float32)

        def some(first: int, last: int) -> None:
            torch.set_num_threads(1)  # of this thread
            chosen = order[first:last]
            part = rows[chosen]
            width = max(int(lengths[chosen].max(initial=1)), 1)
            ids = np.full((len(chosen), width), int(model.config.pad_token_id or 0), np.int64)
            mask = np.arange(width)[None] < np.diff(part.indptr)[:, None]
            ids[mask] = part.data.astype(np.int64) - 1
            with torch.inference_mode():
                states = model(torch.from_numpy(ids), attention_mask=torch.from_numpy(mask.astype(np.int64)))[0]
                weights = torch.from_numpy(mask)[:, :, None].float()
                means = ((states * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1)).numpy()
            lengths_of = np.linalg.norm(means, axis=1, keepdims=True)
            found[chosen] = means / np.maximum(lengths_of, 1e-12)

        with one_torch_thread():
            in_chunks(some, len(texts), _AT_ONCE, self.threads, "embedding texts")
        return found

    def _made(self) -> Any:
        import torch

        kept = getattr(self, "_kept", None)
        if kept is None or kept[0] is not self.tensors_:
            model = encoder_like(self.config_)
            try:
                model.load_state_dict({name: torch.from_numpy(np.array(part)) for name, part in self.tensors_.items()})
            except RuntimeError:
                raise ModelError("The encoder doesn't fit the model: its files were changed; train it again.") from None
            kept = self._kept = self.tensors_, model.eval()
        return kept[1]

    def _fingerprint(self) -> str:
        """Hash of the encoder."""
        found = hashlib.sha256(self.config_.encode() + self.tokens_.tokenizer_bytes_.tobytes())
        for name in sorted(self.tensors_):
            found.update(np.ascontiguousarray(self.tensors_[name]).tobytes())
        return found.hexdigest()

    def _check_parameters(self) -> None:
        Tokens(tokenizer=self.encoder, max_length=self.max_length)._check_parameters()
        if self.encoder == "words":
            raise ParameterError("encoder", self.encoder, "must be the name or directory of a pretrained encoder")


class TfidfEmbedding(BaseEstimator):
    """Tf-idf features with the vector of a pretrained encoder beside them, for any learner that takes features.

    Parameters
    ----------
    tfidf : Tfidf, optional
        ``Tfidf()`` when left out.
    embedding : TextEmbedding, optional
        ``TextEmbedding()`` when left out.
    scale : float
        Length of the vector, where a row of tf-idf has length 1.

    Attributes
    ----------
    tfidf_ : Tfidf
    embedding_ : TextEmbedding
    """

    _stored: ClassVar[tuple[str, ...]] = ("tfidf_", "embedding_")

    tfidf_: Tfidf
    embedding_: TextEmbedding

    def __init__(
        self, *, tfidf: Tfidf | None = None, embedding: TextEmbedding | None = None, scale: float = 1.0
    ) -> None:
        self.tfidf = tfidf
        self.embedding = embedding
        self.scale = scale

    def fit_transform(self, texts: Iterable[str], y: Any = None) -> sp.csr_array:
        """Learn from training texts and give their features."""
        self._check_parameters()
        listed = as_texts(texts)
        tfidf, embedding = (Tfidf() if self.tfidf is None else clone(self.tfidf)), self._embedding()
        terms = tfidf.fit_transform(listed)
        joined = self._joined(terms, embedding.fit_transform(listed))
        self.tfidf_, self.embedding_ = tfidf, embedding
        return joined

    def fit(self, texts: Iterable[str], y: Any = None) -> Self:
        """Learn from training texts.

        Returns
        -------
        self
        """
        self.fit_transform(texts)
        return self

    def transform(self, texts: Iterable[str]) -> sp.csr_array:
        """Turn texts into rows of features: terms first, then the numbers of the vector."""
        if not hasattr(self, "tfidf_"):
            raise NotFittedError(
                "This TfidfEmbedding has not learned any features yet: call fit or fit_transform first."
            )
        listed = as_texts(texts)
        return self._joined(self.tfidf_.transform(listed), self.embedding_.transform(listed))

    def feature_names(self) -> list[str]:
        """The term behind each column, or the number of the vector."""
        width = int(np.shape(self.embedding_.transform([""]))[1])
        return [*self.tfidf_.feature_names(), *(f"[{number}]" for number in range(width))]

    def names_of(self, row: sp.csr_array) -> list[str]:
        """The same for all rows."""
        return self.feature_names()

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name; those of a part can be set even while the part is the default None."""
        for part, default in (("tfidf", Tfidf), ("embedding", TextEmbedding)):
            if getattr(self, part) is None and part not in params and any(p.startswith(f"{part}__") for p in params):
                setattr(self, part, default())
        super().set_params(**params)
        return self

    def _embedding(self) -> TextEmbedding:
        made: TextEmbedding = TextEmbedding() if self.embedding is None else clone(self.embedding)
        return made

    def _joined(self, terms: sp.csr_array, vectors: Float32) -> sp.csr_array:
        n, width = vectors.shape
        indptr = np.arange(n + 1, dtype=terms.indptr.dtype) * width
        columns = np.tile(np.arange(width, dtype=np.int32), n)
        dense = sp.csr_array(((np.float32(self.scale) * vectors).ravel(), columns, indptr), shape=(n, width))
        found = sp.csr_array(sp.hstack([terms, dense], format="csr"))
        found.indices, found.indptr = found.indices.astype(np.int32), found.indptr.astype(terms.indptr.dtype)
        return found

    def _check_parameters(self) -> None:
        for part in (self.tfidf, self._embedding()):
            if part is not None:
                part._check_parameters()
        scale = self.scale
        if not isinstance(scale, Real) or isinstance(scale, bool) or not isfinite(scale) or scale <= 0:
            raise ParameterError("scale", scale, "must be a number above 0")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        return tags

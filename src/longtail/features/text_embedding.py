"""Texts as vectors of a frozen pretrained encoder, alone or beside tf-idf."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError

from longtail.config import WithJobs
from longtail.data.sparse import canonical_rows
from longtail.errors import ModelError, ParameterError
from longtail.features.pretrained import check_length, encoder_like, load_encoder, longest_of
from longtail.features.texts import TextInput, as_texts
from longtail.features.tfidf.tfidf import Tfidf
from longtail.features.tokenizer import Tokens
from longtail.kernels.types import Float32
from longtail.runtime.disk_cache import cached, digest_of_texts
from longtail.runtime.library_threads import one_torch_thread
from longtail.runtime.pool import in_chunks
from longtail.runtime.tensors import Tensors
from longtail.validation import Constraint, Number

_AT_ONCE = 32  # texts
_CACHED_FROM = 256  # texts


class TextEmbedding(TextInput, WithJobs, BaseEstimator):
    """Turn texts into vectors of length 1: the mean last hidden state of a pretrained encoder.

    Vectors of many texts are cached on disk under a hash of the texts and the encoder.

    Parameters
    ----------
    encoder : str
        Name or directory of a pretrained encoder; see `Pretrained`.
    max_length : int
        Tokens per text; longer texts are truncated.
    n_jobs : int, optional
        Threads; None as `longtail.config_context` says.

    Attributes
    ----------
    tokens_ : Tokens
        The encoder's tokenizer.
    config_ : str
        Its configuration, as JSON.
    tensors_ : Tensors
        Its weights.

    Examples
    --------
    >>> embedding = TextEmbedding(max_length=64)
    >>> embedding
    TextEmbedding(max_length=64)
    >>> embedding.fit_transform(["a red ship", "a blue ship"]).shape  # doctest: +SKIP
    (2, 384)
    """

    _stored: ClassVar[tuple[str, ...]] = ("tokens_", "config_", "tensors_")
    _working: ClassVar[frozenset[str]] = frozenset({"_embedded"})

    tokens_: Tokens
    config_: str
    tensors_: Tensors

    def __init__(self, *, encoder: str = "minilm", max_length: int = 128, n_jobs: int | None = None) -> None:
        self.encoder = encoder
        self.max_length = max_length
        self.n_jobs = n_jobs

    def _fit(self, texts: list[str]) -> None:
        tokens = Tokens(tokenizer=self.encoder, max_length=self.max_length)
        tokens._fit(texts)
        model = load_encoder(self.encoder)
        check_length(longest_of(model.config), int(self.max_length), self.encoder)
        self.config_ = model.config.to_json_string(use_diff=False)
        self.tensors_ = Tensors({name: np.array(part.numpy()) for name, part in model.state_dict().items()})
        self.tokens_ = tokens

    def transform(self, texts: Iterable[str]) -> Float32:
        """Return the vectors of texts, of shape (n_texts, width)."""
        if not hasattr(self, "tensors_"):
            raise NotFittedError("This TextEmbedding has no encoder yet: call fit first.")
        listed = as_texts(texts)
        if len(listed) < _CACHED_FROM:
            return self._embedded(listed)
        digest = digest_of_texts(listed, self._fingerprint(), int(self.max_length))
        return np.asarray(cached("embeddings", digest, lambda: [self._embedded(listed)])[0], np.float32)

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
            in_chunks(some, len(texts), _AT_ONCE, "embedding texts")
        return found

    def _made(self) -> Any:
        """Return the encoder with its weights, built once."""
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
        """Return a hash of the encoder and its tokenizer."""
        found = hashlib.sha256(self.config_.encode() + self.tokens_.tokenizer_bytes_.tobytes())
        for name in sorted(self.tensors_):
            found.update(np.ascontiguousarray(self.tensors_[name]).tobytes())
        return found.hexdigest()

    def _check_parameters(self) -> None:
        super()._check_parameters()
        Tokens(tokenizer=self.encoder, max_length=self.max_length)._check_parameters()
        if self.encoder == "words":
            raise ParameterError("encoder", self.encoder, "must be the name or directory of a pretrained encoder")


class TfidfEmbedding(TextInput, BaseEstimator):
    """Tf-idf features and the vector of a pretrained encoder side by side.

    Parameters
    ----------
    tfidf : Tfidf, optional
        ``Tfidf()`` by default.
    embedding : TextEmbedding, optional
        ``TextEmbedding()`` by default.
    scale : float
        Length of the vector; rows of tf-idf have length 1.

    Attributes
    ----------
    tfidf_ : Tfidf
    embedding_ : TextEmbedding

    Examples
    --------
    >>> features = TfidfEmbedding(scale=0.5).set_params(tfidf__min_df=1, embedding__max_length=64)
    >>> features.tfidf, features.embedding
    (Tfidf(min_df=1), TextEmbedding(max_length=64))
    >>> features.fit_transform(["a red ship", "a blue ship"]).shape  # doctest: +SKIP
    (2, 387)
    """

    _stored: ClassVar[tuple[str, ...]] = ("tfidf_", "embedding_")

    tfidf_: Tfidf
    embedding_: TextEmbedding

    _constraints: ClassVar[Mapping[str, Constraint]] = {"scale": Number(above=0)}

    def __init__(
        self, *, tfidf: Tfidf | None = None, embedding: TextEmbedding | None = None, scale: float = 1.0
    ) -> None:
        self.tfidf = tfidf
        self.embedding = embedding
        self.scale = scale

    def _fit_transform(self, texts: list[str]) -> sp.csr_array:
        tfidf, embedding = (Tfidf() if self.tfidf is None else clone(self.tfidf)), self._embedding()
        terms = tfidf._fit_transform(texts)
        joined = self._joined(terms, embedding._fit_transform(texts))
        self.tfidf_, self.embedding_ = tfidf, embedding
        return joined

    def _fit(self, texts: list[str]) -> None:
        self._fit_transform(texts)

    def transform(self, texts: Iterable[str]) -> sp.csr_array:
        """Return the features of texts: terms first, then the dimensions of the vector."""
        if not hasattr(self, "tfidf_"):
            raise NotFittedError(
                "This TfidfEmbedding has not learned any features yet: call fit or fit_transform first."
            )
        listed = as_texts(texts)
        return self._joined(self.tfidf_.transform(listed), self.embedding_.transform(listed))

    def feature_names(self) -> list[str]:
        """Return the term of each column, or the number of the dimension."""
        width = int(np.shape(self.embedding_.transform([""]))[1])
        return [*self.tfidf_.feature_names(), *(f"[{number}]" for number in range(width))]

    def names_of(self, row: sp.csr_array) -> list[str]:
        """Return `feature_names`, which are the same for all rows."""
        return self.feature_names()

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name, also those of a part that is None by default."""
        for part, default in (("tfidf", Tfidf), ("embedding", TextEmbedding)):
            if getattr(self, part) is None and part not in params and any(p.startswith(f"{part}__") for p in params):
                setattr(self, part, default())
        super().set_params(**params)
        return self

    def _embedding(self) -> TextEmbedding:
        return TextEmbedding() if self.embedding is None else clone(self.embedding)

    def _joined(self, terms: sp.csr_array, vectors: Float32) -> sp.csr_array:
        n, width = vectors.shape
        indptr = np.arange(n + 1, dtype=terms.indptr.dtype) * width
        columns = np.tile(np.arange(width, dtype=np.int32), n)
        dense = sp.csr_array(((np.float32(self.scale) * vectors).ravel(), columns, indptr), shape=(n, width))
        joined = sp.csr_array(sp.hstack([terms, dense], format="csr"))
        indices, ends = joined.indices.astype(np.int32), joined.indptr.astype(terms.indptr.dtype)
        return canonical_rows(joined.data, indices, ends, joined.shape)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        for name, kind in (("tfidf", Tfidf), ("embedding", TextEmbedding)):
            part = getattr(self, name)
            if part is not None and not isinstance(part, kind):
                raise ParameterError(name, part, f"must be a {kind.__name__}, or None")
        for part in (self.tfidf, self._embedding()):
            if part is not None:
                part._check_parameters()

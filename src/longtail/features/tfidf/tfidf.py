"""Text features: tf-idf of words and word n-grams, with scikit-learn's meaning and kernels in place of its loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from longtail.config import WithJobs
from longtail.errors import InputError, ParameterError
from longtail.features.texts import TextInput, as_texts
from longtail.features.tfidf.terms import Lookup, Reading, find_rows, make_lookup, read_rows
from longtail.features.tfidf.vocabulary import Vocabulary
from longtail.features.tfidf.words import Bytes, Ids, Offsets, as_utf8, character_tables
from longtail.kernels.jit import kernel
from longtail.kernels.types import Float32, Float64, Int64
from longtail.runtime.pool import StopFlag, run_blocks
from longtail.validation import Boolean, Constraint, Integer, IntegerRange, OneOf, Optional

_CHUNK_CHARACTERS = 2_000_000
_LOGARITHMS = np.log(np.maximum(np.arange(256), 1))
_IDF: dict[str, Callable[[int, Int64], Float64]] = {
    "plain": lambda n_rows, rows: np.log(n_rows / rows),
    "unsmoothed": lambda n_rows, rows: np.log(n_rows / rows) + 1,
    "smooth": lambda n_rows, rows: np.log((1 + n_rows) / (1 + rows)) + 1,
    "none": lambda n_rows, rows: np.ones(len(rows)),
}
WeighedRows = tuple[Ids, Float32, Offsets]


class Tfidf(TextInput, WithJobs, BaseEstimator):
    """Turn texts into rows of tf-idf features.

    Tokens are those of scikit-learn's TfidfVectorizer: two or more letters, digits or underscores of any script,
    lower-cased. With the same settings the features and their values are the same.

    Parameters
    ----------
    ngram_range : tuple of two int
        Shortest and longest n-gram: (1, 1) for words, (1, 2) for words and pairs of words.
    sublinear_tf : bool
        Replace term frequency tf by 1 + ln(tf).
    min_df : int
        Smallest document frequency of a feature: the number of training rows with it.
    max_features : int, optional
        Keep only the features with the most occurrences; of equals, the alphabetically first.
    idf : {"plain", "smooth", "unsmoothed", "none"}
        Inverse document frequency, for N training rows: ln(N/df), scikit-learn's default ln((1+N)/(1+df)) + 1, its
        ``smooth_idf=False`` ln(N/df) + 1, or 1.
    lowercase : bool
        Lower-case the texts first.
    l2 : bool
        Normalise rows to length 1.
    n_jobs : int, optional
        Threads; None as `longtail.config_context` says.

    Attributes
    ----------
    term_bytes_ : ndarray of uint8
        The vocabulary in alphabetical order, as UTF-8, concatenated.
    term_offsets_ : ndarray of int64, shape (n_features + 1,)
        Offsets of the terms in `term_bytes_`.
    idf_ : ndarray of float32, shape (n_features,)
        Inverse document frequency of each feature.
    n_rows_ : int
        Number of training rows.

    Examples
    --------
    >>> tfidf = Tfidf(min_df=1)
    >>> tfidf.fit_transform(["Red fish, blue fish", "one fish"]).toarray().round(2)
    array([[0.71, 0.  , 0.  , 0.71],
           [0.  , 0.  , 1.  , 0.  ]], dtype=float32)
    >>> tfidf.feature_names()
    ['blue', 'fish', 'one', 'red']
    >>> tfidf.transform(["A red RED apple"]).toarray()
    array([[0., 0., 0., 1.]], dtype=float32)
    """

    _stored: ClassVar[tuple[str, ...]] = ("term_bytes_", "term_offsets_", "idf_", "n_rows_")
    _working: ClassVar[frozenset[str]] = frozenset({"_fit", "_fit_transform", "transform"})

    term_bytes_: Bytes
    term_offsets_: Offsets
    idf_: Float32
    n_rows_: int

    _constraints: ClassVar[Mapping[str, Constraint]] = {
        "ngram_range": IntegerRange(),
        "min_df": Integer(1),
        "max_features": Optional(Integer(1)),
        "sublinear_tf": Boolean(),
        "lowercase": Boolean(),
        "l2": Boolean(),
        "idf": OneOf(*_IDF),
    }

    def __init__(
        self,
        *,
        ngram_range: tuple[int, int] = (1, 1),
        sublinear_tf: bool = True,
        min_df: int = 2,
        max_features: int | None = None,
        idf: str = "plain",
        lowercase: bool = True,
        l2: bool = True,
        n_jobs: int | None = None,
    ) -> None:
        self.ngram_range = ngram_range
        self.sublinear_tf = sublinear_tf
        self.min_df = min_df
        self.max_features = max_features
        self.idf = idf
        self.lowercase = lowercase
        self.l2 = l2
        self.n_jobs = n_jobs

    def _fit(self, texts: list[str]) -> None:
        self._learn(texts, keep=False)

    def _fit_transform(self, texts: list[str]) -> sp.csr_array:
        pending, columns = self._learn(texts, keep=True)

        def weigh(index: int, stop: StopFlag) -> WeighedRows:
            ids, offsets, terms = pending[index]
            pending[index] = _DONE
            return self._weigh(ids, offsets, columns[terms], self.idf_)

        chunks = range(len(pending))
        parts = list(run_blocks(weigh, chunks, description="weighing terms", unit="chunks"))
        return _stack(parts, len(self.idf_))

    def transform(self, texts: Iterable[str]) -> sp.csr_array:
        """Return the features of texts, a csr_array of float32; unknown terms are ignored."""
        lookup, idf = self._prepare()
        tables = character_tables(bool(self.lowercase))

        def read(chunk: Sequence[str], stop: StopFlag) -> WeighedRows:
            text = as_utf8(chunk, self.lowercase)
            found = find_rows(*text, *tables, self._longest, lookup.words, lookup.starts, lookup.slots, stop)
            return self._weigh(*found, lookup.columns, idf)

        chunks = _cut(as_texts(texts))
        if len(chunks) == 1:  # starting threads takes longer than a short text
            return _stack([read(chunks[0], np.zeros(1, np.uint8))], len(idf))
        parts = list(run_blocks(read, chunks, description="reading texts", unit="chunks"))
        return _stack(parts, len(idf))

    def feature_names(self) -> list[str]:
        """Return the term of each column; the words of an n-gram are joined by a space."""
        self._check_fitted()
        text, ends = self.term_bytes_.tobytes(), self.term_offsets_.tolist()
        return [text[begin:end].decode() for begin, end in pairwise(ends)]

    def names_of(self, row: sp.csr_array) -> list[str]:
        """Return the term of each column, which is the same for all rows."""
        return self.feature_names()

    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[np.object_]:
        """Return `feature_names` as an array, for scikit-learn."""
        return np.array(self.feature_names(), dtype=object)

    def _learn(self, texts: list[str], *, keep: bool) -> tuple[list[tuple[Ids, Offsets, Ids]], Ids]:
        """Fit; return the term ids and offsets of each chunk with its vocabulary ids, and the column of each id."""
        if not texts:
            raise InputError("There are no texts: give at least one.")
        tables = character_tables(bool(self.lowercase))
        ngrams = self._longest

        def read(chunk: Sequence[str], stop: StopFlag) -> Reading:
            return Reading(*read_rows(*as_utf8(chunk, self.lowercase), *tables, ngrams, stop))

        vocabulary = Vocabulary()
        pending = []
        chunks = _cut(texts)
        for reading in run_blocks(read, chunks, description="reading texts", unit="chunks"):
            terms = vocabulary.add(reading)
            if keep:
                pending.append((reading.ids, reading.offsets, terms))
        sizes = int(self.ngram_range[0]), ngrams
        order = vocabulary.order(ngram_range=sizes, min_df=self.min_df, max_features=self.max_features)
        if not len(order):
            if vocabulary.n_terms:
                requirement = f"must be lower, because no word is in that many of the {len(texts):,} rows"
                raise ParameterError("min_df", self.min_df, requirement)
            raise InputError(
                "The texts hold no words (two or more letters or digits): check that they are the right field."
            )
        self.n_rows_ = len(texts)
        self.term_bytes_, self.term_offsets_ = vocabulary.spell(order, ngrams=ngrams)
        self.idf_ = _IDF[self.idf](len(texts), vocabulary.rows[order]).astype(np.float32)
        columns = np.full(vocabulary.n_terms, -1, np.int32)
        columns[order] = np.arange(len(order), dtype=np.int32)
        return pending, columns

    @property
    def _longest(self) -> int:
        return int(self.ngram_range[1])

    def _check_fitted(self) -> None:
        if not hasattr(self, "term_bytes_"):
            raise NotFittedError("This Tfidf has not learned any features yet: call fit or fit_transform first.")

    def _prepare(self) -> tuple[Lookup, Float32]:
        """Return the table of `transform` and the idf, built at the first call."""
        self._check_fitted()
        made_from, lookup, idf = getattr(self, "_prepared", (None, None, None))
        if lookup is None or idf is None or made_from is not self.term_bytes_:
            tables = character_tables(bool(self.lowercase))
            lookup = make_lookup(self.term_bytes_, self.term_offsets_, tables, self._longest)
            idf = np.array(self.idf_, np.float32)
            self._prepared = (self.term_bytes_, lookup, idf)
        return lookup, idf

    def _weigh(self, ids: Ids, offsets: Offsets, columns: Ids, idf: Float32) -> WeighedRows:
        return _weigh_rows(ids, offsets, columns, idf, bool(self.sublinear_tf), bool(self.l2))


_DONE = np.empty(0, np.int32), np.zeros(1, np.int64), np.empty(0, np.int32)


def _stack(parts: list[WeighedRows], n_features: int) -> sp.csr_array:
    """Concatenate chunks of rows, freeing each as it is copied."""
    if len(parts) == 1:
        indices, data, indptr = parts[0]
    else:
        size = sum(len(part[0]) for part in parts)
        indices, data = np.empty(size, np.int32), np.empty(size, np.float32)
        row_ends = []
        end = 0
        parts.reverse()
        while parts:
            part = parts.pop()
            begin, end = end, end + len(part[0])
            indices[begin:end], data[begin:end] = part[0], part[1]
            row_ends.append(part[2][1:] + begin)
        indptr = np.concatenate([np.zeros(1, np.int64), *row_ends])
    if indptr[-1] <= np.iinfo(np.int32).max:
        indptr = indptr.astype(np.int32)  # scipy would widen the indices too, which are int32 in longtail
    matrix = sp.csr_array((data, indices, indptr), shape=(len(indptr) - 1, n_features))
    matrix.has_canonical_format = True
    return matrix


def _cut(texts: list[str]) -> list[Sequence[str]]:
    """Split texts into chunks of a few million characters."""
    if len(texts) <= 1:
        return [texts]
    ends = np.cumsum([len(text) for text in texts])
    chunk = ends // _CHUNK_CHARACTERS
    borders = [0, *(np.flatnonzero(np.diff(chunk)) + 1).tolist(), len(texts)]
    return [texts[begin:end] for begin, end in pairwise(borders)]


@kernel
def _weigh_rows(ids: Ids, offsets: Offsets, columns: Ids, idf: Float32, sublinear: bool, l2: bool) -> WeighedRows:
    """Compute the tf-idf values of each row; return sorted columns, values and row offsets."""
    n_rows = len(offsets) - 1
    indices = np.empty(len(ids), np.int32)
    data = np.empty(len(ids), np.float32)
    ends = np.zeros(n_rows + 1, np.int64)
    longest = 0
    for row in range(n_rows):
        longest = max(longest, offsets[row + 1] - offsets[row])
    found = np.empty(longest, np.int32)
    spare = np.empty(longest, np.int32)
    values = np.empty(longest, np.float64)
    bits = 1  # of the largest column
    while len(idf) >> bits:
        bits += 1
    top = 0
    for row in range(n_rows):
        count = 0
        for at in range(offsets[row], offsets[row + 1]):
            column = columns[ids[at]]
            if column >= 0 and idf[column] != 0:
                found[count] = column
                count += 1
        # Equal columns follow each other after sorting: the length of such a run is the term frequency
        ordered = _sorted(found, spare, count, bits)
        at = 0
        size = 0
        squares = 0.0
        while at < count:
            column = ordered[at]
            tf = 1
            while at + tf < count and ordered[at + tf] == column:
                tf += 1
            at += tf
            value = np.float64(tf)
            if sublinear:
                value = 1.0 + (_LOGARITHMS[tf] if tf < len(_LOGARITHMS) else np.log(value))
            value *= idf[column]
            squares += value * value
            indices[top + size] = column
            values[size] = value
            size += 1
        scale = 1.0 / np.sqrt(squares) if l2 and squares > 0 else 1.0
        for place in range(size):
            data[top + place] = values[place] * scale
        top += size
        ends[row + 1] = top
    return indices[:top].copy(), data[:top].copy(), ends


@kernel
def _sorted(keys: Ids, spare: Ids, count: int, bits: int) -> Ids:
    """Sort the first `count` keys: insertion sort if there are few, otherwise radix sort by nine bits."""
    if count <= 40:
        for i in range(1, count):
            key = keys[i]
            j = i - 1
            while j >= 0 and keys[j] > key:
                keys[j + 1] = keys[j]
                j -= 1
            keys[j + 1] = key
        return keys
    places = np.empty(513, np.int64)
    for shift in range(0, bits, 9):
        places[:] = 0
        for i in range(count):
            places[(keys[i] >> shift & 511) + 1] += 1
        for i in range(512):
            places[i + 1] += places[i]
        for i in range(count):
            digit = keys[i] >> shift & 511
            spare[places[digit]] = keys[i]
            places[digit] += 1
        keys, spare = spare, keys
    return keys

"""The vocabulary of a text collection: terms merged from chunks, selected by frequency, sorted and spelled out."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from longtail.features.tfidf.terms import (
    Reading,
    enter,
    fill_slots,
    head_of,
    is_ngram,
    last_of,
    locate,
    ngram,
    slots_for,
)
from longtail.features.tfidf.words import Bytes, Ids, Int, Offsets, Packed, hash_of_one
from longtail.kernels.jit import kernel
from longtail.kernels.types import Int32, Int64

_SPACE = 32
_EIGHT = np.uint64(8)
_TOP_BYTE = np.uint64(56)


class Vocabulary:
    """Terms of many chunks of texts.

    Examples
    --------
    >>> from longtail.features.tfidf.terms import read_rows
    >>> from longtail.features.tfidf.words import as_utf8, character_tables
    >>> vocabulary = Vocabulary()
    >>> for texts in (["to be or"], ["not to be"]):
    ...     reading = Reading(*read_rows(*as_utf8(texts, True), *character_tables(True), 2, np.zeros(1, np.uint8)))
    ...     vocabulary.add(reading).tolist()
    [0, 1, 2, 3, 4]
    [5, 0, 6, 1, 2]
    >>> order = vocabulary.order(ngram_range=(1, 2), min_df=1, max_features=None)
    >>> term_bytes, term_offsets = vocabulary.spell(order, ngrams=2)
    >>> [bytes(term_bytes[a:b]).decode() for a, b in zip(term_offsets, term_offsets[1:])]
    ['be', 'be or', 'not', 'not to', 'or', 'to', 'to be']
    """

    def __init__(self) -> None:
        self.n_terms = 0
        self._words = np.empty(0, np.uint64)
        self._starts = np.zeros(1, np.int64)
        self._hashes = np.empty(0, np.uint64)
        self._slots = slots_for(0)
        self._rows = np.empty(0, np.int64)
        self._occurrences = np.empty(0, np.int64)

    @property
    def rows(self) -> Int64:
        """Document frequency of each term."""
        return self._rows[: self.n_terms]

    @property
    def occurrences(self) -> Int64:
        """Number of occurrences of each term."""
        return self._occurrences[: self.n_terms]

    def add(self, reading: Reading) -> Ids:
        """Add the terms of a chunk and return the id of each."""
        most = self.n_terms + len(reading.rows)
        self._words = _grown(self._words, int(self._starts[self.n_terms]) + len(reading.words))
        self._starts = _grown(self._starts, most + 1)
        self._hashes = _grown(self._hashes, most)
        self._rows = _grown(self._rows, most)
        self._occurrences = _grown(self._occurrences, most)
        if len(self._slots) < 2 * most:
            self._slots = slots_for(2 * most)
            fill_slots(self._slots, self._hashes, self.n_terms)
        self.n_terms, ids = _merge(
            reading.words, reading.starts, reading.hashes, reading.rows, reading.occurrences,
            self._words, self._starts, self._hashes, self._rows, self._occurrences, self._slots, self.n_terms,
        )  # fmt: skip
        return ids

    def order(self, *, ngram_range: tuple[int, int], min_df: int, max_features: int | None) -> Ids:
        """Return the ids of the terms to keep, in alphabetical order.

        Parameters
        ----------
        ngram_range : tuple of two int
            Shortest and longest n-gram.
        min_df : int
            Smallest document frequency of a term.
        max_features : int, optional
            Keep only the terms with the most occurrences; of equals, the alphabetically first.
        """
        shortest, ngrams = ngram_range
        kept = np.flatnonzero(self.rows >= min_df)
        if not len(kept):
            return kept.astype(np.int32)
        spelled = _words_of(self._words, self._starts, kept, ngrams)
        single = kept[spelled[:, 1] < 0] if ngrams > 1 else kept
        # A space sorts before every character of a word, so n-grams are in the order of the ranks of their words.
        # The ranks are packed into as few integers as possible.
        rank = np.zeros(self.n_terms + 1, np.int64)
        rank[_alphabetical(single, self._words, self._starts)] = np.arange(1, len(single) + 1)
        width = len(single).bit_length()
        keys: list[Int64] = []
        room = 0
        for place in range(ngrams):
            if room < width:
                keys.append(np.zeros(len(kept), np.int64))
                room = 63
            keys[-1] = keys[-1] << width | rank[spelled[:, place]]
            room -= width
        order = np.argsort(keys[0]) if len(keys) == 1 else np.lexsort(keys[::-1])
        kept = kept[order[spelled[order, shortest - 1] >= 0]]
        if max_features is not None and len(kept) > max_features:
            kept = kept[np.sort(np.argsort(-self.occurrences[kept], kind="stable")[:max_features])]
        return np.asarray(kept, np.int32)

    def spell(self, terms: Ids, *, ngrams: int) -> tuple[Bytes, Offsets]:
        """Return the UTF-8 bytes of terms, concatenated, and the offsets of each."""
        return _spell(self._words, self._starts, _words_of(self._words, self._starts, terms.astype(np.int64), ngrams))


def _grown(array: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    if len(array) >= size:
        return array
    grown = np.empty(max(size, 2 * len(array)), array.dtype)
    grown[: len(array)] = array
    return grown


@kernel
def _merge(
    new_words: Packed, new_starts: Offsets, new_hashes: Packed, new_rows: Offsets, new_occurrences: Offsets,
    words: Packed, starts: Offsets, hashes: Packed, rows: Offsets, occurrences: Offsets, slots: Packed, n_terms: int
) -> tuple[int, Ids]:  # fmt: skip
    """Add terms to a table; return its number of terms and the id of each that was added."""
    ids = np.empty(len(new_rows), np.int32)
    for new in range(len(new_rows)):
        top = starts[n_terms]
        used = new_starts[new + 1] - new_starts[new]
        for place in range(used):
            words[top + place] = new_words[new_starts[new] + place]
        hashed = new_hashes[new]
        if is_ngram(words[top]):  # its parts have other ids here
            words[top] = ngram(ids[head_of(words[top])], ids[last_of(words[top])])
            hashed = hash_of_one(words[top])
        slot, term = locate(slots, words, starts, hashed, words, top, used)
        if term < 0:
            term = n_terms
            n_terms += 1
            enter(slots, slot, hashed, term, top + used, starts, hashes, rows, occurrences)
        ids[new] = term
        rows[term] += new_rows[new]
        occurrences[term] += new_occurrences[new]
    return n_terms, ids


@kernel
def _words_of(words: Packed, starts: Offsets, terms: Int64, ngrams: int) -> Int32:
    """Return the ids of the single words of each term, padded with -1."""
    spelled = np.full((len(terms), ngrams), -1, np.int32)
    reverse = np.empty(ngrams, np.int32)
    for i in range(len(terms)):
        term: Int = terms[i]
        size = 0
        while is_ngram(words[starts[term]]):
            reverse[size] = last_of(words[starts[term]])
            term = head_of(words[starts[term]])
            size += 1
        spelled[i, 0] = term
        for place in range(size):
            spelled[i, place + 1] = reverse[size - 1 - place]
    return spelled


@kernel
def _before(a: Int, b: Int, words: Packed, starts: Offsets) -> bool:
    used_a, used_b = starts[a + 1] - starts[a], starts[b + 1] - starts[b]
    for place in range(min(used_a, used_b)):
        word_a, word_b = words[starts[a] + place], words[starts[b] + place]
        if word_a != word_b:
            return bool(word_a < word_b)
    return bool(used_a < used_b)


@kernel
def _alphabetical(terms: Int64, words: Packed, starts: Offsets) -> Int64:
    """Sort single words (merge sort)."""
    source, target = terms.copy(), np.empty_like(terms)
    width = 1
    while width < len(terms):
        for begin in range(0, len(terms), 2 * width):
            middle, end = min(begin + width, len(terms)), min(begin + 2 * width, len(terms))
            a, b = begin, middle
            for out in range(begin, end):
                if a < middle and (b == end or not _before(source[b], source[a], words, starts)):
                    target[out] = source[a]
                    a += 1
                else:
                    target[out] = source[b]
                    b += 1
        source, target = target, source
        width *= 2
    return source


@kernel
def _spell(words: Packed, starts: Offsets, spelled: Int32) -> tuple[Bytes, Offsets]:
    n_terms, ngrams = spelled.shape
    offsets = np.zeros(n_terms + 1, np.int64)
    for term in range(n_terms):
        size = 0
        for place in range(ngrams):
            if spelled[term, place] >= 0:
                size += 8 * (starts[spelled[term, place] + 1] - starts[spelled[term, place]]) + 1
        offsets[term + 1] = offsets[term] + size
    text = np.empty(offsets[n_terms], np.uint8)
    at = 0
    for term in range(n_terms):
        for place in range(ngrams):
            word = spelled[term, place]
            if word < 0:
                break
            if place > 0:
                text[at] = _SPACE
                at += 1
            for index in range(starts[word], starts[word + 1]):
                packed = words[index]
                while packed != 0:
                    text[at] = packed >> _TOP_BYTE
                    packed <<= _EIGHT
                    at += 1
        offsets[term + 1] = at
    return text[:at].copy(), offsets

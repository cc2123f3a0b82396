"""Kernels of terms (words and n-grams): an exact hash table from terms to ids.

A term is a sequence of packed words (see `tfidf.words`). An n-gram is one packed word: the ids of its head (all but the
last word) and of its last word, marked by two high bits with which no UTF-8 character begins. Ids are given in order of
occurrence, so the parts of an n-gram have lower ids. A slot of the table holds half a hash and an id; a hit is
confirmed by comparing the term, so two terms never share an id.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from longtail.features.tfidf.words import Bytes, Ids, Int, Offsets, Packed, find_words, hash_of_one, pack_word
from longtail.kernels.jit import kernel
from longtail.kernels.types import Int64

TAG = np.uint64(0xFFFFFFFF00000000)
_ID = np.uint64(0x00000000FFFFFFFF)
_MARK = np.uint64(0x8000000000000000)
_MARK_MASK = np.uint64(0xC000000000000000)
_PART_BITS = np.uint64(31)
_PART = np.uint64(0x7FFFFFFF)
_ONE = np.uint64(1)


class Reading(NamedTuple):
    """The terms of a chunk of texts, and the ids of the terms of each row in order of occurrence.

    Term i is ``words[starts[i]:starts[i + 1]]``; its document frequency is ``rows[i]``, and it occurs
    ``occurrences[i]`` times. The terms of row r are ``ids[offsets[r]:offsets[r + 1]]``.
    """

    words: Packed
    starts: Offsets
    hashes: Packed
    slots: Packed
    rows: Int64
    occurrences: Int64
    ids: Ids
    offsets: Offsets


class Lookup(NamedTuple):
    """A table of terms with the column of each, -1 for terms that are only parts of others."""

    words: Packed
    starts: Offsets
    slots: Packed
    columns: Ids


def make_lookup(
    term_bytes: Bytes, term_offsets: Offsets, tables: tuple[Bytes, npt.NDArray[np.uint32]], ngrams: int
) -> Lookup:
    """Build the table from the terms in the order of the columns."""
    text = np.frombuffer(term_bytes, np.uint8)[:]
    text.flags.writeable = False  # as for texts, or read_rows would be compiled a second time
    reading = Reading(*read_rows(text, np.array(term_offsets, np.int64), *tables, ngrams, np.zeros(1, np.uint8)))
    columns = np.full(len(reading.rows), -1, np.int32)
    present = np.flatnonzero(np.diff(reading.offsets))
    columns[reading.ids[reading.offsets[present + 1] - 1]] = present  # the last id of a term is that of the whole term
    return Lookup(reading.words, reading.starts, reading.slots, columns)


@kernel
def is_ngram(word: np.uint64) -> bool:
    """Return whether a term that begins with this packed word is an n-gram."""
    return bool(word & _MARK_MASK == _MARK)


@kernel
def ngram(head: Int, last: Int) -> np.uint64:
    """Pack an n-gram from the ids of its head and its last word."""
    return _MARK | np.uint64(head) << _PART_BITS | np.uint64(last)


@kernel
def head_of(word: np.uint64) -> Int:
    """Return the id of the head of an n-gram, which is all but its last word."""
    return np.int64(word >> _PART_BITS & _PART)


@kernel
def last_of(word: np.uint64) -> Int:
    """Return the id of the last word of an n-gram."""
    return np.int64(word & _PART)


@kernel
def locate(
    slots: Packed, words: Packed, starts: Offsets, hashed: np.uint64, term: Packed, first: Int, used: Int
) -> tuple[Int, Int]:
    """Return the slot and id of ``term[first:first + used]``, or the empty slot where it belongs and -1."""
    mask = np.uint64(len(slots) - 1)
    at = hashed & mask
    tag = hashed & TAG
    while True:
        slot = slots[at]
        if slot == 0:
            return np.int64(at), -1
        if slot & TAG == tag:
            found = np.int64(slot & _ID) - 1
            start = starts[found]
            if starts[found + 1] - start == used:
                place = 0
                while place < used and words[start + place] == term[first + place]:
                    place += 1
                if place == used:
                    return np.int64(at), found
        at = at + _ONE & mask


@kernel
def enter(
    slots: Packed, slot: Int, hashed: np.uint64, term: Int, end: Int, starts: Offsets, hashes: Packed, rows: Offsets,
    occurrences: Offsets
) -> None:  # fmt: skip
    """Enter a new term, which ends at `end` of the packed words, with counts of 0."""
    starts[term + 1] = end
    hashes[term] = hashed
    rows[term] = 0
    occurrences[term] = 0
    slots[slot] = hashed & TAG | np.uint64(term + 1)


@kernel
def fill_slots(slots: Packed, hashes: Packed, n_terms: int) -> None:
    """Enter the first terms into an empty table."""
    mask = np.uint64(len(slots) - 1)
    for term in range(n_terms):
        at = hashes[term] & mask
        while slots[at] != 0:
            at = at + _ONE & mask
        slots[at] = hashes[term] & TAG | np.uint64(term + 1)


@kernel
def slots_for(n_terms: int) -> Packed:
    """Return an empty table with room for `n_terms` terms."""
    size = 1024
    while size < 2 * n_terms:
        size *= 2
    return np.zeros(size, np.uint64)


@kernel
def read_rows(
    text: Bytes, row_offsets: Offsets, by_byte: Bytes, by_code_point: npt.NDArray[np.uint32], ngrams: int, stop: Bytes
) -> tuple[Packed, Offsets, Packed, Packed, Offsets, Offsets, Ids, Offsets]:
    """Read rows of text and number their terms in order of occurrence; return the fields of `Reading`."""
    n_rows = len(row_offsets) - 1
    # A word takes two bytes or more and a gap, and at most a third as many packed words, even where lower-casing
    # makes three bytes of two.
    most = ((len(text) + n_rows) // 3 + 2) * ngrams
    words, starts = np.empty(most, np.uint64), np.empty(most + 1, np.int64)
    starts[0] = 0
    hashes, slots = np.empty(most, np.uint64), slots_for(8192)
    rows, occurrences = np.empty(most, np.int64), np.empty(most, np.int64)
    last_row = np.empty(most, np.int64)  # the last row with each term
    ids, offsets = np.empty(most, np.int32), np.zeros(n_rows + 1, np.int64)
    recent = np.empty(ngrams, np.int64)  # terms of each length that end at the previous word
    letters, begins, sizes, word_offsets = find_words(text, row_offsets, by_byte, by_code_point)
    n_terms = 0
    n_ids = 0
    for row in range(n_rows):
        if stop[0]:
            break
        recent[:] = -1
        for at in range(word_offsets[row], word_offsets[row + 1]):
            top = starts[n_terms]
            used, hashed = pack_word(letters, begins[at], sizes[at], words, top)
            head: Int = -1
            last: Int = -1
            for size in range(1, ngrams + 1):
                if size > 1:  # a longer n-gram: the term before the word, and the word
                    if head < 0:
                        break
                    top = starts[n_terms]
                    words[top] = ngram(head, last)
                    hashed = hash_of_one(words[top])
                    used = 1
                slot, term = locate(slots, words, starts, hashed, words, top, used)
                if term < 0:
                    term = n_terms
                    n_terms += 1
                    enter(slots, slot, hashed, term, top + used, starts, hashes, rows, occurrences)
                    last_row[term] = -1
                    if 2 * n_terms > len(slots):
                        slots = slots_for(2 * n_terms)
                        fill_slots(slots, hashes, n_terms)
                if size == 1:
                    last = term
                head, recent[size - 1] = recent[size - 1], term
                occurrences[term] += 1
                rows[term] += last_row[term] != row
                last_row[term] = row
                ids[n_ids] = term
                n_ids += 1
        offsets[row + 1] = n_ids
    return (
        words[: starts[n_terms]].copy(), starts[: n_terms + 1].copy(), hashes[:n_terms].copy(), slots,
        rows[:n_terms].copy(), occurrences[:n_terms].copy(), ids[:n_ids].copy(), offsets,
    )  # fmt: skip


@kernel
def find_rows(
    text: Bytes,
    row_offsets: Offsets,
    by_byte: Bytes,
    by_code_point: npt.NDArray[np.uint32],
    ngrams: int,
    words: Packed,
    starts: Offsets,
    slots: Packed,
    stop: Bytes,
) -> tuple[Ids, Offsets]:
    """Read rows of text and look up their terms in a table; return ids and offsets as in `Reading`."""
    # One kernel with `read_rows` would be 20 lines shorter, but with bigrams transform takes a third more time (0.36 s
    # instead of 0.27 s for 30,000 texts of 60 words) and fit an eighth.
    n_rows = len(row_offsets) - 1
    ids = np.empty(((len(text) + n_rows) // 3 + 1) * ngrams, np.int32)
    offsets = np.zeros(n_rows + 1, np.int64)
    word = np.empty(len(text) // 4 + 2, np.uint64)
    key = np.empty(1, np.uint64)
    recent = np.empty(ngrams, np.int64)
    letters, begins, sizes, word_offsets = find_words(text, row_offsets, by_byte, by_code_point)
    n_ids = 0
    for row in range(n_rows):
        if stop[0]:
            break
        recent[:] = -1
        for at in range(word_offsets[row], word_offsets[row + 1]):
            used, hashed = pack_word(letters, begins[at], sizes[at], word, 0)
            _, last = locate(slots, words, starts, hashed, word, 0, used)
            head, term = -1, last
            for size in range(1, ngrams + 1):
                if size > 1:
                    term = -1
                    if head >= 0 and last >= 0:
                        key[0] = ngram(head, last)
                        _, term = locate(slots, words, starts, hash_of_one(key[0]), key, 0, 1)
                head, recent[size - 1] = recent[size - 1], term
                if term >= 0:
                    ids[n_ids] = term
                    n_ids += 1
        offsets[row + 1] = n_ids
    return ids[:n_ids].copy(), offsets

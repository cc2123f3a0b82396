"""Kernels that find the words of UTF-8 text: the matches of ``\\b\\w\\w+\\b`` in lower-cased text.

scikit-learn's TfidfVectorizer loops over words in Python: 23 s for 200 MB of text that take 3.5 s here on two threads
(benchmarks/bench_text.py), with the same features. A word is stored as *packed words*: its UTF-8 bytes, eight to a
64-bit integer, first byte highest, padded with zeros. Packed words compare in the order of the text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types
from numba.extending import intrinsic

from longtail.kernels.hashing import GOLDEN
from longtail.kernels.jit import kernel, kernel_with
from longtail.kernels.types import Int32, Int64, UInt8, UInt64

Bytes = UInt8
Ids = Int32
Offsets = Int64
Packed = UInt64
Int = int | np.int64

_NO_WORD = 0
_MULTIBYTE = 1
_SEED = np.uint64(0x2545F4914F6CDD1D)
_FINAL_FACTOR = np.uint64(0xD6E8FEB86659FD93)
_HALF = np.uint64(32)
_ONE = np.uint64(1)
_SEVEN = np.uint64(7)
_EIGHT = np.uint64(8)
_TOP_BYTE = np.uint64(56)
_LAST_BIT = np.uint64(63)
_LOWEST_BITS = np.uint64(0x0101010101010101)
_GATHER = np.uint64(0x0102040810204080)  # times a number of eight 0/1 bytes: their bits in the top byte


@cache
def character_tables(lowercase: bool) -> tuple[Bytes, npt.NDArray[np.uint32]]:
    """Return tables from characters to their UTF-8 bytes, lower-cased if asked for; 0 for those not in words.

    Returns
    -------
    by_byte : ndarray of uint8, shape (256,)
        For ASCII characters; 1 for bytes of longer characters.
    by_code_point : ndarray of uint32, shape (0x110000,)
        UTF-8 bytes as one integer, first byte highest.

    Examples
    --------
    >>> by_byte, by_code_point = character_tables(True)
    >>> chr(by_byte[ord("Q")]), by_byte[ord("-")], hex(by_code_point[ord("É")])
    ('q', np.uint8(0), '0xc3a9')
    """
    text = np.arange(0x110000, dtype="<u4").tobytes().decode("utf-32-le", "surrogatepass")
    if lowercase:
        text = text.translate({ord(special): special.lower()[0] for special in _NOT_ONE_TO_ONE}).lower()
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4").astype(np.uint32)
    tail = [0x80 | (codes >> np.uint32(6 * place) & 0x3F) for place in range(3)]
    by_code_point = np.select(
        [codes < 0x80, codes < 0x800, codes < 0x10000],
        [codes, (0xC0 | codes >> 6) << 8 | tail[0], (0xE0 | codes >> 12) << 16 | tail[1] << 8 | tail[0]],
        (0xF0 | codes >> 18) << 24 | tail[2] << 16 | tail[1] << 8 | tail[0],
    ).astype(np.uint32)
    in_word = np.zeros(len(codes), bool)
    for found in re.finditer(r"\w+", text):
        in_word[found.start() : found.end()] = True
    by_code_point[~in_word] = _NO_WORD
    by_byte = np.full(256, _MULTIBYTE, np.uint8)
    by_byte[:128] = by_code_point[:128]
    return by_byte, by_code_point


_NOT_ONE_TO_ONE = "Σİ"  # lower-casing these depends on their neighbours or results in two characters


def as_utf8(texts: Sequence[str], lowercase: bool) -> tuple[Bytes, Offsets]:
    """Return texts as UTF-8 bytes, concatenated, and the offsets of each.

    Examples
    --------
    >>> text, offsets = as_utf8(["ab", "é"], lowercase=True)
    >>> bytes(text), offsets.tolist()
    (b'ab\\xc3\\xa9', [0, 2, 4])
    """
    parts = [
        (text.lower() if lowercase and not text.isascii() and _special(text) else text).encode("utf-8", "surrogatepass")
        for text in texts
    ]
    offsets = np.array([0, *accumulate(map(len, parts))], np.int64)
    return np.frombuffer(b"".join(parts), np.uint8), offsets


def _special(text: str) -> bool:
    return any(special in text for special in _NOT_ONE_TO_ONE)


@kernel
def mix(hashed: np.uint64, packed: np.uint64) -> np.uint64:
    """Mix one packed word into a hash."""
    hashed = (hashed ^ packed) * GOLDEN
    return hashed ^ hashed >> _HALF


@kernel
def finish(hashed: np.uint64) -> np.uint64:
    """Finish a hash, so that all of its bits depend on the term."""
    hashed *= _FINAL_FACTOR
    return hashed ^ hashed >> _HALF


@kernel
def hash_of_one(packed: np.uint64) -> np.uint64:
    """Return the hash of a term of one packed word."""
    return finish(mix(_SEED, packed))


def _count_trailing_zeros(context: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], context.get_constant(types.boolean, 0))

    return types.uint64(types.uint64), generate


def _reverse_bytes(context: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bswap(arguments[0])

    return types.uint64(types.uint64), generate


_trailing_zeros: Any = intrinsic(_count_trailing_zeros)
_reversed_bytes: Any = intrinsic(_reverse_bytes)


@kernel
def find_words(
    text: Bytes, row_offsets: Offsets, by_byte: Bytes, by_code_point: npt.NDArray[np.uint32]
) -> tuple[Packed, Offsets, Ids, Offsets]:
    """Find the words of each row of text.

    A first scan sets a bit for each byte of a word; counting zero bits then leads from word to word without a branch
    per byte. Words with characters beyond ASCII are read character by character.

    Returns
    -------
    letters : ndarray of uint64
        Lower-cased text, eight bytes to an integer.
    begins, sizes : ndarray
        Position of each word in the bytes of `letters`, and its number of bytes.
    offsets : ndarray of int64
        The words of row r are those from ``offsets[r]`` to ``offsets[r + 1]``.
    """
    letters, plain, wide = _scan(text, by_byte)
    top = np.int64(64 * len(plain))
    n_rows = len(row_offsets) - 1
    most = (len(text) + n_rows) // 3 + 1  # a word takes two bytes and a gap
    begins = np.empty(most, np.int64)
    sizes = np.empty(most, np.int32)
    offsets = np.zeros(n_rows + 1, np.int64)
    count = 0
    for row in range(n_rows):
        at, end = row_offsets[row], row_offsets[row + 1]
        while at < end:
            block = at >> 6
            bits = (plain[block] | wide[block]) >> np.uint64(at & 63)
            if bits == 0:  # no word begins in this block of 64 bytes
                at = (block + 1) << 6
                continue
            begin = at + np.int64(_trailing_zeros(bits))
            if begin >= end:
                break
            # The word ends at the next byte that is not ASCII or not in a word
            at = begin
            block = at >> 6
            bits = ~plain[block] >> np.uint64(at & 63)
            while bits == 0:
                block += 1
                at = block << 6
                bits = ~plain[block]
            at = min(at + np.int64(_trailing_zeros(bits)), end)
            if at < end and text[at] >= 0x80:
                at, size = _fold_word(text, begin, end, by_byte, by_code_point, letters, top)
                if size > 0:
                    begins[count] = top
                    sizes[count] = size
                    top += size
                    count += 1
            elif at - begin > 1:
                begins[count] = begin
                sizes[count] = at - begin
                count += 1
        offsets[row + 1] = count
    return letters.view(np.uint64), begins, sizes, offsets


@kernel
def _scan(text: Bytes, by_byte: Bytes) -> tuple[Bytes, Packed, Packed]:
    """Return lower-cased ASCII, and bits per byte: an ASCII character of a word, part of a wider character."""
    n_blocks = len(text) // 64 + 2
    letters = np.empty(64 * n_blocks + (len(text) // 16 + 2) * 32, np.uint8)  # lower-casing may lengthen text by half
    in_word = np.empty(64 * n_blocks, np.uint8)
    shift = np.uint8(by_byte[65] - 65)
    for i in range(len(text)):
        byte = text[i]
        upper = (byte >= np.uint8(65)) & (byte <= np.uint8(90))
        letter = upper | ((byte >= np.uint8(97)) & (byte <= np.uint8(122)))
        digit = (byte >= np.uint8(48)) & (byte <= np.uint8(57))
        letters[i] = byte + shift if upper else byte
        in_word[i] = letter | digit | (byte == np.uint8(95))
    letters[len(text) : 64 * n_blocks] = 0
    in_word[len(text) :] = 0
    letter_words = letters.view(np.uint64)
    in_word_words = in_word.view(np.uint64)
    plain = np.empty(n_blocks, np.uint64)
    wide = np.empty(n_blocks, np.uint64)
    for block in range(n_blocks):
        plain_bits = np.uint64(0)
        wide_bits = np.uint64(0)
        for i in range(8):
            place = np.uint64(8 * i)
            plain_bits |= in_word_words[8 * block + i] * _GATHER >> _TOP_BYTE << place
            wide_bits |= (letter_words[8 * block + i] >> _SEVEN & _LOWEST_BITS) * _GATHER >> _TOP_BYTE << place
        plain[block] = plain_bits
        wide[block] = wide_bits
    return letters, plain, wide


@kernel
def _fold_word(
    text: Bytes, at: Int, end: Int, by_byte: Bytes, by_code_point: npt.NDArray[np.uint32], letters: Bytes, top: Int
) -> tuple[Int, Int]:
    """Write the lower-cased word at a position to ``letters[top:]``; return its end and size, 0 if it is too short."""
    size = 0
    length = 0
    while at < end:
        if text[at] < 0x80:
            folded = np.uint32(by_byte[text[at]])
            at += 1
        else:
            code, at = _decode(text, at)
            folded = by_code_point[code]
        if folded == _NO_WORD:
            break
        shift = 0 if folded < 0x80 else 8 if folded < 0x10000 else 16 if folded < 0x1000000 else 24
        while shift >= 0:
            letters[top + size] = folded >> shift & 0xFF
            shift -= 8
            size += 1
        length += 1
    return at, size if length > 1 else 0


@kernel_with(forceinline=True)
def pack_word(letters: Packed, begin: Int, size: Int, out: Packed, top: Int) -> tuple[Int, np.uint64]:
    """Write a word to ``out[top:]``; return the number of packed words and the hash."""
    used = 0
    hashed = _SEED
    source = begin >> 3
    offset = np.uint64((begin & 7) << 3)
    while size > 0:
        # Two shifts, because a shift by 64 bits is undefined.
        packed = _reversed_bytes(letters[source] >> offset | letters[source + 1] << (_LAST_BIT - offset) << _ONE)
        if size < 8:
            surplus = np.uint64(64 - 8 * size)
            packed = packed >> surplus << surplus
        out[top + used] = packed
        hashed = mix(hashed, packed)
        used += 1
        source += 1
        size -= 8
    return used, finish(hashed)


@kernel
def _decode(text: Bytes, at: Int) -> tuple[Int, Int]:
    first = np.int64(text[at])
    second = np.int64(text[at + 1]) & 0x3F
    if first < 0xE0:
        return (first & 0x1F) << 6 | second, at + 2
    third = np.int64(text[at + 2]) & 0x3F
    if first < 0xF0:
        return (first & 0x0F) << 12 | second << 6 | third, at + 3
    return (first & 0x07) << 18 | second << 12 | third << 6 | np.int64(text[at + 3]) & 0x3F, at + 4

"""Words of UTF-8 text, read by a kernel: what Python's ``re`` finds with ``\\b\\w\\w+\\b`` in lower-cased text.

scikit-learn's TfidfVectorizer spends nearly all of its time in a Python loop over words: 20 s of processor time for
200 MB of text where these kernels and those of `longtail.corpus.terms` take 2 s, on as many threads as there are.
A word is kept as *packed words*: its UTF-8 bytes, eight to a 64-bit number, first byte highest, padded with zeros.
Packed words compare in the order of the text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit, types
from numba.extending import intrinsic

Bytes = npt.NDArray[np.uint8]
Ids = npt.NDArray[np.int32]
Offsets = npt.NDArray[np.int64]
Packed = npt.NDArray[np.uint64]
Int = int | np.int64

_NO_WORD = 0
_MULTIBYTE = 1
_SEED = np.uint64(0x2545F4914F6CDD1D)
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
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
    """Tables that say what becomes of a character: its lower-case UTF-8 bytes, or 0 where it is no part of a word.

    Parameters
    ----------
    lowercase : bool
        Whether characters are lower-cased.

    Returns
    -------
    by_byte : ndarray of uint8, shape (256,)
        For ASCII the character itself; 1 for bytes that begin or continue a longer character.
    by_code_point : ndarray of uint32, shape (0x110000,)
        UTF-8 bytes as one number, first byte highest.

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
        [
            codes,
            (0xC0 | codes >> 6) << 8 | tail[0],
            (0xE0 | codes >> 12) << 16 | tail[1] << 8 | tail[0],
        ],
        (0xF0 | codes >> 18) << 24 | tail[2] << 16 | tail[1] << 8 | tail[0],
    ).astype(np.uint32)
    in_word = np.zeros(len(codes), bool)
    for found in re.finditer(r"\w+", text):
        in_word[found.start() : found.end()] = True
    by_code_point[~in_word] = _NO_WORD
    by_byte = np.full(256, _MULTIBYTE, np.uint8)
    by_byte[:128] = by_code_point[:128]
    return by_byte, by_code_point


_NOT_ONE_TO_ONE = "Σİ"  # lower-casing these depends on the neighbours, or gives two characters


def as_utf8(texts: Sequence[str], lowercase: bool) -> tuple[Bytes, Offsets]:
    """Join texts to UTF-8 bytes for the kernels, with the offsets where each begins and ends.

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


@njit(nogil=True, cache=True)
def mix(hashed: np.uint64, packed: np.uint64) -> np.uint64:
    """Stir one packed word into a hash."""
    hashed = (hashed ^ packed) * _FACTOR
    return hashed ^ hashed >> _HALF


@njit(nogil=True, cache=True)
def finish(hashed: np.uint64) -> np.uint64:
    """Spread a hash over all of its bits."""
    hashed *= _FINAL_FACTOR
    return hashed ^ hashed >> _HALF


@njit(nogil=True, cache=True)
def hash_of_one(packed: np.uint64) -> np.uint64:
    """Hash a term of one packed word."""
    return finish(mix(_SEED, packed))


@intrinsic
def _trailing_zeros(context: Any, value: Any) -> Any:
    """Number of zero bits below the lowest one."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], context.get_constant(types.boolean, 0))

    return types.uint64(types.uint64), generate


@intrinsic
def _reversed_bytes(context: Any, value: Any) -> Any:
    """Turn the byte order of a number."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bswap(arguments[0])

    return types.uint64(types.uint64), generate


@njit(nogil=True, cache=True)
def scan(text: Bytes, by_byte: Bytes) -> tuple[Packed, Packed, Packed]:
    """Look at all bytes at once, in loops that the compiler turns into vector instructions.

    Returns
    -------
    lowered : ndarray of uint64
        The text with ASCII characters lower-cased (if the table says so), eight bytes to a number.
    plain, wide : ndarray of uint64
        A bit for each byte: whether it is an ASCII character of a word, or part of a character beyond ASCII.
    """
    n_blocks = len(text) // 64 + 2
    lowered = np.zeros(64 * n_blocks, np.uint8)
    in_word = np.zeros(64 * n_blocks, np.uint8)
    shift = np.uint8(by_byte[65] - 65)
    for i in range(len(text)):
        byte = text[i]
        upper = (byte >= np.uint8(65)) & (byte <= np.uint8(90))
        letter = upper | ((byte >= np.uint8(97)) & (byte <= np.uint8(122)))
        digit = (byte >= np.uint8(48)) & (byte <= np.uint8(57))
        lowered[i] = byte + shift if upper else byte
        in_word[i] = letter | digit | (byte == np.uint8(95))
    lowered_words = lowered.view(np.uint64)
    in_word_words = in_word.view(np.uint64)
    plain = np.zeros(n_blocks, np.uint64)
    wide = np.zeros(n_blocks, np.uint64)
    for i in range(8 * n_blocks):
        place = np.uint64(8 * (i & 7))
        plain[i >> 3] |= in_word_words[i] * _GATHER >> _TOP_BYTE << place
        wide[i >> 3] |= (lowered_words[i] >> _SEVEN & _LOWEST_BITS) * _GATHER >> _TOP_BYTE << place
    return lowered_words, plain, wide


@njit(nogil=True, cache=True, forceinline=True)
def next_word(
    text: Bytes,
    lowered: Packed,
    plain: Packed,
    wide: Packed,
    at: Int,
    end: Int,
    by_byte: Bytes,
    by_code_point: npt.NDArray[np.uint32],
    out: Packed,
    top: Int,
) -> tuple[Int, Int, np.uint64]:
    """Find the next word in ``text[at:end]`` and write it to ``out[top:]``.

    The bits of `scan` lead from word to word without a branch for every byte. Where a word holds characters beyond
    ASCII, it is read byte by byte.

    Returns
    -------
    at : int
        Where to look for the word after it.
    used : int
        How many packed words it takes; 0 if there was no word left.
    hashed : uint64
        Its hash.
    """
    while at < end:
        block = at >> 6
        bits = (plain[block] | wide[block]) >> np.uint64(at & 63)
        if bits == 0:
            at = (block + 1) << 6
            continue
        begin = at + np.int64(_trailing_zeros(bits))
        if begin >= end:
            break
        at = begin
        block = at >> 6
        bits = ~plain[block] >> np.uint64(at & 63)
        while bits == 0:
            block += 1
            at = block << 6
            bits = ~plain[block]
        at = min(at + np.int64(_trailing_zeros(bits)), end)
        if at < end and text[at] >= 0x80:
            return _next_word_by_bytes(text, begin, end, by_byte, by_code_point, out, top)
        left = at - begin
        if left < 2:
            continue
        used = 0
        hashed = _SEED
        source = begin >> 3
        offset = np.uint64((begin & 7) << 3)
        while left > 0:
            # Two shifts, because a shift by all 64 bits is undefined.
            packed = lowered[source] >> offset | lowered[source + 1] << (_LAST_BIT - offset) << _ONE
            packed = _reversed_bytes(packed)
            if left < 8:
                surplus = np.uint64(64 - 8 * left)
                packed = packed >> surplus << surplus
            out[top + used] = packed
            hashed = mix(hashed, packed)
            used += 1
            source += 1
            left -= 8
        return at, used, finish(hashed)
    return end, 0, _SEED


@njit(nogil=True, cache=True)
def _next_word_by_bytes(
    text: Bytes, at: Int, end: Int, by_byte: Bytes, by_code_point: npt.NDArray[np.uint32], out: Packed, top: Int
) -> tuple[Int, Int, np.uint64]:
    while at < end:
        used = 0
        hashed = _SEED
        packed = np.uint64(0)
        filled = 0
        length = 0
        while at < end:
            byte = by_byte[text[at]]
            if byte > _MULTIBYTE:
                at += 1
                packed = packed << _EIGHT | np.uint64(byte)
                filled += 1
                if filled == 8:
                    out[top + used] = packed
                    hashed = mix(hashed, packed)
                    used += 1
                    filled = 0
                    packed = np.uint64(0)
            elif byte == _NO_WORD:
                at += 1
                break
            else:
                code, at = _decode(text, at)
                folded = by_code_point[code]
                if folded == _NO_WORD:
                    break
                shift = 0 if folded < 0x80 else 8 if folded < 0x10000 else 16 if folded < 0x1000000 else 24
                while shift >= 0:
                    packed = packed << _EIGHT | np.uint64(folded >> shift & 0xFF)
                    shift -= 8
                    filled += 1
                    if filled == 8:
                        out[top + used] = packed
                        hashed = mix(hashed, packed)
                        used += 1
                        filled = 0
                        packed = np.uint64(0)
            length += 1
        if length > 1:
            if filled:
                packed <<= np.uint64(64 - 8 * filled)
                out[top + used] = packed
                hashed = mix(hashed, packed)
                used += 1
            return at, used, finish(hashed)
    return at, 0, _SEED


@njit(nogil=True, cache=True)
def _decode(text: Bytes, at: Int) -> tuple[Int, Int]:
    first = np.int64(text[at])
    second = np.int64(text[at + 1]) & 0x3F
    if first < 0xE0:
        return (first & 0x1F) << 6 | second, at + 2
    third = np.int64(text[at + 2]) & 0x3F
    if first < 0xF0:
        return (first & 0x0F) << 12 | second << 6 | third, at + 3
    return (first & 0x07) << 18 | second << 12 | third << 6 | np.int64(text[at + 3]) & 0x3F, at + 4

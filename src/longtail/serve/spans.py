"""Positions in a text of the words that the features of a model name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from longtail.kernels.types import Int64

_WORD = re.compile(r"\w\w+")
_CHECK_EVERY = 4096  # words
_GROWS = "İ"  # the only character with two characters as its lower case


class TextWord(NamedTuple):
    """A word as a feature spells it, from `start` up to `end`."""

    term: str
    start: int
    end: int


class Span(NamedTuple):
    """A position in a text of a part of an explanation."""

    start: int
    end: int
    part: int
    contribution: float


def words(text: str, *, lowercase: bool = True) -> list[TextWord]:
    """Return the words of a text, as `Tfidf` splits it, with their positions in the original text.

    Examples
    --------
    >>> words("The ÉTUDES")
    [TextWord(term='the', start=0, end=3), TextWord(term='études', start=4, end=10)]
    """
    read = text.lower() if lowercase else text
    found = [TextWord(match.group(), match.start(), match.end()) for match in _WORD.finditer(read)]
    if not lowercase or _GROWS not in text:
        return found
    place = [at for at, character in enumerate(text) for _ in character.lower()] + [len(text)]
    return [TextWord(term, place[start], place[end - 1] + 1) for term, start, end in found]


@dataclass
class Places:
    """The first positions of a term, and the number of all."""

    first: list[tuple[int, int]] = field(default_factory=list)
    times: int = 0


def find_places(
    found: list[TextWord],
    terms: AbstractSet[str],
    *,
    ngrams: int = 1,
    most: int = 1000,
    check: Callable[[], None] | None = None,
) -> dict[str, Places]:
    """Return the positions of terms in a text, in one scan.

    Parameters
    ----------
    found : list of TextWord
    terms : set of str
    ngrams : int
        Maximum words per term.
    most : int
        Maximum positions per term.
    check : callable, optional
        Called regularly; raises an error after the deadline.

    Examples
    --------
    >>> find_places(words("red car, red bus"), {"red", "red car"}, ngrams=2, most=1)
    {'red': Places(first=[(0, 3)], times=2), 'red car': Places(first=[(0, 7)], times=1)}
    """
    places: dict[str, Places] = {}
    for first in range(len(found)):
        if check is not None and first % _CHECK_EVERY == 0:
            check()
        term = ""
        for last in range(first, min(first + ngrams, len(found))):
            term = f"{term} {found[last].term}" if term else found[last].term
            if term in terms:
                place = places.setdefault(term, Places())
                place.times += 1
                if place.times <= most:
                    place.first.append((found[first].start, found[last].end))
    return places


def share_out(places: Mapping[str, Places], parts: Sequence[tuple[str, float]]) -> list[Span]:
    """Return the positions of parts in text order; the contribution of a part is divided equally between its positions.

    Examples
    --------
    >>> places = find_places(words("red car, red bus"), {"red", "red car"}, ngrams=2)
    >>> share_out(places, [("red", 0.5), ("red car", -1.0)])
    [Span(start=0, end=3, part=0, contribution=0.25), Span(start=0, end=7, part=1, contribution=-1.0), \
Span(start=9, end=12, part=0, contribution=0.25)]
    """
    return sorted(
        Span(start, end, number, effect / places[term].times)
        for number, (term, effect) in enumerate(parts)
        if term in places
        for start, end in places[term].first
    )


def utf16_places(text: str) -> Int64 | None:
    """Return the UTF-16 position of each character, with the end; None if all are equal to the positions in Python.

    Examples
    --------
    >>> utf16_places("𝄞 red").tolist()
    [0, 2, 3, 4, 5, 6]
    """
    if not text or max(text) <= "\uffff":
        return None
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    return np.concatenate([[0], np.cumsum(1 + (points > 0xFFFF))])


def in_utf16(places: Int64 | None, spans: list[Span]) -> list[Span]:
    """Convert positions to UTF-16 units, of which characters beyond U+FFFF take two.

    Examples
    --------
    >>> in_utf16(utf16_places("𝄞 red"), [Span(2, 5, 0, 1.0)])
    [Span(start=3, end=6, part=0, contribution=1.0)]
    """
    if places is None:
        return spans
    return [span._replace(start=int(places[span.start]), end=int(places[span.end])) for span in spans]

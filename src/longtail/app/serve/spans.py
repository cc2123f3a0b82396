"""Where in a text the words stand that the features of a model name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

_WORD = re.compile(r"\w\w+")
_GROWS = "İ"  # the one character whose lower case is two


class Word(NamedTuple):
    """A word as a feature spells it, and where it stands: from `start` to before `end`."""

    term: str
    start: int
    end: int


class Span(NamedTuple):
    """A place in a text that a part of an explanation names."""

    start: int
    end: int
    part: int
    contribution: float


def words(text: str, *, lowercase: bool = True) -> list[Word]:
    """Words of a text, as `longtail.corpus.Tfidf` reads them, with their places in the text as it was given.

    Examples
    --------
    >>> words("The ÉTUDES")
    [Word(term='the', start=0, end=3), Word(term='études', start=4, end=10)]
    """
    read = text.lower() if lowercase else text
    found = [Word(match.group(), match.start(), match.end()) for match in _WORD.finditer(read)]
    if not lowercase or _GROWS not in text:
        return found
    place = [at for at, character in enumerate(text) for _ in character.lower()] + [len(text)]
    return [Word(term, place[start], place[end - 1] + 1) for term, start, end in found]


def find_spans(found: list[Word], parts: Mapping[str, tuple[int, float]], *, ngrams: int = 1) -> list[Span]:
    """Places of parts in a text; what a part contributes is shared out among its places.

    Parameters
    ----------
    found : list of Word
    parts : mapping
        Number and contribution of each part, by its term.
    ngrams : int
        Longest run of words that is a term.

    Examples
    --------
    >>> find_spans(words("red car, red bus"), {"red": (0, 0.5), "red car": (1, -1.0)}, ngrams=2)
    [Span(start=0, end=3, part=0, contribution=0.25), Span(start=0, end=7, part=1, contribution=-1.0), \
Span(start=9, end=12, part=0, contribution=0.25)]
    """
    places: list[tuple[int, int, int]] = []
    times: dict[int, int] = {}
    contributions = dict(parts.values())
    for first in range(len(found)):
        term = ""
        for last in range(first, min(first + ngrams, len(found))):
            term = f"{term} {found[last].term}" if term else found[last].term
            known = parts.get(term)
            if known is not None:
                places.append((found[first].start, found[last].end, known[0]))
                times[known[0]] = times.get(known[0], 0) + 1
    return [Span(start, end, part, contributions[part] / times[part]) for start, end, part in sorted(places)]


def in_utf16(text: str, spans: list[Span]) -> list[Span]:
    """Count places as JavaScript does, where characters beyond the first 65,536 take two.

    Examples
    --------
    >>> in_utf16("𝄞 red", [Span(2, 5, 0, 1.0)])
    [Span(start=3, end=6, part=0, contribution=1.0)]
    """
    if not text or max(text) <= "\uffff":
        return spans
    place = [0]
    for character in text:
        place.append(place[-1] + (2 if character > "\uffff" else 1))
    return [span._replace(start=place[span.start], end=place[span.end]) for span in spans]


def written(spans: list[Span]) -> list[dict[str, Any]]:
    """Spans as JSON has them."""
    return [span._asdict() for span in spans]

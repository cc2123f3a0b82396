"""Texts as they are given to what reads them."""

from __future__ import annotations

from collections.abc import Iterable

from longtail.errors import InputError


def as_texts(texts: Iterable[str]) -> list[str]:
    """Bring texts into a list; what is a single one, or holds something else, is refused.

    Examples
    --------
    >>> as_texts(("one", "two"))
    ['one', 'two']
    """
    if isinstance(texts, str | bytes):
        raise InputError("texts must be a list of texts, got a single one: put it in a list.")
    try:
        listed = texts if isinstance(texts, list) else list(texts)
    except TypeError:
        raise InputError(f"texts must be a list of texts, got {type(texts).__name__}.") from None
    if not set(map(type, listed)) <= {str}:
        for position, text in enumerate(listed):
            if not isinstance(text, str):
                raise InputError(f"texts[{position}] must be a text, got {type(text).__name__}: convert it to str.")
    return listed

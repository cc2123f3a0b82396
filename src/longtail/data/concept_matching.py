"""Match the concepts of a thesaurus with labels by their names."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from unicodedata import normalize
from urllib.parse import unquote

import numpy as np

from longtail.errors import InputError
from longtail.kernels.types import Int32

Keys = Sequence[str | None]


def match_concepts(keys: Sequence[Keys], label_names: Sequence[str], path: str | None = None) -> Int32 | None:
    """Return the label id of each concept, -1 for concepts that are not labels; None if none is.

    Keys are compared exactly, then in Unicode's composed form, then ignoring case; each time the first keys of all
    concepts, then the second, and so on. The first match of a label counts, with all concepts that match equally well.
    Names that are equal only in a later comparison match nothing there.

    Parameters
    ----------
    keys : sequence of sequences of (str or None)
        Names of the concepts, the most specific first.
    label_names : sequence of str
    path : str, optional
        The file, for messages.

    Examples
    --------
    >>> match_concepts([["ex:1", "ex:2", "ex:3"], ["Rome", None, "rome"]], ["Rome", "EX:2"])
    array([ 0,  1, -1], dtype=int32)
    """
    names = [name.strip() for name in label_names]
    found = np.full(len(keys[0]) if keys else 0, -1, np.int32)
    taken: set[int] = set()
    forms: tuple[Callable[[str], str], ...] = (str, _composed, _folded)
    for form in forms:
        labels_of = _by_name(names, form)
        for column in keys:
            fitting: set[int] = set()
            for concept, key in enumerate(column):
                labels = labels_of.get(form(key), ()) if key and found[concept] < 0 else ()
                if len(labels) > 1 and form is str:
                    raise InputError(f"{key!r} is the name of several labels: give them different names.", path=path)
                if len(labels) == 1 and labels[0] not in taken:
                    found[concept] = labels[0]
                    fitting.add(labels[0])
            taken |= fitting
    return found if taken else None


def last_part(name: str) -> str | None:
    """Return the part of a URI after the last ``#``, ``/`` or, in a URN, ``:``; None if it is not a URI.

    Examples
    --------
    >>> last_part("http://example.org/towns#Rome"), last_part("urn:towns:Rome"), last_part("Rome")
    ('Rome', 'Rome', None)
    """
    if "://" in name:
        return re.split(r"[#/]", name.rstrip("#/"))[-1]
    return name.rpartition(":")[2] if name.lower().startswith("urn:") else None


def unescaped(part: str | None) -> str | None:
    """Return a percent-decoded part of a URI, None if it has no percent sign.

    Examples
    --------
    >>> unescaped("S%C3%A3o_Paulo")
    'São_Paulo'
    """
    return unquote(part) if part and "%" in part else None


def _by_name(names: Sequence[str], form: Callable[[str], str]) -> dict[str, list[int]]:
    labels: dict[str, list[int]] = {}
    for label, name in enumerate(names):
        labels.setdefault(form(name), []).append(label)
    return labels


def _composed(text: str) -> str:
    return normalize("NFC", text)


def _folded(text: str) -> str:
    return normalize("NFC", normalize("NFC", text).casefold())

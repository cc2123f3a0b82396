"""The words of label texts, numbered."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

_WORD = re.compile(r"\w+")


def words_of(texts: Sequence[str]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Words of each text as numbers from 0 on: those of text t are ``words[indptr[t] : indptr[t + 1]]``.

    Examples
    --------
    >>> indptr, words = words_of(["implemented-in::c", "implemented-in::java"])
    >>> indptr.tolist(), words.tolist()
    ([0, 3, 6], [0, 1, 2, 0, 1, 3])
    """
    numbers: dict[str, int] = {}
    indptr, words = [0], []
    for text in texts:
        words += [numbers.setdefault(word, len(numbers)) for word in _WORD.findall(text.lower())]
        indptr.append(len(words))
    return np.array(indptr, np.int64), np.array(words, np.int64)

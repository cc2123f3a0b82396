"""API keys: where they come from, and comparing them in constant time."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterable
from pathlib import Path

from longtail.errors import InputError, ParameterError

VARIABLE = "LONGTAIL_API_KEY"
_SHORTEST = 8


class Keys:
    """The keys that are accepted; with none, everybody is let in.

    Examples
    --------
    >>> keys = Keys(["correct-horse"])
    >>> keys.accept([(b"authorization", b"Bearer correct-horse")]), keys.accept([(b"x-api-key", b"guess")])
    (True, False)
    """

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self._hashes = [_hash(key.encode()) for key in keys]

    def __bool__(self) -> bool:
        return bool(self._hashes)

    def accept(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        """Whether a request's headers hold a key: ``Authorization: Bearer KEY`` or ``X-API-Key: KEY``."""
        if not self._hashes:
            return True
        accepted = False
        for name, value in headers:
            if name == b"authorization" and value[:7].lower() == b"bearer ":
                given = _hash(value[7:].strip())
            elif name == b"x-api-key":
                given = _hash(value.strip())
            else:
                continue
            for known in self._hashes:  # all of them, so that the time says nothing
                accepted |= hmac.compare_digest(given, known)
        return accepted


def read_keys(path: str | None) -> Keys:
    """Keys of a file, one a line, and of the environment variable LONGTAIL_API_KEY."""
    keys = []
    if path is not None:
        try:
            keys = [line.strip() for line in Path(path).read_text("utf-8").splitlines()]
        except UnicodeDecodeError:
            raise InputError("is not text: write API keys into it, one a line.", path=path) from None
        keys = [key for key in keys if key and not key.startswith("#")]
        if not keys:
            raise InputError("holds no API key: write one a line.", path=path)
    if os.environ.get(VARIABLE):
        keys.append(os.environ[VARIABLE].strip())
    for key in keys:
        if len(key) < _SHORTEST or not key.isascii() or not key.isprintable() or " " in key:
            raise ParameterError(
                "API key", "*" * len(key), f"must have at least {_SHORTEST} ASCII characters and no spaces"
            )
    return Keys(keys)


def _hash(key: bytes) -> bytes:
    """Of one length for all keys, so that comparing tells nothing of theirs."""
    return hashlib.sha256(key).digest()

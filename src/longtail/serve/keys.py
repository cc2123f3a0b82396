"""API keys: reading them, and comparing them in constant time."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterable
from pathlib import Path

from longtail.errors import InputError, ParameterError

VARIABLE = "LONGTAIL_API_KEY"
SHORTEST = 8
"""Minimum length of a key."""
_RULE = f"must have at least {SHORTEST} ASCII characters and no spaces"


class Keys:
    """The accepted API keys; without any, every request is accepted.

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
        """Return whether request headers have a valid key: ``Authorization: Bearer KEY`` or ``X-API-Key: KEY``."""
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
            for known in self._hashes:  # compares with all keys, so that the time reveals nothing
                accepted |= hmac.compare_digest(given, known)
        return accepted


def read_keys(path: str | None) -> Keys:
    """Read the keys of a file, one per line, and of the environment variable LONGTAIL_API_KEY."""
    keys = []
    if path is not None:
        try:
            lines = Path(path).read_text("utf-8").splitlines()
        except UnicodeDecodeError:
            raise InputError("is not text: write API keys into it, one per line.", path=path) from None
        for number, line in enumerate(lines, 1):
            key = line.strip()
            if not key or key.startswith("#"):
                continue
            if not _is_usable(key):
                raise InputError(f"an API key {_RULE}.", path=path, line=number)
            keys.append(key)
        if not keys:
            raise InputError("contains no API key: write one per line.", path=path)
    key = os.environ.get(VARIABLE, "").strip()
    if key:
        if not _is_usable(key):
            raise ParameterError(VARIABLE, "*" * len(key), _RULE)
        keys.append(key)
    return Keys(keys)


def _is_usable(key: str) -> bool:
    return len(key) >= SHORTEST and key.isascii() and key.isprintable() and " " not in key


def _hash(key: bytes) -> bytes:
    """Hash a key, so that comparisons don't reveal its length."""
    return hashlib.sha256(key).digest()

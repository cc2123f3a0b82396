"""The files of the web page, read once at start: no path of a request reaches the file system."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


class PageFile(NamedTuple):
    """A file with its headers."""

    content: bytes
    kind: str
    tag: str


def page_files() -> dict[str, PageFile]:
    """Return all files of the page by path; index.html is also served as ``/``.

    Examples
    --------
    >>> page_files()["/"].kind
    'text/html; charset=utf-8'
    """
    found = dict(_walk(files("longtail.serve") / "page", "/"))
    if "/index.html" in found:
        found["/"] = found["/index.html"]
    return found


def _walk(folder: Traversable, prefix: str) -> Iterator[tuple[str, PageFile]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _walk(entry, f"{prefix}{entry.name}/")
        kind = _KINDS.get(entry.name[entry.name.rfind(".") :])
        if kind is not None and entry.is_file():
            content = entry.read_bytes()
            yield f"{prefix}{entry.name}", PageFile(content, kind, f'"{hashlib.sha256(content).hexdigest()[:16]}"')

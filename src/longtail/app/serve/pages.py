"""The files of the page, read once at the start: no path of a request ever reaches the file system."""

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
    ".json": "application/json",
    ".txt": "text/plain; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
}


class PageFile(NamedTuple):
    """A file as it is sent."""

    content: bytes
    kind: str
    tag: str


def page_files() -> dict[str, PageFile]:
    """All files of the page by the path under which they are served; index.html is also that of ``/``.

    Examples
    --------
    >>> page_files()["/"].kind
    'text/html; charset=utf-8'
    """
    found = dict(_walk(files("longtail.app.serve") / "page", "/"))
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

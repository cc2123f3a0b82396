"""Packages that import their public names when they are first used."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def attach(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package whose public names are the imports of its stub.

    The stub, ``__init__.pyi``, is what type checkers read, so each name is written once.

    Parameters
    ----------
    package : str
        ``__name__`` of the package.
    file : str
        ``__file__`` of the package.
    """
    stub = ast.parse(Path(file).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    sources = {alias.name: str(node.module) for node in imports for alias in node.names}
    names = sorted(sources)

    def __getattr__(name: str) -> Any:  # noqa: N807
        if name not in sources:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        source = sources[name]
        found = importlib.import_module(f"{package}.{name}" if source == package else source)
        value = found if source == package else getattr(found, name)
        setattr(sys.modules[package], name, value)
        return value

    return __getattr__, lambda: names, names

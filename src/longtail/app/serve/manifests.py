"""A first look at models, before anything heavy is loaded."""

from __future__ import annotations

import json
from pathlib import Path

from longtail.errors import ModelError

MANIFEST = "model.json"


def read_checksum(directory: Path) -> str:
    """Checksum of a model, as its model.json states it."""
    if not directory.is_dir():
        raise ModelError(f"{directory} is not a model directory: give the directory that a model was saved to.")
    try:
        manifest = json.loads((directory / MANIFEST).read_bytes().decode("utf-8", "surrogatepass"))
        return str(manifest["checksum"])
    except FileNotFoundError:
        raise ModelError(f"{directory} has no {MANIFEST}, so it is not a longtail model.") from None
    except (ValueError, KeyError, TypeError):
        raise ModelError(f"{directory / MANIFEST} doesn't describe a longtail model.") from None


def check_models(models: dict[str, str]) -> None:
    """Refuse directories that hold no model, before a server starts."""
    for directory in models.values():
        read_checksum(Path(directory))

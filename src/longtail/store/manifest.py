"""model.json: the contents of a model directory, the versions that wrote it, and the checksums of all files."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from longtail import __version__
from longtail.data.readers.mapped import is_mapped_data
from longtail.data.registry import parse_name
from longtail.errors import InputError, ModelError
from longtail.runtime.disk import replacing, writing
from longtail.store.encoding import decode, encode
from longtail.store.files import FileReader, FileWriter
from longtail.store.upgrades import upgraded

MANIFEST = "model.json"
FORMAT = "longtail model"
FORMAT_VERSION = 3


def write_model(contents: dict[str, Any], path: Path) -> None:
    """Write named values as a model directory, whole or not at all; replaces an older model at `path`."""
    check_target(path)
    with writing(path), replacing(path) as directory:
        files = FileWriter(directory)
        manifest = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "versions": {"longtail": __version__, "numpy": np.__version__, "python": platform.python_version()},
            "model": {name: encode(value, name, files) for name, value in contents.items()},
            "files": files.written,
        }
        manifest["checksum"] = _checksum(manifest)
        with open(directory / MANIFEST, "x", encoding="utf-8", errors="surrogatepass") as file:
            json.dump(manifest, file, indent=1, ensure_ascii=False)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())


def read_model(path: Path, *, verify: bool = False) -> dict[str, Any]:
    """Read the named values of a model directory.

    Sizes are always checked, and checksums of model.json and of files up to 128 MB. Larger files stay on disk, mapped
    into memory; `verify` reads them too and checks their checksums.
    """
    manifest = _read_manifest(path)
    with _usable(path):
        files = _check_files(manifest, path, verify=verify)
        held = upgraded(manifest["model"], manifest["format_version"])
        return {name: decode(value, files) for name, value in held.items()}


def check_model(path: Path) -> None:
    """Check the size and checksum of every file of a model directory, without loading the model."""
    with _usable(path):
        _check_files(_read_manifest(path), path, verify=True)


def model_checksum(path: Path) -> str:
    """Return the checksum of a model, as its model.json states it: it identifies one version of the model."""
    with _usable(path):
        return str(_read_manifest(path)["checksum"])


@contextmanager
def _usable(path: Path) -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ModelError(f"{path / MANIFEST} is not a usable model: {error}.") from error


def _check_files(manifest: dict[str, Any], path: Path, *, verify: bool) -> FileReader:
    version = manifest.get("format_version")
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise ModelError(
            f"{path} has model format {version}, and longtail {__version__} reads up to {FORMAT_VERSION}: "
            'upgrade with pip install --upgrade "longtail".'
        )
    if manifest.pop("checksum", None) != _checksum(manifest):
        raise ModelError(
            f"{path / MANIFEST} was changed, its checksum is wrong: copy the model again or train it again."
        )
    return FileReader(path, manifest["files"], verify=verify)


def check_target(path: Path) -> None:
    """Refuse a path that can't be written to, or where something other than a model would be lost."""
    if str(path) == "-":
        raise ModelError("A model is a directory and can't go to standard output: give the name of a directory.")
    path = path.resolve()
    if not path.parent.is_dir():
        raise ModelError(f"{path.parent} is not a directory: create it, or write the model elsewhere.")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise ModelError(f"{path.parent} can't be written to: write the model elsewhere.")
    if not path.exists():
        return
    if not path.is_dir():
        raise ModelError(f"{path} is a file: give the model the name of a directory.")
    present = {entry.name for entry in path.iterdir()}
    if not present:
        return
    try:
        belonging = {MANIFEST, *_read_manifest(path)["files"]}
    except (ModelError, KeyError, TypeError):
        raise ModelError(
            f"{path} holds {min(present)} and is not a longtail model: choose another path or remove it."
        ) from None
    if present - belonging:
        raise ModelError(
            f"{path} also holds {min(present - belonging)}, which is not part of the model: move it away first."
        )


def _read_manifest(path: Path) -> dict[str, Any]:
    if path.is_file() or is_mapped_data(path) or (not path.exists() and _is_data_set(str(path))):
        raise ModelError(
            f"{path} holds rows, and a model is wanted here: give the directory that a model was saved to."
        )
    if not path.is_dir():
        raise ModelError(f"{path} is not a model directory: give the directory that a model was saved to.")
    try:
        text = (path / MANIFEST).read_bytes().decode("utf-8", "surrogatepass")
        manifest = json.loads(text)
    except FileNotFoundError:
        raise ModelError(f"{path} has no {MANIFEST}, so it is not a longtail model.") from None
    except (ValueError, RecursionError):
        raise ModelError(
            f"{path / MANIFEST} is truncated or damaged: copy the model again or train it again."
        ) from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ModelError(f"{path / MANIFEST} doesn't describe a longtail model.")
    return manifest


def _is_data_set(name: str) -> bool:
    try:
        return parse_name(name) is not None
    except InputError:  # the name of a data set with a wrong split
        return True


def _checksum(manifest: dict[str, Any]) -> str:
    canonical = json.dumps(manifest, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()

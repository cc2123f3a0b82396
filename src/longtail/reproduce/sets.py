"""Available data sets: the bundled ones, and those in a directory, a folder each with train and test."""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from longtail.data import Dataset, load
from longtail.data.registry import describe, parse_name
from longtail.data.streams import ByteReader
from longtail.errors import InputError
from longtail.propensity import JainPropensity, published_propensity

_SUFFIXES = (".jsonl", ".jsonl.xz", ".jsonl.gz", ".txt", ".txt.xz", ".txt.gz", ".xc")
_BUNDLED = ("debian-tags", "debian-depends")
SWEPT_ROWS = 30_000
"""Maximum training rows of data sets that are used for parameter sweeps by default."""


@dataclass(frozen=True)
class AvailableSet:
    """An available data set, by the files or names that `longtail.data.load` takes."""

    name: str  # as the registry spells it, else the folder's name
    train: str
    test: str

    @cached_property
    def digest(self) -> str:
        """Hash of both files, or of the names of bundled data."""
        found = hashlib.sha256()
        for part in (self.train, self.test):
            path = Path(part)
            content = path.read_bytes() if path.is_file() else part.encode()
            found.update(f"{len(content)} ".encode() + content)
        return found.hexdigest()

    @cached_property
    def n_rows(self) -> int:
        """Number of training rows, from the header or the number of lines."""
        path = Path(self.train)
        if not path.is_file():
            return describe(self.name).train_rows
        with io.BufferedReader(ByteReader(path)) as stream:
            if not self.has_texts:
                first = stream.readline().split()
                return int(first[0]) if first and first[0].isdigit() else 0
            return sum(1 for line in stream if line.strip())

    @property
    def has_texts(self) -> bool:
        """Whether its rows are texts."""
        return not Path(self.train).is_file() or ".jsonl" in Path(self.train).name

    @property
    def propensity(self) -> JainPropensity:
        """Propensity model with the published constants of the data set, or the default ones."""
        return published_propensity(self.name)

    def read(self) -> tuple[Dataset, Dataset]:
        """Return train and test with the same label ids."""
        train = load(self.train)
        return train, load(self.test, label_names=train.label_names)


def available_sets(directory: Path | None) -> dict[str, AvailableSet]:
    """Return data sets by name: the bundled ones and those in a directory, texts rather than features."""
    found = {name: AvailableSet(name, f"{name}:train", f"{name}:test") for name in _BUNDLED}
    if directory is None:
        return found
    if not directory.is_dir():
        raise InputError("is not a directory: give one with a folder for each data set.", path=directory)
    if _parts(directory) is not None:
        raise InputError("has train and test files itself: put them into a folder in it.", path=directory)
    for folder in sorted(path for path in directory.iterdir() if path.is_dir()):
        parts = _parts(folder)
        if parts is not None:
            name = published_name(folder.name) or folder.name
            found[name] = AvailableSet(name, str(parts[0]), str(parts[1]))
    return found


def published_name(folder: str) -> str | None:
    """Return the name in the registry of the data set in a folder; None if there is none.

    Examples
    --------
    >>> published_name("eurlex 4k"), published_name("Bibtex:old")
    ('EURLex-4K', None)
    """
    named = None if ":" in folder else parse_name(folder)
    return None if named is None else named[0].name


def _parts(folder: Path) -> tuple[Path, Path] | None:
    """Return training and test file of a folder, both in one format; None if there are none."""
    pairs = [(folder / f"train{suffix}", folder / f"test{suffix}") for suffix in _SUFFIXES]
    return next((pair for pair in pairs if pair[0].is_file() and pair[1].is_file()), None)

"""Data sets at hand: the bundled ones, and those in a directory, each in a folder of its own with train and test."""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from longtail.corpus import Dataset, load
from longtail.corpus.registry import describe, names, parse_name
from longtail.corpus.streams import ByteReader
from longtail.errors import InputError
from longtail.propensity import JainPropensity

_SUFFIXES = (".jsonl", ".jsonl.xz", ".jsonl.gz", ".txt", ".txt.xz", ".txt.gz", ".xc")
_BUNDLED = ("debian-tags", "debian-depends")
SWEPT_ROWS = 30_000
"""Training rows up to which a data set that nobody named stands in where one parameter after the other is tried."""


@dataclass(frozen=True)
class AtHand:
    """A data set with its two parts.

    Parameters
    ----------
    name : str
        As the registry spells it, else the folder's name.
    train, test : str
        Files or names that `longtail.corpus.load` takes.
    """

    name: str
    train: str
    test: str

    @cached_property
    def digest(self) -> str:
        """Hash of both files, or of the names of what comes with the package."""
        found = hashlib.sha256()
        for part in (self.train, self.test):
            path = Path(part)
            content = path.read_bytes() if path.is_file() else part.encode()
            found.update(f"{len(content)} ".encode() + content)
        return found.hexdigest()

    @cached_property
    def n_rows(self) -> int:
        """Training rows, counted without reading them."""
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
        """By the constants that the registry has for it, or the default ones."""
        named = parse_name(self.name)
        return JainPropensity() if named is None else JainPropensity(a=named[0].propensity[0], b=named[0].propensity[1])

    def read(self) -> tuple[Dataset, Dataset]:
        """Train and test with the same label ids."""
        train = load(self.train)
        return train, load(self.test, label_names=train.label_names)


def at_hand(directory: Path | None) -> dict[str, AtHand]:
    """Data sets by name: those in a directory, texts rather than features where it has both, else the bundled ones."""
    found = {name: AtHand(name, f"{name}:train", f"{name}:test") for name in _BUNDLED}
    if directory is None:
        return found
    if not directory.is_dir():
        raise InputError("is no directory: give one with a folder for each data set.", path=directory)
    if _parts(directory) is not None:
        raise InputError("has train and test files itself: put them into a folder in it.", path=directory)
    for folder in sorted(path for path in directory.iterdir() if path.is_dir()):
        parts = _parts(folder)
        if parts is not None:
            name = published_name(folder.name) or folder.name
            found[name] = AtHand(name, str(parts[0]), str(parts[1]))
    return found


def published_name(folder: str) -> str | None:
    """How the registry spells the data set of a folder; None if it has none of that name.

    Examples
    --------
    >>> published_name("eurlex-4k")
    'EURLex-4K'
    """
    key = folder.lower().replace("-", "").replace("_", "")
    return next((name for name in names() if name.lower().replace("-", "") == key), None)


def _parts(folder: Path) -> tuple[Path, Path] | None:
    """Training and test file of a folder, both of one kind; None where there are none."""
    pairs = [(folder / f"train{suffix}", folder / f"test{suffix}") for suffix in _SUFFIXES]
    return next((pair for pair in pairs if pair[0].is_file() and pair[1].is_file()), None)

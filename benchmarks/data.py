"""The data sets as all systems read them: scipy matrices on disk, no bias column, usually rows of unit length."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy.sparse as sp
from sklearn.preprocessing import normalize

from longtail import datasets
from longtail.data import Dataset, load
from longtail.features import Tfidf

BUNDLED = ("debian-depends", "debian-tags")
DATASETS = ("eurlex57k", "tate-subjects", "delicious", "bibtex", "debian-depends")
PARTS = ("train", "test")
SUFFIXES = tuple(f".{kind}{end}" for kind in ("txt", "jsonl") for end in ("", ".xz", ".gz"))


def is_there(name: str, source: Path) -> bool:
    """Return whether a data set is bundled, or has a folder in `source` with a file per split."""
    return name in BUNDLED or all(_file(name, part, source) is not None for part in PARTS)


def prepare(name: str, source: Path, cache: Path, *, as_is: bool = False) -> Path:
    """Return the folder with the matrices of a data set, created from `source` or from the bundled data.

    Rows have unit length, or, with `as_is`, the values they come with.
    """
    folder = cache / "data" / (f"{name}-as-is" if as_is else name)
    finished = folder / "finished"
    if not finished.exists():
        print(f"{name}: reading", flush=True)
        folder.mkdir(parents=True, exist_ok=True)
        train = _load(name, "train", source, None)
        test = _load(name, "test", source, train.label_names)
        train.Y.resize((train.n_rows, max(train.n_labels, test.n_labels)))  # test may have labels of its own
        parts = [train, test]
        for part, dataset, X in zip(PARTS, parts, _features(*parts), strict=True):
            _save(folder / f"{part}.X.npz", X if as_is else normalize(X))
            _save(folder / f"{part}.Y.npz", dataset.Y)
        finished.touch()
    return folder


def _load(name: str, part: str, source: Path, label_names: list[str] | None) -> Dataset:
    if name in BUNDLED:
        return datasets.load(name, part)
    path = _file(name, part, source)
    if path is None:
        raise FileNotFoundError(f"no {part} file in {source / name}")
    return load(path, label_names=label_names)


def _file(name: str, part: str, source: Path) -> Path | None:
    return next((path for suffix in SUFFIXES if (path := source / name / f"{part}{suffix}").is_file()), None)


def _features(train: Dataset, test: Dataset) -> tuple[sp.csr_array, sp.csr_array]:
    """Return the features, or the tf-idf of the texts."""
    if train.X is not None and test.X is not None:
        return train.X, test.X
    tfidf = Tfidf()
    return tfidf.fit_transform(train.texts or []), tfidf.transform(test.texts or [])


def _save(path: Path, matrix: sp.csr_array) -> None:
    """Save as a scipy matrix, which the peers read."""
    sp.save_npz(path, sp.csr_matrix(matrix, dtype=np.float32), compressed=False)

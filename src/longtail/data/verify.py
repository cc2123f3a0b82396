"""Verify a downloaded file against the published figures of its data set."""

from __future__ import annotations

import os
from dataclasses import dataclass

from longtail.data.readers.formats import load
from longtail.data.registry import DatasetInfo, describe
from longtail.errors import InputError, counted


@dataclass(frozen=True)
class Verified:
    """A file that agrees with the published figures of its data set.

    Parameters
    ----------
    name : str
        The data set.
    split : str
        "train", "test", or "all" for both.
    rows, features, labels : int
        As published; no features for texts.
    labels_per_row, features_per_row : float
    rows_without_labels, labels_without_rows : int
        Of the file.

    Examples
    --------
    >>> Verified("Bibtex", "test", 2515, 1836, 159, 2.39, 68.7, 0, 1).split
    'test'
    """

    name: str
    split: str
    rows: int
    features: int | None
    labels: int
    labels_per_row: float
    features_per_row: float
    rows_without_labels: int
    labels_without_rows: int


def verify(name: str, path: str | os.PathLike[str]) -> Verified:
    """Read a file and compare its rows, features and labels with the published ones.

    Parameters
    ----------
    name : str
        Name of the data set.
    path : path-like
        Its train file, test file, or both in one.

    Raises
    ------
    InputError
        If the file can't be read, or with the differences.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "train.txt")
    >>> _ = path.write_text("1 2 3\\n0 1:1\\n")
    >>> try:
    ...     verify("Bibtex", path)
    ... except InputError as error:
    ...     print(error.reason)
    differs from Bibtex: 1 row, but 4,880 (train), 2,515 (test) and 7,395 (all) are published; 2 features, but 1,836 \
are published; 3 labels, but 159 are published.
    """
    info = describe(name)
    dataset = load(path)
    Y, X = dataset.Y, dataset.X
    split = next((split for split in ("train", "test", "all") if info.rows(split) == dataset.n_rows), None)
    differences = []
    if split is None:
        published = f"{info.rows('train'):,} (train), {info.rows('test'):,} (test) and {info.rows('all'):,} (all)"
        differences.append(f"{counted(dataset.n_rows, 'row')}, but {published} are published")
    if info.features is not None and dataset.n_features != info.features:
        found = counted(X.shape[1], "feature") if X is not None else "texts without features"
        differences.append(f"{found}, but {info.features:,} are published")
    expected = info.labels if info.features is not None else None  # the labels of texts are those that occur
    if expected is not None and dataset.n_labels != expected:
        differences.append(f"{counted(dataset.n_labels, 'label')}, but {expected:,} are published")
    if expected is None and dataset.n_labels > info.labels:
        differences.append(f"{dataset.n_labels:,} labels, but {info.labels:,} are published for train and test")
    rows = max(dataset.n_rows, 1)
    labels_per_row = Y.nnz / rows
    if not differences and not 0.5 < labels_per_row / info.labels_per_row < 2:
        differences.append(f"{labels_per_row:.2f} labels per row, but {info.labels_per_row:.2f} are published")
    if not differences and X is not None and X.nnz == 0:
        differences.append("no row has a feature")
    if split is None or differences:
        raise InputError(
            f"differs from {info.name}: {'; '.join(differences)}.{_variant(info, dataset.n_rows)}", path=path
        )
    return Verified(
        name=info.name,
        split=split,
        rows=dataset.n_rows,
        features=dataset.n_features,
        labels=dataset.n_labels,
        labels_per_row=labels_per_row,
        features_per_row=0.0 if X is None else X.nnz / rows,
        rows_without_labels=int((Y.indptr[1:] == Y.indptr[:-1]).sum()),
        labels_without_rows=int((dataset.label_counts == 0).sum()),
    )


def _variant(info: DatasetInfo, rows: int) -> str:
    for variant in info.variants:
        if rows in (variant.train_rows, variant.test_rows):
            return (
                f" It looks like {variant.what} ({variant.train_rows:,} and {variant.test_rows:,} rows, "
                f"{variant.labels:,} labels): its results are not comparable with the repository's."
            )
    return ""

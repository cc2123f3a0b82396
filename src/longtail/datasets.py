"""Data sets by name: load bundled ones, look up published figures, verify downloaded files.

Examples
--------
>>> from longtail import datasets
>>> datasets.load("debian-tags", "test")
Dataset('debian-tags:test': 5,592 rows, texts, 598 labels with names, 3.82 labels per row)
>>> datasets.describe("Amazon-670K").labels
670091
"""

from __future__ import annotations

from collections.abc import Sequence

from longtail.data.dataset import Dataset
from longtail.data.readers.formats import load_bundled
from longtail.data.registry import DatasetInfo, check_split, describe, names
from longtail.data.verify import Verified, verify

__all__ = ["DatasetInfo", "Verified", "describe", "load", "names", "verify"]


def load(name: str, split: str = "train", *, label_names: Sequence[str] | None = None) -> Dataset:
    """Load a bundled data set.

    Parameters
    ----------
    name : str
        Its name, or name and split: ``"debian-depends:test"``.
    split : str
        "train" or "test".
    label_names : sequence of str, optional
        Names that define the label ids. By default both splits have the same ids: the names of the training rows,
        sorted, then those of test rows alone.

    Examples
    --------
    >>> load("debian-tags:test").n_rows
    5592
    """
    name, _, named_split = name.partition(":")
    info = describe(name)
    return load_bundled(info, check_split(named_split or split, info.name), label_names=label_names)

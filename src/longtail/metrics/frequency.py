"""Results by label frequency: head, torso and tail, deciles, or custom bins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, get_args, overload

import numpy as np
import numpy.typing as npt

from longtail.errors import InputError
from longtail.kernels.types import Int64
from longtail.metrics.scores import text_table
from longtail.validation import Integers, Optional, check

BinName = Literal["head", "torso", "tail"]
BIN_NAMES: tuple[BinName, ...] = get_args(BinName)
"""Names of the default bins, the most frequent labels first."""

NamedBins = Literal["head-torso-tail", "deciles"]
BinsOrEdges = NamedBins | Sequence[int]

HEAD_SHARE, TORSO_SHARE = 0.5, 0.9
_EDGES = Integers(increasing=True, requirement="increasing training counts of at least 1, such as [1, 6]")
_BINS = Optional(Optional(_EDGES, "deciles"), "head-torso-tail")


@dataclass(frozen=True)
class LabelBin:
    """The labels of one frequency bin.

    Parameters
    ----------
    name : str
        Such as ``"tail"``.
    n_labels : int
        Labels in the bin.
    counts : tuple of int
        Smallest and largest training count among them; (0, 0) for an empty bin.
    """

    name: str
    n_labels: int
    counts: tuple[int, int]

    @property
    def shown_counts(self) -> str:
        """The range of training counts as text."""
        low, high = self.counts
        return "" if not self.n_labels else str(low) if low == high else f"{low}-{high}"


@dataclass(frozen=True)
class FrequencyBin(LabelBin):
    """Results of the labels in one frequency bin.

    Parameters
    ----------
    name, n_labels, counts
        See `LabelBin`.
    n_true : int
        True labels of the test rows that belong to the bin.
    scores : mapping of str to float
        In percent at each k: ``P@k`` and ``PSP@k`` are the bin's contribution, so that they add up to the metric over
        the bins; ``recall@k`` is the share of the bin's true labels that are ranked among the first k, over all rows
        together; ``C@k`` is coverage among the bin's labels. The last two are NaN where no row has a label of the bin.

    Examples
    --------
    >>> tail = FrequencyBin("tail", n_labels=80, counts=(0, 3), n_true=12, scores={"recall@5": 25.0})
    >>> tail.shown_counts
    '0-3'
    """

    n_true: int
    scores: Mapping[str, float]


class FrequencyTable(Sequence[FrequencyBin]):
    """Frequency bins, the most frequent labels first; printing shows a table.

    Examples
    --------
    >>> FrequencyTable([FrequencyBin("head", 2, (9, 30), 7, {"recall@1": 50.0}),
    ...                 FrequencyBin("tail", 80, (0, 3), 12, {"recall@1": 25.0})])
    Scores by label frequency, in percent
          labels  training rows  true  recall@1
    head       2           9-30     7     50.00
    tail      80            0-3    12     25.00
    """

    def __init__(self, bins: Sequence[FrequencyBin]) -> None:
        self._bins = tuple(bins)

    @overload
    def __getitem__(self, index: int) -> FrequencyBin: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[FrequencyBin]: ...
    def __getitem__(self, index: int | slice) -> FrequencyBin | Sequence[FrequencyBin]:
        return self._bins[index]

    def __len__(self) -> int:
        return len(self._bins)

    def __iter__(self) -> Iterator[FrequencyBin]:
        return iter(self._bins)

    def table(self) -> str:
        """Return the bins as text: a line per bin, a column per metric."""
        keys = list(self._bins[0].scores)
        cells = [["", "labels", "training rows", "true", *keys]]
        for item in self:
            values = ("" if np.isnan(item.scores[key]) else f"{item.scores[key]:.2f}" for key in keys)
            cells.append([item.name, str(item.n_labels), item.shown_counts, str(item.n_true), *values])
        return text_table(cells)

    def __repr__(self) -> str:
        return f"Scores by label frequency, in percent\n{self.table()}"


def count_range(counts: npt.NDArray[np.integer]) -> tuple[int, tuple[int, int]]:
    """Return the number of labels in a bin, and their smallest and largest training count; (0, 0) for an empty bin."""
    return len(counts), (int(counts.min()), int(counts.max())) if len(counts) else (0, 0)


def frequency_bins(label_counts: npt.ArrayLike, bins: BinsOrEdges = "head-torso-tail") -> tuple[Int64, list[str]]:
    """Assign every label to a bin by its training count.

    Parameters
    ----------
    label_counts : array of int, shape (n_labels,)
        Training rows of each label.
    bins : {"head-torso-tail", "deciles"} or increasing sequence of int
        - ``"head-torso-tail"``: a label is in the head if the labels more frequent than it hold less than half of all
          label assignments of the training rows, else in the torso if they hold less than 90 %, else in the tail.
          Labels of equal frequency are in the same bin, and unseen labels are in the tail.
        - ``"deciles"``: ten bins of equal numbers of labels (to within one), decile 1 with the most frequent; labels
          of equal frequency are ordered by label id.
        - integers: the smallest training counts of the bins above the lowest, so ``[1, 6]`` gives bins of labels with 6
          or more training rows, 1 to 5, and none.

    Returns
    -------
    bin_of_label : ndarray of int64, shape (n_labels,)
    names : list of str
        Of the bins, the most frequent labels first.

    Examples
    --------
    >>> frequency_bins([60, 30, 3, 3, 0])
    (array([0, 1, 2, 2, 2]), ['head', 'torso', 'tail'])
    >>> frequency_bins([60, 30, 3, 3, 0], [1, 10])
    (array([0, 0, 1, 1, 2]), ['10 or more', '1-9', '0'])
    """
    counts = np.asarray(label_counts)
    if counts.ndim != 1 or counts.dtype.kind not in "iu" or (counts.size and counts.min() < 0):
        raise InputError("label_counts must be one integer, the number of training rows, for each label.")
    check("bins", bins, _BINS)
    counts = counts.astype(np.int64)
    if isinstance(bins, str):
        if bins == "head-torso-tail":
            return _by_share(counts), list(BIN_NAMES)
        order = np.argsort(-counts, kind="stable")
        position = np.empty_like(order)
        position[order] = np.arange(len(order))
        return position * 10 // max(len(order), 1), [f"decile {number}" for number in range(1, 11)]
    edges = np.asarray(list(bins))
    lowest = [0, *edges.tolist()]
    names = [f"{low}-{high - 1}" if high - 1 > low else f"{low}" for low, high in pairwise(lowest)]
    return len(edges) - np.digitize(counts, edges), [f"{lowest[-1]} or more", *reversed(names)]


def _by_share(counts: Int64) -> Int64:
    levels, level = np.unique(counts, return_inverse=True)
    held = levels * np.bincount(level, minlength=len(levels))
    above = held.sum() - np.cumsum(held)
    bins: Int64 = np.zeros(len(levels), np.int64)
    for share in (HEAD_SHARE, TORSO_SHARE):
        bins += above >= share * held.sum()
    return bins[level]

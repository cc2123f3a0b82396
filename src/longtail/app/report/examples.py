"""The documents and labels that went best and worst."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from longtail.engine.topk import TopK
from longtail.metrics import LabelScores

_LONGEST_TEXT, _LONGEST_NAME = 320, 80
_ENOUGH_LABELS = 20
_LEAST_ROWS = (5, 3, 2, 1)
_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]+")


@dataclass(frozen=True)
class NamedLabel:
    """A label of a document: its name, its training rows, and whether it is recorded and among the predictions."""

    name: str
    count: int
    recorded: bool
    predicted: bool
    score: float | None = None


@dataclass(frozen=True)
class Document:
    """A test row with what was predicted for it.

    Parameters
    ----------
    row : int
        Counted from 1.
    text : str or None
        How it begins; None where the data has no texts.
    score : float
        PSP@k of this row alone, in percent.
    predicted, recorded : tuple of NamedLabel
        Best first; rarest first.
    """

    row: int
    text: str | None
    score: float
    predicted: tuple[NamedLabel, ...]
    recorded: tuple[NamedLabel, ...]


@dataclass(frozen=True)
class LabelResult:
    """A label, its training rows, the test rows that have it, those where it was found, and where it was predicted."""

    name: str
    count: int
    n_true: int
    n_found: int
    n_predicted: int

    @property
    def recall(self) -> float:
        """Share of the label's rows where it was found, in percent."""
        return 100 * self.n_found / self.n_true


@dataclass(frozen=True)
class Examples:
    """What went best and worst with one model, and how many test rows a label needed to be looked at."""

    best_documents: tuple[Document, ...]
    worst_documents: tuple[Document, ...]
    best_labels: tuple[LabelResult, ...]
    worst_labels: tuple[LabelResult, ...]
    least_rows: int


def find_examples(
    top: TopK,
    Y: sp.csr_array,
    recorded: npt.NDArray[np.bool_],
    scores: LabelScores,
    *,
    inverse_propensity: npt.NDArray[np.float64],
    label_counts: npt.NDArray[np.int64],
    label_names: Sequence[str] | None = None,
    texts: Sequence[str] | None = None,
    documents: int = 3,
    labels: int = 8,
) -> Examples:
    """Pick the documents and labels that went best and worst within the first places.

    The best documents have all that could be found, among these the rarest labels. The worst have nothing that is
    recorded, among these the highest score. No two of them have the same recorded labels. The best labels are found
    wherever they are recorded, the rarest in front; the worst are never found, those with the most rows in front.

    Parameters
    ----------
    top : TopK
    Y : csr_array, shape (n, n_labels)
        Recorded labels.
    recorded : ndarray of bool, shape (n, places)
        Which places of `top` hold one of them.
    scores : LabelScores
        Results by label; its k is the number of places that count.
    inverse_propensity, label_counts : array, shape (n_labels,)
    label_names, texts : sequence of str, optional
    documents, labels : int
        How many of each kind.
    """
    k = scores.k
    ranked = np.ascontiguousarray(top.labels[:, :k])
    gains = np.where(recorded[:, :k], inverse_propensity[ranked], 0.0).sum(axis=1)
    ideal = _best_gains(Y, inverse_propensity, k)
    rows = np.flatnonzero(ideal > 0)
    share = gains[rows] / ideal[rows]
    first = np.where(np.isfinite(top.scores[rows, 0]), top.scores[rows, 0], -np.inf)
    namer = _Namer(label_names, label_counts)

    def describe(row: int) -> Document:
        true = Y.indices[Y.indptr[row] : Y.indptr[row + 1]]
        places = ranked[row][ranked[row] >= 0]
        return Document(
            row + 1,
            None if texts is None else shorten(texts[row]),
            float(100 * gains[row] / ideal[row]),
            tuple(
                namer.label(label, label in true, True, float(score))
                for label, score in zip(places, top.scores[row], strict=False)
            ),
            tuple(namer.label(label, True, label in places) for label in true[np.lexsort((true, label_counts[true]))]),
        )

    best = _unlike(rows[np.lexsort((rows, -gains[rows], -share))], Y, documents)
    worst = _unlike(rows[np.lexsort((rows, -first, share))], Y, documents, besides=best)
    good, bad, least = _labels(scores, label_counts, labels)
    return Examples(
        tuple(map(describe, best)),
        tuple(map(describe, worst)),
        tuple(namer.result(label, scores) for label in good),
        tuple(namer.result(label, scores) for label in bad),
        least,
    )


def shorten(text: str, longest: int = _LONGEST_TEXT) -> str:
    """Give the beginning of a text on one line, whole words where they are not too long, without what can't be shown.

    Examples
    --------
    >>> shorten("one  two\\nthree", 9)
    'one two …'
    """
    line = " ".join(_UNSAFE.sub(" ", text[: 4 * longest]).split())
    if len(line) <= longest:
        return line
    cut = line[: longest - 1]
    words = cut.rpartition(" ")[0]
    return (words + " …") if len(words) > longest // 2 else cut + "…"


def label_name(names: Sequence[str] | None, label: int) -> str:
    """Name of a label as a page shows it: shortened, or its id where it has none.

    Examples
    --------
    >>> label_name(["red\\nships"], 0), label_name(None, 7)
    ('red ships', 'label 7')
    """
    return (shorten(names[label], _LONGEST_NAME) if names is not None else "") or f"label {label}"


def _best_gains(Y: sp.csr_array, inverse_propensity: npt.NDArray[np.float64], k: int) -> npt.NDArray[np.float64]:
    """Sum of the k largest inverse propensities among the labels of each row."""
    rows = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))
    worth = inverse_propensity[Y.indices]
    order = np.lexsort((-worth, rows))  # rows stay where they are
    first = np.arange(len(rows)) - Y.indptr[rows] < k
    return np.bincount(rows[first], worth[order][first], minlength=Y.shape[0]).astype(np.float64)


class _Namer:
    def __init__(self, names: Sequence[str] | None, counts: npt.NDArray[np.int64]) -> None:
        self._names, self._counts = names, counts

    def label(self, label: int, recorded: bool, predicted: bool, score: float | None = None) -> NamedLabel:
        return NamedLabel(
            label_name(self._names, label), int(self._counts[label]), bool(recorded), bool(predicted), score
        )

    def result(self, label: int, scores: LabelScores) -> LabelResult:
        numbers = (int(values[label]) for values in (self._counts, scores.true, scores.hits, scores.predicted))
        return LabelResult(label_name(self._names, label), *numbers)


def _unlike(ordered: Iterable[int], Y: sp.csr_array, wanted: int, besides: Sequence[int] = ()) -> list[int]:
    """Take the first rows, no two with the same labels."""
    chosen: list[int] = []
    seen = {Y.indices[Y.indptr[row] : Y.indptr[row + 1]].tobytes() for row in besides}
    for row in ordered:
        if len(chosen) == wanted:
            break
        recorded = Y.indices[Y.indptr[row] : Y.indptr[row + 1]].tobytes()
        if recorded not in seen:
            seen.add(recorded)
            chosen.append(int(row))
    return chosen


def _labels(scores: LabelScores, counts: npt.NDArray[np.int64], wanted: int) -> tuple[list[int], list[int], int]:
    least = next((rows for rows in _LEAST_ROWS if (scores.true >= rows).sum() >= _ENOUGH_LABELS), 1)
    judged = np.flatnonzero(scores.true >= least)
    recall = scores.hits[judged] / scores.true[judged]
    good = judged[np.lexsort((judged, -scores.true[judged], counts[judged], -recall))][:wanted]
    bad = judged[np.lexsort((judged, counts[judged], -scores.true[judged], recall))]
    taken = set(good.tolist())
    return good.tolist(), [label for label in bad.tolist() if label not in taken][:wanted], least

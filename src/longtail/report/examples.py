"""The documents and labels with the best and the worst predictions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from longtail.kernels.types import Flags, Float64, Int64
from longtail.metrics import LabelScores
from longtail.plots.formats import shorten, shorten_name
from longtail.topk import TopK

_ENOUGH_LABELS = 20
_LEAST_ROWS = (5, 3, 2, 1)


@dataclass(frozen=True)
class NamedLabel:
    """A label of a document: its name, its training rows, and whether it is recorded and predicted."""

    name: str
    count: int
    recorded: bool
    predicted: bool
    score: float | None = None


@dataclass(frozen=True)
class Document:
    """A test row with its predictions."""

    row: int  # counted from 1
    text: str | None  # its beginning; None where the data has no texts
    score: float  # PSP@k of this row, in percent
    predicted: tuple[NamedLabel, ...]  # highest score first
    recorded: tuple[NamedLabel, ...]  # rarest first


@dataclass(frozen=True)
class LabelResult:
    """A label with its training rows and the numbers of test rows where it is recorded, found and predicted."""

    name: str
    count: int
    n_true: int
    n_found: int
    n_predicted: int

    @property
    def recall(self) -> float:
        """Percentage of the label's rows where it is found."""
        return 100 * self.n_found / self.n_true


@dataclass(frozen=True)
class Examples:
    """Best and worst predictions of one model, and the fewest test rows of the labels shown."""

    best_documents: tuple[Document, ...]
    worst_documents: tuple[Document, ...]
    best_labels: tuple[LabelResult, ...]
    worst_labels: tuple[LabelResult, ...]
    least_rows: int


def find_examples(
    top: TopK,
    Y: sp.csr_array,
    recorded: Flags,
    scores: LabelScores,
    *,
    inverse_propensity: Float64,
    label_counts: Int64,
    shown: Callable[[int], str] = str,
    texts: Sequence[str] | None = None,
    documents: int = 3,
    labels: int = 8,
) -> Examples:
    """Choose the documents and labels with the best and the worst predictions.

    The best documents have the highest PSP@k, those with the rarest labels first. The worst have the lowest, those with
    the highest score first. No two of them have the same recorded labels. The best labels have the highest recall, the
    rarest first; the worst have the lowest, those with the most rows first.

    Parameters
    ----------
    top : TopK
    Y : csr_array, shape (n, n_labels)
        Recorded labels.
    recorded : ndarray of bool, shape (n, n_ranked)
        Which predictions are recorded labels.
    scores : LabelScores
        Results by label; its k is the cutoff.
    inverse_propensity, label_counts : array, shape (n_labels,)
    shown : callable
        What to call a label, by id, such as `LabelIndex.shown`.
    texts : sequence of str, optional
    documents, labels : int
        Number of each kind.
    """
    k = scores.k
    ranked = np.ascontiguousarray(top.labels[:, :k])
    gains = np.where(recorded[:, :k], inverse_propensity[ranked], 0.0).sum(axis=1)
    ideal = _best_gains(Y, inverse_propensity, k)
    rows = np.flatnonzero(ideal > 0)
    share = gains[rows] / ideal[rows]
    first = np.where(np.isfinite(top.scores[rows, 0]), top.scores[rows, 0], -np.inf)
    namer = _Namer(shown, label_counts)

    def describe(row: int) -> Document:
        true = Y.indices[Y.indptr[row] : Y.indptr[row + 1]]
        rarest_first = true[np.lexsort((true, label_counts[true]))]
        predicted = ranked[row][ranked[row] >= 0]
        return Document(
            row + 1,
            None if texts is None else shorten(texts[row]),
            float(100 * gains[row] / ideal[row]),
            tuple(
                namer.label(label, label in true, True, float(score))
                for label, score in zip(predicted, top.scores[row], strict=False)
            ),
            tuple(namer.label(label, True, label in predicted) for label in rarest_first),
        )

    best = _unlike(rows[np.lexsort((rows, -gains[rows], -share))], Y, documents)
    worst = _unlike(rows[np.lexsort((rows, -first, share))], Y, documents, excluding=best)
    good, bad, least = _labels(scores, label_counts, labels)
    return Examples(
        tuple(map(describe, best)),
        tuple(map(describe, worst)),
        tuple(namer.result(label, scores) for label in good),
        tuple(namer.result(label, scores) for label in bad),
        least,
    )


def _best_gains(Y: sp.csr_array, inverse_propensity: Float64, k: int) -> Float64:
    """Return the sum of the k largest inverse propensities among the labels of each row."""
    rows = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))
    weights = inverse_propensity[Y.indices]
    order = np.lexsort((-weights, rows))  # rows stay in order
    first = np.arange(len(rows)) - Y.indptr[rows] < k
    return np.bincount(rows[first], weights[order][first], minlength=Y.shape[0]).astype(np.float64)


class _Namer:
    def __init__(self, shown: Callable[[int], str], counts: Int64) -> None:
        self._shown, self._counts = shown, counts

    def label(self, label: int, recorded: bool, predicted: bool, score: float | None = None) -> NamedLabel:
        return NamedLabel(
            shorten_name(self._shown(label)), int(self._counts[label]), bool(recorded), bool(predicted), score
        )

    def result(self, label: int, scores: LabelScores) -> LabelResult:
        numbers = (int(values[label]) for values in (self._counts, scores.true, scores.hits, scores.predicted))
        return LabelResult(shorten_name(self._shown(label)), *numbers)


def _unlike(ordered: Iterable[int], Y: sp.csr_array, wanted: int, excluding: Sequence[int] = ()) -> list[int]:
    """Return the first rows that are not excluded, no two with the same labels."""
    chosen: list[int] = []
    seen = {Y.indices[Y.indptr[row] : Y.indptr[row + 1]].tobytes() for row in excluding}
    for row in ordered:
        if len(chosen) == wanted:
            break
        recorded = Y.indices[Y.indptr[row] : Y.indptr[row + 1]].tobytes()
        if recorded not in seen:
            seen.add(recorded)
            chosen.append(int(row))
    return chosen


def _labels(scores: LabelScores, counts: Int64, wanted: int) -> tuple[list[int], list[int], int]:
    least = next((rows for rows in _LEAST_ROWS if (scores.true >= rows).sum() >= _ENOUGH_LABELS), 1)
    judged = np.flatnonzero(scores.true >= least)
    recall = scores.hits[judged] / scores.true[judged]
    good = judged[np.lexsort((judged, -scores.true[judged], counts[judged], -recall))][:wanted]
    bad = judged[np.lexsort((judged, counts[judged], -scores.true[judged], recall))]
    taken = set(good.tolist())
    return good.tolist(), [label for label in bad.tolist() if label not in taken][:wanted], least

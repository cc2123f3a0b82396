"""How rankings are put together: log-odds, weights by search, and sums over what several rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from longtail.engine.topk import TopK
from longtail.metrics import evaluate

Float64 = npt.NDArray[np.float64]

_STEPS = (0.5, 0.25, 0.1, 0.05, 0.02)


@dataclass(frozen=True)
class Links:
    """A ranking whose scores are log-odds; `floor` is what any label has that a row's ranking leaves out."""

    labels: npt.NDArray[np.int32]
    scores: Float64
    floor: Float64

    @classmethod
    def of(cls, top: TopK, slope: float, offset: float) -> Links:
        """Turn scores into log-odds by a line."""
        used = top.labels >= 0
        scores = np.where(used, slope * np.where(used, top.scores, 0) + offset, np.inf)
        floor = scores.min(axis=1, initial=np.inf)
        floor = np.where(np.isfinite(floor), floor, 0.0)
        return cls(top.labels, np.where(used, scores, floor[:, None]), floor)


def merged(parts: Sequence[Links], weights: Float64, k: int, n_labels: int) -> TopK:
    """Rank the labels that any part ranks by the weighted sum of their log-odds.

    Examples
    --------
    >>> one = Links(np.array([[3, 1]], np.int32), np.array([[2.0, 0.0]]), np.array([0.0]))
    >>> other = Links(np.array([[1, 2]], np.int32), np.array([[3.0, 1.0]]), np.array([1.0]))
    >>> merged([one, other], np.array([0.5, 0.5]), k=2, n_labels=4)
    TopK(labels=array([[1, 3]], dtype=int32), scores=array([[1.5, 1.5]], dtype=float32))
    """
    n = len(parts[0].labels)
    base = sum(weight * part.floor for weight, part in zip(weights, parts, strict=True))
    found = []
    for weight, part in zip(weights, parts, strict=True):
        used = part.labels >= 0
        above = weight * (part.scores - part.floor[:, None])
        indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(used.sum(axis=1))])
        found.append(sp.csr_array((above[used], part.labels[used], indptr), shape=(n, n_labels)))
    stacked = _together(found)
    width = max(int(np.diff(stacked.indptr).max(initial=0)), 1)
    labels, scores = np.full((n, width), -1, np.int32), np.full((n, width), -np.inf, np.float32)
    inside = np.arange(width)[None] < np.diff(stacked.indptr)[:, None]
    labels[inside] = stacked.indices
    scores[inside] = stacked.data + np.repeat(np.broadcast_to(base, n), np.diff(stacked.indptr))
    return TopK(labels, scores).ranked_by(scores, k)


def _together(parts: Sequence[sp.csr_array]) -> sp.csr_array:
    """Sum of matrices that keeps entries of 0."""
    n, n_labels = parts[0].shape
    rows = np.concatenate([np.repeat(np.arange(n), np.diff(part.indptr)) for part in parts])
    columns = np.concatenate([part.indices for part in parts])
    data = np.concatenate([part.data for part in parts])
    order = np.lexsort((columns, rows))
    rows, columns, data = rows[order], columns[order], data[order]
    if not len(rows):
        return sp.csr_array((n, n_labels))
    is_first = np.concatenate([[True], (rows[1:] != rows[:-1]) | (columns[1:] != columns[:-1])])
    firsts = np.flatnonzero(is_first)
    sums = np.add.reduceat(data, firsts)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows[firsts], minlength=n))])
    return sp.csr_array((sums, columns[firsts], indptr), shape=(n, n_labels))


def find_weights(parts: Sequence[Links], Y: sp.csr_array) -> Float64:
    """Weights that rank best by nDCG@5: from equal ones, or one part alone, moved part by part while that helps."""

    def worth(weights: Float64) -> float:
        return evaluate(merged(parts, weights, 5, Y.shape[1]), Y, ks=(5,))["nDCG@5"]

    starts = [np.full(len(parts), 1 / len(parts)), *np.eye(len(parts))]
    worths = [worth(start) for start in starts]
    best = max(worths)
    weights = starts[worths.index(best)]
    for step in _STEPS:
        moved = True
        while moved:
            moved = False
            for part in range(len(parts)):
                for towards in (step, -step):
                    tried = weights.copy()
                    tried[part] = max(tried[part] + towards, 0.0)
                    if not tried.sum():
                        continue
                    tried /= tried.sum()
                    found = worth(tried)
                    if found > best + 1e-9:
                        weights, best, moved = tried, found, True
    return np.asarray(weights, np.float64)

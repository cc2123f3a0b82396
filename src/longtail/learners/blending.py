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
    used = [part.labels >= 0 for part in parts]
    rows = [np.repeat(np.arange(n), inside.sum(axis=1)) for inside in used]
    keys = [
        row * n_labels + part.labels[inside].astype(np.int64)
        for row, part, inside in zip(rows, parts, used, strict=True)
    ]
    different = np.unique(np.concatenate(keys))
    of_row, labels = np.divmod(different, max(n_labels, 1))
    sums = np.zeros(len(different))
    for weight, part, inside, own in zip(weights, parts, used, keys, strict=True):
        scores = part.floor[of_row]
        scores[np.searchsorted(different, own)] = part.scores[inside]
        sums += weight * scores
    counts = np.bincount(of_row, minlength=n)
    width = max(int(counts.max(initial=0)), 1)
    places = np.arange(width)[None] < counts[:, None]
    table, values = np.full((n, width), -1, np.int32), np.full((n, width), -np.inf, np.float32)
    table[places], values[places] = labels, sums
    return TopK(table, values).ranked_by(values, k)


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

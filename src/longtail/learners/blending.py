"""How rankings are put together: log-odds, weights by search, and sums over what several rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    """A ranking whose scores are log-odds.

    Parameters
    ----------
    labels : ndarray of int32, shape (n, places)
        -1 for none.
    scores : ndarray of float64
    candidates : int
        The first so many places decide; places after them only put what nobody has among these into an order.
    """

    labels: npt.NDArray[np.int32]
    scores: Float64
    candidates: int

    @classmethod
    def of(cls, top: TopK, slope: float, offset: float, candidates: int) -> Links:
        """Turn scores into log-odds by a line."""
        used = top.labels >= 0
        return cls(top.labels, np.where(used, slope * np.where(used, top.scores, 0) + offset, -np.inf), candidates)

    def floor(self, places: int) -> Float64:
        """The lowest log-odds among the first places of each row; 0 where it ranks nothing."""
        lowest = np.where(self.labels >= 0, self.scores, np.inf)[:, :places].min(axis=1, initial=np.inf)
        return np.where(np.isfinite(lowest), lowest, 0.0)


def log_odds(
    parts: Sequence[Links], of_row: npt.NDArray[np.int64], labels: npt.NDArray[np.int64], n_labels: int
) -> Float64:
    """What each part says of some labels of some rows, a column for each part; sorted by row, then by label.

    A label that is among the candidates of some part counts as the last candidate of the others that don't have it
    there. One that is among nobody's has the score of its place, or of the last place.
    """
    keys = of_row * n_labels + labels
    is_candidate = np.zeros(len(keys), np.bool_)
    places = [_places(part, keys, n_labels) for part in parts]
    for part, place in zip(parts, places, strict=True):
        is_candidate |= (place >= 0) & (place < part.candidates)
    found = np.empty((len(keys), len(parts)))
    for number, (part, place) in enumerate(zip(parts, places, strict=True)):
        floors = np.where(is_candidate, part.floor(part.candidates)[of_row], part.floor(part.labels.shape[1])[of_row])
        counts = (place >= 0) & ((place < part.candidates) | ~is_candidate)
        found[:, number] = np.where(counts, part.scores[of_row, np.maximum(place, 0)], floors)
    return found


def _places(part: Links, keys: npt.NDArray[np.int64], n_labels: int) -> npt.NDArray[np.int64]:
    """Places of labels in a ranking, -1 where it doesn't have them; `keys` are row * n_labels + label, rising."""
    rows, places = np.nonzero(part.labels >= 0)
    own = rows * n_labels + part.labels[rows, places].astype(np.int64)
    found = np.full(len(keys), -1, np.int64)
    at = np.minimum(np.searchsorted(keys, own), max(len(keys) - 1, 0))
    is_asked = keys[at] == own if len(keys) else np.zeros(len(own), np.bool_)
    found[at[is_asked]] = places[is_asked]
    return found


@dataclass(frozen=True)
class Ranked:
    """All labels that any part ranks, row by row, and what each part says of them: what any weights are applied to."""

    n_rows: int
    of_row: npt.NDArray[np.int64]
    labels: npt.NDArray[np.int64]
    said: Float64

    @classmethod
    def of(cls, parts: Sequence[Links], n_labels: int) -> Ranked:
        """Gather the labels of some parts."""
        ranked = [np.nonzero(part.labels >= 0) for part in parts]
        pairs = zip(parts, ranked, strict=True)
        keys = [row * n_labels + part.labels[row, place].astype(np.int64) for part, (row, place) in pairs]
        of_row, labels = np.divmod(np.unique(np.concatenate(keys)), max(n_labels, 1))
        return cls(len(parts[0].labels), of_row, labels, log_odds(parts, of_row, labels, n_labels))

    def by(self, weights: Float64, k: int) -> TopK:
        """Rank by weighted sums."""
        counts = np.bincount(self.of_row, minlength=self.n_rows)
        width = max(int(counts.max(initial=0)), 1)
        places = np.arange(width)[None] < counts[:, None]
        labels = np.full((self.n_rows, width), -1, np.int32)
        scores = np.full((self.n_rows, width), -np.inf, np.float32)
        labels[places], scores[places] = self.labels, self.said @ weights
        return TopK(labels, scores).ranked_by(scores, k)


def merged(parts: Sequence[Links], weights: Float64, k: int, n_labels: int) -> TopK:
    """Rank the labels that any part ranks by the weighted sum of their log-odds.

    Examples
    --------
    >>> one = Links(np.array([[3, 1]], np.int32), np.array([[2.0, 0.0]]), 2)
    >>> other = Links(np.array([[1, 2]], np.int32), np.array([[3.0, 1.0]]), 2)
    >>> merged([one, other], np.array([0.5, 0.5]), k=2, n_labels=4)
    TopK(labels=array([[1, 3]], dtype=int32), scores=array([[1.5, 1.5]], dtype=float32))
    """
    return Ranked.of(parts, n_labels).by(weights, k)


def find_weights(parts: Sequence[Links], Y: sp.csr_array) -> Float64:
    """Weights that rank best by nDCG@5: from equal ones and from each part alone, moved part by part while that helps.

    The better of two parts may lie between hills, so every start is climbed from, and what each finds is mixed with the
    best once more.
    """
    ranked = Ranked.of(parts, Y.shape[1])
    known: dict[bytes, float] = {}

    def worth(weights: Float64) -> float:
        key = np.round(weights, 9).tobytes()
        if key not in known:
            known[key] = float(evaluate(ranked.by(weights, 5), Y, ks=(5,))["nDCG@5"])
        return known[key]

    starts = [np.full(len(parts), 1 / len(parts)), *np.eye(len(parts))]
    found = sorted((_climbed(start, worth) for start in starts), key=worth)
    mixed = [_climbed((found[-1] + other) / 2, worth) for other in found[:-1]]
    return max([found[-1], *mixed], key=worth)


def _climbed(weights: Float64, worth: Callable[[Float64], float]) -> Float64:
    """Weights moved part by part, in ever smaller steps, while that helps."""
    best = worth(weights)
    for step in _STEPS:
        moved = True
        while moved:
            moved = False
            for part in range(len(weights)):
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

"""Sensitivity of PSP@k, and of the order of models by it, to the constants A and B."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from longtail.data.sparse import as_indicator
from longtail.errors import InputError, ParameterError
from longtail.kernels.types import Float64, Int64
from longtail.metrics.evaluation import Evaluator
from longtail.metrics.scores import text_table
from longtail.propensity import JainPropensity, check_counts
from longtail.topk import TopK
from longtail.validation import OneOf, SequenceOf, check

GRID_A: tuple[float, ...] = (0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7)
GRID_B: tuple[float, ...] = (0.1, 0.4, 1.5, 2.6, 5.0)


@dataclass(frozen=True, eq=False)
class Sensitivity:
    """PSP@k of several models under several propensity models; printing shows a table.

    Parameters
    ----------
    models : tuple of str
    a, b : tuple of float
        The constants; every A is combined with every B.
    ks : tuple of int
    psp : ndarray of float64, shape (len(a), len(b), len(models), len(ks))
        Percent.
    base : tuple of float
        The A and B that the others are compared with.
    base_psp : ndarray of float64, shape (len(models), len(ks))
        Percent under these.

    Examples
    --------
    >>> tops = {"head": [[0], [0]], "tail": [[1], [2]]}
    >>> found = sensitivity(tops, [[1, 1, 0], [1, 0, 0]], [90, 2, 1], 100, a=[0.2, 0.6], b=[1.5], ks=[1])
    >>> found.order(0.2, 1.5, k=1), found.base_order(k=1)
    (('head', 'tail'), ('tail', 'head'))
    """

    models: tuple[str, ...]
    a: tuple[float, ...]
    b: tuple[float, ...]
    ks: tuple[int, ...]
    psp: Float64
    base: tuple[float, float]
    base_psp: Float64

    def order(self, a: float, b: float, k: int) -> tuple[str, ...]:
        """Return the models from the best PSP@k to the worst, for an A and B of the grid; ties keep the given order."""
        if a not in self.a or b not in self.b:
            raise ParameterError("(a, b)", (a, b), "must be a pair of the grid")
        return self._ordered(self.psp[self.a.index(a), self.b.index(b), :, self._place(k)])

    def base_order(self, k: int) -> tuple[str, ...]:
        """Return the models from the best PSP@k to the worst under the base constants."""
        return self._ordered(self.base_psp[:, self._place(k)])

    def changes(self, k: int) -> list[tuple[float, float]]:
        """Return the pairs (A, B) that order the models by PSP@k differently than the base constants."""
        base = self.base_order(k)
        return [(a, b) for a in self.a for b in self.b if self.order(a, b, k) != base]

    def table(self) -> str:
        """Return the values as text: a line per A, B and k; a star where the order differs."""
        cells = [["A", "B", "k", *self.models, "order changes"]]
        for row in self.rows():
            values = [f"{row['psp'][model]:.2f}" for model in self.models]
            cells.append([f"{row['a']:g}", f"{row['b']:g}", str(row["k"]), *values, "*" if row["changed"] else ""])
        return text_table(cells)

    def rows(self) -> list[dict[str, Any]]:
        """Return a dictionary for each A, B and k: ``a``, ``b``, ``k``, ``psp`` by model, ``order`` and ``changed``."""
        rows: list[dict[str, Any]] = []
        for i, a in enumerate(self.a):
            for j, b in enumerate(self.b):
                for place, k in enumerate(self.ks):
                    order = self.order(a, b, k)
                    values = dict(zip(self.models, self.psp[i, j, :, place].tolist(), strict=True))
                    changed = order != self.base_order(k)
                    rows.append({"a": a, "b": b, "k": k, "psp": values, "order": order, "changed": changed})
        return rows

    def __repr__(self) -> str:
        a, b = self.base
        return f"PSP@k in percent; * where the order is not that of A = {a:g}, B = {b:g}\n{self.table()}"

    def _place(self, k: int) -> int:
        check("k", k, OneOf(*self.ks))
        return self.ks.index(k)

    def _ordered(self, values: Float64) -> tuple[str, ...]:
        return tuple(self.models[index] for index in np.argsort(-values, kind="stable"))


def sensitivity(
    tops: Mapping[str, TopK | npt.ArrayLike],
    Y: Any,
    label_counts: npt.ArrayLike,
    n_rows: int,
    *,
    a: Iterable[float] = GRID_A,
    b: Iterable[float] = GRID_B,
    ks: Iterable[int] = (1, 3, 5),
    base: tuple[float, float] = (0.55, 1.5),
) -> Sensitivity:
    """Compute PSP@k of several models for every A of one list with every B of another.

    The predictions are evaluated once: for any A and B a rarer label has no lower 1/p, so a perfect ranking always
    contains each row's k rarest labels, and numerator and denominator of PSP@k are sums of 1/p over fixed numbers of
    labels of each count.

    Parameters
    ----------
    tops : mapping of str to TopK or array of int, shape (n, ranks)
        Ranked labels of the same rows by model; see `evaluate`.
    Y : matrix, shape (n, n_labels)
        True labels.
    label_counts : array-like of int, shape (n_labels,)
        Training rows of each label.
    n_rows : int
        Training rows.
    a, b : iterable of float
        Values of A (at least 0) and of B (above 0). The published ones are 0.5 to 0.6, and 0.1 to 2.6.
    ks : iterable of int
        Cutoffs.
    base : tuple of float
        A and B of the order that the others are compared with.

    Returns
    -------
    Sensitivity

    Examples
    --------
    A model that finds the frequent label of each row, and one that finds the rare label of a single row:

    >>> tops = {"head": [[0], [0]], "tail": [[1], [2]]}
    >>> found = sensitivity(tops, [[1, 1, 0], [1, 0, 0]], [90, 2, 1], 100, a=[0.2, 0.6], b=[1.5], ks=[1])
    >>> found
    PSP@k in percent; * where the order is not that of A = 0.55, B = 1.5
    A      B  k   head   tail  order changes
    0.2  1.5  1  77.32  61.34              *
    0.6  1.5  1  52.81  73.60
    >>> found.changes(1)
    [(0.2, 1.5)]
    """
    if not tops:
        raise ParameterError("tops", dict(tops), "must hold the ranking of at least one model")
    truth = as_indicator(Y)
    counts = check_counts(label_counts, n_rows, truth.shape[1])
    if not truth.shape[0]:
        raise InputError("There are no rows to score: give predictions and true labels of at least one row.")
    grid_a, grid_b = _grid("a", a), _grid("b", b)
    levels, level_of_label = np.unique(counts, return_inverse=True)
    cutoffs = tuple(ks)
    judged = [Evaluator(truth.shape[1], ks=cutoffs).update(top, truth) for top in tops.values()]
    places = judged[0].ks
    hits = np.array([[evaluator.per_label(k).hits for k in places] for evaluator in judged])
    best = _best_counts(truth, counts, places)
    by_level = [
        np.array([np.bincount(level_of_label, row, len(levels)) for row in part.reshape(-1, len(counts))])
        for part in (hits, best)
    ]
    gains, wholes = (part.reshape(-1, len(places), len(levels)) for part in by_level)

    def psp(a: float, b: float) -> Float64:
        weights = JainPropensity(a=a, b=b).inverse(levels, n_rows)
        whole = wholes @ weights
        return 100.0 * np.divide(gains @ weights, whole, out=np.zeros((len(judged), len(places))), where=whole > 0)

    values = np.array([[psp(one_a, one_b) for one_b in grid_b] for one_a in grid_a])
    first, second = base
    return Sensitivity(tuple(tops), grid_a, grid_b, places, values, (first, second), psp(first, second))


def _best_counts(truth: Any, counts: Float64, ks: Sequence[int]) -> Int64:
    """Rows in which each label is among the k rarest; shape (len(ks), n_labels)."""
    lengths = np.diff(truth.indptr)
    row = np.repeat(np.arange(truth.shape[0]), lengths)
    order = np.lexsort((counts[truth.indices], row))
    place = np.arange(len(order)) - np.repeat(truth.indptr[:-1], lengths)
    ranked = truth.indices[order]
    return np.array([np.bincount(ranked[place < k], minlength=truth.shape[1]) for k in ks], np.int64)


def _grid(name: str, values: Iterable[float]) -> tuple[float, ...]:
    grid = tuple(dict.fromkeys(values))
    check(name, grid, SequenceOf(Real, "number"))
    for value in grid:
        JainPropensity(**{name: value}).inverse([0, 1], 3)
    return grid

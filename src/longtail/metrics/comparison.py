"""Comparison of two rankings of the same rows: differences, their intervals and p-values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from longtail.config import own_jobs
from longtail.errors import InputError, ParameterError
from longtail.kernels.types import Float64
from longtail.metrics.evaluation import Evaluator
from longtail.metrics.ranking import with_labels
from longtail.metrics.resampling import Resampler, check_resampling, interval, resample
from longtail.metrics.scores import shown, text_table
from longtail.metrics.swapping import Swapper, swap_rows
from longtail.topk import TopK
from longtail.validation import Integer, OneOf, check

Correction = Literal["holm", "benjamini-hochberg", "none"]
_CORRECTION = OneOf(*get_args(Correction))

_ROUNDING = 1e-10
"""Relative rounding error by which equal differences may differ, because sums were computed in another order."""


@dataclass(frozen=True)
class Difference:
    """One metric of two rankings of the same rows.

    Parameters
    ----------
    a, b : float
        The metric of either, in percent.
    difference : float
        b - a.
    low, high : float
        Ends of the interval around the difference.
    p_value : float
        Probability of a difference at least as large under the null hypothesis that the rankings are exchangeable.
    adjusted : float
        The p-value adjusted for the number of metrics compared.

    Examples
    --------
    >>> compare([[0], [1], [1]], [[0], [0], [0]], [[1, 0], [1, 0], [1, 0]], ks=[1])["P@1"].p_value
    0.5
    """

    a: float
    b: float
    difference: float
    low: float
    high: float
    p_value: float
    adjusted: float


class Comparison(Mapping[str, Difference]):
    """Comparison of two rankings: a `Difference` by metric, such as ``comparison["PSP@5"]``; printing shows a table.

    Parameters
    ----------
    differences : mapping of str to Difference
        By ``name@k``.
    n_rows : int
        Number of rows.
    level : float
        Level of the intervals.
    correction : str
        How p-values were adjusted.
    permutations : int
        Number of permutations behind the p-values.
    exact : bool
        Whether these were all possible permutations.

    Examples
    --------
    >>> Comparison({"P@1": Difference(50.0, 60.0, 10.0, 2.0, 18.0, 0.012, 0.024)}, n_rows=90, level=0.95,
    ...            correction="holm", permutations=10000, exact=False)
    Comparison on 90 rows, in percent: 95 % intervals of b - a, p-values adjusted by holm
             a      b  b - a   low   high       p  adjusted
    P@1  50.00  60.00  10.00  2.00  18.00  0.0120    0.0240
    """

    def __init__(
        self,
        differences: Mapping[str, Difference],
        *,
        n_rows: int,
        level: float,
        correction: str,
        permutations: int,
        exact: bool,
    ) -> None:
        self._differences = dict(differences)
        self.n_rows = n_rows
        self.level = level
        self.correction = correction
        self.permutations = permutations
        self.exact = exact

    def __getitem__(self, key: str) -> Difference:
        return self._differences[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._differences)

    def __len__(self) -> int:
        return len(self._differences)

    def table(self) -> str:
        """Return the differences as text: a line per metric."""
        cells = [["", "a", "b", "b - a", "low", "high", "p", "adjusted"]]
        for name, item in self.items():
            percents = (item.a, item.b, item.difference, item.low, item.high)
            shares = (item.p_value, item.adjusted)
            cells.append([name, *(shown(name, value) for value in percents), *(f"{value:.4f}" for value in shares)])
        return text_table(cells)

    def __repr__(self) -> str:
        adjusted = "not adjusted" if self.correction == "none" else f"adjusted by {self.correction}"
        return (
            f"Comparison on {self.n_rows} rows, in percent: {100 * self.level:g} % intervals of b - a, "
            f"p-values {adjusted}\n{self.table()}"
        )


def compare(
    top_a: TopK | npt.ArrayLike,
    top_b: TopK | npt.ArrayLike,
    Y: Any,
    *,
    inverse_propensity: npt.ArrayLike | None = None,
    ks: Iterable[int] = (1, 3, 5),
    resamples: int = 1000,
    permutations: int = 10000,
    level: float = 0.95,
    correction: Correction = "holm",
    random_state: int = 0,
    n_jobs: int | None = None,
    metrics: Iterable[str] | None = None,
) -> Comparison:
    """Compare two rankings of the same rows, metric by metric.

    The interval of a difference comes from the resamples of `bootstrap`, the same rows for both rankings. The p-value
    comes from a paired randomisation test: under the null hypothesis the two rankings of a row are exchangeable, so the
    rankings of random rows are swapped and every metric is computed again. The p-value is the share of `permutations`,
    the observed rankings included, whose absolute difference is at least as large. Where no more permutations exist,
    all of them are used and the p-value is exact.

    Parameters
    ----------
    top_a, top_b : TopK or array of int, shape (n, ranks)
        The rankings; see `evaluate`.
    Y, inverse_propensity, ks
        As for `evaluate`.
    resamples, level, random_state, n_jobs
        As for `bootstrap`.
    permutations : int
        Number of permutations.
    correction : {"holm", "benjamini-hochberg", "none"}
        How p-values are adjusted for the number of metrics; see `adjust`.
    metrics : iterable of str, optional
        Metrics to compare and to correct for, such as ``["P@1", "PSP@5"]``; by default all of `evaluate`. Choose them
        before looking at results.

    Returns
    -------
    Comparison

    Examples
    --------
    >>> Y = [[1, 0, 1], [0, 1, 0], [1, 0, 0], [0, 1, 1], [1, 1, 0], [0, 0, 1]]
    >>> a, b = [[1], [0], [0], [0], [2], [1]], [[0], [1], [0], [1], [1], [2]]
    >>> compare(a, b, Y, ks=[1], metrics=["P@1", "microF1@1"], permutations=100)
    Comparison on 6 rows, in percent: 95 % intervals of b - a, p-values adjusted by holm
                   a       b  b - a    low    high       p  adjusted
    P@1        16.67  100.00  83.33  50.00  100.00  0.0625    0.1250
    microF1@1  13.33   80.00  66.67  42.86   85.71  0.0625    0.1250
    """
    check_resampling(resamples, level, random_state)
    check("permutations", permutations, Integer(1))
    check("correction", correction, _CORRECTION)
    truth = with_labels(Y)
    places = tuple(ks) if isinstance(ks, Iterable) else ks
    sides = []
    for top in (top_a, top_b):
        evaluator = Evaluator(truth.shape[1], inverse_propensity=inverse_propensity, ks=places).update(top, truth)
        sides.append(Resampler(top, truth, evaluator))
    a, b = sides
    chosen = _chosen(metrics, list(a.scores))
    with own_jobs(n_jobs):
        drawn = resample(lambda *lanes: b.metrics(*lanes) - a.metrics(*lanes), a.n_rows, resamples, seed=random_state)
        swapped, exact = swap_rows(Swapper(a, b), permutations, seed=random_state)
    scores_a, scores_b = a.scores, b.scores
    found = {name: (drawn[index], swapped[index]) for index, name in enumerate(a.keys)}
    p_values = [_p_value(scores_a[name], scores_b[name], found[name][1], exact) for name in chosen]
    compared = {}
    for name, p_value, adjusted in zip(chosen, p_values, adjust(p_values, correction).tolist(), strict=True):
        difference = scores_b[name] - scores_a[name]
        low, high = interval(name, difference, found[name][0], level)
        if a.n_rows < 2 and not np.isnan(difference):
            low, high = -100.0, 100.0  # a single row has no variance to estimate
        compared[name] = Difference(scores_a[name], scores_b[name], difference, low, high, p_value, adjusted)
    return Comparison(
        compared, n_rows=a.n_rows, level=level, correction=correction, permutations=swapped.shape[1], exact=exact
    )


def adjust(p_values: npt.ArrayLike, method: Correction = "holm") -> Float64:
    """Adjust p-values for the number of comparisons.

    Parameters
    ----------
    p_values : array of float
        One per comparison, of several metrics or several models.
    method : {"holm", "benjamini-hochberg", "none"}
        - ``"holm"``: controls the family-wise error rate under any dependence between comparisons.
        - ``"benjamini-hochberg"``: controls the false discovery rate of independent or positively dependent
          comparisons.
        - ``"none"``: as they are.

    Returns
    -------
    ndarray of float64
        Adjusted p-values in the same order.

    Examples
    --------
    >>> adjust([0.01, 0.04, 0.03])
    array([0.03, 0.06, 0.06])
    >>> adjust([0.01, 0.04, 0.03], "benjamini-hochberg")
    array([0.03, 0.04, 0.04])
    """
    check("method", method, _CORRECTION)
    p = np.array(p_values, np.float64)
    if p.ndim != 1 or not ((p >= 0) & (p <= 1)).all():
        raise InputError("p-values must be a list of numbers between 0 and 1.")
    if method == "none":
        return p
    order = np.argsort(p, kind="stable")
    ranked, m = p[order], len(p)
    if method == "holm":
        ranked = np.maximum.accumulate(ranked * np.arange(m, 0, -1))
    else:
        ranked = np.minimum.accumulate((ranked * m / np.arange(1, m + 1))[::-1])[::-1]
    p[order] = np.minimum(ranked, 1.0)
    return p


def _p_value(a: float, b: float, swapped: Float64, exact: bool) -> float:
    """Share of permutations with a difference as large as the observed one, which is counted unless it is included."""
    as_large = int((np.abs(swapped) >= abs(b - a) - _ROUNDING * max(a, b)).sum())
    return as_large / len(swapped) if exact else (as_large + 1) / (len(swapped) + 1)


def _chosen(metrics: Iterable[str] | None, keys: list[str]) -> list[str]:
    if metrics is None:
        return keys
    wanted = list(metrics)
    unknown = [name for name in wanted if name not in keys]
    if unknown or not wanted or isinstance(metrics, str):
        wrong = unknown[0] if unknown else metrics
        raise ParameterError("metrics", wrong, f"must hold metrics that are evaluated: {', '.join(keys)}")
    return [name for name in keys if name in wanted]

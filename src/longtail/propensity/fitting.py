"""Fit A and B of the model of Jain et al. to estimated propensities.

With g(B) = ln((n + B) / (1 + B)) the model is logit p = A g(B) - ln(ln N - 1), a line in g. The fit is by least squares
on p and not on its logit: an observed share is an unbiased estimate of p, while its logit is biased, and infinite for
shares of 0 and 1; and residuals of p are bounded, so that no single point dominates. At n = 1 the model gives 1 / ln N
whatever A and B are, so such points do not determine them.
"""

from __future__ import annotations

from math import log

import numpy as np
import numpy.typing as npt

from longtail.data.jain_curve import jain_curve
from longtail.errors import InputError
from longtail.kernels.types import Float64, Int64
from longtail.propensity.models import JainPropensity, check_counts
from longtail.propensity.points import PropensityPoints
from longtail.validation import LEVEL, SEED, Integer, Number, check, numbers_per_label

A_BOUNDS, B_BOUNDS = (0.0, 10.0), (1e-3, 1e4)
"""Bounds of A and B."""


_LOW = np.array([A_BOUNDS[0], log(B_BOUNDS[0])])
_HIGH = np.array([A_BOUNDS[1], log(B_BOUNDS[1])])
_STARTS = np.array([(a, log(b)) for a in (0.1, 0.5, 1.5, 4.0) for b in (0.05, 1.0, 10.0, 300.0)])
_RESTARTS = np.array([(0.2, 0.0), (0.6, 1.0), (1.5, 3.0)])
_STEPS = 200
_CELLS = 1 << 17  # of a batch of problems, which fits the cache
_MANY_LEVELS = 256  # from here on, resamples are fitted from the optimum of all points alone


class FittedPropensity(JainPropensity):
    """The model of Jain et al. with constants fitted by `fit_jain` or `PropensityPoints.fit`.

    Parameters
    ----------
    a, b : float
        See `JainPropensity`.

    Attributes
    ----------
    a_interval_, b_interval_ : tuple of float
        Bootstrap intervals.
    level_ : float
        Level of the intervals.
    error_ : float
        Root mean square distance between points and curve.
    points_ : PropensityPoints
        The points of the fit.
    weights_ : ndarray of float64
        Their weights.
    draws_ : ndarray of float64, shape (resamples, 2)
        A and B of each bootstrap resample.

    Examples
    --------
    >>> counts, shares = [2, 5, 10, 50, 200, 1000], [0.13, 0.19, 0.24, 0.43, 0.64, 0.82]
    >>> fitted = fit_jain(counts, shares, n_rows=10_000)
    >>> fitted.a_interval_[0] <= fitted.a <= fitted.a_interval_[1], fitted.at_bound
    (True, False)
    >>> low, high = fitted.band([20])
    >>> bool(low[0] <= fitted.propensities([20], 10_000)[0] <= high[0])
    True
    """

    _stored = ("a_interval_", "b_interval_", "level_", "error_")

    a_interval_: tuple[float, float]
    b_interval_: tuple[float, float]
    level_: float
    error_: float
    points_: PropensityPoints
    weights_: Float64
    draws_: Float64

    def __init__(self, *, a: float = 0.55, b: float = 1.5) -> None:
        super().__init__(a=a, b=b)

    @property
    def at_bound(self) -> bool:
        """True if A or B is at its bound, so that the points do not determine it."""
        return _is_at(self.a, A_BOUNDS) or _is_at(self.b, B_BOUNDS)

    def distance(self, other: JainPropensity) -> float:
        """Return the root mean square distance between the points and another curve, weighted as in the fit."""
        points = self.points_
        residuals = other.propensities(points.counts, points.n_rows) - points.propensities
        return float(np.sqrt((self.weights_ * residuals**2).sum() / self.weights_.sum()))

    def band(self, label_counts: npt.ArrayLike) -> tuple[Float64, Float64]:
        """Return the pointwise interval of the curve at these counts: lower and upper propensities at `level_`."""
        counts = check_counts(label_counts, self.points_.n_rows)
        curves = jain_curve(counts, self.draws_[:, :1], self.draws_[:, 1:], self.points_.n_rows)
        low, high = np.quantile(curves, _tails(self.level_), axis=0)
        return low, high


def fit_jain(
    counts: npt.ArrayLike,
    propensities: npt.ArrayLike,
    n_rows: int,
    *,
    weights: npt.ArrayLike | None = None,
    level: float = 0.95,
    resamples: int = 500,
    random_state: int = 0,
) -> FittedPropensity:
    """Fit A and B to pairs of count and propensity, by least squares on the propensities.

    Parameters
    ----------
    counts : array-like, shape (m,)
        Training counts of labels or bins of labels.
    propensities : array-like, shape (m,)
        Their estimated propensities, from 0 to 1.
    n_rows : int
        Training rows, at least 3.
    weights : array-like, shape (m,), optional
        Weights of the points, equal by default.
    level : float
        Level of the intervals, between 0 and 1.
    resamples : int
        Bootstrap resamples of the points, for the intervals, which do not reflect a bias shared by all points.
    random_state : int
        Seed of the resampling.

    Returns
    -------
    FittedPropensity
        With A from 0 to 10 and B from 0.001 to 10,000.

    Examples
    --------
    >>> counts = [2, 5, 10, 50, 200, 1000]
    >>> known = JainPropensity(a=0.6, b=2.6)
    >>> fitted = fit_jain(counts, known.propensities(counts, 10_000), 10_000)
    >>> round(fitted.a, 3), round(fitted.b, 3), round(fitted.error_, 3)
    (0.6, 2.6, 0.0)
    """
    values = np.asarray(propensities)
    if values.ndim != 1 or (values.size and values.dtype.kind not in "biuf"):
        raise InputError("propensities must be a flat array with one number for each count.")
    checked = check_counts(counts, n_rows)
    if len(checked) != len(values):
        raise InputError(f"There are {len(checked)} counts and {len(values)} propensities: give one for each count.")
    ones = np.ones(len(values), np.int64)
    points = PropensityPoints(checked, values.astype(np.float64), ones, ones, int(n_rows))
    return fit_points(points, weights=weights, level=level, resamples=resamples, random_state=random_state)


def fit_points(
    points: PropensityPoints,
    *,
    weights: npt.ArrayLike | None = None,
    level: float = 0.95,
    resamples: int = 500,
    random_state: int = 0,
) -> FittedPropensity:
    """Fit A and B to points; see `fit_jain`."""
    check("n_rows", points.n_rows, Integer(3, 2**63 - 1))
    check("resamples", resamples, Integer(1))
    check("random_state", random_state, SEED)
    check("level", level, LEVEL)
    wrong = ~((points.propensities >= 0) & (points.propensities <= 1))
    if wrong.any():
        point = int(wrong.argmax())
        raise InputError(f"propensities has {points.propensities[point]:g} at {point}: it must be from 0 to 1.")
    checked = _checked_weights(weights, len(points))
    problem = _Problem(points, checked)
    found = problem.informative_counts(np.ones(len(points), np.int64))
    if found < 3:
        raise InputError(
            "A and B can't be fitted: they need points at three or more counts other than 1 (there the model gives "
            f"1 / ln N whatever they are), and have only {found}: use more labels or smaller bins."
        )
    best = problem.fit()
    draws = problem.fit_resamples(resamples, random_state, best)
    fitted = FittedPropensity(a=float(best[0]), b=float(np.exp(best[1])))
    fitted.draws_ = np.column_stack([draws[:, 0], np.exp(draws[:, 1])])
    (a_low, b_low), (a_high, b_high) = np.quantile(fitted.draws_, _tails(level), axis=0)
    fitted.a_interval_, fitted.b_interval_ = (float(a_low), float(a_high)), (float(b_low), float(b_high))
    fitted.level_ = float(level)
    fitted.points_, fitted.weights_ = points, checked
    fitted.error_ = fitted.distance(fitted)
    return fitted


class _Problem:
    """Weighted least squares over points, grouped by their distinct counts."""

    def __init__(self, points: PropensityPoints, weights: Float64) -> None:
        self.levels, self.level_of_point = np.unique(points.counts, return_inverse=True)
        self.propensities, self.weights = points.propensities, weights
        self.n_rows = points.n_rows

    def informative_counts(self, times: Int64) -> int:
        """Return the number of distinct counts other than 1 in a resample."""
        present = np.unique(self.level_of_point[times * self.weights > 0])
        return int((self.levels[present] != 1).sum())

    def fit(self) -> Float64:
        """Return (A, ln B) of all points."""
        return self._solve([np.ones(len(self.weights), np.int64)], _STARTS).reshape(2)

    def fit_resamples(self, resamples: int, seed: int, start: Float64) -> Float64:
        """Return (A, ln B) of each resample; resamples that do not determine them are replaced."""
        rng = np.random.default_rng(seed)
        starts = np.vstack([start, _RESTARTS]) if len(self.levels) <= _MANY_LEVELS else start[None, :]
        step = max(_CELLS // len(self.levels), 1)
        sizes = [min(step, resamples - first) for first in range(0, resamples, step)]
        return np.concatenate([self._solve([self._draw(rng) for _ in range(size)], starts) for size in sizes])

    def _draw(self, rng: np.random.Generator) -> Int64:
        size = len(self.weights)
        times = np.zeros(size, np.int64)
        while self.informative_counts(times) < 2:
            times = np.bincount(rng.integers(0, size, size), minlength=size)
        return times

    def _solve(self, times: list[Int64], starts: Float64) -> Float64:
        mass, target = np.empty((len(times), len(self.levels))), np.empty((len(times), len(self.levels)))
        for row, often in enumerate(times):
            weights = often * (self.weights / self.weights.max())
            mass[row] = np.bincount(self.level_of_point, weights, len(self.levels))
            target[row] = np.bincount(self.level_of_point, weights * self.propensities, len(self.levels))
        np.divide(target, mass, out=target, where=mass > 0)
        mass /= mass.sum(axis=1, keepdims=True)
        found = [_descend(np.tile(start, (len(mass), 1)), self.levels, mass, target, self.n_rows) for start in starts]
        best = np.array([cost for _, cost in found]).argmin(axis=0)
        places: Float64 = np.array([place for place, _ in found])
        chosen: Float64 = places[best, np.arange(len(mass))]
        return chosen


def _descend(place: Float64, levels: Float64, mass: Float64, target: Float64, n_rows: int) -> tuple[Float64, Float64]:
    """Run Levenberg-Marquardt within the bounds for many problems together; return (A, ln B) and the cost of each."""
    damping = np.full(len(place), 1e-3)
    cost = (mass * (_curve(place, levels, n_rows) - target) ** 2).sum(axis=1)
    active = np.arange(len(place))
    for _ in range(_STEPS):
        here, weight, goal = place[active], mass[active], target[active]
        tried = np.clip(here + _step(here, damping[active], levels, weight, goal, n_rows), _LOW, _HIGH)
        tried_cost = (weight * (_curve(tried, levels, n_rows) - goal) ** 2).sum(axis=1)
        better = tried_cost < cost[active]
        place[active[better]], cost[active[better]] = tried[better], tried_cost[better]
        damping[active] = np.clip(np.where(better, damping[active] / 5, damping[active] * 4), 1e-12, 1e12)
        active = active[np.abs(tried - here).max(axis=1) >= 1e-9]
        if not len(active):
            break
    return place, cost


def _step(place: Float64, damping: Float64, levels: Float64, mass: Float64, target: Float64, n_rows: int) -> Float64:
    """Return the step of the damped normal equations; a parameter at its bound does not move beyond it."""
    b = np.exp(place[:, 1:])
    curve = _curve(place, levels, n_rows)
    slope = curve * (1 - curve)
    by_a = slope * np.log((levels + b) / (1 + b))
    by_b = slope * place[:, :1] * (b / (levels + b) - b / (1 + b))
    residual = mass * (curve - target)
    gradient = np.column_stack([(residual * by_a).sum(axis=1), (residual * by_b).sum(axis=1)])
    free = ~(((place <= _LOW) & (gradient > 0)) | ((place >= _HIGH) & (gradient < 0)))
    gradient *= free
    aa, bb = ((mass * by**2).sum(axis=1) * (1 + damping) + 1e-15 for by in (by_a, by_b))
    ab = (mass * by_a * by_b).sum(axis=1) * free.all(axis=1)
    move = np.column_stack([bb * gradient[:, 0] - ab * gradient[:, 1], aa * gradient[:, 1] - ab * gradient[:, 0]])
    step: Float64 = np.clip(-move / (aa * bb - ab**2)[:, None], -2.0, 2.0) * free
    return step


def _curve(place: Float64, levels: Float64, n_rows: int) -> Float64:
    """Return the propensities of the model at `levels` for each row (A, ln B) of `place`."""
    return jain_curve(levels, place[:, :1], np.exp(place[:, 1:]), n_rows)


def _checked_weights(weights: npt.ArrayLike | None, size: int) -> Float64:
    if weights is None:
        return np.ones(size)
    return numbers_per_label("weights", weights, Number(low=0), size, each="point")


def _tails(level: float) -> tuple[float, float]:
    return (1 - level) / 2, (1 + level) / 2


def _is_at(value: float, bounds: tuple[float, float]) -> bool:
    return bool(np.isclose(value, bounds, rtol=1e-6, atol=1e-9).any())

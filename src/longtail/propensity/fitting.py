"""A and B of the model of Jain et al. from estimated propensities.

With g(B) = ln((n + B) / (1 + B)) the model reads logit p = A g(B) - ln(ln N - 1): a straight line in g on the logit
scale. The fit is nevertheless one of least squares on the scale of p itself, for two reasons. An observed share is an
unbiased estimate of p, while its logit is biased, and infinite for the shares 0 and 1 that small bins do have. And a
residual of p lies between -1 and 1, so that no single point can carry the fit away. At n = 1 the model gives 1 / ln N
whatever A and B are: such points say nothing about them.
"""

from __future__ import annotations

from math import log

import numpy as np
import numpy.typing as npt

from longtail.errors import InputError, ParameterError
from longtail.propensity.base import check_counts, is_number
from longtail.propensity.jain import JainPropensity
from longtail.propensity.points import PropensityPoints, check_whole

A_BOUNDS, B_BOUNDS = (0.0, 10.0), (1e-3, 1e4)
"""Where A and B are sought."""

Float64 = npt.NDArray[np.float64]

_LOW = np.array([A_BOUNDS[0], log(B_BOUNDS[0])])
_HIGH = np.array([A_BOUNDS[1], log(B_BOUNDS[1])])
_STARTS = np.array([(a, log(b)) for a in (0.1, 0.5, 1.5, 4.0) for b in (0.05, 1.0, 10.0, 300.0)])
_RESTARTS = np.array([(0.2, 0.0), (0.6, 1.0), (1.5, 3.0)])
_STEPS = 200
_CELLS = 1 << 17  # of a batch of problems: what stays in the cache
_MANY_LEVELS = 256  # from here on a resample is so like the whole that its best place is found from the whole's


class FittedPropensity(JainPropensity):
    """The model of Jain et al. with constants that were fitted; used like any other propensity model.

    Made by `fit_jain` and by `PropensityPoints.fit`.

    Parameters
    ----------
    a, b : float
        See `JainPropensity`.

    Attributes
    ----------
    a_interval_, b_interval_ : tuple of float
        Bootstrap intervals.
    level_ : float
        Their level.
    error_ : float
        Root mean square distance between the points and the curve, on the scale of propensities.
    points_ : PropensityPoints
        What the curve was fitted to.
    weights_ : ndarray of float64
        How much each point counted.
    draws_ : ndarray of float64, shape (resamples, 2)
        A and B of each resample.
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
        """Whether A or B lies at the edge of where it was sought, so that the points don't determine it."""
        return _is_at(self.a, A_BOUNDS) or _is_at(self.b, B_BOUNDS)

    def distance(self, other: JainPropensity) -> float:
        """Root mean square distance between the points and another curve, weighted as in the fit."""
        points = self.points_
        residuals = other.propensities(points.counts, points.n_rows) - points.propensities
        return float(np.sqrt((self.weights_ * residuals**2).sum() / self.weights_.sum()))

    def band(self, label_counts: npt.ArrayLike) -> tuple[Float64, Float64]:
        """Interval of the curve at these counts: the lower and the upper propensity, each by itself at `level_`."""
        counts = check_counts(label_counts, self.points_.n_rows)
        offset = log(log(self.points_.n_rows) - 1.0)
        curves = _curve(np.column_stack([self.draws_[:, 0], np.log(self.draws_[:, 1])]), counts, offset)
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
    seed: int = 0,
) -> FittedPropensity:
    """Fit A and B to pairs of count and propensity, by least squares on the propensities.

    Parameters
    ----------
    counts : array-like, shape (m,)
        Training count of a label, or of a bin of labels.
    propensities : array-like, shape (m,)
        Estimated propensity of each, from 0 to 1.
    n_rows : int
        Training rows, at least 3.
    weights : array-like, shape (m,), optional
        How much each point counts; all the same by default.
    level : float
        Of the intervals, between 0 and 1.
    resamples : int
        Bootstrap resamples of the points, from which the intervals are taken. They show the scatter of the points, not
        a bias that all of them share.
    seed : int
        Of the resampling.

    Returns
    -------
    FittedPropensity
        With A from 0 to 10 and B from 0.001 to 10,000. A = 0 means that propensity doesn't rise with the count.

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
    return fit_points(points, weights=weights, level=level, resamples=resamples, seed=seed)


def fit_points(
    points: PropensityPoints,
    *,
    weights: npt.ArrayLike | None = None,
    level: float = 0.95,
    resamples: int = 500,
    seed: int = 0,
) -> FittedPropensity:
    """Fit A and B to points; see `fit_jain`."""
    check_whole("n_rows", points.n_rows, 3)
    check_whole("resamples", resamples)
    check_whole("seed", seed, 0)
    if not is_number(level) or not 0 < level < 1:
        raise ParameterError("level", level, "must be a number between 0 and 1")
    wrong = ~((points.propensities >= 0) & (points.propensities <= 1))
    if wrong.any():
        point = int(wrong.argmax())
        raise InputError(f"propensities has {points.propensities[point]:g} at {point}: it must be from 0 to 1.")
    checked = _checked_weights(weights, len(points))
    problem = _Problem(points, checked)
    found = problem.telling_counts(np.ones(len(points), np.int64))
    if found < 3:
        raise InputError(
            "A and B can't be fitted: they need points at three or more counts other than 1 (there the model gives "
            f"1 / ln N whatever they are), and have only {found}: use more labels or smaller bins."
        )
    best = problem.fit()
    draws = problem.fit_resamples(resamples, seed, best)
    fitted = FittedPropensity(a=float(best[0]), b=float(np.exp(best[1])))
    fitted.draws_ = np.column_stack([draws[:, 0], np.exp(draws[:, 1])])
    (a_low, b_low), (a_high, b_high) = np.quantile(fitted.draws_, _tails(level), axis=0)
    fitted.a_interval_, fitted.b_interval_ = (float(a_low), float(a_high)), (float(b_low), float(b_high))
    fitted.level_ = float(level)
    fitted.points_, fitted.weights_ = points, checked
    fitted.error_ = fitted.distance(fitted)
    return fitted


class _Problem:
    """Weighted least squares over points; points of equal count are one, so that its size is that of the counts."""

    def __init__(self, points: PropensityPoints, weights: Float64) -> None:
        self.levels, self.level_of_point = np.unique(points.counts, return_inverse=True)
        self.propensities, self.weights = points.propensities, weights
        self.offset = log(log(points.n_rows) - 1.0)

    def telling_counts(self, times: npt.NDArray[np.int64]) -> int:
        """Count where the points lie, each taken so many times: the counts other than 1."""
        present = np.unique(self.level_of_point[times * self.weights > 0])
        return int((self.levels[present] != 1).sum())

    def fit(self) -> Float64:
        """Give (A, ln B) of all points."""
        return self._solve([np.ones(len(self.weights), np.int64)], _STARTS).reshape(2)

    def fit_resamples(self, resamples: int, seed: int, start: Float64) -> Float64:
        """Give (A, ln B) of each resample; resamples that leave them open are drawn again."""
        rng = np.random.default_rng(seed)
        starts = np.vstack([start, _RESTARTS]) if len(self.levels) <= _MANY_LEVELS else start[None, :]
        step = max(_CELLS // len(self.levels), 1)
        sizes = [min(step, resamples - first) for first in range(0, resamples, step)]
        return np.concatenate([self._solve([self._draw(rng) for _ in range(size)], starts) for size in sizes])

    def _draw(self, rng: np.random.Generator) -> npt.NDArray[np.int64]:
        size = len(self.weights)
        times = np.zeros(size, np.int64)
        while self.telling_counts(times) < 2:
            times = np.bincount(rng.integers(0, size, size), minlength=size)
        return times

    def _solve(self, times: list[npt.NDArray[np.int64]], starts: Float64) -> Float64:
        mass, target = np.empty((len(times), len(self.levels))), np.empty((len(times), len(self.levels)))
        for row, often in enumerate(times):
            weights = often * (self.weights / self.weights.max())
            mass[row] = np.bincount(self.level_of_point, weights, len(self.levels))
            target[row] = np.bincount(self.level_of_point, weights * self.propensities, len(self.levels))
        np.divide(target, mass, out=target, where=mass > 0)
        mass /= mass.sum(axis=1, keepdims=True)
        found = [_descend(np.tile(start, (len(mass), 1)), self.levels, mass, target, self.offset) for start in starts]
        best = np.array([cost for _, cost in found]).argmin(axis=0)
        places: Float64 = np.array([place for place, _ in found])
        chosen: Float64 = places[best, np.arange(len(mass))]
        return chosen


def _descend(place: Float64, levels: Float64, mass: Float64, target: Float64, offset: float) -> tuple[Float64, Float64]:
    """Run Levenberg-Marquardt within the bounds for many problems at once; give places (A, ln B) and their costs."""
    damping = np.full(len(place), 1e-3)
    cost = (mass * (_curve(place, levels, offset) - target) ** 2).sum(axis=1)
    active = np.arange(len(place))
    for _ in range(_STEPS):
        here, weight, goal = place[active], mass[active], target[active]
        tried = np.clip(here + _step(here, damping[active], levels, weight, goal, offset), _LOW, _HIGH)
        tried_cost = (weight * (_curve(tried, levels, offset) - goal) ** 2).sum(axis=1)
        better = tried_cost < cost[active]
        place[active[better]], cost[active[better]] = tried[better], tried_cost[better]
        damping[active] = np.clip(np.where(better, damping[active] / 5, damping[active] * 4), 1e-12, 1e12)
        active = active[np.abs(tried - here).max(axis=1) >= 1e-9]
        if not len(active):
            break
    return place, cost


def _step(place: Float64, damping: Float64, levels: Float64, mass: Float64, target: Float64, offset: float) -> Float64:
    """Move that the damped normal equations ask for; a parameter at a bound that wants to leave it stays."""
    b = np.exp(place[:, 1:])
    curve = _curve(place, levels, offset)
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


def _curve(place: Float64, levels: Float64, offset: float) -> Float64:
    """Propensities of the model at `levels` for each row (A, ln B) of `place`."""
    b = np.exp(place[:, 1:])
    curve: Float64 = 1.0 / (1.0 + np.exp(offset - place[:, :1] * np.log((levels + b) / (1 + b))))
    return curve


def _checked_weights(weights: npt.ArrayLike | None, size: int) -> Float64:
    if weights is None:
        return np.ones(size)
    checked = np.asarray(weights)
    if checked.shape != (size,) or checked.dtype.kind not in "biuf":
        raise InputError(f"weights must be a flat array with one number for each of {size} points.")
    if not (np.isfinite(checked).all() and (checked >= 0).all()):
        raise InputError("weights must hold finite numbers of at least 0.")
    return checked.astype(np.float64)


def _tails(level: float) -> tuple[float, float]:
    return (1 - level) / 2, (1 + level) / 2


def _is_at(value: float, bounds: tuple[float, float]) -> bool:
    return bool(np.isclose(value, bounds, rtol=1e-6, atol=1e-9).any())

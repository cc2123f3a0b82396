"""Room for names beside points, so that they cover neither each other nor the points."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_SIDES = np.array([[1, 0], [-1, 0], [0, 1], [0, -1], [0.7, 0.7], [-0.7, 0.7], [0.7, -0.7], [-0.7, -0.7]])
_ON_LINE = 9  # points by which a line is followed


class Place(NamedTuple):
    """Where a name stands.

    Parameters
    ----------
    point : int
        The point that it belongs to.
    move : tuple of float
        From the point to the side or corner of the name that is nearest to it; the signs say which one that is.
    box : ndarray
        Left, bottom, right and top of the name.
    """

    point: int
    move: tuple[float, float]
    box: Floats


def places(
    points: Floats,
    sizes: Iterable[tuple[float, float]],
    room: Sequence[float],
    gaps: Sequence[float],
    *,
    clear: float = 0.0,
    costs: Floats | None = None,
    needed: int = 0,
    most: int | None = None,
) -> Iterator[Place]:
    """Find room for names, those of the first points first; those that find none are left out.

    Names stand across no other name and no point. Lines may lead from points to names, and meet neither.

    Parameters
    ----------
    points : ndarray, shape (n, 2)
    sizes : iterable of (float, float)
        Width and height of the names of the first points.
    room : sequence of float
        Left, bottom, right and top of what may be used.
    gaps : sequence of float
        Distances from point to name, in the order in which they are tried.
    clear : float
        How far names and lines stay away from points, but for those that lie as close to the name's own.
    costs : ndarray, optional
        What it costs to come too close to each point, 1 by default.
    needed : int
        Names of so many of the first points may come too close to others, at the least cost that can be.
    most : int, optional
        Give up after so many.

    Examples
    --------
    >>> points = np.array([[0.0, 0.0], [3.0, 0.0]])
    >>> [place.move for place in places(points, [(4.0, 1.0), (4.0, 1.0)], (-9, -9, 9, 9), [1.0])]
    [(-1.0, 0.0), (1.0, 0.0)]
    """
    moves = (np.asarray(gaps, np.float64)[:, None, None] * _SIDES).reshape(-1, 2)
    steps = np.linspace(0, 1, _ON_LINE)[:, None, None] * moves
    prices = np.ones(len(points)) if costs is None else costs
    taken, lines = np.empty((0, 4)), np.empty((0, 2))
    for point, size in enumerate(sizes):
        if len(taken) == most:
            return
        boxes = _boxes(points[point] + moves, np.sign(moves), np.asarray(size))
        free = (boxes[:, :2] >= room[:2]).all(axis=1) & (boxes[:, 2:] <= room[2:]).all(axis=1)
        free &= ~_meet(boxes, taken).any(axis=1) & ~_hold(boxes, lines).any(axis=1)
        ways = points[point] + steps
        free &= ~_hold(taken, ways.reshape(-1, 2)).any(axis=0).reshape(ways.shape[:2]).any(axis=0)
        spots = np.flatnonzero(free)
        if not len(spots):
            continue
        others = _apart(points, points[point]) >= clear
        passed = (_apart(ways[:, spots, None], points[others]) < clear).any(axis=0)
        around = boxes[spots] + [-clear, -clear, clear, clear]
        cost = _hold(boxes[spots], points) @ prices + (_hold(around, points[others]) | passed) @ prices[others]
        chosen = spots[cost.argmin()]  # of equals the first, which is the nearest
        if cost.min() > 0 and point >= needed:
            continue
        taken, lines = np.vstack([taken, boxes[chosen]]), np.vstack([lines, ways[:, chosen]])
        yield Place(point, (float(moves[chosen, 0]), float(moves[chosen, 1])), boxes[chosen])


def _apart(points: Floats, others: Floats) -> Floats:
    """Distances, all against all where the shapes say so."""
    return np.asarray(np.sqrt(((points - others) ** 2).sum(axis=-1)))


def _boxes(ends: Floats, side: Floats, size: Floats) -> Floats:
    """Boxes of one size that lie on some side of their ends."""
    middle = ends + side * size / 2
    return np.hstack([middle - size / 2, middle + size / 2])


def _meet(boxes: Floats, others: Floats) -> npt.NDArray[np.bool_]:
    """Which boxes have a part in common with which others."""
    one, other = boxes[:, None], others[None]
    return np.asarray(((one[..., :2] < other[..., 2:]) & (other[..., :2] < one[..., 2:])).all(axis=2))


def _hold(boxes: Floats, points: Floats) -> npt.NDArray[np.bool_]:
    """Which boxes hold which points."""
    box, point = boxes[:, None], points[None]
    return np.asarray(((point > box[..., :2]) & (point < box[..., 2:])).all(axis=2))

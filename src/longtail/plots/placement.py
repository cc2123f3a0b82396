"""Placement of names beside points, so that they cover neither each other nor the points."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from longtail.kernels.types import Flags, Float64

_SIDES = np.array([[1, 0], [-1, 0], [0, 1], [0, -1], [0.7, 0.7], [-0.7, 0.7], [0.7, -0.7], [-0.7, -0.7]])
_ON_LINE = 9  # points that a line is sampled at


class Place(NamedTuple):
    """Position of a name."""

    point: int  # index of the point that is named
    move: tuple[float, float]  # from the point to the nearest side or corner of the name; the signs say which one
    box: Float64  # left, bottom, right and top of the name


def place_names(
    points: Float64,
    sizes: Iterable[tuple[float, float]],
    room: Sequence[float],
    gaps: Sequence[float],
    *,
    clear: float = 0.0,
    costs: Float64 | None = None,
    needed: int = 0,
    most: int | None = None,
) -> Iterator[Place]:
    """Find room for names greedily, in the order of the points; names without room are left out.

    Names overlap no other name and no point. Lines may lead from points to names, and cross neither.

    Parameters
    ----------
    points : ndarray, shape (n, 2)
    sizes : iterable of (float, float)
        Width and height of the names of the first points.
    room : sequence of float
        Left, bottom, right and top of the free area.
    gaps : sequence of float
        Distances from point to name, in the order in which they are tried.
    clear : float
        Distance that names and lines keep from points, except from points that close to the named one.
    costs : ndarray, optional
        Cost of coming too close to each point, 1 by default.
    needed : int
        Number of first points whose names may come too close to others, at the lowest possible cost.
    most : int, optional
        Maximum number of names.

    Examples
    --------
    >>> points = np.array([[0.0, 0.0], [3.0, 0.0]])
    >>> [place.move for place in place_names(points, [(4.0, 1.0), (4.0, 1.0)], (-9, -9, 9, 9), [1.0])]
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
        # Positions inside the area that neither the names nor the lines placed so far cross.
        free = (boxes[:, :2] >= room[:2]).all(axis=1) & (boxes[:, 2:] <= room[2:]).all(axis=1)
        free &= ~_meet(boxes, taken).any(axis=1) & ~_hold(boxes, lines).any(axis=1)
        ways = points[point] + steps
        free &= ~_hold(taken, ways.reshape(-1, 2)).any(axis=0).reshape(ways.shape[:2]).any(axis=0)
        spots = np.flatnonzero(free)
        if not len(spots):
            continue
        # Cost of each position: points that the name covers, or that the name or its line come too close to.
        others = _apart(points, points[point]) >= clear
        passed = (_apart(ways[:, spots, None], points[others]) < clear).any(axis=0)
        around = boxes[spots] + [-clear, -clear, clear, clear]
        cost = _hold(boxes[spots], points) @ prices + (_hold(around, points[others]) | passed) @ prices[others]
        chosen = spots[cost.argmin()]  # of equal costs the first, which is the nearest
        if cost.min() > 0 and point >= needed:
            continue
        taken, lines = np.vstack([taken, boxes[chosen]]), np.vstack([lines, ways[:, chosen]])
        yield Place(point, (float(moves[chosen, 0]), float(moves[chosen, 1])), boxes[chosen])


def _apart(points: Float64, others: Float64) -> Float64:
    """Return Euclidean distances, broadcast over the leading axes."""
    return np.asarray(np.sqrt(((points - others) ** 2).sum(axis=-1)))


def _boxes(ends: Float64, side: Float64, size: Float64) -> Float64:
    """Return boxes of one size that lie on the given side of their ends."""
    middle = ends + side * size / 2
    return np.hstack([middle - size / 2, middle + size / 2])


def _meet(boxes: Float64, others: Float64) -> Flags:
    """Return which boxes overlap which others."""
    one, other = boxes[:, None], others[None]
    return np.asarray(((one[..., :2] < other[..., 2:]) & (other[..., :2] < one[..., 2:])).all(axis=2))


def _hold(boxes: Float64, points: Float64) -> Flags:
    """Return which boxes contain which points."""
    box, point = boxes[:, None], points[None]
    return np.asarray(((point > box[..., :2]) & (point < box[..., 2:])).all(axis=2))

"""The Pareto front of a search, and three named points on it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Point:
    """A recipe with settings and a position of the tail dial, and means over the validation splits."""

    recipe: str
    settings: Mapping[str, Any]  # as ``longtail train --set`` takes them
    tail: float  # the tail dial; 0 for none
    scores: tuple[float, ...]  # by objective
    seconds: float  # training time

    def command(self, train: str, out: str, more: Sequence[str] = ()) -> str:
        """Return the command that trains it, with `more` options."""
        parts = ["longtail", "train", self.recipe, train]
        for name, value in self.settings.items():
            parts += ["--set", f"{name}={value}"]
        parts += ["--tail", f"{self.tail:g}"] if self.tail else []
        return shlex.join([*parts, *more, "--out", out])

    def beats(self, other: Point) -> bool:
        """Return whether it dominates another point: nowhere worse and somewhere better."""
        pairs = list(zip(self.scores, other.scores, strict=True))
        return all(own >= theirs for own, theirs in pairs) and any(own > theirs for own, theirs in pairs)


def front_of(points: Sequence[Point]) -> list[Point]:
    """Return the points that no other dominates, the best by the first objective first; of equal ones the fastest.

    Examples
    --------
    >>> found = front_of([Point("a", {}, 0, (3, 1), 1), Point("b", {}, 0, (2, 2), 1), Point("c", {}, 0, (1, 1), 1)])
    >>> [point.recipe for point in found]
    ['a', 'b']
    """
    best: dict[tuple[float, ...], Point] = {}
    for point in points:
        known = best.get(point.scores)
        if known is None or point.seconds < known.seconds:
            best[point.scores] = point
    kept = [point for point in best.values() if not any(other.beats(point) for other in best.values())]
    return sorted(kept, key=lambda point: tuple(-score for score in point.scores))


def picks_of(front: Sequence[Point]) -> dict[str, Point]:
    """Return the best by the first objective, the best by the last, and the best by the mean of relative scores.

    Examples
    --------
    >>> front = [Point("a", {}, 0, (10, 1), 1), Point("b", {}, 0, (9, 9), 1), Point("c", {}, 0, (1, 10), 1)]
    >>> {name: point.recipe for name, point in picks_of(front).items()}
    {'plain': 'a', 'balanced': 'b', 'tail': 'c'}
    """
    if not front:
        return {}
    bests = [max(max(point.scores[number] for point in front), 1e-9) for number in range(len(front[0].scores))]

    def balance(point: Point) -> float:
        return sum(score / best for score, best in zip(point.scores, bests, strict=True))

    return {
        "plain": max(front, key=lambda point: point.scores[0]),
        "balanced": max(front, key=balance),
        "tail": max(front, key=lambda point: point.scores[-1]),
    }

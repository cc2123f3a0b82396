"""What a search found: the points that nothing beats on both measures, and three of them by name."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PICKS = ("plain", "balanced", "tail")


@dataclass(frozen=True)
class Point:
    """A recipe with its settings and a position of the tail dial, and what it scored on rows that were held out.

    Parameters
    ----------
    recipe : str
    settings : mapping of str to number
        As ``longtail train --set`` takes them.
    tail : float
        The tail dial; 0 for none.
    scores : tuple of float
        One for each objective, the mean over the splits.
    seconds : float
        Of training, the mean over the splits.
    """

    recipe: str
    settings: Mapping[str, Any]
    tail: float
    scores: tuple[float, ...]
    seconds: float

    def command(self, train: str, out: str, more: Sequence[str] = ()) -> str:
        """The command that trains it, with `more` options."""
        parts = ["longtail", "train", self.recipe, train]
        for name, value in self.settings.items():
            parts += ["--set", f"{name}={value}"]
        parts += ["--tail", f"{self.tail:g}"] if self.tail else []
        return shlex.join([*parts, *more, "--out", out])

    def beats(self, other: Point) -> bool:
        """Whether it is nowhere worse and somewhere better."""
        pairs = list(zip(self.scores, other.scores, strict=True))
        return all(own >= theirs for own, theirs in pairs) and any(own > theirs for own, theirs in pairs)


def front_of(points: Sequence[Point]) -> list[Point]:
    """Points that no other beats, the best by the first objective first; of equal ones the quickest.

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
    """The best by the first objective, the best by the last, and the one with the best mean share of both bests.

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

"""Pairs (child, parent) of a hierarchy, in which integers are label ids and strings are other concepts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np

from longtail.data.cycles import cycle_reason, find_cycle
from longtail.data.hierarchy import Hierarchy
from longtail.data.label_index import LabelIndex
from longtail.errors import InputError, truncated
from longtail.kernels.types import Int64

Concept = int | str


@dataclass(frozen=True)
class HierarchyOrPairs:
    """A hierarchy or its pairs, but not the name of a file.

    Examples
    --------
    >>> HierarchyOrPairs().accepts([(0, "Italy")]), HierarchyOrPairs().accepts("towns.tsv")
    (True, False)
    """

    requirement: str = (
        "pairs (child, parent) of label ids, as integers, and other concepts, as strings, or a Hierarchy, as "
        "read_hierarchy(path) returns it"
    )

    def accepts(self, value: Any) -> bool:
        """Return whether a value is valid."""
        is_pairs = isinstance(value, Iterable) and not isinstance(value, str | bytes | PathLike | Mapping)
        return is_pairs or isinstance(value, Hierarchy)


HIERARCHY = HierarchyOrPairs()
NO_PAIRS = f"The hierarchy must be {HIERARCHY.requirement}."


def numbered_pairs(
    hierarchy: Hierarchy | Any, n_labels: int | None = None, label_names: Sequence[str] | None = None
) -> tuple[list[Concept], Int64]:
    """Return the concepts of a hierarchy and its pairs as indices of them, checked and without duplicates.

    Parameters
    ----------
    hierarchy : Hierarchy, iterable of pairs, or array of shape (m, 2)
    n_labels : int, optional
        Number of labels: if given, label ids must be below it. A `Hierarchy` needs it, or `label_names`.
    label_names : sequence of str, optional
        Names of the labels, to match the concepts of a `Hierarchy` and for messages; their ids by default.

    Returns
    -------
    concepts : list of int or str
        By first occurrence.
    pairs : ndarray of int64, shape (m, 2)

    Examples
    --------
    >>> concepts, pairs = numbered_pairs([(0, "Italy"), (1, "Italy"), (0, "Italy")])
    >>> concepts, pairs.tolist()
    ([0, 'Italy', 1], [[0, 1], [2, 1]])
    >>> towns = Hierarchy(("Italy", "Rome"), (None, None), np.array([[1, 0]], np.int32))
    >>> numbered_pairs(towns, label_names=["Rome"])[0]
    [0, 'Italy']
    >>> numbered_pairs([(0, 1), (1, 0)], label_names=["Rome", "Italy"])
    Traceback (most recent call last):
    longtail.errors.InputError: The hierarchy contains a cycle, 'Rome' under 'Italy' under 'Rome': remove one of these \
pairs.
    """
    listed = _matched(hierarchy, n_labels, label_names) if isinstance(hierarchy, Hierarchy) else hierarchy
    numbers: dict[Concept, int] = {}
    found: dict[tuple[int, int], None] = {}
    for place, pair in enumerate(listed.tolist() if isinstance(listed, np.ndarray) else listed):
        child, parent = _checked(pair, place, n_labels)
        found[numbers.setdefault(child, len(numbers)), numbers.setdefault(parent, len(numbers))] = None
    concepts, pairs = list(numbers), np.array(list(found), np.int64).reshape(-1, 2)
    cycle = [concepts[one] for one in find_cycle(pairs, len(concepts))] if len(pairs) else []
    if cycle:
        names = [one if label_names is None or isinstance(one, str) else label_names[one] for one in cycle]
        raise InputError(f"The hierarchy {cycle_reason(names)}")
    return concepts, pairs


def _matched(
    hierarchy: Hierarchy, n_labels: int | None, label_names: Sequence[str] | None
) -> list[tuple[Concept, Concept]]:
    """Return the pairs of a hierarchy, its concepts matched with the names of the labels, else with their ids."""
    try:
        return hierarchy.pairs(LabelIndex(label_names, n_labels).all_shown())
    except InputError:
        if label_names is not None:
            raise
        raise InputError(
            f"The hierarchy of {len(hierarchy.names):,} concepts must have label ids among them; where these are label "
            "names, give hierarchy.pairs(label_names) instead."
        ) from None


def _checked(pair: Any, place: int, n_labels: int | None) -> tuple[Concept, Concept]:
    """Refuse what is no pair, and ids that are no labels."""
    if isinstance(pair, str) or not isinstance(pair, Iterable) or len(both := list(pair)) != 2:
        raise InputError(f"Pair {place} of the hierarchy is {_shown(pair)}. {NO_PAIRS}")
    for concept in both:
        if isinstance(concept, bool) or not isinstance(concept, str | int | np.integer):
            raise InputError(f"Pair {place} of the hierarchy is {_shown(pair)}. {NO_PAIRS}")
        if not isinstance(concept, str) and (concept < 0 or (n_labels is not None and concept >= n_labels)):
            allowed = "of at least 0" if n_labels is None else f"from 0 to {n_labels - 1}"
            raise InputError(
                f"Pair {place} of the hierarchy is {_shown(pair)}, and labels have ids {allowed}: give other concepts "
                "as strings, or leave them out."
            )
    child, parent = (str(one) if isinstance(one, str) else int(one) for one in both)
    return child, parent


def _shown(pair: Any) -> str:
    return truncated(repr(tuple(pair) if isinstance(pair, list) else pair))

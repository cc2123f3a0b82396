"""Pairs (child, parent) of a hierarchy, in which integers are label ids and strings are other concepts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from longtail.errors import InputError

Concept = int | str

NO_PAIRS = (
    "The hierarchy must be pairs (child, parent) of label ids, as integers, and other concepts, as strings, or a "
    "Hierarchy, as read_hierarchy(path) returns it."
)


def check_pairs(pairs: Any, n_labels: int | None = None) -> list[tuple[Concept, Concept]]:
    """Return pairs as a list without duplicates; refuse what is no pair, and ids that are no labels.

    Parameters
    ----------
    pairs : iterable of pairs, or array of shape (m, 2)
    n_labels : int, optional
        If given, label ids must be below it.

    Examples
    --------
    >>> check_pairs([(0, "Italy"), (1, "Italy"), (0, "Italy")])
    [(0, 'Italy'), (1, 'Italy')]
    >>> check_pairs([(0, "Italy"), (2, "Italy")], n_labels=2)
    Traceback (most recent call last):
    longtail.errors.InputError: Pair 1 of the hierarchy is (2, 'Italy'), and labels have ids from 0 to 1: give other \
concepts as strings, or leave them out.
    """
    if isinstance(pairs, str | bytes | PathLike | Mapping) or not isinstance(pairs, Iterable):
        raise InputError(NO_PAIRS)
    found: dict[tuple[Concept, Concept], None] = {}
    for place, pair in enumerate(pairs.tolist() if isinstance(pairs, np.ndarray) else pairs):
        if isinstance(pair, str) or not isinstance(pair, Iterable) or len(both := list(pair)) != 2:
            raise InputError(f"Pair {place} of the hierarchy is {_short(pair)}. {NO_PAIRS}")
        for concept in both:
            if isinstance(concept, bool) or not isinstance(concept, str | int | np.integer):
                raise InputError(f"Pair {place} of the hierarchy is {_short(pair)}. {NO_PAIRS}")
            if not isinstance(concept, str) and (concept < 0 or (n_labels is not None and concept >= n_labels)):
                allowed = "of at least 0" if n_labels is None else f"from 0 to {n_labels - 1}"
                raise InputError(
                    f"Pair {place} of the hierarchy is {_short(pair)}, and labels have ids {allowed}: give other "
                    "concepts as strings, or leave them out."
                )
        child, parent = (str(one) if isinstance(one, str) else int(one) for one in both)
        found[child, parent] = None
    return list(found)


def check_cycles(parents: npt.NDArray[np.integer[Any]], names: Sequence[object]) -> None:
    """Raise an InputError if pairs (child, parent) of numbers have a cycle.

    Examples
    --------
    >>> check_cycles(np.array([[0, 1], [1, 0]]), ["Rome", "Italy"])
    Traceback (most recent call last):
    longtail.errors.InputError: The hierarchy contains a cycle, 'Rome' under 'Italy' under 'Rome': remove one of these \
pairs.
    """
    cycle = find_cycle(parents, len(names)) if len(parents) else []
    if cycle:
        raise InputError(f"The hierarchy {cycle_reason([names[one] for one in cycle])}")


def cycle_reason(cycle: Sequence[object]) -> str:
    """Return what is wrong with a hierarchy with a cycle; long ones are truncated.

    Examples
    --------
    >>> cycle_reason(["Rome", "Rome"])
    "contains a cycle, 'Rome' under 'Rome': remove one of these pairs."
    """
    shown = " under ".join([*map(repr, cycle[:7]), *(["..."] if len(cycle) > 7 else [])])
    return f"contains a cycle, {shown}: remove one of these pairs."


def find_cycle(parents: npt.NDArray[np.integer[Any]], n_concepts: int) -> list[int]:
    """Return a cycle of concepts, each a child of the next and the last equal to the first; empty if there is none.

    Parameters
    ----------
    parents : ndarray of int, shape (m, 2)
        Pairs (child, parent).
    n_concepts : int

    Examples
    --------
    >>> find_cycle(np.array([(0, 1), (1, 2), (2, 1)]), 3)
    [1, 2, 1]
    """
    own = np.flatnonzero(parents[:, 0] == parents[:, 1])
    if len(own):
        return [int(parents[own[0], 0])] * 2
    up = sp.csr_array((np.ones(len(parents), np.int8), parents.T), shape=(n_concepts, n_concepts))
    n_components, component = sp.csgraph.connected_components(up, directed=True, connection="strong")
    if n_components == n_concepts:
        return []
    concept = int((np.bincount(component)[component] > 1).argmax())
    position: dict[int, int] = {}
    while concept not in position:  # in a component of several concepts, each has a parent in the same component
        position[concept] = len(position)
        above = up.indices[up.indptr[concept] : up.indptr[concept + 1]]
        concept = int(above[component[above] == component[concept]][0])
    return [*list(position)[position[concept] :], concept]


def _short(value: Any) -> str:
    shown = repr(tuple(value) if isinstance(value, list) else value)
    return shown if len(shown) <= 60 else shown[:57] + "..."

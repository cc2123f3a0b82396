"""Cycles in a hierarchy: a concept above itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp


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

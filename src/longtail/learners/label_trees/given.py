"""Label trees from a given hierarchy, such as a thesaurus."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from longtail.data.concept_pairs import Concept, check_cycles, check_pairs
from longtail.data.hierarchy import Hierarchy
from longtail.data.label_index import LabelIndex
from longtail.errors import InputError, ParameterError
from longtail.kernels.types import Int32, Int64
from longtail.learners.label_trees.forest import Branches


def branches_from_pairs(
    pairs: Iterable[tuple[Concept, Concept]],
    labels: npt.ArrayLike,
    rest: Callable[[Int32], Branches],
    *,
    n_labels: int | None = None,
) -> Branches:
    """Make a tree from pairs (child, parent), in which integers are labels and strings are other concepts.

    - A label with nothing under it is put under each of its parents.
    - A concept with something under it is a node; if it is a label too, the label is put under its own node. A node
      with several parents is put under the first.
    - Concepts without labels under them are removed, and a node without labels and with a single child is merged with
      it.
    - There is one root: the top of the hierarchy, or a node above several tops.
    - Labels without a pair get a tree of their own, whose root is put under this one.

    Parameters
    ----------
    pairs : iterable of (child, parent)
        See `Hierarchy.pairs`. Labels that are not in `labels` are concepts like any other.
    labels : array-like of int
        The labels of the tree.
    rest : callable
        Called with the labels without a pair, if any, in ascending order; returns their tree.
    n_labels : int, optional
        If given, labels in pairs must be below it.

    Returns
    -------
    Branches

    Raises
    ------
    InputError
        For malformed pairs, labels out of range, or cycles.

    Examples
    --------
    >>> towns = [(0, "Italy"), (1, "Italy"), (2, "France"), ("Italy", "Europe"), ("France", "Europe")]
    >>> tree = branches_from_pairs(towns, [0, 1, 2], rest=None)
    >>> tree.parents.tolist(), tree.nodes.tolist(), tree.labels.tolist()
    ([-1, 0, 0], [1, 1, 2], [0, 1, 2])
    """
    wanted = np.unique(np.asarray(labels, np.int32))
    concepts, parents = _numbered(pairs, n_labels)
    check_cycles(parents, list(concepts))
    placed = {int(label): concepts[int(label)] for label in wanted if int(label) in concepts}
    others = np.array([label for label in wanted if int(label) not in placed], np.int32)
    if not placed:
        return rest(others)
    below, label_of, tops = _attached(parents, len(concepts), placed)
    return _numbered_nodes(below, label_of, tops, rest(others) if len(others) else None)


def check_tree(tree: Any) -> None:
    """Refuse what is neither a hierarchy nor a list of pairs, such as a file name or a mapping.

    Examples
    --------
    >>> check_tree([(0, "Italy"), (1, "Italy")])
    """
    if isinstance(tree, Hierarchy | None) or (
        isinstance(tree, Iterable) and not isinstance(tree, str | bytes | os.PathLike | Mapping)
    ):
        return
    raise ParameterError(
        "tree",
        _short(tree),
        "must be a list of pairs (child, parent); to read a file use --tree FILE, or in Python "
        "read_hierarchy(path).pairs(label_names)",
    )


def pairs_of(tree: Any, n_labels: int) -> list[Any] | None:
    """Return the pairs of a given tree: of a hierarchy, those with its concepts matched with the label ids.

    Examples
    --------
    >>> towns = Hierarchy(("Italy", "0", "1"), (None,) * 3, np.array([[1, 0], [2, 0]], np.int32))
    >>> pairs_of(towns, n_labels=2)
    [(0, 'Italy'), (1, 'Italy')]
    """
    if not isinstance(tree, Hierarchy):
        return None if tree is None else list(tree)
    try:
        return list(tree.pairs(LabelIndex(n_labels=n_labels).all_shown()))
    except InputError:
        raise ParameterError(
            "tree",
            _Shown(f"a hierarchy of {len(tree.names):,} concepts"),
            "must have label ids among its concepts; where these are label names, give "
            "hierarchy.pairs(label_names) instead",
        ) from None


class _Shown(str):
    """A string that is shown without quotes in messages."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _numbered(pairs: Iterable[Any], n_labels: int | None) -> tuple[dict[Concept, int], Int64]:
    """Number the concepts by first occurrence, and drop duplicate pairs."""
    concepts: dict[Concept, int] = {}
    numbers = [
        (concepts.setdefault(child, len(concepts)), concepts.setdefault(parent, len(concepts)))
        for child, parent in check_pairs(pairs, n_labels)
    ]
    return concepts, np.array(numbers, np.int64).reshape(-1, 2)


def _short(value: Any) -> _Shown:
    text = repr(value)
    return _Shown(text if len(text) <= 60 else text[:57] + "...")


def _attached(parents: Int64, n_concepts: int, placed: dict[int, int]) -> tuple[list[list[int]], list[int], list[int]]:
    """Children of each concept in the tree, the label of each concept or -1, and the concepts without parents.

    Children are processed before their parents, because a concept whose children all went elsewhere is only a label.
    """
    above: list[list[int]] = [[] for _ in range(n_concepts)]
    below: list[list[int]] = [[] for _ in range(n_concepts)]
    open_children = np.bincount(parents[:, 1], minlength=n_concepts).tolist()
    for child, parent in parents.tolist():
        above[child].append(parent)
    label_of = [-1] * n_concepts
    for label, concept in placed.items():
        label_of[concept] = label
    tops = []
    ready = [concept for concept in range(n_concepts) if not open_children[concept]]
    while ready:
        concept = ready.pop()
        if below[concept] or label_of[concept] >= 0:
            for parent in above[concept][:1] if below[concept] else above[concept]:
                below[parent].append(concept)
            if not above[concept]:
                tops.append(concept)
        for parent in above[concept]:
            open_children[parent] -= 1
            if not open_children[parent]:
                ready.append(parent)
    return [sorted(children) for children in below], label_of, sorted(tops)


def _numbered_nodes(below: list[list[int]], label_of: list[int], tops: list[int], others: Branches | None) -> Branches:
    """Number the nodes, parents first, and merge nodes with a single child."""
    if len(tops) > 1 or not below[tops[0]]:
        below.append(tops)
        label_of.append(-1)
        tops = [len(below) - 1]
    node_parents: list[int] = []
    nodes: list[int] = []
    labels: list[int] = []
    waiting = [(tops[0], -1)]
    while waiting:
        concept, parent = waiting.pop()
        while (
            label_of[concept] < 0
            and len(below[concept]) == 1
            and below[below[concept][0]]
            and (parent >= 0 or others is None)
        ):
            concept = below[concept][0]
        node = len(node_parents)
        node_parents.append(parent)
        under = [label_of[child] for child in below[concept] if not below[child]]
        labels += under if label_of[concept] < 0 else [label_of[concept], *under]
        nodes += [node] * (len(labels) - len(nodes))
        waiting += [(child, node) for child in reversed(below[concept]) if below[child]]
    tree = Branches(*(np.array(part, np.int32) for part in (node_parents, nodes, labels)))
    if others is None:
        return tree
    first = len(node_parents)
    hung = np.asarray(others.parents)
    return Branches(
        np.concatenate([tree.parents, np.where(hung < 0, 0, hung + first)]).astype(np.int32),
        np.concatenate([tree.nodes, np.asarray(others.nodes) + first]).astype(np.int32),
        np.concatenate([tree.labels, np.asarray(others.labels)]).astype(np.int32),
    )

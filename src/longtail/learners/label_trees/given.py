"""Label trees from a given hierarchy, such as a thesaurus."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

from longtail.data.concept_pairs import Concept, numbered_pairs
from longtail.data.hierarchy import Hierarchy
from longtail.kernels.types import Int32, Int64
from longtail.learners.label_trees.forest import Branches


def branches_from_pairs(
    pairs: Hierarchy | Iterable[tuple[Concept, Concept]],
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
    pairs : Hierarchy, or iterable of (child, parent)
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
    concepts, parents = numbered_pairs(pairs, n_labels)
    numbers = {concept: number for number, concept in enumerate(concepts)}
    placed = {int(label): numbers[int(label)] for label in wanted if int(label) in numbers}
    others = np.array([label for label in wanted if int(label) not in placed], np.int32)
    if not placed:
        return rest(others)
    below, label_of, tops = _attached(parents, len(concepts), placed)
    return _numbered_nodes(below, label_of, tops, rest(others) if len(others) else None)


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

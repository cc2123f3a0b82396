"""Parts of a label tree to show: all of it, its top, or the paths to some labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from longtail.errors import InputError
from longtail.tree_view.outline import Outline

_DEEPEST_JSON = 200


@dataclass(frozen=True)
class Branch:
    """A node with the labels and child nodes that are shown, and the numbers of its others.

    Examples
    --------
    >>> import numpy as np
    >>> from longtail.data.label_index import LabelIndex
    >>> from longtail.learners.label_trees.forest import Branches, LabelForest
    >>> forest = LabelForest.from_branches([Branches([-1, 0, 0], [1, 1, 2], [0, 2, 1])])
    >>> top_of(Outline(forest, np.array([5, 9, 7]), LabelIndex(n_labels=3)), 1)
    Branch(node=1, labels=[2, 0], children=[], labels_left_out=0, children_left_out=0)
    """

    node: int
    labels: list[int]  # the most frequent first
    children: list[Branch]
    labels_left_out: int
    children_left_out: int


def top_of(
    seen: Outline, root: int, *, depth: int | None = None, labels: int | None = None, nodes: int | None = None
) -> Branch:
    """Return the top of the tree below a node.

    Parameters
    ----------
    seen : Outline
    root : int
        The node to start from.
    depth : int, optional
        Number of levels below it; all by default.
    labels, nodes : int, optional
        Maximum labels and children per node; all by default.

    Examples
    --------
    >>> import numpy as np
    >>> from longtail.data.label_index import LabelIndex
    >>> from longtail.learners.label_trees.forest import Branches, LabelForest
    >>> forest = LabelForest.from_branches([Branches([-1, 0, 0], [1, 1, 2], [0, 2, 1])])
    >>> seen = Outline(forest, np.array([5, 9, 7]), LabelIndex(n_labels=3))
    >>> top_of(seen, 0, depth=0).children_left_out
    2
    >>> [(child.labels, child.labels_left_out) for child in top_of(seen, 0, labels=1).children]
    [([2], 1), ([1], 0)]
    """
    kept: dict[int, list[int]] = {root: []}
    level = [root]
    while level and (depth is None or depth > 0):
        for node in level:
            kept[node] = list(seen.forest.nodes_under(node)[:nodes])
        level = [child for node in level for child in kept[node]]
        kept.update((node, []) for node in level)
        depth = None if depth is None else depth - 1
    return _branch(seen, root, kept, {node: seen.labels(node)[:labels] for node in kept})


def leading_to(seen: Outline, root: int, labels: Iterable[int]) -> Branch | None:
    """Return the paths from a node to some labels; None if none of them is below it.

    Examples
    --------
    >>> import numpy as np
    >>> from longtail.data.label_index import LabelIndex
    >>> from longtail.learners.label_trees.forest import Branches, LabelForest
    >>> forest = LabelForest.from_branches([Branches([-1, 0, 0], [1, 1, 2], [0, 2, 1])])
    >>> seen = Outline(forest, np.array([5, 9, 7]), LabelIndex(n_labels=3))
    >>> [child.labels for child in leading_to(seen, 0, [2]).children]
    [[2]]
    """
    found: dict[int, list[int]] = {}
    kept: dict[int, list[int]] = {}
    for label in sorted(set(labels), key=lambda label: int(seen.ranks[label])):
        for holder in seen.holders(label):
            path = seen.path(holder)
            if root not in path:
                continue
            found.setdefault(holder, []).append(label)
            way = path[path.index(root) :]
            for parent, child in zip(way, [*way[1:], None], strict=True):
                children = kept.setdefault(parent, [])
                if child is not None and child not in children:
                    children.append(child)
    return _branch(seen, root, kept, found) if kept else None


def _branch(seen: Outline, root: int, kept: Mapping[int, list[int]], labels: Mapping[int, list[int]]) -> Branch:
    made: dict[int, Branch] = {}
    for node in sorted(kept, reverse=True):  # descendants have higher numbers
        own = labels.get(node, [])
        made[node] = Branch(
            node,
            own,
            [made[child] for child in sorted(kept[node])],
            len(seen.forest.labels_under(node)) - len(own),
            len(seen.forest.nodes_under(node)) - len(kept[node]),
        )
    return made[root]


def as_json(seen: Outline, branch: Branch, *, _depth: int = 0) -> dict[str, Any]:
    """Return a branch as nested dictionaries: node, name, its labels with names and counts, and its children.

    Examples
    --------
    >>> import numpy as np
    >>> from longtail.data.label_index import LabelIndex
    >>> from longtail.learners.label_trees.forest import Branches, LabelForest
    >>> forest = LabelForest.from_branches([Branches([-1, 0, 0], [1, 1, 2], [0, 2, 1])])
    >>> seen = Outline(forest, np.array([5, 9, 7]), LabelIndex(["car", "bus", "ship"]))
    >>> as_json(seen, top_of(seen, 2))["labels"]
    [{'label': 1, 'name': 'bus', 'training_rows': 9}]
    """
    if _depth > _DEEPEST_JSON:
        raise InputError(f"The tree has more than {_DEEPEST_JSON} levels, too many for JSON: give --depth, or --node.")
    return {
        "node": branch.node,
        "name": seen.name(branch.node),
        "n_labels": int(seen.sizes[branch.node]),
        "recorded": int(seen.recorded[branch.node]),
        "labels": [
            {"label": label, "name": seen.label_name(label), "training_rows": int(seen.label_counts[label])}
            for label in branch.labels
        ],
        "labels_left_out": branch.labels_left_out,
        "children": [as_json(seen, child, _depth=_depth + 1) for child in branch.children],
        "children_left_out": branch.children_left_out,
    }

"""Descriptions of the nodes of label trees: labels below them, their counts, and names."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from longtail.data.label_index import LabelIndex
from longtail.errors import InputError, counted
from longtail.kernels.types import Int32, Int64
from longtail.learners.label_trees.forest import LabelForest

if TYPE_CHECKING:
    from longtail.store import Model


NAMED_BY = 3
BETWEEN = " · "


@dataclass(frozen=True)
class Summary:
    """Numbers that summarise label trees.

    `labels` counts the labels that are in a tree, `repeated` those that are in one tree more than once, and `nowhere`
    those not in any tree. The size of a leaf is its number of labels.

    Examples
    --------
    >>> print(Summary(1, 3, 2, 5, 0, 0, 2, 2.5, 3))
    1 tree, 3 nodes, 2 levels, 5 labels, 0 more than once in a tree, 2 to 3 labels per leaf, median 2.5
    """

    trees: int
    nodes: int
    levels: int
    labels: int
    repeated: int
    nowhere: int
    smallest_leaf: int
    median_leaf: float
    largest_leaf: int

    def parts(self) -> list[tuple[str, str]]:
        """Return the numbers with their units as text.

        Examples
        --------
        >>> Summary(1, 3, 2, 5, 0, 0, 2, 2.5, 3).parts()[:2]
        [('1', 'tree'), ('3', 'nodes')]
        """
        counts = {"tree": self.trees, "node": self.nodes, "level": self.levels, "label": self.labels}
        parts = [counted(number, what).partition(" ")[::2] for what, number in counts.items()]
        parts.append((f"{self.repeated:,}", "more than once in a tree"))
        if self.nowhere:
            parts.append((f"{self.nowhere:,}", "not in any tree"))
        sizes = f"{self.smallest_leaf:,} to {self.largest_leaf:,}"
        return [*parts, (sizes, f"labels per leaf, median {self.median_leaf:,.10g}")]

    def __str__(self) -> str:
        return ", ".join(f"{number} {what}" for number, what in self.parts())

    def as_json(self) -> dict[str, Any]:
        """Return the numbers by name."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class Outline:
    """Label trees with the labels below each node.

    Examples
    --------
    >>> from longtail.learners.label_trees.forest import Branches
    >>> forest = LabelForest.from_branches([Branches([-1, 0, 0], [1, 1, 2], [0, 2, 1])])
    >>> seen = Outline(forest, np.array([5, 9, 7]), LabelIndex(["car", "bus", "ship"]))
    >>> seen.name(1), int(seen.sizes[1]), int(seen.recorded[1])
    ('ship · car', 2, 12)
    >>> print(seen.summary)
    1 tree, 3 nodes, 2 levels, 3 labels, 0 more than once in a tree, 1 to 2 labels per leaf, median 1.5
    """

    forest: LabelForest
    label_counts: Int64  # training rows per label
    index: LabelIndex

    @property
    def sizes(self) -> Int64:
        """Number of distinct labels below each node."""
        return self._under[0]

    @property
    def recorded(self) -> Int64:
        """Number of assignments of these labels in the training rows, per node."""
        return self._under[1]

    @property
    def leading(self) -> Int32:
        """The most frequent of these labels, ties by the lower id, shape (n_nodes, 3), padded with -1."""
        return self._under[2]

    @cached_property
    def order(self) -> Int32:
        """All labels, the most frequent first, ties by the lower id."""
        return np.argsort(-np.asarray(self.label_counts), kind="stable").astype(np.int32)

    @cached_property
    def ranks(self) -> Int32:
        """Position of each label in `order`."""
        ranks = np.empty(len(self.order), np.int32)
        ranks[self.order] = np.arange(len(self.order), dtype=np.int32)
        return ranks

    @cached_property
    def summary(self) -> Summary:
        """Summary of the trees."""
        forest, labels = self.forest, self.forest.labels_
        leaves = np.diff(forest.label_starts_)[np.diff(forest.child_starts_) == 0]
        standing = np.unique(labels)
        in_trees, times = np.unique(
            self.forest.trees[forest.holders].astype(np.int64) * len(self.order) + labels, return_counts=True
        )
        return Summary(
            trees=forest.n_trees_,
            nodes=forest.n_nodes,
            levels=forest.n_levels,
            labels=len(standing),
            repeated=len(np.unique(in_trees[times > 1] % max(len(self.order), 1))),
            nowhere=len(self.order) - len(standing),
            smallest_leaf=int(leaves.min()),
            median_leaf=float(np.median(leaves)),
            largest_leaf=int(leaves.max()),
        )

    def label_name(self, label: int) -> str:
        """Return the name of a label, or its id; invalid characters are replaced."""
        return self.index.shown(label).encode("utf-8", "replace").decode()

    def leaders(self, node: int) -> list[str]:
        """Return the names of the most frequent labels below a node, up to three."""
        return [self.label_name(label) for label in self.leading[node].tolist() if label >= 0]

    def name(self, node: int) -> str:
        """Return the name of a node: its most frequent labels."""
        return BETWEEN.join(self.leaders(node))

    def labels(self, node: int) -> list[int]:
        """Return the labels of a node itself, the most frequent first."""
        labels = self.forest.labels_under(node)
        return [int(label) for label in labels[np.argsort(self.ranks[labels])]]

    def path(self, node: int) -> list[int]:
        """Return the nodes from the root to a node, both included."""
        path = [node]
        while (parent := int(self.forest.parents[path[-1]])) >= 0:
            path.append(parent)
        return path[::-1]

    def holders(self, label: int) -> list[int]:
        """Return the nodes that hold a label themselves."""
        places = np.flatnonzero(self.forest.labels_ == label)
        return [int(node) for node in np.searchsorted(self.forest.label_starts_, places, side="right") - 1]

    @cached_property
    def _under(self) -> tuple[Int64, Int64, Int32]:
        """Compute sizes, recorded and leading of all nodes bottom-up: each level passes its labels to its parents."""
        forest, n_labels, counts = self.forest, max(len(self.order), 1), np.asarray(self.label_counts)
        sizes, recorded = np.zeros(forest.n_nodes, np.int64), np.zeros(forest.n_nodes, np.int64)
        leading = np.full((forest.n_nodes, NAMED_BY), -1, np.int32)
        below = np.empty(0, np.int64)
        starts = forest.level_starts
        for first, last in zip(starts[-2::-1], starts[:0:-1], strict=True):
            entries = slice(forest.label_starts_[first], forest.label_starts_[last])
            holders = np.repeat(np.arange(first, last), np.diff(forest.label_starts_[first : last + 1]))
            pairs = np.concatenate([below, holders * n_labels + self.ranks[forest.labels_[entries]]])
            pairs.sort()  # np.unique of numpy 2.4 is 20 times slower
            pairs = pairs[np.diff(pairs, prepend=-1) > 0]
            nodes, ranks = pairs // n_labels, pairs % n_labels
            found = np.bincount(nodes - first, minlength=last - first)
            sizes[first:last] = found
            recorded[first:last] = np.bincount(nodes - first, counts[self.order[ranks]], minlength=last - first)
            at = np.concatenate([[0], np.cumsum(found)[:-1]])
            for place in range(NAMED_BY):
                there = found > place
                leading[first:last][there, place] = self.order[ranks[at[there] + place]]
            below = self.forest.parents[nodes].astype(np.int64) * n_labels + ranks
        return sizes, recorded, leading


def outline(model: Model) -> Outline:
    """Return the outline of the label trees of a model, whichever of its learners has them.

    Raises
    ------
    InputError
        If it has none.

    Examples
    --------
    >>> from longtail import LabelTree, Model
    >>> X, Y = [[1, 0], [0, 1], [1, 1]], [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    >>> print(outline(Model(LabelTree().fit(X, Y))).summary)
    1 tree, 1 node, 1 level, 3 labels, 0 more than once in a tree, 3 to 3 labels per leaf, median 3
    """
    for _, learner in model.learner.parts(fitted=True):
        forest = getattr(learner, "forest_", None)
        if isinstance(forest, LabelForest):
            return Outline(forest, np.asarray(learner.label_counts_), model.labels)
    raise InputError(
        f"{type(learner).__name__} has no label tree to show: give a model of LabelTree, such as one of the recipe "
        "longtail-tree."
    )

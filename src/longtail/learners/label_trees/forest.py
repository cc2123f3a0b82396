"""The structure of label trees: the nodes and labels under each node."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator

from longtail.errors import InputError
from longtail.kernels.types import Array, Int32, Int64


def starts_of(groups: Array, n_groups: int) -> Int64:
    """Offsets of each group in an array sorted by group."""
    return np.concatenate([[0], np.cumsum(np.bincount(groups, minlength=n_groups))]).astype(np.int64)


class Branches(NamedTuple):
    """One tree: the parent of each node, and the labels under nodes.

    Node 0 is the root, whose parent is -1; every other node comes after its parent. Label ``labels[i]`` is under node
    ``nodes[i]``; a node may have both nodes and labels under it, and a label may be under several nodes.
    """

    parents: Int32
    nodes: Int32
    labels: Int32


class LabelForest(BaseEstimator):
    """One or more trees over the labels.

    Nodes are numbered level by level across all trees, roots first, so that the nodes of a level, and the children of a
    node, are consecutive.

    Attributes
    ----------
    n_trees_ : int
        Nodes 0 to n_trees_ - 1 are the roots.
    child_starts_ : ndarray of int32, shape (nodes + 1,)
        The nodes under node v are ``child_starts_[v]`` to ``child_starts_[v + 1] - 1``.
    label_starts_ : ndarray of int64, shape (nodes + 1,)
    labels_ : ndarray of int32
        The labels under node v are ``labels_[label_starts_[v]:label_starts_[v + 1]]``, in ascending order.

    Examples
    --------
    >>> forest = LabelForest.from_branches([Branches([-1, 0, 0], [1, 1, 2], [0, 2, 1])])
    >>> forest.n_nodes, forest.n_levels
    (3, 2)
    >>> forest.labels_under(1)
    array([0, 2], dtype=int32)
    """

    _stored: ClassVar[tuple[str, ...]] = ("n_trees_", "child_starts_", "label_starts_", "labels_")

    n_trees_: int
    child_starts_: Int32
    label_starts_: Int64
    labels_: Int32

    @classmethod
    def from_branches(cls, trees: Sequence[Branches]) -> Self:
        """Combine trees, numbering their nodes level by level."""
        sizes = [len(tree.parents) for tree in trees]
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        parents = np.concatenate(
            [
                np.where(np.asarray(tree.parents) < 0, -1, tree.parents + at)
                for tree, at in zip(trees, offsets, strict=False)
            ]
        ).astype(np.int64)
        depths = np.zeros(len(parents), np.int64)
        for node, parent in enumerate(parents):
            if parent >= node or (parent < 0) != (node in offsets):
                raise InputError(
                    f"Node {node} of the tree has no parent before it: list parents first, one root per tree."
                )
            if parent >= 0:
                depths[node] = depths[parent] + 1
        # Level by level, and inside a level in the order of the parents' new numbers.
        number = np.empty(len(parents), np.int64)
        done = 0
        for depth in range(int(depths.max(initial=0)) + 1):
            level = np.flatnonzero(depths == depth)
            if depth:
                level = level[np.argsort(number[parents[level]], kind="stable")]
            number[level] = np.arange(done, done + len(level))
            done += len(level)
        forest = cls()
        forest.n_trees_ = len(trees)
        children = starts_of(number[parents[parents >= 0]], len(parents))
        forest.child_starts_ = (forest.n_trees_ + children).astype(np.int32)
        nodes = np.concatenate([number[np.asarray(tree.nodes) + at] for tree, at in zip(trees, offsets, strict=False)])
        labels = np.concatenate([np.asarray(tree.labels) for tree in trees])
        order = np.lexsort((labels, nodes))
        forest.label_starts_ = starts_of(nodes, len(parents))
        forest.labels_ = labels[order].astype(np.int32)
        return forest

    def is_sound(self, n_labels: int) -> bool:
        """Return whether the arrays form trees over that many labels."""
        children, starts, labels = self.child_starts_, self.label_starts_, self.labels_
        n = len(children) - 1
        if isinstance(self.n_trees_, bool) or not isinstance(self.n_trees_, int):
            return False
        return bool(
            (children.ndim, starts.ndim, labels.ndim) == (1, 1, 1)
            and (children.dtype.type, starts.dtype.type, labels.dtype.type) == (np.int32, np.int64, np.int32)
            and len(starts) == n + 1
            and 1 <= self.n_trees_ <= n
            and children[0] == self.n_trees_
            and children[-1] == n
            and (np.diff(children) >= 0).all()
            and (children[:-1] > np.arange(n)).all()
            and starts[0] == 0
            and starts[-1] == len(labels)
            and (np.diff(starts) >= 0).all()
            and labels.min(initial=0) >= 0
            and labels.max(initial=-1) < n_labels
        )

    @property
    def n_nodes(self) -> int:
        """Number of nodes of all trees."""
        return len(self.child_starts_) - 1

    @cached_property
    def parents(self) -> Int32:
        """Parent of each node, -1 for roots."""
        counts = np.diff(self.child_starts_)
        above = np.repeat(np.arange(self.n_nodes, dtype=np.int32), counts)
        return np.concatenate([np.full(self.n_trees_, -1, np.int32), above])

    @cached_property
    def trees(self) -> Int32:
        """Tree that each node belongs to."""
        trees, parents = np.arange(self.n_nodes, dtype=np.int32), self.parents
        for first, last in zip(self.level_starts[1:], self.level_starts[2:], strict=False):
            trees[first:last] = trees[parents[first:last]]
        return trees

    @cached_property
    def level_starts(self) -> Int64:
        """The nodes of level d are ``level_starts[d]`` to ``level_starts[d + 1] - 1``; the roots are level 0."""
        starts = [0, self.n_trees_]
        while starts[-1] < self.n_nodes:
            starts.append(int(self.child_starts_[starts[-1]]))
        return np.array(starts, np.int64)

    @property
    def n_levels(self) -> int:
        """Number of levels of nodes."""
        return len(self.level_starts) - 1

    def nodes_under(self, node: int) -> range:
        """The children of a node."""
        return range(int(self.child_starts_[node]), int(self.child_starts_[node + 1]))

    def labels_under(self, node: int) -> Int32:
        """The labels directly under a node."""
        return self.labels_[self.label_starts_[node] : self.label_starts_[node + 1]]

    @cached_property
    def overlaps(self) -> bool:
        """Whether a search can reach a label more than once: in several trees, or in several leaves of one."""
        return self.n_trees_ > 1 or len(np.unique(self.labels_)) < len(self.labels_)

    @cached_property
    def holders(self) -> Int64:
        """The node of each entry of `labels_`."""
        return np.repeat(np.arange(self.n_nodes), np.diff(self.label_starts_))

    def members(self, n_labels: int, first: int, last: int) -> sp.csr_array:
        """Labels anywhere under nodes `first` to `last` - 1 of one level: a 0/1 matrix, labels by nodes."""
        parents, nodes, labels = self.parents, self.holders, self.labels_
        keep = nodes >= first
        nodes, labels = nodes[keep], labels[keep]
        while len(nodes) and (deep := nodes >= last).any():
            nodes = np.where(deep, parents[nodes], nodes)
            keep = nodes >= first
            nodes, labels = nodes[keep], labels[keep]
        matrix = sp.csr_array(
            (np.ones(len(nodes), np.float32), (labels, nodes - first)), shape=(n_labels, last - first)
        )
        matrix.data[:] = 1
        return matrix

    @cached_property
    def heights(self) -> Int32:
        """Number of steps from each node to the deepest label under it."""
        heights = np.zeros(self.n_nodes, np.int32)
        heights[np.diff(self.label_starts_) > 0] = 1
        parents = self.parents
        for node in range(self.n_nodes - 1, self.n_trees_ - 1, -1):
            parent = parents[node]
            heights[parent] = max(heights[parent], heights[node] + 1)
        return heights

"""Storage of grown trees, and the check that they are consistent."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator

from longtail.errors import ModelError
from longtail.kernels.arrays import is_array
from longtail.kernels.types import Flags, Float32, Float64, Int32, Int64
from longtail.learners.instance_trees.forest_search import Trees, is_in_preorder
from longtail.learners.instance_trees.tree_growing import GrownTree
from longtail.runtime.block_file import BlockFile
from longtail.runtime.mmap import allocator

_STARTS = ("weight_starts_", "label_starts_")
_NODES = ("rights_", "sizes_", "bias_")
_LISTS = ("features_", "weights_", "labels_", "values_")
_KINDS = {"sizes_": np.int32, "rights_": np.int32, "features_": np.int32, "labels_": np.int32, "roots_": np.int64}


class InstanceTrees(BaseEstimator):
    """Instance trees (see `longtail.learners.instance_trees.forest_search`).

    Attributes
    ----------
    n_features_, n_labels_ : int
    roots_ : ndarray of int64, shape (trees,)
        Root of each tree; the nodes of a tree follow in preorder.
    rights_ : ndarray of int32, shape (nodes,)
        The right child; the left one is the next node. 0 for leaves.
    sizes_ : ndarray of int32, shape (nodes,)
        Number of training rows in each node.
    bias_ : ndarray of float32, shape (nodes,)
        Contribution of the bias feature to the margin.
    weight_starts_, label_starts_ : ndarray of int64, shape (nodes + 1,)
        Offsets of the weights and the labels of each node.
    features_, weights_ : ndarray of int32 and float32
        The hyperplanes, features in ascending order.
    labels_, values_ : ndarray of int32 and float32
        Labels of the leaves with their mean gains, the largest first.
    """

    _stored: ClassVar[tuple[str, ...]] = ("n_features_", "n_labels_", "roots_", *_NODES, *_STARTS, *_LISTS)

    n_features_: int
    n_labels_: int
    roots_: Int64
    rights_: Int32
    sizes_: Int32
    bias_: Float32
    weight_starts_: Int64
    label_starts_: Int64
    features_: Int32
    weights_: Float32
    labels_: Int32
    values_: Float32

    @classmethod
    def assemble(
        cls, block_file: BlockFile, count: int, n_features: int, n_labels: int, before: InstanceTrees | None = None
    ) -> Self:
        """Append the first `count` trees of a block file to those of `before`; in files beyond the memory limit."""
        made, names = cls(), [name for name in GrownTree._fields if not name.endswith("_counts")]
        made.n_features_, made.n_labels_ = n_features, n_labels
        lengths = np.array([block_file.lengths(tree) for tree in range(count)], np.int64)
        added = dict(zip(GrownTree._fields, lengths.sum(axis=0), strict=True))
        kinds = {name: np.dtype(_KINDS.get(f"{name}_", np.float32)) for name in names}
        old = {name: getattr(before, f"{name}_") if before else np.empty(0, kinds[name]) for name in names}
        sizes = {name: len(old[name]) + int(added[name]) for name in names}
        allocate = allocator(sum(sizes[name] * kinds[name].itemsize for name in names))
        arrays = {name: allocate(sizes[name], kinds[name]) for name in names}
        ends = {name: len(old[name]) for name in names}
        for name in names:
            arrays[name][: ends[name]] = old[name]
        counts: dict[str, list[Int64]] = {"weight": [], "label": []}
        roots = []
        for number in range(count):
            grown = GrownTree(*block_file.read(number))
            root = ends["rights"]
            roots.append(root)
            for name in names:
                part = getattr(grown, name)
                if name == "rights":
                    part = np.where(part > 0, part + np.int32(root), 0)
                arrays[name][ends[name] : ends[name] + len(part)] = part
                ends[name] += len(part)
            for name, parts in counts.items():
                parts.append(getattr(grown, f"{name}_counts"))
        for name, array in arrays.items():
            setattr(made, f"{name}_", array)
        for name, parts in counts.items():
            first = getattr(before, f"{name}_starts_") if before else np.zeros(1, np.int64)
            setattr(made, f"{name}_starts_", np.concatenate([first, first[-1] + np.cumsum(np.concatenate(parts))]))
        made.roots_ = np.concatenate([before.roots_ if before else np.empty(0, np.int64), np.array(roots, np.int64)])
        return made

    def norms(self) -> Float64:
        """Norm of the vector of each label's values in all leaves, over the number of trees; NaN where no leaf has it.

        The score of a label is linear in which leaves a row reaches, with these values as the weights.
        """
        squares = np.bincount(self.labels_, np.square(self.values_, dtype=np.float64), self.n_labels_)
        squares[np.bincount(self.labels_, minlength=self.n_labels_) == 0] = np.nan
        return np.asarray(np.sqrt(squares) / self.n_trees)

    def without_labels(self, gone: Flags) -> InstanceTrees:
        """The same trees without some labels in their leaves."""
        is_kept = ~gone[self.labels_]
        if is_kept.all():
            return self
        left = type(self)()
        for name in self._stored:
            setattr(left, name, getattr(self, name))
        left.labels_, left.values_ = self.labels_[is_kept], self.values_[is_kept]
        left.label_starts_ = np.concatenate([[0], np.cumsum(is_kept)])[self.label_starts_].astype(np.int64)
        return left

    @property
    def n_trees(self) -> int:
        """Number of trees."""
        return len(self.roots_)

    @property
    def ends(self) -> Int64:
        """End of the nodes of each tree."""
        return np.append(self.roots_[1:], len(self.rights_))

    def arrays(self, n_features: int, n_labels: int) -> Trees:
        """Arrays for the kernels; refuses other numbers of features or labels."""
        arrays = self._sound_arrays
        if (self.n_features_, self.n_labels_) != (n_features, n_labels):
            raise ModelError("The trees of the model don't fit its learner: train it again.")
        return arrays

    @cached_property
    def _sound_arrays(self) -> Trees:
        """Arrays for the kernels, validated once: kernels do not check indices."""
        if not self._is_valid():
            raise ModelError("The trees of the model don't fit together: its files were changed; train it again.")
        return Trees(
            self.roots_, self.rights_, self.bias_, self.weight_starts_, self.features_, self.weights_,
            self.label_starts_, self.labels_, self.values_,
        )  # fmt: skip

    def _is_valid(self) -> bool:
        if not all(hasattr(self, name) for name in self._stored) or not self._has_right_types():
            return False
        n = len(self.rights_)
        return bool(
            self._has_right_roots()
            and all(
                len(starts) == n + 1 and starts[0] == 0 and starts[-1] == len(listed) and (np.diff(starts) >= 0).all()
                for starts, listed in ((self.weight_starts_, self.features_), (self.label_starts_, self.labels_))
            )
            and len(self.weights_) == len(self.features_)
            and len(self.values_) == len(self.labels_)
            and len(self.sizes_) == len(self.bias_) == n
            and self.sizes_.min(initial=1) > 0
            and is_in_preorder(self.roots_, self.rights_)
            and self.features_.min(initial=0) >= 0
            and self.features_.max(initial=-1) < self.n_features_
            and self.labels_.min(initial=0) >= 0
            and self.labels_.max(initial=-1) < self.n_labels_
            and all(np.isfinite(array).all() for array in (self.values_, self.weights_, self.bias_))
        )

    def _has_right_roots(self) -> bool:
        return len(self.roots_) > 0 and self.roots_[0] == 0 and bool((np.diff(self.ends, prepend=0) > 0).all())

    def _has_right_types(self) -> bool:
        def is_right(name: str, kind: Any) -> bool:
            return is_array(getattr(self, name), 1, kind)

        return (
            all(isinstance(size, int) and 0 <= size < 2**31 for size in (self.n_features_, self.n_labels_))
            and all(is_right(name, np.int64) for name in ("roots_", *_STARTS))
            and all(is_right(name, _KINDS.get(name, np.float32)) for name in (*_NODES, *_LISTS))
        )

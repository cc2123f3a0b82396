"""Ensembles of instance trees: FastXML and PfastXML."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any, ClassVar, Self, get_args

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from longtail.data.sparse import canonical_rows, chosen_rows, column_counts
from longtail.errors import InputError, Interrupted, ParameterError
from longtail.kernels.augmentation import Augmentation
from longtail.kernels.types import Flags, Float32, Float64, Int32
from longtail.learners.base import Learner
from longtail.learners.cost import TrainingCost
from longtail.learners.explanation import Explanation
from longtail.learners.instance_trees.explaining import explain_label, trace_path
from longtail.learners.instance_trees.forest_search import Trees, find_leaves, rank_leaves
from longtail.learners.instance_trees.l1_logistic import L1Limits
from longtail.learners.instance_trees.training import Criterion, TreeTrainer, estimate_trees
from longtail.learners.instance_trees.tree_growing import Growth
from longtail.learners.instance_trees.trees import InstanceTrees
from longtail.learners.rows import row_scales
from longtail.learners.updates import UpdateBatch
from longtail.runtime.block_file import BlockFile, is_resumable
from longtail.runtime.memory import affordable_threads
from longtail.runtime.mmap import allocator_like, is_mapped
from longtail.runtime.pool import in_chunks
from longtail.topk import TopK
from longtail.validation import SEED, Boolean, Constraint, Integer, Number, OneOf, check
from longtail.weighting import NoWeighting, Weighting, get_weighting

_ROWS_AT_ONCE, _SCALED_AT_ONCE = 4096, 1 << 10
_NO_FLAGS, _NO_FACTORS = np.empty(0, np.bool_), np.empty(0, np.float32)
_LARGEST = 1e30  # of C times the square of a value: sums over rows must not overflow float32


class InstanceForest(Learner):
    """Trees that partition the rows; a row gets the labels of the training rows in the leaves that it reaches.

    A node splits its rows such that one ranking of the labels serves each side as well as possible (by nDCG, with any
    gain per label), then learns a sparse hyperplane that sends rows to one side or the other. A leaf stores the share
    of its rows that have each label, times the gain of the label; the score of a label is the mean over the trees. With
    gains of 1 scores are from 0 to 1.

    Parameters
    ----------
    n_trees : int
    leaf_size : int
        Nodes with at most this many rows are leaves.
    leaf_labels : int
        Maximum number of labels stored in a leaf.
    weighting : Weighting or str, optional
        The positive cost of a label is its gain, as in "inverse-propensity"; all 1 by default.
    criterion : {"ndcg", "dcg"}
        What the splits maximise. "ndcg" divides the gain of a row by that of its best ranking, so that all rows count
        the same; "dcg" does not.
    C : float
        Inverse regularisation strength of the hyperplanes: the larger, the more weights they have and the deeper the
        trees grow. Its effect depends on the scale of the rows.
    normalise : bool
        Scale rows to unit length.
    bias : float
        Value of the bias feature; 0 for none.
    max_iter, max_inner_iter, tol : int, int and float
        Stopping criteria of the hyperplanes: maximum number of Newton steps and of coordinate descent sweeps in each,
        and the share of the initial violation of the optimality conditions that may remain.
    random_state : int
    n_jobs : int, optional
        Threads; None as `longtail.config_context` says. The result does not depend on it.

    Attributes
    ----------
    trees_ : InstanceTrees

    References
    ----------
    Prabhu and Varma: FastXML. KDD 2014. Jain, Prabhu and Varma: Extreme Multi-label Loss Functions for Recommendation,
    Tagging, Ranking and Other Missing Label Applications. KDD 2016.

    Examples
    --------
    >>> from longtail import InstanceForest
    >>> X = [[1, 0], [0, 1], [1, 1], [1, 0]]
    >>> Y = [[1, 0], [0, 1], [1, 1], [1, 0]]
    >>> forest = InstanceForest(n_trees=3, leaf_size=1, C=10.0, n_jobs=1).fit(X, Y)
    >>> forest.predict_topk([[1, 0]], k=1).labels
    array([[0]], dtype=int32)
    """

    _stored: ClassVar[tuple[str, ...]] = ("trees_",)
    _decision_threshold: ClassVar[float] = 0.5

    trees_: InstanceTrees

    _constraints: ClassVar[Mapping[str, Constraint]] = {
        "C": Number(above=0),
        "tol": Number(above=0),
        "bias": Number(low=0),
        "n_trees": Integer(1),
        "leaf_size": Integer(1),
        "leaf_labels": Integer(1),
        "max_iter": Integer(1),
        "max_inner_iter": Integer(1),
        "random_state": SEED,
        "criterion": OneOf(*get_args(Criterion)),
        "normalise": Boolean(),
    }

    def __init__(
        self,
        *,
        n_trees: int = 50,
        leaf_size: int = 10,
        leaf_labels: int = 100,
        weighting: Weighting | str | None = None,
        criterion: Criterion = "ndcg",
        C: float = 1.0,
        normalise: bool = False,
        bias: float = 1.0,
        max_iter: int = 10,
        max_inner_iter: int = 10,
        tol: float = 0.01,
        random_state: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.n_trees = n_trees
        self.leaf_size = leaf_size
        self.leaf_labels = leaf_labels
        self.weighting = weighting
        self.criterion = criterion
        self.C = C
        self.normalise = normalise
        self.bias = bias
        self.max_iter = max_iter
        self.max_inner_iter = max_inner_iter
        self.tol = tol
        self.random_state = random_state
        self.n_jobs = n_jobs

    def add_trees(self, X: Any, y: Any, n_trees: int) -> Self:
        """Grow more trees; the others do not change.

        With the training rows, the forest becomes the one that would have been fitted with all these trees. Other
        rows give trees that count as much as the first ones; gains then depend on the label counts in those rows. When
        it fails or is interrupted, the forest does not change.

        Parameters
        ----------
        X : matrix, shape (n, n_features_in_)
        y : matrix, shape (n, n_labels_)
        n_trees : int
            Number of trees to add.

        Examples
        --------
        >>> X, Y = [[1, 0], [0, 1], [1, 1]], [[1, 0], [0, 1], [1, 1]]
        >>> InstanceForest(n_trees=2).fit(X, Y).add_trees(X, Y, 3).trees_.n_trees
        5
        """
        rows, labels = self._check_new_labels(X, y)
        if labels.shape[1] != self.n_labels_:
            raise InputError(
                f"y has {labels.shape[1]} labels, and the forest has {self.n_labels_}: they must be the same."
            )
        check("n_trees", n_trees, Integer(1))
        self.trees_.arrays(self.n_features_in_, self.n_labels_)  # validates them
        counts = np.bincount(labels.indices, minlength=self.n_labels_)
        with self._whole_or_unchanged():
            self.trees_ = self._grow(rows, labels, self.trees_, int(n_trees))
            self.n_trees = self.trees_.n_trees
            self.label_counts_ = np.maximum(self.label_counts_, counts)
            self.n_rows_ = max(self.n_rows_, int(rows.shape[0]))
        return self

    def leaves(self, X: Any) -> Int32:
        """Leaf (node of `trees_`) of each row in each tree, an array of shape (n, trees)."""
        check_is_fitted(self, "n_labels_")
        return self._leaves(self._check_rows(X))

    def path(self, X: Any, tree: int) -> list[tuple[int, float, list[tuple[int, float]]]]:
        """Follow one row down one tree.

        Returns
        -------
        list of (node, margin, parts)
            From the root to the leaf. The row goes right where the margin is at least 0; `parts` are features with
            their contributions to the margin, the largest first. A leaf has the margin 0 and no parts.
        """
        check_is_fitted(self, "n_labels_")
        rows = self._check_rows(X)
        if rows.shape[0] != 1:
            raise InputError(f"X has {rows.shape[0]} rows: follow one row at a time.")
        check("tree", tree, Integer(0))
        if tree >= self.trees_.n_trees:
            raise ParameterError("tree", tree, f"must be below {self.trees_.n_trees}, the number of trees")
        self.trees_.arrays(self.n_features_in_, self.n_labels_)  # validates them
        return trace_path(self.trees_, self._scaled(rows), int(tree))

    @property
    def _gives_probabilities(self) -> bool:  # type: ignore[override]
        return isinstance(get_weighting(self.weighting), NoWeighting)  # other gains give scores above 1

    def _fit(self, X: sp.csr_array, Y: sp.csr_array) -> None:
        self.trees_ = self._grow(X, Y, None, int(self.n_trees))

    def _update(self, batch: UpdateBatch) -> None:
        """Grow more trees, in proportion to the new rows; on all rows where the earlier ones are given.

        Labels without rows are removed from the present trees. A tree grown on few rows would count as much as the
        others, so without the earlier rows, new ones that are fewer than the rows per tree are refused.
        """
        X, Y = batch.all_rows
        grown = max(1, round(self.trees_.n_trees * batch.X.shape[0] / self.n_rows_))
        enough = -(-self.n_rows_ // self.trees_.n_trees)
        if batch.earlier is None and batch.X.shape[0] < enough:
            raise InputError(
                f"{batch.X.shape[0]:,} rows are too few for one more tree: collect {enough:,}, or give the earlier "
                "rows too (train=, or --train)."
            )
        self.trees_.arrays(self.n_features_in_, self.n_labels_)  # validates them
        self.n_labels_ = batch.n_labels
        self.trees_ = self._grow(X, Y, self.trees_.without_labels(batch.label_counts == 0), grown)

    def _fit_augmented(self, X: sp.csr_array, Y: sp.csr_array, augmentation: Augmentation) -> None:
        """Grow each tree on the rows and on one of their copies."""
        self.trees_ = self._grow(X, Y, None, int(self.n_trees), augmentation)

    def _grow(
        self, X: Any, Y: Any, before: InstanceTrees | None, count: int, augmentation: Augmentation | None = None
    ) -> InstanceTrees:
        trainer, first = self._trainer(X, Y, augmentation), before.n_trees if before else 0
        threads = affordable_threads(trainer.thread_bytes, "a tree")
        with BlockFile(trainer.fingerprint(first) if is_resumable() else None) as block_file:
            try:
                with closing(
                    trainer.grow(range(first + len(block_file), first + count), threads, len(block_file))
                ) as trees:
                    block_file.append_all(trees)
            except Interrupted as error:  # its message counts only the trees of this run
                error.args = (f"Stopped while growing trees: {len(block_file):,} of {count:,} trees were done.",)
                raise
            del trainer
            return InstanceTrees.assemble(block_file, count, self.n_features_in_, self.n_labels_, before)

    def _trainer(self, X: sp.csr_array, Y: sp.csr_array, augmentation: Augmentation | None = None) -> TreeTrainer:
        counts = column_counts(Y)
        gains = get_weighting(self.weighting)._costs(counts, Y.shape[0]).positive
        if not X.data.all():  # an explicit zero would count as an occurrence of its feature
            X = chosen_rows(X, np.arange(X.shape[0])) if is_mapped(X.data) else X.copy()
            X.eliminate_zeros()
        largest = float(max(X.data.max(initial=0), -X.data.min(initial=0)))
        if self.C * largest**2 > _LARGEST:
            raise InputError(f"X has values up to {largest:g}, too large for C = {self.C:g}: scale its rows.")
        return TreeTrainer(
            self._scaled(X),
            Y,
            gains,
            self.criterion,
            Growth(int(self.leaf_size), int(self.leaf_labels), float(self.C), float(self.bias)),
            L1Limits(int(self.max_iter), int(self.max_inner_iter), float(self.tol)),
            int(self.random_state),
            augmentation,
            bool(self.normalise),
        )

    def _scaled(self, X: sp.csr_array) -> sp.csr_array:
        if not self.normalise:
            return X
        scales = row_scales(X, True)
        values = allocator_like(X.data)(len(X.data), np.float32)
        for first in range(0, X.shape[0], _SCALED_AT_ONCE):
            ends = X.indptr[first : first + _SCALED_AT_ONCE + 1]
            part = slice(int(ends[0]), int(ends[-1]))
            values[part] = X.data[part] * np.repeat(scales[first : first + _SCALED_AT_ONCE], np.diff(ends))
        return canonical_rows(values, X.indices, X.indptr, X.shape)

    @property
    def _arrays(self) -> Trees:
        return self.trees_.arrays(self.n_features_in_, self.n_labels_)

    def _leaves(self, X: sp.csr_array) -> Int32:
        leaves = np.empty((X.shape[0], self.trees_.n_trees), np.int32)

        def store(first: int, last: int, found: Int32) -> None:
            leaves[first:last] = found

        self._find_leaves(X, store)
        return leaves

    def _find_leaves(self, X: sp.csr_array, use: Callable[[int, int, Int32], None]) -> None:
        """Find the leaves of some rows at a time, and call ``use(first, last, leaves)``."""
        scaled, arrays = self._scaled(X), self._arrays

        def search(first: int, last: int) -> None:
            leaves = np.empty((last - first, len(arrays.roots)), np.int32)
            find_leaves(scaled.indptr, scaled.indices, scaled.data, first, last, X.shape[1], arrays, leaves)
            use(first, last, leaves)

        in_chunks(search, X.shape[0], _ROWS_AT_ONCE, "going down the trees")

    def _topk(self, X: sp.csr_array, k: int, allowed: Flags | None) -> TopK:
        return self._weighted_topk(X, k, allowed, None)

    def _weighted_topk(self, X: sp.csr_array, k: int, allowed: Flags | None, factors: Float32 | None) -> TopK:
        """Exact: all labels of the leaves that a row reaches are ranked."""
        top = TopK.empty(X.shape[0], k)
        permitted = _NO_FLAGS if allowed is None else allowed
        multiplied = _NO_FACTORS if factors is None else factors
        arrays = self._arrays

        def rank(first: int, last: int, leaves: Int32) -> None:
            rank_leaves(leaves, arrays, permitted, multiplied, top.labels[first:last], top.scores[first:last])

        self._find_leaves(X, rank)
        return top

    def _label_norms(self) -> Float64:
        return self.trees_.norms()

    def _explain(self, X: sp.csr_array, labels: Int32) -> list[Explanation]:
        scaled, leaves = self._scaled(X), self._leaves(X)[0]
        return [explain_label(self.trees_, scaled, leaves, int(label)) for label in labels]

    def _estimate(self, X: sp.csr_array, Y: sp.csr_array) -> TrainingCost:
        return estimate_trees(self._trainer, X, Y, int(self.n_trees))

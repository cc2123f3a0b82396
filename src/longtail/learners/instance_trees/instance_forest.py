"""The learner over an ensemble of trees over rows."""

from __future__ import annotations

import math
from contextlib import closing
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from longtail.corpus.sparse import canonical_rows, chosen_rows
from longtail.engine.augmentation import Augmentation
from longtail.engine.forest_search import Trees, find_leaves, rank_leaves
from longtail.engine.l1_logistic import Limits
from longtail.engine.mapped import is_mapped, room_like
from longtail.engine.memory import affordable_threads, parse_memory
from longtail.engine.pool import in_chunks, thread_count
from longtail.engine.spool import BlockSpool, is_resumable
from longtail.engine.topk import TopK
from longtail.engine.tree_growing import Growth
from longtail.errors import InputError, Interrupted, ParameterError
from longtail.learners.base import Learner
from longtail.learners.estimate import Estimate
from longtail.learners.explanation import Explanation
from longtail.learners.instance_trees.budget import estimate_trees
from longtail.learners.instance_trees.explaining import explain_label, trace_path
from longtail.learners.instance_trees.training import TreeTrainer
from longtail.learners.instance_trees.trees import InstanceTrees
from longtail.learners.linear.training import row_scales
from longtail.learners.norms import norms_of_leaves
from longtail.learners.updates import MoreRows
from longtail.propensity.base import is_number
from longtail.weighting import Weighting, get_weighting

_ROWS_AT_ONCE, _SCALED_AT_ONCE = 4096, 1 << 10
_NO_FLAGS, _NO_FACTORS = np.empty(0, np.bool_), np.empty(0, np.float32)
_LARGEST = 1e30  # of C times the square of a value: sums over rows must stay in single precision


class InstanceForest(Learner):
    """Trees that part the rows; a row gets the labels of the training rows that it meets in the leaves.

    A node parts its rows in two such that one ranking of the labels serves each part as well as it can (by nDCG, with
    any gain for each label), then learns a sparse hyperplane that sends rows to the one side or the other. A leaf keeps
    what share of its rows has each label, times the label's gain; the score of a label is the mean over the trees.
    With gains of 1 it is from 0 to 1; with others it may be larger.

    Parameters
    ----------
    trees : int
    leaf_size : int
        Nodes with so many rows or fewer are not parted.
    leaf_labels : int
        Most labels that a leaf keeps.
    weighting : Weighting or str, optional
        The gain of a label is its positive cost, as in "inverse-propensity"; all 1 when left out.
    ideal : bool
        Divide the gain of a row by that of the best ranking (nDCG), so that rows count alike, or not (DCG).
    regularisation : float
        C of the hyperplanes: the larger, the more weights they have and the deeper the trees grow. Rows are taken as
        they are, so it goes with the size of their values.
    normalise : bool
        Bring rows to length 1 first.
    bias : float
        Value of the bias feature; 0 for none.
    newton_steps, sweeps, tolerance : int, int and float
        When a hyperplane is good enough: most Newton steps, most sweeps of coordinate descent in each, and which share
        of the first violation of the optimality conditions may remain.
    seed : int
    threads : int, optional
        All cores when left out; the result is the same for any number.
    memory_limit : int or str, optional
        Memory that the process should hold at most, in bytes or as text such as ``"2GB"``: fewer threads are used
        where it would be passed, and training is refused where even one doesn't fit. Trees that would pass it when they
        are put together lie in temporary files, mapped into memory.

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
    >>> forest = InstanceForest(trees=3, leaf_size=1, regularisation=10.0, threads=1).fit(X, Y)
    >>> forest.predict_topk([[1, 0]], k=1).labels
    array([[0]], dtype=int32)
    """

    _stored: ClassVar[tuple[str, ...]] = ("trees_",)
    _decision_threshold: ClassVar[float] = 0.5

    trees_: InstanceTrees

    def __init__(
        self,
        *,
        trees: int = 50,
        leaf_size: int = 10,
        leaf_labels: int = 100,
        weighting: Weighting | str | None = None,
        ideal: bool = True,
        regularisation: float = 1.0,
        normalise: bool = False,
        bias: float = 1.0,
        newton_steps: int = 10,
        sweeps: int = 10,
        tolerance: float = 0.01,
        seed: int = 0,
        threads: int | None = None,
        memory_limit: int | str | None = None,
    ) -> None:
        self.trees = trees
        self.leaf_size = leaf_size
        self.leaf_labels = leaf_labels
        self.weighting = weighting
        self.ideal = ideal
        self.regularisation = regularisation
        self.normalise = normalise
        self.bias = bias
        self.newton_steps = newton_steps
        self.sweeps = sweeps
        self.tolerance = tolerance
        self.seed = seed
        self.threads = threads
        self.memory_limit = memory_limit

    def add_trees(self, X: Any, Y: Any, trees: int) -> Self:
        """Grow more trees and leave the others as they are.

        With the rows that the forest was fitted on, it becomes the forest that would have been fitted with so many more
        trees from the start. Other rows give trees of their own, which count as much as each of the first; gains then
        go by how often labels are in those rows. When it fails or is interrupted, the forest stays as it was.

        Parameters
        ----------
        X : matrix, shape (n, n_features_in_)
        Y : matrix, shape (n, n_labels_)
        trees : int
            How many more.

        Examples
        --------
        >>> X, Y = [[1, 0], [0, 1], [1, 1]], [[1, 0], [0, 1], [1, 1]]
        >>> InstanceForest(trees=2).fit(X, Y).add_trees(X, Y, 3).trees_.n_trees
        5
        """
        rows, labels = self._check_new_labels(X, Y)
        if labels.shape[1] != self.n_labels_:
            raise InputError(
                f"Y has {labels.shape[1]} labels, and the forest has {self.n_labels_}: they must be the same."
            )
        _check_whole("trees", trees, 1)
        self.trees_.arrays(self.n_features_in_, self.n_labels_)  # which checks them
        counts = np.bincount(labels.indices, minlength=self.n_labels_)
        with self._whole_or_unchanged():
            self.trees_ = self._grow(rows, labels, self.trees_, int(trees))
            self.trees = self.trees_.n_trees
            self.label_counts_ = np.maximum(self.label_counts_, counts)
            self.n_rows_ = max(self.n_rows_, int(rows.shape[0]))
        return self

    def leaves(self, X: Any) -> npt.NDArray[np.int32]:
        """Node of `trees_` that each row reaches in each tree, an array of shape (n, trees)."""
        check_is_fitted(self, "n_labels_")
        return self._leaves(self._check_rows(X))

    def path(self, X: Any, tree: int) -> list[tuple[int, float, list[tuple[int, float]]]]:
        """Follow one row down one tree.

        Returns
        -------
        list of (node, margin, parts)
            From the root to the leaf. The row goes right where the margin is 0 or more; `parts` are features with what
            each adds to the margin, the largest effect first. A leaf has the margin 0 and no parts.
        """
        check_is_fitted(self, "n_labels_")
        rows = self._check_rows(X)
        if rows.shape[0] != 1:
            raise InputError(f"X has {rows.shape[0]} rows: follow one row at a time.")
        _check_whole("tree", tree, 0)
        if tree >= self.trees_.n_trees:
            raise ParameterError("tree", tree, f"must be below {self.trees_.n_trees}, the number of trees")
        self.trees_.arrays(self.n_features_in_, self.n_labels_)  # which checks them
        return trace_path(self.trees_, self._scaled(rows), int(tree))

    def _check_parameters(self) -> None:
        for name, exclusive in (("regularisation", True), ("tolerance", True), ("bias", False)):
            value = getattr(self, name)
            if not (is_number(value) and math.isfinite(value) and value >= 0) or (exclusive and value == 0):
                raise ParameterError(name, value, f"must be a number {'above' if exclusive else 'of at least'} 0")
        for name in ("trees", "leaf_size", "leaf_labels", "newton_steps", "sweeps"):
            _check_whole(name, getattr(self, name), 1)
        _check_whole("seed", self.seed, 0)
        for name in ("ideal", "normalise"):
            if not isinstance(getattr(self, name), bool | np.bool_):
                raise ParameterError(name, getattr(self, name), "must be True or False")
        get_weighting(self.weighting)
        thread_count(self.threads)
        if self.memory_limit is not None:
            parse_memory(self.memory_limit)

    def _fit(self, X: sp.csr_array, Y: sp.csr_array) -> None:
        self.trees_ = self._grow(X, Y, None, int(self.trees))

    def _update(self, more: MoreRows) -> None:
        """Grow more trees, as many for a row as it had before; on all rows where the earlier ones are there.

        Labels whose last row was taken away leave the trees that are there. A tree grown on a few rows alone would say
        as much as each of the others, so rows worth less than a tree are refused without the earlier ones.
        """
        X, Y = more.all_rows
        grown = max(1, round(self.trees_.n_trees * more.X.shape[0] / self.n_rows_))
        enough = -(-self.n_rows_ // self.trees_.n_trees)
        if more.earlier is None and more.X.shape[0] < enough:
            raise InputError(
                f"{more.X.shape[0]:,} rows are too few for one more tree: collect {enough:,}, or give the earlier ones."
            )
        self.trees_.arrays(self.n_features_in_, self.n_labels_)  # which checks them
        self.n_labels_ = more.n_labels
        self.trees_ = self._grow(X, Y, self.trees_.without_labels(more.label_counts == 0), grown)

    def _fit_augmented(self, X: sp.csr_array, Y: sp.csr_array, augmentation: Augmentation) -> None:
        """Grow each tree on the rows and on one of their copies."""
        self.trees_ = self._grow(X, Y, None, int(self.trees), augmentation)

    def _grow(
        self,
        X: sp.csr_array,
        Y: sp.csr_array,
        before: InstanceTrees | None,
        count: int,
        augmentation: Augmentation | None = None,
    ) -> InstanceTrees:
        trainer, first = self._trainer(X, Y, augmentation), before.n_trees if before else 0
        threads = affordable_threads(thread_count(self.threads), trainer.thread_bytes, self.memory_limit, "a tree")
        with BlockSpool(trainer.fingerprint(first) if is_resumable() else None) as spool:
            try:
                with closing(trainer.grow(range(first + len(spool), first + count), threads, len(spool))) as trees:
                    spool.append_all(trees)
            except Interrupted as error:  # which counts the trees of this run alone, and those that are not kept
                error.args = (f"Stopped while growing trees: {len(spool):,} of {count:,} trees were done.",)
                raise
            del trainer
            return InstanceTrees.assemble(spool, count, self.n_features_in_, self.n_labels_, before, self.memory_limit)

    def _trainer(self, X: sp.csr_array, Y: sp.csr_array, augmentation: Augmentation | None = None) -> TreeTrainer:
        counts = np.bincount(Y.indices, minlength=Y.shape[1])
        gains = get_weighting(self.weighting).costs(counts, Y.shape[0]).positive
        if not X.data.all():  # stored zeros would count as occurrences of a feature
            X = chosen_rows(X, np.arange(X.shape[0])) if is_mapped(X.data) else X.copy()
            X.eliminate_zeros()
        largest = float(max(X.data.max(initial=0), -X.data.min(initial=0)))
        if self.regularisation * largest**2 > _LARGEST:
            raise InputError(
                f"X has values up to {largest:g}, too large for C = {self.regularisation:g}: scale its rows."
            )
        return TreeTrainer(
            self._scaled(X),
            Y,
            gains,
            bool(self.ideal),
            Growth(int(self.leaf_size), int(self.leaf_labels), float(self.regularisation), float(self.bias)),
            Limits(int(self.newton_steps), int(self.sweeps), float(self.tolerance)),
            int(self.seed),
            augmentation,
            bool(self.normalise),
        )

    def _scaled(self, X: sp.csr_array) -> sp.csr_array:
        if not self.normalise:
            return X
        scales = row_scales(X, True)
        values = room_like(X.data)(len(X.data), np.float32)
        for first in range(0, X.shape[0], _SCALED_AT_ONCE):
            ends = X.indptr[first : first + _SCALED_AT_ONCE + 1]
            part = slice(int(ends[0]), int(ends[-1]))
            values[part] = X.data[part] * np.repeat(scales[first : first + _SCALED_AT_ONCE], np.diff(ends))
        return canonical_rows(values, X.indices, X.indptr, X.shape)

    @property
    def _arrays(self) -> Trees:
        return self.trees_.arrays(self.n_features_in_, self.n_labels_)

    def _leaves(self, X: sp.csr_array) -> npt.NDArray[np.int32]:
        leaves = np.empty((X.shape[0], self.trees_.n_trees), np.int32)
        scaled, arrays = self._scaled(X), self._arrays

        def search(first: int, last: int) -> None:
            find_leaves(scaled.indptr, scaled.indices, scaled.data, first, last, X.shape[1], arrays, leaves[first:last])

        in_chunks(search, X.shape[0], _ROWS_AT_ONCE, self.threads, "going down the trees")
        return leaves

    def _topk(self, X: sp.csr_array, k: int, allowed: npt.NDArray[np.bool_] | None) -> TopK:
        return self._weighted_topk(X, k, allowed, None)

    def _weighted_topk(
        self,
        X: sp.csr_array,
        k: int,
        allowed: npt.NDArray[np.bool_] | None,
        factors: npt.NDArray[np.float32] | None,
    ) -> TopK:
        """Exact: among all labels of all leaves that a row reaches."""
        n = X.shape[0]
        top = TopK(np.full((n, k), -1, np.int32), np.full((n, k), -np.inf, np.float32))
        scaled, arrays = self._scaled(X), self._arrays
        permitted = _NO_FLAGS if allowed is None else allowed
        multiplied = _NO_FACTORS if factors is None else factors

        def search(first: int, last: int) -> None:
            leaves = np.empty((last - first, len(arrays.roots)), np.int32)
            find_leaves(scaled.indptr, scaled.indices, scaled.data, first, last, X.shape[1], arrays, leaves)
            rank_leaves(leaves, arrays, permitted, multiplied, top.labels[first:last], top.scores[first:last])

        in_chunks(search, n, _ROWS_AT_ONCE, self.threads, "going down the trees")
        return top

    def _label_norms(self) -> npt.NDArray[np.float64]:
        return norms_of_leaves(self.trees_)

    def _explain(self, X: sp.csr_array, labels: npt.NDArray[np.int32]) -> list[Explanation]:
        scaled, leaves = self._scaled(X), self._leaves(X)[0]
        return [explain_label(self.trees_, scaled, leaves, int(label)) for label in labels]

    def _estimate(self, X: sp.csr_array, Y: sp.csr_array) -> Estimate:
        return estimate_trees(self._trainer, X, Y, int(self.trees), thread_count(self.threads), self.memory_limit)


def _check_whole(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value < 2**31:
        raise ParameterError(name, value, f"must be a whole number from {least} to {2**31 - 1}")

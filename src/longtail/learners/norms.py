"""Norms of the labels' classifiers, computed from the weights as they are stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from longtail.kernels.lanes import LANES, widened
from longtail.kernels.types import Array, Float64

if TYPE_CHECKING:
    from longtail.learners.base import Learner
    from longtail.learners.instance_trees.trees import InstanceTrees
    from longtail.learners.label_trees.chunk_weights import ChunkWeights
    from longtail.learners.linear.weights import BlockWeights

_ROWS_AT_ONCE = 1 << 16


def label_norms(learner: Learner) -> Float64 | None:
    """Euclidean norm of each label's classifier, NaN for labels without one; None for a learner that has none.

    The bias is excluded. For `LabelTree` the norm is that of the label's weights in its leaf, the mean if there are
    several leaves. For `InstanceForest` the score of a label is linear in the leaves that a row reaches: the weights
    are its values in all leaves, over the number of trees. A learner around another one has the norms of the one
    inside, and `TAug` those of both sides. Others may have a matrix ``coef_`` with a row per label.

    Examples
    --------
    >>> from longtail import OneVsRest, Popularity
    >>> X, Y = [[1, 0], [0, 1], [1, 1]], [[1, 0], [0, 1], [1, 1]]
    >>> label_norms(OneVsRest(n_jobs=1).fit(X, Y)).shape
    (2,)
    >>> label_norms(Popularity().fit(X, Y)) is None
    True
    """
    check_is_fitted(learner, "n_labels_")
    own = learner._label_norms()
    if own is not None:
        return own
    coef = getattr(learner, "coef_", None)
    if coef is not None and coef.shape[0] == learner.n_labels_:
        squares = sp.csr_array(coef).power(2).sum(axis=1)
        return np.sqrt(np.asarray(squares, np.float64).ravel())
    inside = next(learner._inside(fitted=True), None)
    return None if inside is None else label_norms(inside[1])


def norms_of_blocks(weights: BlockWeights, n_labels: int) -> Float64:
    """Norm of each label's weights without the bias, NaN for labels without a classifier.

    The matrix of a large model can need more memory than the model, and takes ten times as long to build.
    """
    norms = np.full(n_labels, np.nan)
    used = weights.lane_labels_ >= 0
    norms[weights.lane_labels_[used]] = np.sqrt(_squares_of_blocks(weights)[used])
    return norms


def _squares_of_blocks(weights: BlockWeights) -> Float64:
    arrays = weights._arrays
    squares = np.zeros(len(weights.lane_labels_))
    if len(arrays.lanes):
        squares += np.bincount(arrays.lanes, np.square(widened(arrays.values), dtype=np.float64), len(squares))
    for block, (start, stop) in enumerate(zip(arrays.starts[:-1], arrays.starts[1:], strict=True)):
        squares[block * LANES : (block + 1) * LANES] += _sums_of_squares(arrays.panels[start:stop])
    return squares


def norms_of_chunks(weights: ChunkWeights, n_labels: int) -> Float64:
    """Norm of each label's weights in its leaf, without the bias: the mean over the leaves that have the label."""
    members = weights.chunks.members
    places = members >= 0
    counts = np.bincount(members[places], minlength=n_labels)
    sums = np.bincount(members[places], lane_norms(weights)[places], n_labels)
    return np.asarray(np.divide(sums, counts, out=np.full(n_labels, np.nan), where=counts > 0))


def lane_norms(weights: ChunkWeights) -> Float64:
    """Norm of the weights of every member of every node, in the order of `members_`."""
    chunks = weights.chunks
    squares = np.zeros(len(chunks.members))
    for block in range(weights.n_blocks):
        entries = slice(chunks.entry_starts[block], chunks.entry_starts[block + 1])
        values = np.square(widened(chunks.values[entries]), dtype=np.float64)
        lanes = squares[block * LANES : (block + 1) * LANES]
        lanes += np.bincount(chunks.lanes[entries], values, LANES)
        lanes += _sums_of_squares(chunks.dense[chunks.dense_starts[block] : chunks.dense_starts[block + 1]])
    return np.sqrt(squares) * chunks.scales


def norms_of_leaves(trees: InstanceTrees) -> Float64:
    """Norm of the vector of each label's values in all leaves, over the number of trees; NaN where no leaf has it.

    The score of a label is linear in which leaves a row reaches, with these values as the weights.
    """
    squares = np.bincount(trees.labels_, np.square(trees.values_, dtype=np.float64), trees.n_labels_)
    squares[np.bincount(trees.labels_, minlength=trees.n_labels_) == 0] = np.nan
    return np.asarray(np.sqrt(squares) / trees.n_trees)


def _sums_of_squares(rows: Array) -> Float64:
    """Sum of squares of each of 64 lanes."""
    sums = np.zeros(LANES)
    for first in range(0, len(rows), _ROWS_AT_ONCE):
        wide = widened(rows[first : first + _ROWS_AT_ONCE])
        sums += np.einsum("ij,ij->j", wide, wide, dtype=np.float64)
    return sums

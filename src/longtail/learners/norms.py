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

_ROWS_AT_ONCE = 1 << 16


def label_norms(learner: Learner) -> Float64 | None:
    """Euclidean norm of each label's classifier, NaN for labels without one; None for a learner that has none.

    The bias is excluded. For `LabelTree` the norm is that of the label's weights in its leaf, the mean if there are
    several leaves. For `InstanceForest` the score of a label is linear in the leaves that a row reaches: the weights
    are its values in all leaves, over the number of trees. A learner that wraps another one has its
    norms, `TAug` those of both sides, and `Blend` none. Others may have a matrix ``coef_`` with a row per label.

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
    own: Float64 | None = learner._label_norms()
    if own is not None:
        return own
    coef = getattr(learner, "coef_", None)
    if coef is not None and coef.shape[0] == learner.n_labels_:
        squares = sp.csr_array(coef).power(2).sum(axis=1)
        return np.sqrt(np.asarray(squares, np.float64).ravel())
    return None


def lane_squares(rows: Array) -> Float64:
    """Return the sum of squares of each of 64 lanes."""
    sums = np.zeros(LANES)
    for first in range(0, len(rows), _ROWS_AT_ONCE):
        wide = widened(rows[first : first + _ROWS_AT_ONCE])
        sums += np.einsum("ij,ij->j", wide, wide, dtype=np.float64)
    return sums

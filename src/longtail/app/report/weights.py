"""How long the classifiers of a linear model are, label by label."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from longtail.engine.lanes import LANES, from_bfloat16
from longtail.learners import BlockWeights, Learner

_ROWS_AT_ONCE = 1 << 16


def weight_norms(learner: Learner) -> npt.NDArray[np.float64] | None:
    """Euclidean norm of each label's weights, bias left out; None for a learner that has no weights.

    A learner around another one, such as `TextLearner`, has the weights of the one inside. Block weights are added up
    where they lie: the matrix ``coef_`` of a large model can need more memory than the model, and takes ten times as
    long to make.

    Examples
    --------
    >>> from longtail import OneVsRest, Popularity
    >>> X, Y = [[1, 0], [0, 1], [1, 1]], [[1, 0], [0, 1], [1, 1]]
    >>> weight_norms(OneVsRest(threads=1).fit(X, Y)).shape
    (2,)
    >>> weight_norms(Popularity().fit(X, Y)) is None
    True
    """
    part: Any = learner
    while part is not None:
        weights = getattr(part, "weights_", None)
        if isinstance(weights, BlockWeights):
            return _norms_of_blocks(weights, learner.n_labels_)
        coef = getattr(part, "coef_", None)
        if coef is not None and coef.shape[0] == learner.n_labels_:
            squares = sp.csr_array(coef).power(2).sum(axis=1)
            return np.sqrt(np.asarray(squares, np.float64).ravel())
        part = getattr(part, "learner_", None)
    return None


def _norms_of_blocks(weights: BlockWeights, n_labels: int) -> npt.NDArray[np.float64]:
    """Add up the squares lane by lane; labels without a classifier are NaN."""
    arrays = weights._arrays
    squares = np.zeros(len(weights.lane_labels_))
    if len(arrays.lanes):
        squares += np.bincount(arrays.lanes, np.square(_as_floats(arrays.values), dtype=np.float64), len(squares))
    for block, (start, stop) in enumerate(zip(arrays.starts[:-1], arrays.starts[1:], strict=True)):
        lanes = squares[block * LANES : (block + 1) * LANES]
        for first in range(start, stop, _ROWS_AT_ONCE):
            panel = _as_floats(arrays.panels[first : min(first + _ROWS_AT_ONCE, stop)])
            lanes += np.einsum("ij,ij->j", panel, panel, dtype=np.float64)
    norms = np.full(n_labels, np.nan)
    used = weights.lane_labels_ >= 0
    norms[weights.lane_labels_[used]] = np.sqrt(squares[used])
    return norms


def _as_floats(values: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    return from_bfloat16(values) if values.dtype == np.uint16 else np.asarray(values, np.float32)

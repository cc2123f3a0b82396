"""Why a label of a tree got its score: what each feature added, along the whole path."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from longtail.engine.block_solver import LOGISTIC
from longtail.engine.chunks import find_weight
from longtail.engine.lanes import LANES
from longtail.learners.explanation import Explanation
from longtail.learners.label_trees.search import TreeSearch

Float64 = npt.NDArray[np.float64]


def explain_label(search: TreeSearch, row: sp.csr_array, scale: float, label: int) -> Explanation:
    """Share the score of a label out among the features of one row.

    The score is not a sum: it is exp of a sum of node values, which are no straight lines either. So what a node's
    value rises by when the features join its bias is shared out in proportion to what each feature adds to the node's
    linear score, and what the exponential of it all rises by in proportion to these shares. The parts add up to the
    score exactly.
    """
    forest = search.forest
    holders = forest.holders[forest.labels_ == label]
    bias, effects = 0.0, np.zeros(row.nnz)
    for tree in range(forest.n_trees_):
        paths = [_along_path(search, row, scale, label, int(node)) for node in holders[forest.trees[holders] == tree]]
        if paths:
            start, parts = max(paths, key=lambda path: path[0] + float(path[1].sum()))
            low, rise = np.exp(start), parts.sum()
            bias += low / forest.n_trees_
            if rise != 0:
                effects += parts * (low * np.expm1(rise) / rise / forest.n_trees_)
    return Explanation.from_effects(label, float(bias), row.indices, effects)


def _along_path(search: TreeSearch, row: sp.csr_array, scale: float, label: int, node: int) -> tuple[float, Float64]:
    """Logarithm of the score of a row without features, and what each feature adds to it."""
    parents = search.forest.parents
    start, effects = 0.0, np.zeros(row.nnz)
    member, share = label, 1.0
    while node >= 0:
        bias, parts = _linear(search, row, scale, node, member)
        low, rise = _value(search.loss, bias), parts.sum()
        start += share * low
        if rise != 0:
            effects += parts * (share * (_value(search.loss, bias + float(rise)) - low) / rise)
        member, node, share = -2 - node, int(parents[node]), share * search.discount
    return start, effects


def _linear(search: TreeSearch, row: sp.csr_array, scale: float, node: int, member: int) -> tuple[float, Float64]:
    """What the bias and each feature add to the linear score of a member of a node."""
    chunks = search.weights.chunks
    first, last = (int(at) * LANES for at in search.weights.block_starts_[node : node + 2])
    lane = first + int(np.flatnonzero(chunks.members[first:last] == member)[0])
    weights = np.zeros(row.nnz, np.float32)
    find_weight(chunks, lane // LANES, lane % LANES, row.indices, weights)
    return search.bias * float(chunks.bias[lane]), weights * (row.data.astype(np.float64) * scale)


def _value(loss: int, z: float) -> float:
    if loss == LOGISTIC:
        return float(-np.logaddexp(0, -z))
    return -(max(0.0, 1 - z) ** 2)

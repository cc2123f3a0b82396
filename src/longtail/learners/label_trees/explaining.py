"""Explanation of scores of label trees: the contribution of each feature along the path."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from longtail.kernels.lanes import LANES
from longtail.kernels.types import Float64
from longtail.learners.explanation import Explanation
from longtail.learners.label_trees.chunks import find_weight
from longtail.learners.label_trees.search import TreeSearch
from longtail.learners.linear.block_solver import LOGISTIC


def explain_label(search: TreeSearch, row: sp.csr_array, scale: float, label: int) -> Explanation:
    """Attribute the score of a label to the features of one row.

    The score is exp of a sum of node values, which are not linear in the features. So the rise of a node's value over
    its value without features is attributed in proportion to the contributions to the node's linear score, and the rise
    of the exponential in proportion to the sums of these. The parts add up to the score exactly.
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
    """Logarithm of the score of a row without features, and the contribution of each feature to it."""
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
    """Contributions of the bias and of each feature to the linear score of a member of a node."""
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

"""Growth of one FastXML tree: split the rows of a node, learn the hyperplane, send the rows, until few are left.

Nodes are numbered in preorder: the left child of node v is v + 1, and the nodes under v follow it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from longtail.kernels.arrays import with_room
from longtail.kernels.jit import kernel
from longtail.kernels.rows import sparse_dot
from longtail.kernels.selection import insert
from longtail.kernels.types import Array, Float32, Float64, Int8, Int32, UInt8, UInt64
from longtail.learners.instance_trees.l1_logistic import L1Limits, L1Memory, L1Problem, release, solve_l1_logistic
from longtail.learners.instance_trees.ndcg_split import Relevance, partition_rows


class Growth(NamedTuple):
    """Limits of growth.

    Nodes with at most `leaf_size` rows become leaves, which keep at most `leaf_labels` labels. `C` is that of the
    hyperplanes, where each side of a node weighs as much as all its rows; `bias` is the value of the bias feature.
    """

    leaf_size: int
    leaf_labels: int
    C: float
    bias: float


class GrownTree(NamedTuple):
    """Arrays of one tree.

    ``rights[v]`` is the right child of node v, 0 for leaves. Node v has ``weight_counts[v]`` entries of `features` and
    `weights`, and ``label_counts[v]`` entries of `labels` and `values`, in the order of the nodes; `sizes` are the
    numbers of training rows.
    """

    rights: Int32
    sizes: Int32
    bias: Float32
    weight_counts: Int32
    features: Int32
    weights: Float32
    label_counts: Int32
    labels: Int32
    values: Float32


@kernel
def grow_tree(
    indptr: Array, indices: Int32, values: Float32, relevance: Relevance, growth: Growth, limits: L1Limits,
    state: UInt64, memory: L1Memory, stop: UInt8,
) -> Any:  # fmt: skip
    """Grow a tree over all rows; the result is incomplete once `stop` is 1."""
    n = relevance.inverse_ideals.shape[0]
    order = np.arange(n).astype(np.int32)  # rows, those of a node next to each other
    sides, margins = np.empty(n, np.int8), np.empty(n, np.float64)
    slots = np.full(relevance.gains.shape[0], -1, np.int32)
    sums = np.zeros(relevance.gains.shape[0], np.float64)
    met = np.empty(256, np.int32)
    rights: Any = []
    sizes: Any = []
    bias: Any = []
    weight_counts: Any = []
    label_counts: Any = []
    features, weights = np.empty(4096, np.int32), np.empty(4096, np.float32)
    labels, shares = np.empty(4096, np.int32), np.empty(4096, np.float32)
    n_weights = n_labels = 0
    waiting = [(0, n, -1)]  # first row, end, and the node whose right child it is, or -1
    while len(waiting) > 0 and not stop[0]:
        first, end, parent = waiting.pop()
        node = len(rights)
        if parent >= 0:
            rights[parent] = np.int32(node)
        # Split the rows of the node; `rows` is rearranged so that those of the left child come first.
        rows = order[first:end]
        n_left, found = _split(
            indptr, indices, values, relevance, growth, limits, state, memory, slots, rows, sides[first:end],
            margins[first:end],
        )  # fmt: skip
        n_own_weights, n_own_labels, own_bias = 0, 0, np.float32(0)
        # An inner node keeps the weights of its hyperplane, a leaf the labels of its rows.
        if 0 < n_left < rows.shape[0]:
            features, weights = with_room(features, n_weights + found), with_room(weights, n_weights + found)
            n_own_weights = _keep_weights(found, memory, features[n_weights:], weights[n_weights:])
            own_bias = np.float32(memory.weights[memory.weights.shape[0] - 1] * growth.bias)
            waiting.append((first + n_left, end, node))
            waiting.append((first, first + n_left, -1))  # the left child is the next node
        else:
            met, n_met = _add_up(relevance, rows, sums, met)
            n_own_labels = min(n_met, growth.leaf_labels)
            room = n_labels + n_own_labels
            labels, shares = with_room(labels, room), with_room(shares, room)
            _rank_labels(met[:n_met], sums, rows.shape[0], labels[n_labels:room], shares[n_labels:room])
        rights.append(np.int32(0))
        sizes.append(np.int32(rows.shape[0]))
        bias.append(own_bias)
        weight_counts.append(np.int32(n_own_weights))
        label_counts.append(np.int32(n_own_labels))
        n_weights += n_own_weights
        n_labels += n_own_labels
        release(found, memory)
    return GrownTree(
        np.array(rights), np.array(sizes), np.array(bias), np.array(weight_counts), features[:n_weights].copy(),
        weights[:n_weights].copy(), np.array(label_counts), labels[:n_labels].copy(), shares[:n_labels].copy(),
    )  # fmt: skip


@kernel
def _split(
    indptr: Array,
    indices: Int32,
    values: Float32,
    relevance: Relevance,
    growth: Growth,
    limits: L1Limits,
    state: UInt64,
    memory: L1Memory,
    slots: Int32,
    rows: Int32,
    sides: Int8,
    margins: Float64,
) -> Any:
    """Partition the rows of a node by nDCG, learn a hyperplane, and sort the rows by its sides.

    Returns the number of rows on the left, all on one side where there is no split, and the number of features whose
    `memory` is in use.
    """
    size = rows.shape[0]
    if size <= growth.leaf_size:
        return 0, 0
    positive, _ = partition_rows(relevance, rows, state, slots, sides)
    if not 0 < positive < size:
        return 0, 0
    costs = growth.C * size / (size - positive), growth.C * size / positive
    problem = L1Problem(indptr, indices, values, rows, sides, costs[0], costs[1], growth.bias)
    found = solve_l1_logistic(problem, limits, state, memory, margins)
    _find_margins(indptr, indices, values, rows, growth.bias, memory.weights, margins)
    return _send(rows, margins), found


@kernel
def _find_margins(
    indptr: Array, indices: Int32, values: Float32, rows: Int32, bias: float, weights: Float32, margins: Float64
) -> None:
    """Compute margins from the stored weights, as in prediction; those of the solver carry its rounding errors."""
    own = np.float64(np.float32(weights[weights.shape[0] - 1] * bias))
    for place in range(rows.shape[0]):
        row = rows[place]
        margins[place] = own + sparse_dot(indices, values, indptr[row], indptr[row + 1], weights)


@kernel
def _send(rows: Int32, margins: Float64) -> Any:
    """Move rows below the hyperplane before the others, keeping the order otherwise; return their number."""
    above = np.empty(rows.shape[0], np.int32)
    n_below = n_above = 0
    for at in range(rows.shape[0]):
        if margins[at] >= 0:
            above[n_above] = rows[at]
            n_above += 1
        else:
            rows[n_below] = rows[at]
            n_below += 1
    rows[n_below:] = above[:n_above]
    return n_below


@kernel
def _keep_weights(found: int, memory: L1Memory, features: Int32, weights: Float32) -> Any:
    """Write the non-zero weights in the order of their features, without the bias."""
    count = 0
    for at in range(found - 1):
        feature = memory.touched[at]
        if memory.weights[feature] != 0:
            features[count] = feature
            count += 1
    features[:count] = np.sort(features[:count])
    for at in range(count):
        weights[at] = memory.weights[features[at]]
    return count


@kernel
def _add_up(relevance: Relevance, rows: Int32, sums: Float64, met: Int32) -> Any:
    """Add up the gains of the labels of some rows; return the list of these labels and its length."""
    n_met = 0
    for row in rows:
        begin, end = relevance.indptr[row], relevance.indptr[row + 1]
        met = with_room(met, n_met + end - begin)
        for at in range(begin, end):
            label = relevance.indices[at]
            if sums[label] == 0:
                met[n_met] = label
                n_met += 1
            sums[label] += relevance.gains[label]
    return met, n_met


@kernel
def _rank_labels(met: Int32, sums: Float64, n_rows: int, labels: Int32, shares: Float32) -> None:
    """Write the labels of a leaf with their mean gains, the largest first, and reset `sums` to 0."""
    labels[:] = -1
    shares[:] = -np.inf
    for label in met:
        if labels.shape[0] > 0:
            insert(labels, shares, label, np.float32(sums[label] / n_rows))
        sums[label] = 0

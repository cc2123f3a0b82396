"""Growing one tree over rows: split, learn the hyperplane, send the rows, until few are left.

Nodes are numbered as they are met, the left child of node v being v + 1, so that all that stands under a node has the
numbers that follow its own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from longtail.engine.arrays import with_room
from longtail.engine.jit import kernel
from longtail.engine.l1_logistic import L1Memory, Limits, release, solve_l1_logistic
from longtail.engine.ndcg_split import Relevance, part_rows
from longtail.engine.rows import sparse_dot
from longtail.engine.topk_kernels import insert

Float32 = npt.NDArray[np.float32]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]


class Growth(NamedTuple):
    """How a tree grows.

    Parameters
    ----------
    leaf_size : int
        Nodes with so many rows or fewer become leaves.
    leaf_labels : int
        Most labels that a leaf keeps.
    regularisation : float
        C of the hyperplanes; each side of a node counts as if it were as large as both.
    bias : float
        Value of the bias feature.
    """

    leaf_size: int
    leaf_labels: int
    regularisation: float
    bias: float


class GrownTree(NamedTuple):
    """Arrays of one tree.

    Node v of `rights` has its right child there, or is a leaf where it is 0. Node v has ``weight_counts[v]`` weights in
    `features` and `weights`, and ``label_counts[v]`` labels in `labels` and `values`, in the order of the nodes;
    `sizes` are the training rows that reached it.
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
    indptr: npt.NDArray[Any],
    indices: Int32,
    values: Float32,
    relevance: Relevance,
    growth: Growth,
    limits: Limits,
    state: npt.NDArray[np.uint64],
    memory: L1Memory,
    stop: npt.NDArray[np.uint8],
) -> Any:
    """Grow a tree over all rows; when `stop` turns 1, what is returned is of no use."""
    n = relevance.inverse_ideals.shape[0]
    order = np.arange(n).astype(np.int32)
    sides, margins = np.empty(n, np.int8), np.empty(n, np.float64)
    slots = np.full(relevance.gains.shape[0], -1, np.int32)
    sums = np.zeros(relevance.gains.shape[0], np.float64)
    met = np.empty(256, np.int32)
    rights, sizes = np.zeros(1024, np.int32), np.zeros(1024, np.int32)
    weight_counts, label_counts = np.zeros(1024, np.int32), np.zeros(1024, np.int32)
    bias = np.zeros(1024, np.float32)
    features, weights = np.empty(4096, np.int32), np.empty(4096, np.float32)
    labels, shares = np.empty(4096, np.int32), np.empty(4096, np.float32)
    n_nodes = n_weights = n_labels = 0
    waiting = np.empty((64, 3), np.int64)  # first row, end, and the node whose right child it is, or -1
    waiting[0] = 0, n, -1
    n_waiting = 1
    while n_waiting > 0 and not stop[0]:
        n_waiting -= 1
        first, end, parent = waiting[n_waiting]
        node = n_nodes
        n_nodes += 1
        rights, sizes, bias = with_room(rights, n_nodes), with_room(sizes, n_nodes), with_room(bias, n_nodes)
        weight_counts, label_counts = with_room(weight_counts, n_nodes), with_room(label_counts, n_nodes)
        rights[node], sizes[node], bias[node], weight_counts[node], label_counts[node] = 0, end - first, 0, 0, 0
        if parent >= 0:
            rights[parent] = node
        rows = order[first:end]
        positive: Any = 0
        found: Any = 0
        if end - first > growth.leaf_size:
            positive, _ = part_rows(relevance, rows, state, slots, sides[first:end])
        if 0 < positive < end - first:
            size = end - first
            found = solve_l1_logistic(
                indptr, indices, values, rows, sides[first:end], growth.regularisation * size / (size - positive),
                growth.regularisation * size / positive, growth.bias, limits, state, memory, margins[first:end],
            )  # fmt: skip
        middle = first
        if found > 0:
            _find_margins(indptr, indices, values, rows, growth.bias, memory.weights, margins[first:end])
            middle = _send(rows, margins[first:end], first)
        if first < middle < end:
            features, weights = with_room(features, n_weights + found), with_room(weights, n_weights + found)
            count = _keep_weights(found, memory, features[n_weights:], weights[n_weights:])
            weight_counts[node], bias[node] = (
                count,
                np.float32(memory.weights[memory.weights.shape[0] - 1] * growth.bias),
            )
            n_weights += count
            if n_waiting + 2 > waiting.shape[0]:
                larger = np.empty((2 * waiting.shape[0], 3), np.int64)
                larger[:n_waiting] = waiting[:n_waiting]
                waiting = larger
            waiting[n_waiting] = middle, end, node
            waiting[n_waiting + 1] = first, middle, -1
            n_waiting += 2
        else:
            met, n_met = _add_up(relevance, rows, sums, met)
            count = min(n_met, growth.leaf_labels)
            room = n_labels + count
            labels, shares = with_room(labels, room), with_room(shares, room)
            _rank_labels(met[:n_met], sums, rows.shape[0], labels[n_labels:room], shares[n_labels:room])
            label_counts[node] = count
            n_labels += count
        release(found, memory)
    return GrownTree(
        rights[:n_nodes].copy(), sizes[:n_nodes].copy(), bias[:n_nodes].copy(), weight_counts[:n_nodes].copy(),
        features[:n_weights].copy(), weights[:n_weights].copy(), label_counts[:n_nodes].copy(),
        labels[:n_labels].copy(), shares[:n_labels].copy(),
    )  # fmt: skip


@kernel
def _find_margins(
    indptr: npt.NDArray[Any],
    indices: Int32,
    values: Float32,
    rows: Int32,
    bias: float,
    weights: Float32,
    margins: npt.NDArray[np.float64],
) -> None:
    """Find margins as prediction will, by the weights as they are kept: the solver's own carry its rounding errors."""
    own = np.float64(np.float32(weights[weights.shape[0] - 1] * bias))
    for place in range(rows.shape[0]):
        row = rows[place]
        margins[place] = own + sparse_dot(indices, values, indptr[row], indptr[row + 1], weights)


@kernel
def _send(rows: Int32, margins: npt.NDArray[np.float64], first: int) -> Any:
    """Put rows below the hyperplane before those on or above it, both in their order; returns where these begin."""
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
    return first + n_below


@kernel
def _keep_weights(found: int, memory: L1Memory, features: Int32, weights: Float32) -> Any:
    """Write the features that have a weight, in order, the bias feature left out."""
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
def _add_up(relevance: Relevance, rows: Int32, sums: npt.NDArray[np.float64], met: Int32) -> Any:
    """Add up the gains of the labels of some rows, and list these labels; gives the list and its length."""
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
def _rank_labels(met: Int32, sums: npt.NDArray[np.float64], n_rows: int, labels: Int32, shares: Float32) -> None:
    """Write the labels of a leaf with the mean of their gains over its rows, the largest first; `sums` are 0 again."""
    labels[:] = -1
    shares[:] = -np.inf
    for label in met:
        if labels.shape[0] > 0:
            insert(labels, shares, label, np.float32(sums[label] / n_rows))
        sums[label] = 0

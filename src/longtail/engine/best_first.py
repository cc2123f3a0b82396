"""Exact search through one label tree: the node that may hold the best label is opened first."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from longtail.engine.chunks import Chunks, score_block
from longtail.engine.jit import kernel
from longtail.engine.lanes import LANES
from longtail.engine.topk_kernels import insert
from longtail.engine.tree_search import Rows, Shape, add_values, longest_row

Float32 = npt.NDArray[np.float32]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_SLACK = np.float32(1e-5)


@kernel
def _push(bounds: Float32, nodes: Int32, scores: Float32, size: int, bound: Any, node: Any, score: Any) -> None:
    """Add to a heap of `size` nodes with the largest bound on top; of equal bounds, the lower node number."""
    at = size
    while at > 0:
        above = (at - 1) // 2
        if bounds[above] > bound or (bounds[above] == bound and nodes[above] < node):
            break
        bounds[at], nodes[at], scores[at] = bounds[above], nodes[above], scores[above]
        at = above
    bounds[at], nodes[at], scores[at] = bound, node, score


@kernel
def _pop(bounds: Float32, nodes: Int32, scores: Float32, size: int) -> None:
    """Remove the top of a heap of `size` nodes; what was there has been read."""
    last = size - 1
    bound, node, score = bounds[last], nodes[last], scores[last]
    at = 0
    while 2 * at + 1 < last:
        below = 2 * at + 1
        if below + 1 < last and (
            bounds[below + 1] > bounds[below]
            or (bounds[below + 1] == bounds[below] and nodes[below + 1] < nodes[below])
        ):
            below += 1
        if bound > bounds[below] or (bound == bounds[below] and node < nodes[below]):
            break
        bounds[at], nodes[at], scores[at] = bounds[below], nodes[below], scores[below]
        at = below
    bounds[at], nodes[at], scores[at] = bound, node, score


@kernel
def _insert_once(labels: Int32, scores: Float32, label: Any, score: Any) -> None:
    """Rank a label that may be in the ranking already, with another score."""
    if score < scores[labels.shape[0] - 1]:
        return
    for place in range(labels.shape[0]):
        if labels[place] == label:
            if scores[place] >= score:
                return
            for later in range(place, labels.shape[0] - 1):
                labels[later], scores[later] = labels[later + 1], scores[later + 1]
            labels[labels.shape[0] - 1], scores[labels.shape[0] - 1] = -1, -np.inf
            break
    insert(labels, scores, label, score)


@kernel
def best_first_search(
    rows: Rows,
    first: int,
    last: int,
    shape: Shape,
    chunks: Chunks,
    loss: int,
    discount: Any,
    reach: Float32,
    most_weight: Float32,
    log_weights: Float32,
    allowed: Flags,
    visits: Int64,
    labels: Int32,
    scores: Float32,
) -> None:
    """Rank the exactly best k labels of rows `first` to `last` of one tree, by weight times exp(path score).

    A node with path score s holds no label with more than ``exp(reach * s)`` times the largest weight under it, since
    no value is above 0; nodes are opened in the order of this bound until k labels reach it.

    Parameters
    ----------
    rows, first, last, shape, chunks, loss, discount
    reach : ndarray of float32, shape (nodes,)
        ``discount ** (steps to the deepest label under the node)``.
    most_weight : ndarray of float32, shape (nodes,)
        Largest of `log_weights` under the node, -inf where nothing under it is allowed.
    log_weights : ndarray of float32
        Logarithm of the weight of each label; empty if all are 1.
    allowed : ndarray of bool
        Labels that may be ranked; empty if all may.
    visits : ndarray of int64, shape (n,)
        Set to the number of nodes opened for each row.
    labels, scores : int32 and float32 arrays, shape (n, k)
        Filled with -1 and -inf; the ranking.
    """
    longest = longest_row(rows, first, last)
    places, factors = np.empty(longest + 1, np.int32), np.empty(longest + 1, np.float32)
    steps = np.empty(longest + 1, np.int64)
    sums = np.empty(LANES, np.float32)
    n_nodes = shape.block_starts.shape[0] - 1
    heap_bounds, heap_nodes = np.empty(n_nodes, np.float32), np.empty(n_nodes, np.int32)
    heap_scores = np.empty(n_nodes, np.float32)
    weighted, restricted = log_weights.shape[0] > 0, allowed.shape[0] > 0
    k = labels.shape[1]
    for row in range(last - first):
        heap_bounds[0], heap_nodes[0], heap_scores[0] = most_weight[0], 0, 0
        size = 1 if most_weight[0] > -np.inf else 0
        while size > 0:
            bound, node, above = heap_bounds[0], heap_nodes[0], heap_scores[0]
            if labels[row, k - 1] >= 0 and np.exp(bound + _SLACK) < scores[row, k - 1]:
                break
            _pop(heap_bounds, heap_nodes, heap_scores, size)
            size -= 1
            visits[row] += 1
            for block in range(shape.block_starts[node], shape.block_starts[node + 1]):
                score_block(
                    chunks, block, rows.indices, rows.values, rows.indptr[first + row], rows.indptr[first + row + 1],
                    rows.scales[first + row], rows.bias, steps, places, factors, sums,
                )  # fmt: skip
                add_values(sums, loss, np.float32(discount * above))
                for lane in range(LANES):
                    member = chunks.members[block * LANES + lane]
                    if member < -1:
                        child = -2 - member
                        if most_weight[child] > -np.inf:
                            limit = reach[child] * sums[lane] + most_weight[child]
                            _push(heap_bounds, heap_nodes, heap_scores, size, limit, child, sums[lane])
                            size += 1
                    elif member >= 0 and not (restricted and not allowed[member]):
                        score = sums[lane] + (log_weights[member] if weighted else np.float32(0))
                        _insert_once(labels[row], scores[row], member, np.exp(score))

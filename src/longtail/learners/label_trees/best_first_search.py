"""Exact best-first search through one label tree: the node with the largest upper bound is opened next."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any

import numpy as np

from longtail.kernels.jit import kernel
from longtail.kernels.lanes import LANES
from longtail.kernels.rows import QueryRows
from longtail.kernels.selection import insert
from longtail.kernels.types import Flags, Float32, Int32, Int64
from longtail.learners.label_trees.beam_search import TreeShape, add_values
from longtail.learners.label_trees.chunks import Chunks, score_block, score_memory

_SLACK = np.float32(1e-5)


@kernel
def _insert_once(labels: Int32, scores: Float32, label: Any, score: Any) -> None:
    """Insert a label into a ranking that may hold it already with another score."""
    if score < scores[labels.shape[0] - 1]:
        return
    for place in range(labels.shape[0]):
        if labels[place] == label:
            if scores[place] >= score:
                return
            # Remove the lower score: the labels below move up by one.
            for later in range(place, labels.shape[0] - 1):
                labels[later], scores[later] = labels[later + 1], scores[later + 1]
            labels[labels.shape[0] - 1], scores[labels.shape[0] - 1] = -1, -np.inf
            break
    insert(labels, scores, label, score)


@kernel
def best_first_search(
    rows: QueryRows,
    first: int,
    last: int,
    shape: TreeShape,
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
    """Rank exactly the k best labels of rows `first` to `last` - 1 of one tree, by weight times exp(path score).

    Under a node with path score s, no label exceeds ``exp(reach * s)`` times the largest weight there, because all
    values are at most 0. Nodes are opened in the order of this bound, until the k-th best label reaches it.

    `reach` has ``discount ** (steps to the deepest label)`` of each node, and `most_weight` the maximum of
    `log_weights` under it, -inf where no label is allowed. `log_weights` are the logarithms of the label weights, empty
    if all are 1; `allowed` are the labels that may be ranked, empty if all may. `visits` is set to the number of nodes
    opened for each row, and `labels` and `scores`, of shape (n, k) and filled with -1 and -inf, to the ranking.
    """
    memory = score_memory(rows, first, last)
    sums = memory.sums
    weighted, restricted = log_weights.shape[0] > 0, allowed.shape[0] > 0
    k = labels.shape[1]
    for row in range(last - first):
        # A heap of (-bound, node, path score): the largest bound first, ties by the lower node.
        heap = [(-most_weight[0], np.int32(0), np.float32(0))]
        if most_weight[0] == -np.inf:
            heap.pop()
        while len(heap) > 0:
            bound, node, above = heap[0]
            # Stop once the k-th best label exceeds the bounds of all nodes that are left, rounding included.
            if labels[row, k - 1] >= 0 and np.exp(-bound + _SLACK) < scores[row, k - 1]:
                break
            heappop(heap)
            visits[row] += 1
            for block in range(shape.block_starts[node], shape.block_starts[node + 1]):
                score_block(chunks, block, rows, first + row, memory)
                add_values(sums, loss, np.float32(discount * above))
                for lane in range(LANES):
                    member = chunks.members[block * LANES + lane]
                    if member < -1:  # a node: push it with its bound, unless no allowed label is under it
                        child = -2 - member
                        if most_weight[child] > -np.inf:
                            limit = reach[child] * sums[lane] + most_weight[child]
                            heappush(heap, (-np.float32(limit), np.int32(child), sums[lane]))
                    elif member >= 0 and not (restricted and not allowed[member]):  # a label: rank it
                        score = sums[lane] + (log_weights[member] if weighted else np.float32(0))
                        _insert_once(labels[row], scores[row], member, np.exp(score))

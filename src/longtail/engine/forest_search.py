"""Prediction with trees over rows: down to a leaf in each tree, and the mean of what the leaves hold."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from longtail.engine.arrays import with_room
from longtail.engine.chunks import bucket_of
from longtail.engine.jit import kernel
from longtail.engine.lanes import fetch
from longtail.engine.rows import sparse_dot
from longtail.engine.topk_kernels import insert

Float32 = npt.NDArray[np.float32]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

_LOOKED_UP = 8  # where a node has so many times the features of a row, these are looked up among its own
_INSERTED = 32  # with more places to fill, what was found is sorted


class Trees(NamedTuple):
    """Arrays of all trees, one after the other.

    The roots are `roots`. The left child of node v is v + 1, the right one ``rights[v]``, which is 0 for leaves. Node v
    has the weights ``weight_starts[v]`` to ``weight_starts[v + 1] - 1`` and ``bias[v]``, and the labels
    ``label_starts[v]`` to ``label_starts[v + 1] - 1`` if it is a leaf.
    """

    roots: Int64
    rights: Int32
    bias: Float32
    weight_starts: Int64
    features: Int32
    weights: Float32
    label_starts: Int64
    labels: Int32
    values: Float32


@kernel
def is_in_preorder(roots: Int64, rights: Int32) -> Any:
    """Whether each tree has its nodes in order: a node, all that is under its left child, then its right child."""
    waiting = np.empty(64, np.int64)
    for tree in range(roots.shape[0]):
        end = roots[tree + 1] if tree + 1 < roots.shape[0] else rights.shape[0]
        n_waiting = 0
        for node in range(roots[tree], end):
            if rights[node] != 0:
                waiting = with_room(waiting, n_waiting + 1)
                waiting[n_waiting] = rights[node]
                n_waiting += 1
            elif n_waiting > 0:
                n_waiting -= 1
                if waiting[n_waiting] != node + 1:
                    return False
            elif node + 1 != end:
                return False
        if n_waiting > 0:
            return False
    return True


@kernel
def find_leaves(
    indptr: npt.NDArray[Any],
    indices: Int32,
    values: Float32,
    first: int,
    last: int,
    n_features: int,
    trees: Trees,
    leaves: Int32,
) -> None:
    """Set `leaves`, of shape (rows, trees), to the leaf that each of the rows `first` to `last` reaches in each tree.

    Rows go down together as long as they meet in a node, whose weights are then laid out for all of them at once, and
    alone from where they part.
    """
    n = last - first
    dense = np.zeros(n_features, np.float32)
    if n == 1:
        _go_down_all(trees, indptr, indices, values, first, dense, leaves[0])
        return
    order, above = np.arange(n).astype(np.int32), np.empty(n, np.int32)
    nodes, begins, ends = np.empty(64, np.int64), np.empty(64, np.int64), np.empty(64, np.int64)
    for tree in range(trees.roots.shape[0]):
        nodes[0], begins[0], ends[0] = trees.roots[tree], 0, n
        n_waiting = 1
        while n_waiting > 0:
            n_waiting -= 1
            node, begin, end = nodes[n_waiting], begins[n_waiting], ends[n_waiting]
            if end - begin == 1:
                row = order[begin]
                leaves[row, tree] = _go_down(trees, node, indptr, indices, values, first + row, dense)
                continue
            right = np.int64(trees.rights[node])
            if right == 0:
                for at in range(begin, end):
                    leaves[order[at], tree] = node
                continue
            start, stop = trees.weight_starts[node], trees.weight_starts[node + 1]
            for at in range(start, stop):
                dense[trees.features[at]] = trees.weights[at]
            n_below = n_above = 0
            for at in range(begin, end):
                row = first + order[at]
                if trees.bias[node] + sparse_dot(indices, values, indptr[row], indptr[row + 1], dense) >= 0:
                    above[n_above] = order[at]
                    n_above += 1
                else:
                    order[begin + n_below] = order[at]
                    n_below += 1
            order[begin + n_below : end] = above[:n_above]
            for at in range(start, stop):
                dense[trees.features[at]] = 0
            nodes, begins, ends = (
                with_room(nodes, n_waiting + 2),
                with_room(begins, n_waiting + 2),
                with_room(ends, n_waiting + 2),
            )
            if n_above > 0:
                nodes[n_waiting], begins[n_waiting], ends[n_waiting] = right, begin + n_below, end
                n_waiting += 1
            if n_below > 0:
                nodes[n_waiting], begins[n_waiting], ends[n_waiting] = node + 1, begin, begin + n_below
                n_waiting += 1


@kernel
def _go_down_all(
    trees: Trees, indptr: npt.NDArray[Any], indices: Int32, values: Float32, row: Any, dense: Float32, leaves: Int32
) -> None:
    """Find the leaf of one row in each tree: down all trees in step, each asking for its next node while others work.

    With many trees most of the time would go into waiting for memory.
    """
    begin, end = indptr[row], indptr[row + 1]
    for at in range(begin, end):
        dense[indices[at]] = values[at]
    leaves[:] = trees.roots
    waiting = trees.roots.shape[0]
    order = np.arange(waiting)
    while waiting > 0:
        for at in range(waiting):
            start = trees.weight_starts[leaves[order[at]]]
            fetch(trees.features, start)
            fetch(trees.weights, start)
        going = 0
        for at in range(waiting):
            tree = order[at]
            node = np.int64(leaves[tree])
            right = np.int64(trees.rights[node])
            if right != 0:
                margin = trees.bias[node] + _product(trees, node, indices, values, begin, end, dense)
                node = right if margin >= 0 else node + 1
                fetch(trees.rights, node)
                fetch(trees.bias, node)
                fetch(trees.weight_starts, node)
                leaves[tree] = node
                order[going] = tree
                going += 1
        waiting = going
    for at in range(begin, end):
        dense[indices[at]] = 0


@kernel
def _go_down(
    trees: Trees, node: Any, indptr: npt.NDArray[Any], indices: Int32, values: Float32, row: Any, dense: Float32
) -> Any:
    """Leaf under a node that one row reaches."""
    begin, end = indptr[row], indptr[row + 1]
    for at in range(begin, end):
        dense[indices[at]] = values[at]
    while trees.rights[node] != 0:
        margin = trees.bias[node] + _product(trees, node, indices, values, begin, end, dense)
        node = np.int64(trees.rights[node]) if margin >= 0 else node + 1
    for at in range(begin, end):
        dense[indices[at]] = 0
    return node


@kernel
def _product(trees: Trees, node: Any, indices: Int32, values: Float32, begin: Any, end: Any, dense: Float32) -> Any:
    """Inner product of a row, which is also laid out in `dense`, with the weights of a node."""
    start, stop = trees.weight_starts[node], trees.weight_starts[node + 1]
    if stop - start > _LOOKED_UP * (end - begin):
        return _look_up(indices, values, begin, end, trees.features, trees.weights, start, stop)
    return sparse_dot(trees.features, trees.weights, start, stop, dense)


@kernel
def _look_up(
    indices: Int32, values: Float32, begin: Any, end: Any, features: Int32, weights: Float32, start: Any, stop: Any
) -> Any:
    """Inner product of a row with the weights of a node, each feature of the row looked up among those of the node.

    All features halve their range in step, so that the processor waits for the memory of all of them at once.
    """
    lows = np.full(end - begin, start, np.int64)
    size = stop - start
    while size > 1:
        half = size >> 1
        for at in range(end - begin):
            if features[lows[at] + half] <= indices[begin + at]:
                lows[at] += half
        size -= half
    product = 0.0
    for at in range(end - begin):
        if features[lows[at]] == indices[begin + at]:
            product += np.float64(values[begin + at]) * weights[lows[at]]
    return product


@kernel
def rank_leaves(
    leaves: Int32,
    trees: Trees,
    allowed: npt.NDArray[np.bool_],
    factors: Float32,
    labels: Int32,
    scores: Float32,
) -> None:
    """Rank labels by the mean of their values over the leaves of each row.

    The sums stand in a table that is found by hashing, so that the number of all labels doesn't matter.

    Parameters
    ----------
    leaves : ndarray of int32, shape (rows, trees)
    trees : Trees
    allowed : ndarray of bool
        Labels that may be ranked; empty if all may.
    factors : ndarray of float32
        What the mean of each label is multiplied by, above 0; empty if by nothing.
    labels, scores : int32 and float32 arrays, shape (rows, k)
        Filled with -1 and -inf; the ranking.
    """
    n_trees = np.float32(leaves.shape[1])
    restricted, weighted = allowed.shape[0] > 0, factors.shape[0] > 0
    bits = 8
    keys, sums, met = np.full(1 << bits, -1, np.int32), np.empty(1 << bits, np.float32), np.empty(1 << bits, np.int32)
    for row in range(leaves.shape[0]):
        entries = 0
        for leaf in leaves[row]:
            entries += trees.label_starts[leaf + 1] - trees.label_starts[leaf]
        while (1 << bits) < 2 * entries:
            bits += 1
        if keys.shape[0] < 1 << bits:
            keys, sums = np.full(1 << bits, -1, np.int32), np.empty(1 << bits, np.float32)
            met = np.empty(1 << bits, np.int32)
        last, n_met = (1 << bits) - 1, 0
        for leaf in leaves[row]:
            for at in range(trees.label_starts[leaf], trees.label_starts[leaf + 1]):
                label = trees.labels[at]
                place = bucket_of(label, bits)
                while keys[place] >= 0 and keys[place] != label:
                    place = (place + 1) & last
                if keys[place] < 0:
                    keys[place] = label
                    sums[place] = 0
                    met[n_met] = place
                    n_met += 1
                sums[place] += trees.values[at]
        if labels.shape[1] <= _INSERTED:
            for at in range(n_met):
                label = keys[met[at]]
                keys[met[at]] = -1
                if not (restricted and not allowed[label]):
                    mean = sums[met[at]] / n_trees
                    insert(labels[row], scores[row], label, mean * factors[label] if weighted else mean)
        else:
            found, found_scores = np.empty(n_met, np.int32), np.empty(n_met, np.float32)
            n_found = 0
            for at in range(n_met):
                label = keys[met[at]]
                keys[met[at]] = -1
                if not (restricted and not allowed[label]):
                    mean = sums[met[at]] / n_trees
                    found[n_found], found_scores[n_found] = label, mean * factors[label] if weighted else mean
                    n_found += 1
            _rank(found[:n_found], found_scores[:n_found], labels[row], scores[row])


@kernel
def _rank(found: Int32, found_scores: Float32, labels: Int32, scores: Float32) -> None:
    """Write the best of what was found, all of it if there is room: worth it where many places are to be filled.

    Scores are above 0, so that their bits rise as they do: bits and label make one number to sort by.
    """
    bits = found_scores.view(np.uint32)
    keys = np.empty(found.shape[0], np.uint64)
    for at in range(found.shape[0]):
        keys[at] = (np.uint64(~bits[at] & np.uint32(0xFFFFFFFF)) << np.uint64(32)) | np.uint64(found[at])
    keys.sort()
    whole = np.empty(1, np.uint32)
    for place in range(min(labels.shape[0], found.shape[0])):
        labels[place] = np.int32(keys[place] & np.uint64(0xFFFFFFFF))
        whole[0] = ~np.uint32(keys[place] >> np.uint64(32)) & np.uint32(0xFFFFFFFF)
        scores[place] = whole.view(np.float32)[0]

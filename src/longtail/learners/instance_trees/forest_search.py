"""Prediction with instance trees: the leaf of each row in each tree, and the mean of the leaves' label values."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from longtail.kernels.hashing import bucket_of
from longtail.kernels.jit import kernel
from longtail.kernels.lanes import fetch
from longtail.kernels.rows import sparse_dot
from longtail.kernels.selection import insert
from longtail.kernels.types import Array, Flags, Float32, Int32, Int64

_LOOKED_UP = 8  # features of a row are looked up in nodes that have more than 8 times as many
_INSERTED = 32  # largest k for which labels are ranked by insertion; above, they are sorted


class Trees(NamedTuple):
    """Arrays of all trees, concatenated.

    The left child of node v is v + 1, the right one ``rights[v]``, which is 0 for leaves. Node v has the weights
    ``weight_starts[v]`` to ``weight_starts[v + 1] - 1`` and ``bias[v]``; a leaf has the labels ``label_starts[v]`` to
    ``label_starts[v + 1] - 1``.
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
    """Return whether the nodes of each tree are in preorder: a node, those under its left child, its right child."""
    for tree in range(roots.shape[0]):
        end = roots[tree + 1] if tree + 1 < roots.shape[0] else rights.shape[0]
        waiting = [np.int64(end)]  # right children that are still to come, and the end of the tree
        for node in range(roots[tree], end):
            if rights[node] != 0:
                waiting.append(np.int64(rights[node]))
            elif len(waiting) == 0 or waiting.pop() != node + 1:
                return False
        if len(waiting) > 0:
            return False
    return True


@kernel
def find_leaves(
    indptr: Array, indices: Int32, values: Float32, first: int, last: int, n_features: int, trees: Trees, leaves: Int32
) -> None:
    """Set `leaves`, of shape (rows, trees), to the leaf that each of the rows `first` to `last` reaches in each tree.

    Rows that reach the same node are handled together, with its weights as a dense vector; single rows descend alone.
    """
    n = last - first
    dense = np.zeros(n_features, np.float32)
    if n == 1:
        _go_down_all(trees, indptr, indices, values, first, dense, leaves[0])
        return
    order, above = np.arange(n).astype(np.int32), np.empty(n, np.int32)
    for tree in range(trees.roots.shape[0]):
        waiting = [(trees.roots[tree], 0, n)]  # nodes, and the range of `order` with their rows
        while len(waiting) > 0:
            node, begin, end = waiting.pop()
            if end - begin == 1:
                row = order[begin]
                leaves[row, tree] = _go_down(trees, node, indptr, indices, values, first + row, dense)
                continue
            right = np.int64(trees.rights[node])
            if right == 0:
                for at in range(begin, end):
                    leaves[order[at], tree] = node
                continue
            # The weights of the node as a dense vector, for all rows that reach it.
            start, stop = trees.weight_starts[node], trees.weight_starts[node + 1]
            for at in range(start, stop):
                dense[trees.features[at]] = trees.weights[at]
            # Move the rows below the hyperplane before the others.
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
            if n_above > 0:
                waiting.append((right, begin + n_below, end))
            if n_below > 0:
                waiting.append((node + 1, begin, begin + n_below))


@kernel
def _go_down_all(
    trees: Trees, indptr: Array, indices: Int32, values: Float32, row: Any, dense: Float32, leaves: Int32
) -> None:
    """Find the leaf of one row in each tree, descending all trees in step.

    Each tree prefetches its next node while the others are handled; otherwise most of the time would go into waiting
    for memory.
    """
    begin, end = indptr[row], indptr[row + 1]
    for at in range(begin, end):
        dense[indices[at]] = values[at]
    leaves[:] = trees.roots
    waiting = trees.roots.shape[0]
    order = np.arange(waiting)
    while waiting > 0:
        # Prefetch the weights of the present node of each tree, then descend by one node in each.
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
def _go_down(trees: Trees, node: Any, indptr: Array, indices: Int32, values: Float32, row: Any, dense: Float32) -> Any:
    """Leaf that one row reaches from a node."""
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
    """Inner product of a row, given also as a `dense` vector, with the weights of a node."""
    start, stop = trees.weight_starts[node], trees.weight_starts[node + 1]
    if stop - start > _LOOKED_UP * (end - begin):
        return _look_up(indices, values, begin, end, trees.features, trees.weights, start, stop)
    return sparse_dot(trees.features, trees.weights, start, stop, dense)


@kernel
def _look_up(
    indices: Int32, values: Float32, begin: Any, end: Any, features: Int32, weights: Float32, start: Any, stop: Any
) -> Any:
    """Inner product of a row with the weights of a node, by binary search for each feature of the row.

    All searches advance in step, so that their cache misses overlap.
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
def rank_leaves(leaves: Int32, trees: Trees, allowed: Flags, factors: Float32, labels: Int32, scores: Float32) -> None:
    """Rank labels by the mean of their values over the leaves of each row.

    `leaves` has shape (rows, trees). `allowed` are the labels that may be ranked, and `factors` positive factors of
    their means; empty for no restriction and no factors. `labels` and `scores`, of shape (rows, k) and filled with -1
    and -inf, are set to the ranking. Sums are kept in a hash table, so that the number of all labels does not matter.
    """
    n_trees = np.float32(leaves.shape[1])
    restricted, weighted = allowed.shape[0] > 0, factors.shape[0] > 0
    bits = 8
    keys, sums, met = np.full(1 << bits, -1, np.int32), np.empty(1 << bits, np.float32), np.empty(1 << bits, np.int32)
    for row in range(leaves.shape[0]):
        # A table at least twice as large as the number of labels in the leaves.
        entries = 0
        for leaf in leaves[row]:
            entries += trees.label_starts[leaf + 1] - trees.label_starts[leaf]
        while (1 << bits) < 2 * entries:
            bits += 1
        if keys.shape[0] < 1 << bits:
            keys, sums = np.full(1 << bits, -1, np.int32), np.empty(1 << bits, np.float32)
            met = np.empty(1 << bits, np.int32)
        n_met = _add_up_leaves(leaves[row], trees, bits, keys, sums, met)
        # Rank the labels in the table, and clear it for the next row.
        inserts = labels.shape[1] <= _INSERTED
        found, found_scores = np.empty(0 if inserts else n_met, np.int32), np.empty(0 if inserts else n_met, np.float32)
        n_found = 0
        for at in range(n_met):
            label = keys[met[at]]
            keys[met[at]] = -1
            if restricted and not allowed[label]:
                continue
            mean = sums[met[at]] / n_trees
            score = mean * factors[label] if weighted else mean
            if inserts:
                insert(labels[row], scores[row], label, score)
            else:
                found[n_found], found_scores[n_found] = label, score
                n_found += 1
        if not inserts:
            _rank(found[:n_found], found_scores[:n_found], labels[row], scores[row])


@kernel
def _add_up_leaves(leaves: Int32, trees: Trees, bits: Any, keys: Int32, sums: Float32, met: Int32) -> Any:
    """Add up the label values of leaves in a hash table with linear probing; list the used places in `met`."""
    last, n_met = (1 << bits) - 1, 0
    for leaf in leaves:
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
    return n_met


@kernel
def _rank(found: Int32, found_scores: Float32, labels: Int32, scores: Float32) -> None:
    """Write the best labels by sorting, which pays where k is large.

    Scores are positive, so their bits have the same order: score bits and label form one sort key.
    """
    bits = found_scores.view(np.uint32)
    keys = np.empty(found.shape[0], np.uint64)
    for at in range(found.shape[0]):
        keys[at] = (np.uint64(~bits[at] & np.uint32(0xFFFFFFFF)) << np.uint64(32)) | np.uint64(found[at])
    keys.sort()
    bits = np.empty(1, np.uint32)
    for place in range(min(labels.shape[0], found.shape[0])):
        labels[place] = np.int32(keys[place] & np.uint64(0xFFFFFFFF))
        bits[0] = ~np.uint32(keys[place] >> np.uint64(32)) & np.uint32(0xFFFFFFFF)
        scores[place] = bits.view(np.float32)[0]

"""Search through label trees, level by level with a beam, for many rows at once.

The score of a member of a node is ``value + discount * score of the node``, where the value is -max(0, 1 - z)^2 for the
squared hinge and -log(1 + exp(-z)) for the logistic loss, z being the linear score; that of a root is 0. What comes out
is exp(score), averaged over the trees: a label that the search of a tree doesn't reach counts 0 there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from longtail.engine.block_solver import SQUARED_HINGE
from longtail.engine.chunks import Chunks, close_panel, open_panel, score_block, score_panel
from longtail.engine.jit import kernel, kernel_with
from longtail.engine.lanes import LANES
from longtail.engine.topk_kernels import insert

Float32 = npt.NDArray[np.float32]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_PANEL_COST = 0.5  # to write a feature of a block out costs as much as to look up so many features of rows


class Rows(NamedTuple):
    """Rows to search for: CSR arrays, the factor of each row, and the value of the bias feature."""

    indptr: Int64
    indices: Int32
    values: Float32
    scales: npt.NDArray[np.float64]
    bias: np.float32


class Shape(NamedTuple):
    """Shape of the trees: roots are nodes 0 to n_trees - 1, nodes are numbered level by level.

    Blocks ``block_starts[v]`` to ``block_starts[v + 1] - 1`` belong to node v. `most_pairs` is the most features that
    any block has weights for.
    """

    n_trees: int
    level_starts: Int64
    block_starts: Int64
    n_features: int
    most_pairs: int


@kernel_with(fastmath={"reassoc", "contract", "nsz"})
def add_values(sums: Float32, loss: int, above: Any) -> None:
    """Turn linear scores of 64 members into path scores, `above` being the node's part."""
    if loss == SQUARED_HINGE:
        for lane in range(LANES):
            short = max(np.float32(0), np.float32(1) - sums[lane])
            sums[lane] = above - short * short
    else:
        for lane in range(LANES):
            z = sums[lane]
            sums[lane] = above - (np.log1p(np.exp(-abs(z))) + max(np.float32(0), -z))


@kernel
def _sorted_by_node(nodes: Int32, count: int, first: int, last: int, order: Int64) -> None:
    """Order visits by node, visits of one node as they come."""
    starts = np.zeros(last - first + 1, np.int64)
    for visit in range(count):
        starts[nodes[visit] - first + 1] += 1
    for node in range(last - first):
        starts[node + 1] += starts[node]
    for visit in range(count):
        node = nodes[visit] - first
        order[starts[node]] = visit
        starts[node] += 1


@kernel
def longest_row(rows: Rows, first: int, last: int) -> Any:
    """Most non-zeros of rows `first` to `last`."""
    longest = 0
    for row in range(first, last):
        longest = max(longest, rows.indptr[row + 1] - rows.indptr[row])
    return longest


@kernel
def beam_search(
    rows: Rows,
    first: int,
    last: int,
    shape: Shape,
    chunks: Chunks,
    loss: int,
    discount: Any,
    depth: int,
    open_nodes: Flags,
    allowed: Flags,
    beam_nodes: Int32,
    beam_scores: Float32,
    labels: Int32,
    scores: Float32,
    found_labels: Int32,
    found_scores: Float32,
    found: Int64,
) -> None:
    """Search for rows `first` to `last`, level by level, keeping the best nodes of each tree and level.

    All visits of a node are made one after the other, while its weights are in the cache. Labels that stand under
    shallow nodes are ranked when they are met and never lose their place to deeper nodes.

    Parameters
    ----------
    rows, first, last
    shape, chunks, loss, discount
    depth : int
        Levels to go down: the number of levels to rank labels, or fewer to find the best nodes of level `depth`.
    open_nodes : ndarray of bool
        Nodes that may be entered; empty if all may.
    allowed : ndarray of bool
        Labels that may be ranked; empty if all may.
    beam_nodes, beam_scores : int32 and float32 arrays, shape (n * trees, beam)
        The best nodes of the level reached last, -1 where there are fewer.
    labels, scores : int32 and float32 arrays, shape (n, k)
        Filled with -1 and -inf; the ranking, of exp(path score), where `found_labels` is empty.
    found_labels, found_scores, found : arrays of shape (n * trees, most), the same, and (n * trees,)
        All labels met with exp(path score), where a label can be met more than once; empty otherwise.
    """
    n, n_trees, beam = last - first, shape.n_trees, beam_nodes.shape[1]
    places = np.empty(longest_row(rows, first, last) + 1, np.int32)
    factors, steps = np.empty(places.shape[0], np.float32), np.empty(places.shape[0], np.int64)
    sums = np.empty(LANES, np.float32)
    total = rows.indptr[last] - rows.indptr[first]
    opens_panels = n > 1
    slots = np.full(shape.n_features if opens_panels else 0, -1, np.int32)
    panel = np.empty((shape.most_pairs if opens_panels else 0, LANES), chunks.dense.dtype)
    visits = n * n_trees
    most = n * n_trees * max(beam, 1)
    visit_nodes, visit_lists = np.empty(most, np.int32), np.empty(most, np.int32)
    visit_scores, order = np.empty(most, np.float32), np.empty(most, np.int64)
    floors = np.full(n, -np.inf, np.float32)
    collecting = found_labels.shape[0] > 0
    restricted, guarded = allowed.shape[0] > 0, open_nodes.shape[0] > 0
    last_place = labels.shape[1] - 1
    for row in range(n):
        for tree in range(n_trees):
            visit_nodes[row * n_trees + tree] = tree
            visit_lists[row * n_trees + tree] = row * n_trees + tree
            visit_scores[row * n_trees + tree] = 0
    for level in range(depth):
        beam_nodes[:] = -1
        beam_scores[:] = -np.inf
        # What a node of the last level holds can't score more than the node's part: if that is too little, pass by.
        passes_by = level + 2 == shape.level_starts.shape[0] and not collecting
        if n > 1:
            _sorted_by_node(visit_nodes, visits, shape.level_starts[level], shape.level_starts[level + 1], order)
        else:
            order[:visits] = np.arange(visits)  # best first
        start = 0
        while start < visits:
            node = visit_nodes[order[start]]
            end = start + 1
            while end < visits and visit_nodes[order[end]] == node:
                end += 1
            for block in range(shape.block_starts[node], shape.block_starts[node + 1]):
                pairs = chunks.pair_starts[block + 1] - chunks.pair_starts[block]
                in_panel = opens_panels and _PANEL_COST * pairs * n < (end - start) * total
                if in_panel:
                    open_panel(chunks, block, slots, panel)
                for at in range(start, end):
                    visit = order[at]
                    one = visit_lists[visit]
                    row = one // n_trees
                    if passes_by and discount * visit_scores[visit] < floors[row]:
                        continue
                    begin, finish = rows.indptr[first + row], rows.indptr[first + row + 1]
                    if in_panel:
                        score_panel(
                            chunks, block, slots, panel, rows.indices, rows.values, begin, finish,
                            rows.scales[first + row], rows.bias, places, factors, sums,
                        )  # fmt: skip
                    else:
                        score_block(
                            chunks, block, rows.indices, rows.values, begin, finish, rows.scales[first + row],
                            rows.bias, steps, places, factors, sums,
                        )  # fmt: skip
                    add_values(sums, loss, np.float32(discount * visit_scores[visit]))
                    worst = beam_scores[one, beam - 1]
                    floor = floors[row]
                    for lane in range(LANES):
                        score = sums[lane]
                        if score < worst and score < floor:
                            continue
                        member = chunks.members[block * LANES + lane]
                        if member < -1:
                            if score >= worst and not (guarded and not open_nodes[-2 - member]):
                                insert(beam_nodes[one], beam_scores[one], -2 - member, score)
                                worst = beam_scores[one, beam - 1]
                        elif member >= 0 and not (restricted and not allowed[member]):
                            if collecting:
                                found_labels[one, found[one]] = member
                                found_scores[one, found[one]] = np.exp(score)
                                found[one] += 1
                            elif score >= floor:
                                insert(labels[row], scores[row], member, np.exp(score))
                                if labels[row, last_place] >= 0:
                                    floor = _floor(scores[row, last_place])
                    floors[row] = floor
                if in_panel:
                    close_panel(chunks, block, slots)
            start = end
        visits = 0
        if level + 1 < depth:
            for one in range(n * n_trees):
                for place in range(beam):
                    if beam_nodes[one, place] < 0:
                        break
                    visit_nodes[visits] = beam_nodes[one, place]
                    visit_lists[visits] = one
                    visit_scores[visits] = beam_scores[one, place]
                    visits += 1


@kernel
def _floor(score: Any) -> Any:
    """Path score below which exp(path score) is surely below `score`."""
    return np.float32(np.log(score) - np.float32(1e-4)) if score > 0 else np.float32(-np.inf)


@kernel
def merge_found(
    n_trees: int,
    found_labels: Int32,
    found_scores: Float32,
    found: Int64,
    n_labels: int,
    factors: Float32,
    labels: Int32,
    scores: Float32,
) -> None:
    """Rank what `beam_search` collected: a label's best score in each tree, averaged over the trees.

    The averages are multiplied by the `factors` of the labels, where that is not empty.
    """
    weighted = factors.shape[0] > 0
    total, in_tree = np.empty(n_labels, np.float32), np.empty(n_labels, np.float32)
    stamps = np.full(n_labels, -1, np.int64)
    for row in range(labels.shape[0]):
        for one in range(row * n_trees, (row + 1) * n_trees):
            for at in range(found[one]):
                label, score = found_labels[one, at], found_scores[one, at]
                if stamps[label] < row * n_trees:
                    total[label] = score
                elif stamps[label] < one:
                    total[label] += score
                elif score > in_tree[label]:
                    total[label] += score - in_tree[label]
                else:
                    continue
                stamps[label] = one
                in_tree[label] = score
        for one in range(row * n_trees, (row + 1) * n_trees):
            for at in range(found[one]):
                label = found_labels[one, at]
                if stamps[label] >= 0:
                    mean = total[label] / np.float32(n_trees)
                    insert(labels[row], scores[row], label, mean * factors[label] if weighted else mean)
                    stamps[label] = -1

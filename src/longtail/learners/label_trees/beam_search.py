"""Beam search through label trees, level by level, for many rows at once.

The score of a member of a node is ``value + discount * score of the node``, where the value is -max(0, 1 - z)^2 for the
squared hinge and -log(1 + exp(-z)) for the logistic loss, z being the linear score; the score of a root is 0. The
result is exp(score), averaged over the trees: a label that the search of a tree does not reach counts 0 there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from longtail.kernels.jit import kernel, kernel_with
from longtail.kernels.lanes import LANES
from longtail.kernels.rows import QueryRows
from longtail.kernels.selection import insert
from longtail.kernels.types import Array, Flags, Float32, Int32, Int64
from longtail.learners.label_trees.chunks import Chunks, close_panel, open_panel, score_block, score_memory, score_panel
from longtail.learners.linear.block_solver import SQUARED_HINGE

_PANEL_COST = 0.5  # of writing out a feature of a block, in look-ups of a feature of a row


class TreeShape(NamedTuple):
    """Structure of the trees: roots are nodes 0 to n_trees - 1, and nodes are numbered level by level.

    Blocks ``block_starts[v]`` to ``block_starts[v + 1] - 1`` belong to node v. `most_pairs` is the largest number of
    features that a block has weights for.
    """

    n_trees: int
    level_starts: Int64
    block_starts: Int64
    n_features: int
    most_pairs: int


class Collected(NamedTuple):
    """All labels that were reached, with exp(path score), for each row and tree: `counts` entries per line."""

    labels: Int32
    scores: Float32
    counts: Int64


@kernel_with(fastmath={"reassoc", "contract", "nsz"})
def add_values(sums: Float32, loss: int, above: Any) -> None:
    """Turn linear scores of 64 members into path scores; `above` is the contribution of the node."""
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
    """Sort visits by node with a counting sort, which is stable."""
    # Count the visits of each node, and turn the counts into offsets.
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
def _beam_to_visits(
    beam_nodes: Int32, beam_scores: Float32, visit_nodes: Int32, visit_lists: Int32, visit_scores: Float32
) -> Any:
    """List the nodes in all beams as visits, empty the beams, and return the number of visits."""
    visits = 0
    for one in range(beam_nodes.shape[0]):
        for place in range(beam_nodes.shape[1]):
            if beam_nodes[one, place] < 0:
                break
            visit_nodes[visits] = beam_nodes[one, place]
            visit_lists[visits] = one
            visit_scores[visits] = beam_scores[one, place]
            visits += 1
    beam_nodes[:] = -1
    beam_scores[:] = -np.inf
    return visits


@kernel
def _take_members(
    sums: Float32,
    members: Int32,
    begin: int,
    one: Any,
    row: Any,
    floor: Any,
    open_nodes: Flags,
    allowed: Flags,
    beam_nodes: Int32,
    beam_scores: Float32,
    labels: Int32,
    scores: Float32,
    found: Collected,
) -> Any:
    """Insert the members of a scored block into the beam `one` and the ranking of the row; return the new floor.

    The floor is a path score that the ranking certainly exceeds in all places.
    """
    guarded, restricted, collecting = open_nodes.shape[0] > 0, allowed.shape[0] > 0, found.labels.shape[0] > 0
    last, last_place = beam_nodes.shape[1] - 1, labels.shape[1] - 1
    worst = beam_scores[one, last]
    for lane in range(LANES):
        score = sums[lane]
        if score < worst and score < floor:  # enters neither the beam nor the ranking
            continue
        member = members[begin + lane]
        if member < -1:  # node -2 - member
            if score >= worst and not (guarded and not open_nodes[-2 - member]):
                insert(beam_nodes[one], beam_scores[one], -2 - member, score)
                worst = beam_scores[one, last]
        elif member >= 0 and not (restricted and not allowed[member]):  # a label; -1 is an empty lane
            if collecting:
                found.labels[one, found.counts[one]] = member
                found.scores[one, found.counts[one]] = np.exp(score)
                found.counts[one] += 1
            elif score >= floor:
                insert(labels[row], scores[row], member, np.exp(score))
                if labels[row, last_place] >= 0:  # the ranking is full: its last score is the one to exceed
                    floor = _floor(scores[row, last_place])
    return floor


@kernel
def _visit_node(
    rows: QueryRows, first: int, last: int, node: Any, visits: Int64, visit_lists: Int32, visit_scores: Float32,
    may_skip: Any, shape: TreeShape, chunks: Chunks, loss: int, discount: Any, slots: Int32, panel: Array,
    memory: Any, floors: Float32, open_nodes: Flags, allowed: Flags, beam_nodes: Int32, beam_scores: Float32,
    labels: Int32, scores: Float32, found: Collected,
) -> None:  # fmt: skip
    """Score the members of a node for all rows that visit it, and take the best ones into beams and rankings."""
    n, total = last - first, rows.indptr[last] - rows.indptr[first]
    for block in range(shape.block_starts[node], shape.block_starts[node + 1]):
        # With many visits, writing the block out as dense rows costs less than hashing every feature.
        pairs = chunks.pair_starts[block + 1] - chunks.pair_starts[block]
        in_panel = n > 1 and _PANEL_COST * pairs * n < visits.shape[0] * total
        if in_panel:
            open_panel(chunks, block, slots, panel)
        for visit in visits:
            one = visit_lists[visit]
            row = one // shape.n_trees
            # Path scores never rise: a label of this node can't exceed the contribution of the node itself.
            if may_skip and discount * visit_scores[visit] < floors[row]:
                continue
            if in_panel:
                score_panel(chunks, block, slots, panel, rows, first + row, memory)
            else:
                score_block(chunks, block, rows, first + row, memory)
            add_values(memory.sums, loss, np.float32(discount * visit_scores[visit]))
            floors[row] = _take_members(
                memory.sums, chunks.members, block * LANES, one, row, floors[row], open_nodes, allowed, beam_nodes,
                beam_scores, labels, scores, found,
            )  # fmt: skip
        if in_panel:
            close_panel(chunks, block, slots)


@kernel
def beam_search(
    rows: QueryRows,
    first: int,
    last: int,
    shape: TreeShape,
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
    found: Collected,
) -> None:
    """Search for rows `first` to `last` - 1, keeping the best nodes of each tree and level.

    All visits of a node are made one after the other, while its weights are in the cache. Labels under shallow nodes
    are ranked when they are reached, and never displaced by deeper nodes.

    Parameters
    ----------
    rows, first, last
    shape, chunks, loss, discount
    depth : int
        Number of levels to descend: all of them to rank labels, fewer to find the best nodes of level `depth`.
    open_nodes : ndarray of bool
        Nodes that may be entered; empty if all may.
    allowed : ndarray of bool
        Labels that may be ranked; empty if all may.
    beam_nodes, beam_scores : int32 and float32 arrays, shape (n * trees, beam)
        Set to the best nodes of the last level that was reached, padded with -1.
    labels, scores : int32 and float32 arrays, shape (n, k)
        Filled with -1 and -inf; set to the ranking by exp(path score), unless labels are collected.
    found : Collected, arrays of shape (n * trees, most), the same, and (n * trees,)
        All labels that were reached, where one may be reached more than once; empty otherwise.
    """
    n, n_trees, beam = last - first, shape.n_trees, beam_nodes.shape[1]
    memory = score_memory(rows, first, last)
    slots = np.full(shape.n_features if n > 1 else 0, -1, np.int32)
    panel = np.empty((shape.most_pairs if n > 1 else 0, LANES), chunks.dense.dtype)
    most = n * n_trees * beam
    # The visits of one level: node, line of the beam, score.
    visit_nodes, visit_lists = np.empty(most, np.int32), np.empty(most, np.int32)
    visit_scores, order = np.empty(most, np.float32), np.empty(most, np.int64)
    floors = np.full(n, -np.inf, np.float32)
    # The search begins with the root of each tree in its beam.
    beam_nodes[:] = -1
    for one in range(n * n_trees):
        beam_nodes[one, 0] = one % n_trees
        beam_scores[one, 0] = 0
    for level in range(depth):
        visits = _beam_to_visits(beam_nodes, beam_scores, visit_nodes, visit_lists, visit_scores)
        # In the last level a node is skipped if none of its labels can enter the ranking; see `_visit_node`.
        may_skip = level + 2 == shape.level_starts.shape[0] and found.labels.shape[0] == 0
        # With many rows, node by node, so that the weights of a node are loaded once.
        if n > 1:
            _sorted_by_node(visit_nodes, visits, shape.level_starts[level], shape.level_starts[level + 1], order)
        else:
            order[:visits] = np.arange(visits)  # best first
        start = 0
        while start < visits:
            # Visits order[start:end] are those of one node.
            node = visit_nodes[order[start]]
            end = start + 1
            while end < visits and visit_nodes[order[end]] == node:
                end += 1
            _visit_node(
                rows, first, last, node, order[start:end], visit_lists, visit_scores, may_skip, shape, chunks, loss,
                discount, slots, panel, memory, floors, open_nodes, allowed, beam_nodes, beam_scores, labels, scores,
                found,
            )  # fmt: skip
            start = end


@kernel
def _floor(score: Any) -> Any:
    """Path score whose exp is certainly below `score`."""
    return np.float32(np.log(score) - np.float32(1e-4)) if score > 0 else np.float32(-np.inf)


@kernel
def merge_collected(
    n_trees: int, found: Collected, n_labels: int, factors: Float32, labels: Int32, scores: Float32
) -> None:
    """Rank what `beam_search` collected: the best score of a label in each tree, averaged over the trees.

    The averages are multiplied by the `factors` of the labels unless these are empty.
    """
    weighted = factors.shape[0] > 0
    total, in_tree = np.empty(n_labels, np.float32), np.empty(n_labels, np.float32)
    stamps = np.full(n_labels, -1, np.int64)  # line in which a label was last seen
    for row in range(labels.shape[0]):
        # Sum the scores over the trees.
        for one in range(row * n_trees, (row + 1) * n_trees):
            for at in range(found.counts[one]):
                label, score = found.labels[one, at], found.scores[one, at]
                if stamps[label] < row * n_trees:  # new in this row
                    total[label] = score
                elif stamps[label] < one:  # new in this tree
                    total[label] += score
                elif score > in_tree[label]:  # better than elsewhere in this tree
                    total[label] += score - in_tree[label]
                else:
                    continue
                stamps[label] = one
                in_tree[label] = score
        # Rank each label once; its stamp is reset for the next row.
        for one in range(row * n_trees, (row + 1) * n_trees):
            for at in range(found.counts[one]):
                label = found.labels[one, at]
                if stamps[label] >= 0:
                    mean = total[label] / np.float32(n_trees)
                    insert(labels[row], scores[row], label, mean * factors[label] if weighted else mean)
                    stamps[label] = -1

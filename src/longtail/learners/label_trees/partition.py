"""Partition of labels into trees: balanced ones by repeated 2-means, others by k-means."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from longtail.errors import InputError
from longtail.kernels.lanes import LANES
from longtail.kernels.random import STEP, mixed
from longtail.kernels.types import Flags, Float32, Int32, Int64, UInt64
from longtail.learners.label_trees.clustering import (
    MAX_ITER,
    TOL,
    Bisections,
    bisect_dense,
    bisect_sparse,
    cut_rows,
    nearest_centres,
    read_rows,
    sum_panel,
    unit_lanes,
)
from longtail.learners.label_trees.forest import Branches
from longtail.runtime.pool import StopFlag, run_blocks
from longtail.validation import Integer, Optional, check

NodeLabels = tuple[int, tuple[int, ...], Int32]  # a node, the path to it from the root, and the labels under it
Runner = Callable[[Callable[[Any, StopFlag], Any], list[Any]], Iterable[Any]]

_SMALL = 4096  # labels that one thread partitions to the end
_LARGE = 1 << 16  # k-means of more labels uses all threads for one node


def partition_labels(
    points: Any,
    labels: Any,
    *,
    arity: int,
    leaf_size: int,
    balanced: bool = True,
    max_depth: int | None = None,
    random_state: int = 0,
) -> Branches:
    """Partition labels into a tree whose leaves hold labels that lie close together.

    Parameters
    ----------
    points : ndarray of float32 or csr_array of float32, shape (all labels, n_components)
        Of unit length, see `represent_labels`.
    labels : sequence of int
        The labels to partition, each once.
    arity : int
        Maximum number of children of a node.
    leaf_size : int
        Maximum number of labels in a leaf.
    balanced : bool
        Leaves of equal size (plus or minus one label) by repeated balanced spherical 2-means; with an arity of 2 all
        leaves have the same depth, as in Parabel. Otherwise spherical k-means with `arity` centres, as in Bonsai.
    max_depth : int, optional
        Nodes this many steps below the root are leaves of any size.
    random_state : int
        Seed of the initial centres, together with the position of the split in the tree.

    Returns
    -------
    Branches

    Examples
    --------
    >>> points = np.array([[1, 0], [0, 1], [0.8, 0.6], [0.6, 0.8]], np.float32)
    >>> tree = partition_labels(points, range(4), arity=2, leaf_size=2)
    >>> tree.parents.tolist(), sorted(tree.labels[tree.nodes == tree.nodes[0]].tolist()) in ([0, 2], [1, 3])
    ([-1, 0, 0], True)
    """
    for name, value, least in (("arity", arity, 2), ("leaf_size", leaf_size, 1), ("random_state", random_state, 0)):
        check(name, value, Integer(least, 2**63 - 1))
    check("max_depth", max_depth, Optional(Integer(0)))
    placed = np.sort(np.asarray(labels, np.int32))
    if len(placed) and (placed[0] < 0 or placed[-1] >= points.shape[0] or (placed[1:] == placed[:-1]).any()):
        raise InputError(f"labels must be different ids from 0 to {points.shape[0] - 1}, one per point.")
    if not sp.issparse(points):
        points = np.ascontiguousarray(points, np.float32)
    if balanced:
        return _balanced(points, placed, int(arity), int(leaf_size), max_depth, int(random_state))
    return _by_k_means(points, placed, int(arity), int(leaf_size), max_depth, int(random_state))


class _Plan(NamedTuple):
    """Structure of a balanced tree, without labels.

    The leaves are consecutive ranges of an order of the labels, which the bisections will find. `bisections` has begin,
    middle, end and level of each, parents before children; `leaves` has the node and the size of each, in order.
    """

    parents: list[int]
    leaves: list[tuple[int, int]]
    bisections: list[tuple[int, int, int, int]]


def _balanced(points: Any, labels: Int32, arity: int, leaf_size: int, max_depth: int | None, seed: int) -> Branches:
    plan = _plan(len(labels), arity, leaf_size, max_depth)
    order = labels.copy()
    if plan.bisections:
        begins, middles, ends, levels = np.array(plan.bisections, np.int64).T.copy()
        firsts, seconds = _two_places(seed, begins, ends)
        _bisect(points, order, Bisections(begins, middles, ends, firsts, seconds), levels)
    nodes, sizes = np.array(plan.leaves, np.int64).reshape(-1, 2).T
    return Branches(np.array(plan.parents, np.int32), np.repeat(nodes, sizes).astype(np.int32), order)


def _plan(n: int, arity: int, leaf_size: int, max_depth: int | None) -> _Plan:
    """Plan a balanced tree for n labels."""
    n_leaves = max(-(-n // leaf_size), 1)
    depth = 0
    while arity**depth < n_leaves and depth != max_depth:
        depth += 1
    n_leaves = arity**depth if arity == 2 else min(n_leaves, arity**depth)
    plan = _Plan([], [], [])
    _plan_node(plan, -1, 0, n, n_leaves, depth, 0)
    return plan


def _plan_node(plan: _Plan, parent: int, begin: int, end: int, n_leaves: int, depth: int, level: int) -> None:
    """Add a node with `n_leaves` leaves and at most `depth` levels of nodes below it."""
    if begin == end and parent >= 0:  # fewer labels than leaves
        return
    plan.parents.append(parent)
    node = len(plan.parents) - 1
    if n_leaves == 1:
        plan.leaves.append((node, end - begin))
        return
    width = _root(n_leaves, depth)
    least, more = divmod(n_leaves, width)
    _plan_parts(plan, node, begin, end, [least + (place < more) for place in range(width)], depth - 1, level)


def _plan_parts(plan: _Plan, node: int, begin: int, end: int, parts: list[int], depth: int, level: int) -> None:
    """Add children with these numbers of leaves, by halving the list."""
    if len(parts) == 1:
        _plan_node(plan, node, begin, end, parts[0], depth, level)
        return
    half = len(parts) // 2
    middle = begin + (end - begin) * sum(parts[:half]) // sum(parts)
    if begin < middle < end:
        plan.bisections.append((begin, middle, end, level))
    _plan_parts(plan, node, begin, middle, parts[:half], depth, level + 1)
    _plan_parts(plan, node, middle, end, parts[half:], depth, level + 1)


def _root(number: int, degree: int) -> int:
    """Smallest integer whose power of that degree is at least `number`."""
    root = max(int(number ** (1 / degree)) - 1, 1)
    while root**degree < number:
        root += 1
    return root


def _two_places(seed: int, begins: Int64, ends: Int64) -> tuple[Int64, Int64]:
    """Two different random positions in each range, which depend only on the seed and the range."""
    with np.errstate(over="ignore"):
        state = _mix(_mix(np.full(len(begins), seed, np.uint64)) + begins.astype(np.uint64))
        state = _mix(state + ends.astype(np.uint64))
        sizes = (ends - begins).astype(np.uint64)
        first = state % sizes
        second = _mix(state) % (sizes - np.uint64(1))
    second += second >= first
    return first.astype(np.int64), second.astype(np.int64)


def _mix(state: UInt64) -> UInt64:
    """One step of the random generator of the kernels, for each number."""
    return np.asarray(mixed(state + STEP))


def _bisect(points: Any, order: Int32, table: Bisections, levels: Int64) -> None:
    """Run all bisections: large ones level by level, then all those of a small range as one task."""
    sizes = table.ends - table.begins
    sparse: tuple[Int64, Int32, Float32] | None = None
    if sp.issparse(points):
        given: Any = points
        sparse = given.indptr.astype(np.int64), given.indices.astype(np.int32, copy=False), given.data

    def work(block: slice, stop: StopFlag) -> None:
        bisections = Bisections(*(column[block] for column in table))
        if sparse is None:
            bisect_dense(points, order, bisections, stop)
        else:
            bisect_sparse(*sparse, points.shape[1], order, bisections, stop)

    def run(blocks: list[slice]) -> None:
        for _ in run_blocks(work, blocks, description="partitioning labels", size=lambda b: b.stop - b.start):
            pass

    large = sizes > _SMALL
    for level in range(int(levels.max()) + 1):
        here = np.flatnonzero(large & (levels == level))
        if not len(here):
            break
        run([slice(at, at + 1) for at in here.tolist()])
    # A bisection precedes those inside it, so those of a small range are consecutive.
    blocks, at = [], 0
    while at < len(sizes):
        after = at + 1 if large[at] else int(np.searchsorted(table.begins, table.ends[at]))
        if not large[at]:
            blocks.append(slice(at, after))
        at = after
    run(blocks)


def _by_k_means(points: Any, labels: Int32, arity: int, leaf_size: int, max_depth: int | None, seed: int) -> Branches:
    parents, nodes, placed = [-1], [np.empty(0, np.int32)], [np.empty(0, np.int32)]
    level: list[NodeLabels] = [(0, (), labels)]
    depth = 0
    while level:
        wide = []
        for node, path, members in level:
            if len(members) <= leaf_size or depth == max_depth:
                nodes.append(np.full(len(members), node, np.int32))
                placed.append(members)
            else:
                wide.append((node, path, members))
        level = []
        for (node, path, _), groups in zip(wide, _cluster_all(points, wide, arity, leaf_size, seed), strict=True):
            for place, group in enumerate(groups):
                level.append((len(parents), (*path, place), group))
                parents.append(node)
        depth += 1
    return Branches(np.array(parents, np.int32), np.concatenate(nodes), np.concatenate(placed))


def _cluster_all(points: Any, parts: list[NodeLabels], arity: int, leaf_size: int, seed: int) -> list[list[Int32]]:
    """Clusters of each part: small parts in parallel, a large one with all threads."""
    apart = partial(run_blocks, description="partitioning labels")

    def work(part: NodeLabels, stop: StopFlag) -> list[Int32]:
        return _k_means(points, part[2], arity, leaf_size, (seed, *part[1]), _one_by_one(stop))

    small = [part for part in parts if len(part[2]) <= _LARGE]
    done = apart(work, small, size=lambda part: len(part[2]))
    return [
        next(done) if len(labels) <= _LARGE else _k_means(points, labels, arity, leaf_size, (seed, *path), apart)
        for _, path, labels in parts
    ]


def _one_by_one(stop: StopFlag) -> Runner:
    """Sequential replacement of `run_blocks` for use inside a task."""
    return lambda work, blocks: (work(block, stop) for block in blocks if not stop[0])


def _k_means(points: Any, labels: Int32, arity: int, leaf_size: int, seed: tuple[int, ...], run: Runner) -> list[Int32]:
    """Cluster labels by spherical k-means; single labels join other clusters, identical points are split evenly."""
    n = len(labels)
    k = min(arity, max(n // 2, 2))
    rows: Int32 | None = labels
    if sp.issparse(points):
        given: Any = points
        points, rows = _compacted(given[labels]), None
    groups = np.full(n, -1, np.int32)
    groups[np.random.default_rng(seed).choice(n, k, replace=False)] = np.arange(k, dtype=np.int32)
    panels, _ = _centres(points, rows, groups, k)
    before = -np.inf
    for _ in range(MAX_ITER):
        there = np.bincount(groups[groups >= 0], minlength=k) > 0
        groups = _nearest(points, rows, n, panels, there, run)
        panels, mean = _centres(points, rows, groups, k)
        if mean - before < TOL:
            break
        before = mean
    sizes = np.bincount(groups, minlength=k)
    single = sizes[groups] == 1
    if single.any() and (sizes > 1).any():
        others = labels[single] if rows is not None else None
        chosen = points if rows is not None else points[single]
        groups[single] = _nearest(chosen, others, int(single.sum()), panels, sizes > 1, run)
    order = np.argsort(groups, kind="stable")
    parts = np.split(labels[order], np.flatnonzero(np.diff(groups[order])) + 1)
    return parts if len(parts) > 1 else np.array_split(labels, min(arity, -(-n // leaf_size)))


def _compacted(points: Any) -> sp.csr_array:
    """Drop the empty columns of sparse points."""
    used = np.zeros(points.shape[1], bool)
    used[points.indices] = True
    columns = (np.cumsum(used) - 1).astype(np.int32)[points.indices]
    return sp.csr_array((points.data, columns, points.indptr), shape=(points.shape[0], max(int(used.sum()), 1)))


def _centres(points: Any, rows: Int32 | None, groups: Int32, k: int) -> tuple[list[Float32], float]:
    """Panels with the centres of k clusters, and the mean cosine of points to their centre."""
    panels = [np.zeros((points.shape[1], LANES), np.float32) for _ in range(0, k, LANES)]
    for part in cut_rows(points, len(groups)):
        block = read_rows(points, rows, part)
        for place, panel in enumerate(panels):
            sum_panel(*block, groups[part], place * LANES, panel)
    return panels, sum(float(unit_lanes(panel).sum()) for panel in panels) / len(groups)


def _nearest(points: Any, rows: Int32 | None, n: int, panels: list[Float32], there: Flags, run: Runner) -> Int32:
    """The nearest centre of each point, among those that exist."""
    none, best = np.full(n, -1, np.int32), np.full(n, -1, np.int32)
    cosines, unused = np.full(n, -np.inf, np.float32), np.empty(n, np.float32)
    centres = np.where(there, np.arange(len(there)), -1).astype(np.int32)

    def work(part: slice, stop: StopFlag) -> None:
        block = read_rows(points, rows, part)
        for place, panel in enumerate(panels):
            some = centres[place * LANES : (place + 1) * LANES]
            nearest_centres(*block, panel, some, none[part], best[part], cosines[part], unused[part])

    for _ in run(work, cut_rows(points, n)):
        pass
    return best

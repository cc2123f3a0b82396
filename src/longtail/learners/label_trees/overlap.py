"""Overlapping leaves: labels that lie between two leaves are put into both."""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail.kernels.lanes import LANES
from longtail.kernels.types import Float32, Int32
from longtail.learners.label_trees.clustering import (
    add_rows,
    cut_rows,
    mark_largest,
    nearest_centres,
    read_rows,
    sum_panel,
    unit_lanes,
)
from longtail.learners.label_trees.forest import Branches
from longtail.runtime.pool import StopFlag, run_blocks
from longtail.validation import Number, check

_ALL = 1024  # with more leaves, labels are compared only to nearby ones
_SOME = LANES  # number of nearby leaves, the own one included
_BLOCK = 64  # leaves per task


def with_overlap(branches: Branches, points: Any, *, share: float) -> Branches:
    """Put the labels that lie nearest to another leaf into that leaf too.

    Labels are taken in the order of the difference between the cosines to the centre of their own leaf and to the
    nearest other one, until `share` of them are in a second leaf. A leaf that has grown to
    ceil(size * (1 + 2 * share)) accepts no more labels. With more than 1,024 leaves and dense points, the labels of a
    leaf are compared only to the 63 leaves with the nearest centres.

    Parameters
    ----------
    branches : Branches
        A tree; nodes with labels directly under them are leaves. Labels in several leaves do not change.
    points : ndarray or csr_array of float32
        One row of unit length per label.
    share : float
        From 0 to 1.

    Returns
    -------
    Branches
        The tree with more labels at the end.

    Examples
    --------
    >>> points = np.array([[1, 0], [0.8, 0.6], [0, 1], [0, 1]], np.float32)
    >>> tree = Branches(np.array([-1, 0, 0]), np.array([1, 1, 2, 2]), np.array([0, 1, 2, 3]))
    >>> with_overlap(tree, points, share=0.25).labels.tolist()
    [0, 1, 2, 3, 1]
    """
    check("share", share, Number(low=0, high=1))
    leaves, own = np.unique(branches.nodes, return_inverse=True)
    labels, groups = np.asarray(branches.labels, np.int32), own.astype(np.int32)
    places = np.bincount(labels)
    count = round(float(share) * int((places > 0).sum()))
    if len(leaves) < 2 or not count:
        return branches
    if not sp.issparse(points):
        points = np.ascontiguousarray(points, np.float32)
    if len(leaves) > _ALL and not sp.issparse(points):
        best, gaps = _nearest_of_some(points, labels, groups, len(leaves))
    else:
        best, gaps = _nearest_of_all(points, labels, groups, len(leaves))
    sizes = np.bincount(groups)
    room = [ceil(round(size * (1 + 2 * float(share)), 9)) - size for size in sizes.tolist()]
    taken: list[int] = []
    once = np.flatnonzero(places[labels] == 1)
    candidates = once[np.lexsort((labels[once], gaps[once]))]
    for at, leaf in zip(candidates.tolist(), best[candidates].tolist(), strict=True):
        if len(taken) == count:
            break
        if room[leaf]:
            room[leaf] -= 1
            taken.append(at)
    more = np.sort(np.array(taken, np.int64))
    nodes = np.concatenate([branches.nodes, leaves[best[more]]]).astype(np.int32)
    return Branches(branches.parents, nodes, np.concatenate([labels, labels[more]]))


def _nearest_of_all(points: Any, labels: Int32, groups: Int32, n_leaves: int) -> tuple[Int32, Float32]:
    """The nearest other leaf of each label, and the difference of the cosines; panel by panel."""
    best, cosines = np.full(len(labels), -1, np.int32), np.full(len(labels), -np.inf, np.float32)
    own_cosines = np.empty(len(labels), np.float32)
    parts = cut_rows(points, len(labels))
    for first in range(0, n_leaves, LANES):
        panel = np.zeros((points.shape[1], LANES), np.float32)
        for part in parts:
            here = np.flatnonzero((groups[part] >= first) & (groups[part] < first + LANES)) + part.start
            if len(here):
                sum_panel(*read_rows(points, labels[here], slice(0, len(here))), groups[here], first, panel)
        unit_lanes(panel)
        centres = np.arange(first, min(first + LANES, n_leaves), dtype=np.int32)

        def work(part: slice, stop: StopFlag, panel: Float32 = panel, centres: Int32 = centres) -> None:
            rows = read_rows(points, labels, part)
            nearest_centres(*rows, panel, centres, groups[part], best[part], cosines[part], own_cosines[part])

        for _ in run_blocks(work, parts, description="finding second places"):
            pass
    return best, own_cosines - cosines


def _nearest_of_some(points: Float32, labels: Int32, groups: Int32, n_leaves: int) -> tuple[Int32, Float32]:
    """The same, compared only to the leaves near a label's own leaf; for dense points."""
    order = np.argsort(groups, kind="stable")
    starts = np.searchsorted(groups[order], np.arange(n_leaves + 1))
    panels = []
    for first in range(0, n_leaves, LANES):
        panel = np.zeros((points.shape[1], LANES), np.float32)
        here = order[starts[first] : starts[min(first + LANES, n_leaves)]]
        for part in cut_rows(points, len(here)):
            sum_panel(*read_rows(points, labels[here], part), groups[here[part]], first, panel)
        unit_lanes(panel)
        panels.append(panel)
    centres = np.ascontiguousarray(np.concatenate(panels, axis=1).T)
    best, cosines = np.full(len(labels), -1, np.int32), np.full(len(labels), -np.inf, np.float32)
    own_cosines = np.empty(len(labels), np.float32)

    def work(first: int, stop: StopFlag) -> None:
        last = min(first + _BLOCK, n_leaves)
        near = _near_leaves(centres, panels, n_leaves, first, last)
        for leaf in range(first, last):
            chosen = near[leaf - first]
            here = order[starts[leaf] : starts[leaf + 1]]
            panel = np.zeros((points.shape[1], LANES), np.float32)
            panel[:, : len(chosen)] = centres[chosen].T
            for part in cut_rows(points, len(here)):
                at = here[part]
                found = best[at], cosines[at], own_cosines[at]
                nearest_centres(*read_rows(points, labels[here], part), panel, chosen, groups[at], *found)
                best[at], cosines[at], own_cosines[at] = found

    for _ in run_blocks(work, range(0, n_leaves, _BLOCK), description="finding second places"):
        pass
    return best, own_cosines - cosines


def _near_leaves(centres: Float32, panels: list[Float32], n_leaves: int, first: int, last: int) -> list[Int32]:
    """The leaves with the nearest centres for each of leaves `first` to `last` - 1, itself included."""
    count = last - first
    alike = np.zeros((len(panels), count, LANES), np.float32)
    rows = read_rows(centres[first:last], None, slice(0, count))
    for place, panel in enumerate(panels):
        add_rows(*rows, np.ones(count), 0, count, panel, alike[place])
    near = []
    marks, spare = np.empty(n_leaves, np.uint8), np.empty(n_leaves, np.float32)
    for leaf in range(first, last):
        scores = alike[:, leaf - first].reshape(-1)[:n_leaves]
        scores[leaf] = np.inf
        mark_largest(scores, min(_SOME, n_leaves), spare, marks)
        near.append(np.flatnonzero(marks).astype(np.int32))
    return near

"""Loops over rows, labels and items: arrays in, arrays filled, one thread."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from longtail.engine.jit import kernel

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]


@kernel
def count_implied(
    indptr: Int64,
    indices: Int32,
    up_indptr: Int64,
    up_indices: Int32,
    marks: Int32,
    stack: Int32,
    implied: Int64,
    recorded: Int64,
) -> None:
    """Walk from the labels of each row up to all their ancestors.

    `implied` grows by 1 for each row that has a descendant of the label, `recorded` for those of them that have the
    label too. ``indices[indptr[row]:indptr[row + 1]]`` are the labels of a row and
    ``up_indices[up_indptr[label]:up_indptr[label + 1]]`` the parents of a label. `marks` (3 by labels) and `stack`
    (labels) are working space, `marks` filled with -1.
    """
    has, walked, reached = marks[0], marks[1], marks[2]  # the last row in which the label was so
    for row in range(len(indptr) - 1):
        depth = 0
        for position in range(indptr[row], indptr[row + 1]):
            label = indices[position]
            has[label] = row
            walked[label] = row
            stack[depth] = label
            depth += 1
        while depth:
            depth -= 1
            label = stack[depth]
            for position in range(up_indptr[label], up_indptr[label + 1]):
                parent = up_indices[position]
                if reached[parent] == row:
                    continue
                reached[parent] = row
                implied[parent] += 1
                if has[parent] == row:
                    recorded[parent] += 1
                if walked[parent] != row:
                    walked[parent] = row
                    stack[depth] = parent
                    depth += 1


@kernel
def count_substitutes(
    indptr: Int64,
    indices: Int32,
    viewed_indptr: Int64,
    viewed_indices: Int32,
    itself: bool,
    marks: Int32,
    possible: Int64,
) -> None:
    """Count the distinct items that stand for those a label was bought with; -1 where nothing is known of one of them.

    ``indices[indptr[label]:indptr[label + 1]]`` are the items that the label was bought with and
    ``viewed_indices[viewed_indptr[item]:viewed_indptr[item + 1]]`` those viewed along with an item. With `itself`
    an item stands for itself too. `marks` (items) is working space, filled with -1.
    """
    for label in range(len(indptr) - 1):
        found = 0
        for position in range(indptr[label], indptr[label + 1]):
            item = indices[position]
            start, end = viewed_indptr[item], viewed_indptr[item + 1]
            if start == end:
                found = -1
                break
            if itself and marks[item] != label:
                marks[item] = label
                found += 1
            for place in range(start, end):
                other = viewed_indices[place]
                if marks[other] != label:
                    marks[other] = label
                    found += 1
        possible[label] = found

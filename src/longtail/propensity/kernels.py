"""Kernels that count the cases from which propensities are estimated."""

from __future__ import annotations

from longtail.kernels.jit import kernel
from longtail.kernels.types import Int32, Int64


@kernel
def count_implied(
    indptr: Int64, indices: Int32, up_indptr: Int64, up_indices: Int32, marks: Int32, stack: Int32, implied: Int64,
    recorded: Int64
) -> None:  # fmt: skip
    """Walk from the labels of each row up to all their ancestors.

    `implied` counts for each label the rows with one of its descendants, `recorded` those of them that have the label
    too. (`indptr`, `indices`) hold the labels of the rows, (`up_indptr`, `up_indices`) the parents of the labels;
    `marks` (3 by labels, filled with -1) and `stack` (labels) are working space.
    """
    has, walked, reached = marks[0], marks[1], marks[2]  # the last row for which each was true of the label
    for row in range(len(indptr) - 1):
        # A depth-first search that starts from all labels of the row.
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
                if reached[parent] == row:  # counted already, by another path
                    continue
                reached[parent] = row
                implied[parent] += 1
                if has[parent] == row:
                    recorded[parent] += 1
                if walked[parent] != row:  # its own ancestors are still to come
                    walked[parent] = row
                    stack[depth] = parent
                    depth += 1


@kernel
def count_substitutes(
    indptr: Int64, indices: Int32, viewed_indptr: Int64, viewed_indices: Int32, itself: bool, marks: Int32,
    possible: Int64
) -> None:  # fmt: skip
    """Count the distinct items viewed along with those that a label was bought with; -1 if one of these has no views.

    (`indptr`, `indices`) hold the items bought with each label, (`viewed_indptr`, `viewed_indices`) those viewed along
    with each item; with `itself` every item counts as viewed with itself. `marks` (items, filled with -1) is working
    space.
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

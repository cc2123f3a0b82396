"""Kernel of the iterative split."""

from __future__ import annotations

import numpy as np

from longtail.kernels.jit import kernel
from longtail.kernels.types import Flags, Float64, Int32, Int64


@kernel
def assign_rows(
    row_indptr: Int64, row_labels: Int32, label_indptr: Int64, label_rows: Int32, wanted: Float64, n_test: int
) -> Flags:
    """Return whether each row is in test, assigning rows of the label with the fewest unassigned rows first.

    `wanted` holds the number of rows that each label still wants in test and in train. Doubly linked lists hold the
    labels by their number of unassigned rows, so that the work is linear in the number of row-label pairs.
    """
    n_rows, n_labels = row_indptr.size - 1, label_indptr.size - 1
    in_test, assigned = np.zeros(n_rows, np.bool_), np.zeros(n_rows, np.bool_)
    room = np.array([n_test, n_rows - n_test], np.int64)
    left = np.diff(label_indptr)
    most = left.max() if n_labels > 0 else 0
    head = np.full(most + 1, -1, np.int64)
    before, after = np.full(n_labels, -1, np.int64), np.full(n_labels, -1, np.int64)
    for label in range(n_labels - 1, -1, -1):  # put each label into the list of its number of rows
        top = head[left[label]]
        after[label] = top
        if top >= 0:
            before[top] = label
        head[left[label]] = label
    fewest = 1
    while fewest <= most:
        rarest = head[fewest]
        if rarest < 0:
            fewest += 1
            continue
        for place in range(label_indptr[rarest], label_indptr[rarest + 1]):
            row = label_rows[place]
            if assigned[row]:
                continue
            test, train = wanted[rarest, 0], wanted[rarest, 1]
            # To the side that wants more rows of this label; if equal, to the one with more room
            to_test = test > train or (test == train and room[0] > room[1])
            side = 0 if (to_test and room[0] > 0) or room[1] == 0 else 1
            assigned[row], in_test[row] = True, side == 0
            room[side] -= 1
            for at in range(row_indptr[row], row_indptr[row + 1]):
                label = row_labels[at]
                wanted[label, side] -= 1
                # Move the label to the list of one row less
                if before[label] >= 0:
                    after[before[label]] = after[label]
                else:
                    head[left[label]] = after[label]
                if after[label] >= 0:
                    before[after[label]] = before[label]
                left[label] -= 1
                top = head[left[label]]
                before[label], after[label] = -1, top
                if top >= 0:
                    before[top] = label
                head[left[label]] = label
                if 0 < left[label] < fewest:
                    fewest = left[label]
    for row in range(n_rows):  # rows without labels fill up test, then train
        if not assigned[row]:
            in_test[row] = room[0] > 0
            room[0] -= in_test[row]
    return in_test

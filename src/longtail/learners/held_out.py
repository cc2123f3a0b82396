"""Split of rows into training and held-out rows."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from longtail.kernels.types import Int64

LEAST_ROWS = 20


def split_rows(
    Y: sp.csr_array, label_counts: Int64, validation_fraction: float, random_state: int
) -> tuple[Int64, Int64]:
    """Hold out a random share of the rows; every label keeps a training row.

    If fewer than 20 rows could be held out, none are. `label_counts` are the rows of each label.

    Examples
    --------
    >>> Y = sp.csr_array(np.eye(2)[[0] * 80 + [1]])
    >>> rows, held_out = split_rows(Y, np.array([80, 1]), 0.25, random_state=0)
    >>> 80 in rows, len(held_out)
    (True, 20)
    """
    n = Y.shape[0]
    wanted = min(round(validation_fraction * n), n - 1) if Y.nnz else 0
    left, is_out = label_counts.copy(), np.zeros(n, np.bool_)
    order = np.random.default_rng([random_state, n]).permutation(n)
    chosen: list[int] = []
    for row in order:
        if len(chosen) == wanted:
            break
        own = Y.indices[Y.indptr[row] : Y.indptr[row + 1]]
        if len(own) and left[own].min() > 1:
            left[own] -= 1
            chosen.append(int(row))
    if len(chosen) < LEAST_ROWS:
        chosen = []
    is_out[chosen] = True
    return np.flatnonzero(~is_out), np.array(chosen, np.int64)

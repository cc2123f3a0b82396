"""Rows to train on, and rows held out."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

Int64 = npt.NDArray[np.int64]

LEAST_ROWS = 20


def split_rows(Y: sp.csr_array, counts: Int64, share: float, seed: int) -> tuple[Int64, Int64]:
    """Rows to train on, and a share of rows held out, at random; every label keeps a row to train on.

    Fewer than 20 rows say too little of a learner: then none are held out.

    Parameters
    ----------
    Y : csr_array
    counts : ndarray of int64
        Rows of each label.
    share : float
    seed : int

    Examples
    --------
    >>> Y = sp.csr_array(np.eye(2)[[0] * 80 + [1]])
    >>> rows, held_out = split_rows(Y, np.array([80, 1]), 0.25, seed=0)
    >>> 80 in rows, len(held_out)
    (True, 20)
    """
    n = Y.shape[0]
    wanted = min(round(share * n), n - 1) if Y.nnz else 0
    left, is_out = counts.copy(), np.zeros(n, np.bool_)
    order = np.random.default_rng([seed, n]).permutation(n)
    drawn: list[int] = []
    for row in order:
        if len(drawn) == wanted:
            break
        own = Y.indices[Y.indptr[row] : Y.indptr[row + 1]]
        if len(own) and left[own].min() > 1:
            left[own] -= 1
            drawn.append(int(row))
    if len(drawn) < LEAST_ROWS:
        drawn = []
    is_out[drawn] = True
    return np.flatnonzero(~is_out), np.array(drawn, np.int64)

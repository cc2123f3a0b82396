"""Adjacency of labels, from the rows that they share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import scipy.sparse as sp

from longtail.kernels.types import Float32, Float64, Int32
from longtail.learners.embedding.bags import adjacency_among

Adjacency = Literal["arithmetic", "geometric", "pmi", "jaccard"]


class LabelGraph:
    """Adjacency of labels, stored for pairs that share a row.

    With n rows, F(y|z) the share of the rows of z that have y, and p a share of all rows:

    ============  =======================================================================================
    arithmetic    (F(y|z) + F(z|y)) / 2, as in equation (3) of the paper
    geometric     square root of F(y|z) F(z|y), as in theorem B.1
    pmi           log(p(y,z) / p(y) p(z)) / -log p(y,z), 0 where it is negative: pointwise mutual information
                  over its maximum, so that a label has 1 with itself
    jaccard       rows with both over rows with one of them
    ============  =======================================================================================

    Parameters
    ----------
    Y : csr_array, shape (n, L)
        Training labels, 0/1.
    adjacency : {"arithmetic", "geometric", "pmi", "jaccard"}

    Examples
    --------
    >>> graph = LabelGraph(sp.csr_array([[1, 1], [1, 0]]), "arithmetic")
    >>> graph.among(np.array([0, 1], np.int32))
    array([[1.  , 0.75],
           [0.75, 1.  ]], dtype=float32)
    """

    def __init__(self, Y: sp.csr_array, adjacency: Adjacency = "arithmetic") -> None:
        ones = sp.csr_array((np.ones(Y.nnz, np.float64), Y.indices, Y.indptr), shape=Y.shape)
        together = sp.csr_array(ones.T @ ones)
        counts = together.diagonal()
        rows = np.repeat(np.arange(Y.shape[1]), np.diff(together.indptr))
        near = _MEASURES[adjacency](together.data, counts[rows], counts[together.indices], Y.shape[0])
        self._indptr = together.indptr.astype(np.int64)
        self._indices = together.indices.astype(np.int32)
        self._values = near.astype(np.float32)
        self._places = np.full(Y.shape[1], -1, np.int32)

    def among(self, labels: Int32) -> Float32:
        """Return the adjacency between some different labels; each has 1 with itself."""
        found = np.zeros((len(labels), len(labels)), np.float32)
        adjacency_among(self._indptr, self._indices, self._values, labels, self._places, found)
        return found

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        return self._indptr.nbytes + self._indices.nbytes + self._values.nbytes + self._places.nbytes


def _arithmetic(both: Float64, one: Float64, other: Float64, n: int) -> Float64:
    return both * (1 / one + 1 / other) / 2


def _geometric(both: Float64, one: Float64, other: Float64, n: int) -> Float64:
    return both / np.sqrt(one * other)


def _pmi(both: Float64, one: Float64, other: Float64, n: int) -> Float64:
    most = np.log(n / both)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.log(both * n / (one * other)) / most
    return np.clip(np.where(most > 0, share, 1.0), 0, 1)  # 1 where all rows have both


def _jaccard(both: Float64, one: Float64, other: Float64, n: int) -> Float64:
    return both / (one + other - both)


_MEASURES: dict[str, Callable[[Float64, Float64, Float64, int], Float64]] = {
    "arithmetic": _arithmetic,
    "geometric": _geometric,
    "pmi": _pmi,
    "jaccard": _jaccard,
}

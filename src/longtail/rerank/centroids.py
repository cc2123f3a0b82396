"""Centroids of labels, as a part of models."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import BaseEstimator

from longtail.errors import ModelError
from longtail.kernels.arrays import is_array
from longtail.kernels.types import Float32, Float64, Int32, Int64
from longtail.rerank.centroid_kernels import Centroids, find_centroids
from longtail.runtime.pool import StopFlag, run_blocks

_VALUES_PER_BLOCK = 1 << 21
_KINDS = {
    "starts_": np.int64,
    "features_": np.int32,
    "values_": np.float32,
    "bias_": np.float32,
    "squares_": np.float32,
}


class LabelCentroids(BaseEstimator):
    """The sparse mean of each label's rows, which are normalised to length 1 with a bias feature.

    Attributes
    ----------
    n_features_ : int
    starts_ : ndarray of int64, shape (labels + 1,)
        First value of each label.
    features_, values_ : ndarray of int32 and float32
        The values of each centroid that were not dropped.
    bias_ : ndarray of float32, shape (labels,)
        Value of the bias feature.
    squares_ : ndarray of float32, shape (labels,)
        Squared norm of the whole centroid.
    """

    _stored: ClassVar[tuple[str, ...]] = ("n_features_", *_KINDS)

    _trusted: bool = False
    n_features_: int
    starts_: Int64
    features_: Int32
    values_: Float32
    bias_: Float32
    squares_: Float32

    @classmethod
    def of(cls, X: sp.csr_array, Y: sp.csr_array, scales: Float64, bias: float, drop: float) -> Self:
        """Compute the centroids of the labels `Y` of rows `X`.

        The smallest values of each centroid are dropped, up to a norm of `drop`: the inner product with a row of length
        1 changes by at most that.
        """
        columns = Y.tocsc()
        work = np.zeros(Y.shape[1] + 1, np.int64)  # values of X per label
        lengths = np.diff(X.indptr)
        np.add.at(work, 1 + np.repeat(np.arange(Y.shape[1]), np.diff(columns.indptr)), lengths[columns.indices])
        cuts = np.unique(np.searchsorted(np.cumsum(work), np.arange(0, work.sum() + 1, _VALUES_PER_BLOCK)))
        edges = np.unique(np.concatenate([[0], np.minimum(cuts, Y.shape[1]), [Y.shape[1]]]))
        blocks = list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))

        def find(block: tuple[int, int], stop: StopFlag) -> tuple[npt.NDArray[np.generic], ...]:
            return find_centroids(  # type: ignore[no-any-return]
                X.indptr, X.indices, X.data, scales, bias, columns.indptr, columns.indices, *block, drop,
                np.zeros(X.shape[1]), np.full(X.shape[1], -1, np.int32),
            )  # fmt: skip

        found = list(run_blocks(find, blocks, description="finding centroids"))
        made = cls()
        made._trusted = True  # whole, since it was made here
        made.n_features_ = int(X.shape[1])
        counts, made.features_, made.values_, made.bias_, made.squares_ = (
            np.concatenate([np.empty(0, kind), *(part[at] for part in found)], dtype=kind)
            for at, kind in enumerate(_KINDS.values())
        )
        made.starts_ = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return made

    def joined(self, other: LabelCentroids, before: Int64, more: Int64) -> Self:
        """Merge the centroids of `before` and `more` rows per label; `other` may have more labels."""
        n = len(other.bias_)
        shares = more / np.maximum(before + more, 1)
        weights = 1 - shares, shares
        bias, squares, total = np.zeros(n), np.zeros(n), sp.csr_array((n, self.n_features_), dtype=np.float64)
        parts: tuple[LabelCentroids, LabelCentroids] = (self, other)
        for part, share in zip(parts, weights, strict=True):
            own = len(part.bias_)
            starts = np.concatenate([part.starts_, np.full(n - own, part.starts_[-1])])
            rows = sp.csr_array((part.values_.astype(np.float64), part.features_, starts), shape=total.shape)
            total = total + sp.csr_array(sp.diags_array(share) @ rows)
            bias[:own] += share[:own] * part.bias_
        squares = np.asarray(total.multiply(total).sum(axis=1)).ravel() + bias**2
        alone = np.concatenate([self.squares_, np.zeros(n - len(self.squares_))])
        squares = np.where(shares == 0, alone, np.where(shares == 1, other.squares_, squares))
        total.sort_indices()
        made = type(self)()
        made._trusted = True  # whole, since it was made here
        made.n_features_, made.starts_ = self.n_features_, total.indptr.astype(np.int64)
        made.features_, made.values_ = total.indices.astype(np.int32), total.data.astype(np.float32)
        made.bias_, made.squares_ = bias.astype(np.float32), squares.astype(np.float32)
        return made

    def arrays(self, n_features: int, n_labels: int) -> Centroids:
        """Arrays for the kernels, checked once: a kernel trusts every index in them."""
        if getattr(self, "n_features_", None) != n_features or len(self._validated.squares) != n_labels:
            raise ModelError("The centroids of the model don't fit its learner: train it again.")
        return self._validated

    @cached_property
    def _validated(self) -> Centroids:
        if not self._trusted and not self._is_valid():
            raise ModelError("The centroids of the model don't fit together: its files were changed; train it again.")
        return Centroids(self.starts_, self.features_, self.values_, self.bias_, self.squares_)

    def _is_valid(self) -> bool:
        if not all(is_array(getattr(self, name, None), 1, kind) for name, kind in _KINDS.items()):
            return False
        return bool(
            len(self.starts_) == len(self.bias_) + 1 == len(self.squares_) + 1
            and self.starts_[0] == 0
            and self.starts_[-1] == len(self.features_) == len(self.values_)
            and (np.diff(self.starts_) >= 0).all()
            and self.features_.min(initial=0) >= 0
            and self.features_.max(initial=-1) < self.n_features_
            and all(np.isfinite(array).all() for array in (self.values_, self.bias_, self.squares_))
        )

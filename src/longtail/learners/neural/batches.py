"""Rows of tokens, and batches of rows of similar length, so that little is padding."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from longtail.errors import InputError
from longtail.kernels.types import Int64

if TYPE_CHECKING:
    from torch import Tensor


_POOL = 64  # batches whose rows are sorted by length together


class TokenRows:
    """Rows of tokens from a matrix of `Tokens`, whose values are token ids plus 1 in the order of the columns."""

    def __init__(self, X: sp.csr_array) -> None:
        if X.nnz and not ((X.data == np.rint(X.data)).all() and X.data.min() >= 0 and X.data.max() < 2**24):
            raise InputError(
                "X holds values that are no tokens: a neural learner takes texts, or the output of Tokens. "
                "Put it into a TextLearner, or choose a recipe for features."
            )
        if not X.data.all():
            X = X.copy()
            X.eliminate_zeros()
        self._indptr = X.indptr.astype(np.int64)
        self._ids = X.data.astype(np.int64) - 1
        self.lengths = np.diff(self._indptr)

    def __len__(self) -> int:
        return len(self.lengths)

    def take(self, rows: Int64) -> TokenRows:
        """Return some of the rows."""
        found = TokenRows.__new__(TokenRows)
        found.lengths = self.lengths[rows]
        found._indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(found.lengths)])
        places = np.arange(int(found._indptr[-1])) - np.repeat(found._indptr[:-1], found.lengths)
        found._ids = self._ids[np.repeat(self._indptr[rows], found.lengths) + places]
        return found

    def known(self) -> Int64:
        """Return all tokens that occur, ascending."""
        return np.unique(self._ids)

    def bags(self) -> sp.csr_array:
        """Return the count of each token in each row; columns are the positions in `known`."""
        known = self.known()
        columns = np.searchsorted(known, self._ids).astype(np.int32)
        shape = (len(self), max(len(known), 1))
        found = sp.csr_array((np.ones(len(columns), np.float32), columns, self._indptr.astype(np.int32)), shape=shape)
        found.sum_duplicates()
        return found

    def batch(self, rows: Int64, padding: int) -> tuple[Tensor, Tensor]:
        """Return tokens of some rows, padded on the right, and their mask; an empty row has one padding token."""
        import torch

        lengths = self.lengths[rows]
        width = max(int(lengths.max(initial=0)), 1)
        places = np.arange(width)[None]
        mask = places < np.maximum(lengths, 1)[:, None]
        inside = places < lengths[:, None]
        tokens = np.full((len(rows), width), padding, np.int64)
        tokens[inside] = self._ids[(self._indptr[rows][:, None] + places)[inside]]
        return torch.from_numpy(tokens), torch.from_numpy(mask)


def bucketed(lengths: Int64, batch_size: int, rng: np.random.Generator) -> list[Int64]:
    """Shuffle all rows into batches of rows of similar length.

    Examples
    --------
    >>> found = bucketed(np.array([9, 1, 9, 1]), 2, np.random.default_rng(0))
    >>> sorted(sorted(rows.tolist()) for rows in found)
    [[0, 2], [1, 3]]
    """
    order = rng.permutation(len(lengths))
    batches: list[Int64] = []
    for first in range(0, len(order), _POOL * batch_size):
        pool = order[first : first + _POOL * batch_size]
        pool = pool[np.argsort(-lengths[pool], kind="stable")]
        batches += [pool[at : at + batch_size] for at in range(0, len(pool), batch_size)]
    return [batches[place] for place in rng.permutation(len(batches))]


def by_length(lengths: Int64, batch_size: int) -> list[Int64]:
    """Return all rows in batches, longest first, for prediction."""
    order = np.argsort(-lengths, kind="stable")
    return [order[first : first + batch_size] for first in range(0, len(order), batch_size)]

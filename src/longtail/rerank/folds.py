"""Out-of-fold predictions, on which re-rankers are trained."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

from longtail.data.sparse import chosen_rows
from longtail.kernels.types import Int64, UInt8
from longtail.learners import Learner
from longtail.learners.base import Allowed
from longtail.metrics.ranking import are_true
from longtail.topk import TopK

_ROWS_AT_ONCE = 1 << 15


class OutOfFoldCandidates(NamedTuple):
    """The best labels of training rows, with scores from 0 to 1, and 1 in `truth` for those that are true."""

    top: TopK
    truth: UInt8


def find_candidates(learner: Learner, X: sp.csr_array, k: int, allowed: Allowed = None) -> TopK:
    """Rank the k best labels, or all if there are fewer, with scores on the scale of probabilities and 0 for padding.

    Values above 1, such as mean gains, are clipped.
    """
    top = learner._topk(X, min(k, max(learner.n_labels_, 1)), allowed)
    with np.errstate(invalid="ignore"):
        scores = np.exp(learner._log_scores(top.scores))
    return TopK(top.labels, np.where(top.labels >= 0, np.minimum(scores, 1), np.float32(0)).astype(np.float32))


def out_of_fold(
    learner: Learner, X: sp.csr_array, Y: sp.csr_array, *, folds: int, top_k: int, random_state: int
) -> OutOfFoldCandidates:
    """Split the rows into folds and rank the labels of each by a copy of a learner, trained on the others.

    With one fold, it is trained on all rows: its scores are then too high on these rows.
    """
    n = X.shape[0]
    k = min(top_k, max(Y.shape[1], 1))
    top = TopK(np.full((n, k), -1, np.int32), np.zeros((n, k), np.float32))
    for held_out, others in split_folds(n, folds, random_state):
        fitted: Learner = clone(learner)._fit_checked(chosen_rows(X, others), Y[others])
        for first in range(0, len(held_out), _ROWS_AT_ONCE):
            part = held_out[first : first + _ROWS_AT_ONCE]
            found = find_candidates(fitted, chosen_rows(X, part), k)
            top.labels[part], top.scores[part] = found.labels, found.scores
    return OutOfFoldCandidates(top, are_true(top.labels, Y))


def split_folds(n_rows: int, folds: int, random_state: int) -> list[tuple[Int64, Int64]]:
    """Return the rows of each fold and the other rows; at most as many folds as rows, and with one fold all rows twice.

    Examples
    --------
    >>> [held_out.tolist() for held_out, others in split_folds(4, 2, random_state=0)]
    [[0, 1], [2, 3]]
    """
    n_folds = max(min(folds, n_rows), 1)
    fold = np.random.default_rng(random_state).permutation(n_rows) % n_folds
    held_out = [np.flatnonzero(fold == number) for number in range(n_folds)]
    return [(rows, np.flatnonzero(fold != number) if n_folds > 1 else rows) for number, rows in enumerate(held_out)]

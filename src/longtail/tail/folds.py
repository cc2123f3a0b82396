"""Predictions for training rows by learners that have not seen them: what a re-ranker has to be trained on."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import clone

from longtail.corpus.sparse import chosen_rows
from longtail.engine.topk import TopK
from longtail.learners import Learner
from longtail.metrics.hits import are_true

_ROWS_AT_ONCE = 1 << 15


class Candidates(NamedTuple):
    """The best labels of training rows, and what is true of them.

    Parameters
    ----------
    top : TopK
        Labels and scores, the latter from 0 to 1.
    truth : ndarray of uint8, shape (rows, candidates)
        Whether the row has the label.
    """

    top: TopK
    truth: npt.NDArray[np.uint8]


def linked(learner: Learner, top: TopK) -> TopK:
    """Scores as numbers from 0 to 1, 0 where there is no label; what is above 1, as a mean of gains may be, is cut."""
    with np.errstate(invalid="ignore"):
        scores = np.exp(learner._log_scores(top.scores))
    return TopK(top.labels, np.where(top.labels >= 0, np.minimum(scores, 1), np.float32(0)).astype(np.float32))


def out_of_fold(
    learner: Learner, X: sp.csr_array, Y: sp.csr_array, *, folds: int, candidates: int, seed: int
) -> Candidates:
    """Cut the rows into folds and rank the labels of each by a learner that was trained on the others.

    Parameters
    ----------
    learner : Learner
        Unfitted; it stays so.
    X, Y : csr_array
    folds : int
        1 for a learner that is trained on all rows: its scores are far too good for the rows it has seen.
    candidates : int
        Labels a row.
    seed : int
        Decides which rows make a fold.
    """
    n = X.shape[0]
    k = min(candidates, max(Y.shape[1], 1))
    top = TopK(np.full((n, k), -1, np.int32), np.zeros((n, k), np.float32))
    fold = fold_numbers(n, folds, seed)
    for number in range(fold.max() + 1):
        held_out = np.flatnonzero(fold == number)
        others = np.flatnonzero(fold != number) if fold.max() > 0 else held_out
        fitted: Learner = clone(learner).fit(chosen_rows(X, others), Y[others])
        for first in range(0, len(held_out), _ROWS_AT_ONCE):
            part = held_out[first : first + _ROWS_AT_ONCE]
            found = linked(fitted, fitted._topk(chosen_rows(X, part), k, None))
            top.labels[part], top.scores[part] = found.labels, found.scores
    return Candidates(top, are_true(top, Y))


def fold_numbers(n_rows: int, folds: int, seed: int) -> npt.NDArray[np.int64]:
    """Deal rows out to folds at random; no more folds than rows."""
    return np.random.default_rng(seed).permutation(n_rows) % max(min(folds, n_rows), 1)

"""The input of metrics: ranked label ids from a TopK, an array or a sparse matrix of scores, and true labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail.data.sparse import as_indicator, as_rows
from longtail.errors import InputError
from longtail.kernels.types import Array, Float64, Int32, UInt8
from longtail.metrics.kernels import first_duplicate, judge, select_top
from longtail.topk import TopK
from longtail.validation import Integer, check

RERANKED_PLACES = 5
"""Number of labels that ``rerank="inv_propensity_top5"`` reorders."""


def top_k_from_sparse(scores: Any, k: int) -> TopK:
    """Rank the stored entries of a sparse score matrix: higher score first, then lower label id.

    Only stored entries are ranked, explicit zeros included; a row with fewer than k entries is padded. Scores are
    compared as float32.

    Parameters
    ----------
    scores : sparse matrix, shape (n, n_labels)
        Scores of the labels that a model returned; the zeros of a dense matrix are not entries.
    k : int
        Labels per row of the result.

    Returns
    -------
    TopK

    Examples
    --------
    >>> scores = sp.csr_array(([0.5, 0.5, -1.0], [2, 0, 1], [0, 3]), shape=(1, 4))
    >>> top_k_from_sparse(scores, 4).labels
    array([[ 0,  2,  1, -1]], dtype=int32)
    """
    check("k", k, Integer(1))
    rows = as_rows(scores, name="scores")
    top = TopK.empty(rows.shape[0], int(k))
    select_top(rows.indptr.astype(np.int64), rows.indices, rows.data, top.labels, top.scores)
    return top


def ranked_labels(top: Any) -> Array:
    """Return the label ids of a ranking, shape (rows, ranks)."""
    if isinstance(top, TopK):
        top = top.labels
    if sp.issparse(top):
        raise InputError("The ranking is a sparse matrix: turn scores into ranks with top_k_from_sparse(scores, k).")
    try:
        labels = np.asarray(top)
    except ValueError:
        raise InputError("The ranking has rows of different lengths: pad the shorter ones with -1.") from None
    if labels.ndim != 2:
        raise InputError(f"The ranking must have rows and columns, got {labels.ndim} dimension(s): reshape it.")
    if labels.dtype.kind not in "iu" and labels.size:
        raise InputError(f"The ranking must hold label ids as integers, got values of type {labels.dtype}.")
    return labels


def known_labels(labels: Array, n_labels: int) -> Int32:
    """Return label ids as int32, those outside 0 to n_labels - 1 as -1; a label that occurs twice is an error."""
    known = np.where((labels >= 0) & (labels < n_labels), labels, -1).astype(np.int32)
    row = first_duplicate(known)
    if row >= 0:
        raise InputError(
            f"The ranking of row {row} holds a label twice, and a label counts once per row: remove the duplicate."
        )
    return known


def exactly(places: int, labels: Int32) -> Int32:
    """Cut or pad a ranking to a number of ranks."""
    missing = places - labels.shape[1]
    if missing > 0:
        return np.pad(labels, ((0, 0), (0, missing)), constant_values=-1)
    return np.ascontiguousarray(labels[:, :places])


def first_places(top: Any, places: int, n_labels: int) -> Int32:
    """Return the first ranks of a ranking; see `known_labels`."""
    return exactly(places, known_labels(ranked_labels(top)[:, :places], n_labels))


def rerank_by_inverse_propensity(labels: Int32, scores: Array, inverse_propensity: Float64) -> Int32:
    """Sort the first five labels by decreasing inverse propensity, as the published DiSMEC evaluation does.

    Only labels with a score above 0 move: they come first, the rarest in front, ties by score. The others follow in
    their old order.
    """
    places = min(RERANKED_PLACES, labels.shape[1])
    front = labels[:, :places]
    movable = (front >= 0) & (scores[:, :places] > 0)
    weights = np.where(movable, inverse_propensity[front], 0.0)
    order = np.argsort(-weights, axis=1, kind="stable")
    return np.concatenate([np.take_along_axis(front, order, axis=1), labels[:, places:]], axis=1)


def with_labels(Y: Any) -> sp.csr_array:
    """Return true labels in canonical form; a matrix without columns is an error."""
    truth = as_indicator(Y)
    if not truth.shape[1]:
        raise InputError("Y has no columns: give a column for each label.")
    return truth


def are_true(labels: Int32, Y: sp.csr_array) -> UInt8:
    """Return which of the ranked labels are true, 0 or 1, in the shape of the ranking."""
    hits = np.empty(labels.shape[::-1], np.uint8)
    none = np.empty(0)
    judge(labels, Y.indptr.astype(np.int64, copy=False), Y.indices, none, hits, none.reshape(0, 0))
    return np.ascontiguousarray(hits.T)

"""What is judged: ranked label ids from a TopK, an array or a sparse matrix of scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from longtail.corpus.sparse import as_rows
from longtail.engine.topk import TopK
from longtail.errors import InputError, ParameterError
from longtail.metrics.kernels import first_duplicate, select_top

RERANKED_PLACES = 5
"""Places that ``rerank="inv_propensity_top5"`` puts into a new order."""


def top_k_from_sparse(scores: Any, k: int) -> TopK:
    """Rank the stored entries of a sparse score matrix: higher score first, then lower label id.

    Only stored entries are ranked. A zero that is stored explicitly is an entry like any other: it stands above
    negative scores and below positive ones. Labels that aren't stored are never ranked, so a row with fewer than k
    entries is padded. Scores are compared as float32.

    Parameters
    ----------
    scores : sparse matrix, shape (n, n_labels)
        Scores of the labels that a model returned; a dense matrix is taken too, and its zeros are not entries.
    k : int
        Places in each row of the result.

    Returns
    -------
    TopK

    Examples
    --------
    >>> scores = sp.csr_array(([0.5, 0.5, -1.0], [2, 0, 1], [0, 3]), shape=(1, 4))
    >>> top_k_from_sparse(scores, 4).labels
    array([[ 0,  2,  1, -1]], dtype=int32)
    """
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise ParameterError("k", k, "must be a whole number of at least 1")
    rows = as_rows(scores, name="scores")
    labels = np.full((rows.shape[0], k), -1, np.int32)
    best = np.full((rows.shape[0], k), -np.inf, np.float32)
    select_top(rows.indptr.astype(np.int64), rows.indices, rows.data, labels, best)
    return TopK(labels, best)


def ranked_labels(top: Any) -> npt.NDArray[Any]:
    """Take the label ids, rows by places, out of whatever was given as a ranking."""
    if isinstance(top, TopK):
        top = top.labels
    if sp.issparse(top):
        raise InputError("The ranking is a sparse matrix: turn scores into ranks with top_k_from_sparse(scores, k).")
    try:
        labels = np.asarray(top)
    except ValueError:
        raise InputError("The ranking has rows of different lengths: pad the shorter ones with -1.") from None
    if labels.ndim != 2:
        raise InputError(f"The ranking must have rows and places, got {labels.ndim} dimension(s): reshape it.")
    if labels.dtype.kind not in "iu" and labels.size:
        raise InputError(f"The ranking must hold label ids as whole numbers, got values of type {labels.dtype}.")
    return labels


def known_labels(labels: npt.NDArray[Any], n_labels: int) -> npt.NDArray[np.int32]:
    """Bring label ids into int32, everything outside 0 to n_labels - 1 as -1, and refuse a label that stands twice."""
    known = np.where((labels >= 0) & (labels < n_labels), labels, -1).astype(np.int32)
    row = first_duplicate(known)
    if row >= 0:
        raise InputError(
            f"The ranking of row {row} holds a label twice: a label can be right only once, so remove the repetition."
        )
    return known


def exactly(places: int, labels: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Cut or pad a ranking to a number of places."""
    missing = places - labels.shape[1]
    if missing > 0:
        return np.pad(labels, ((0, 0), (0, missing)), constant_values=-1)
    return np.ascontiguousarray(labels[:, :places])


def first_places(top: Any, places: int, n_labels: int) -> npt.NDArray[np.int32]:
    """Take the first places of whatever was given as a ranking; see `known_labels`."""
    return exactly(places, known_labels(ranked_labels(top)[:, :places], n_labels))


def rerank_by_inverse_propensity(
    labels: npt.NDArray[np.int32], scores: npt.NDArray[Any], inverse_propensity: npt.NDArray[np.float64]
) -> npt.NDArray[np.int32]:
    """Order the first five places by falling inverse propensity, as the published DiSMEC evaluation does.

    Only labels with a score above 0 move: they come first, the rarest in front, equal ones by score. The others follow
    in the order they had.
    """
    places = min(RERANKED_PLACES, labels.shape[1])
    front = labels[:, :places]
    movable = (front >= 0) & (scores[:, :places] > 0)
    worth = np.where(movable, inverse_propensity[front], 0.0)
    order = np.argsort(-worth, axis=1, kind="stable")
    return np.concatenate([np.take_along_axis(front, order, axis=1), labels[:, places:]], axis=1)

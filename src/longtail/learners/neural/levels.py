"""Data passed between the levels of a tree: true labels, proposals and parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail.learners.neural.heads import Level
from longtail.metrics.ranking import are_true
from longtail.topk import TopK


def recall_of(top: TopK, Y: sp.csr_array) -> float:
    """Return the share of a row's true labels in a ranking, averaged over rows with labels."""
    counts = np.diff(Y.indptr)
    hits = (are_true(top.labels, Y) & (top.labels >= 0)).sum(axis=1)
    has_any = counts > 0
    return float((hits[has_any] / counts[has_any]).mean()) if has_any.any() else 1.0


def truths_of(levels: list[Level], truth: sp.csr_array) -> list[sp.csr_array]:
    """Return the true labels of held-out rows at every level, from those at the last."""
    found = [truth]
    for level in reversed(levels[1:]):
        children: Any = level.children
        parents = np.zeros(level.n_labels, np.int64)
        inside = children >= 0
        parents[children[inside]] = np.repeat(np.arange(len(children)), inside.sum(axis=1))
        own = found[0]
        above = sp.csr_array(
            (np.ones(own.nnz, np.float32), parents[own.indices], own.indptr), shape=(own.shape[0], len(children))
        )
        above.sum_duplicates()
        above.data[:] = 1
        found.insert(0, above)
    return found


def parents_first(Y: sp.csr_array) -> Callable[[TopK], TopK]:
    """Return a function that puts missing true labels into a ranking, so that the level below is trained on them."""

    def replaced(top: TopK) -> TopK:
        labels, scores = top.labels.copy(), top.scores.copy()
        for row in range(len(labels)):
            own = Y.indices[Y.indptr[row] : Y.indptr[row + 1]]
            # Missing true labels replace the lowest-ranked wrong ones.
            missing = np.setdiff1d(own, labels[row])[: labels.shape[1]]
            if len(missing):
                wrong = np.flatnonzero(~np.isin(labels[row], own))[::-1][: len(missing)]
                labels[row, wrong], scores[row, wrong] = missing[: len(wrong)], 0.0
        return TopK(labels, scores)

    return replaced


def shared_parameters(head: Any, above: Any) -> list[tuple[Any, Any]]:
    """Return pairs of parameters of two heads with the same name and shape, except for those of labels."""
    from torch import nn

    others = dict(above.named_parameters())
    tables = {id(part.weight) for part in head.modules() if isinstance(part, nn.Embedding)}
    return [
        (own, others[name])
        for name, own in head.named_parameters()
        if name in others and own.shape == others[name].shape and id(own) not in tables
    ]

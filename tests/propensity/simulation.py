"""Data whose propensities are known: complete labels, and what masking by the model of Jain et al. leaves of them."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from longtail.propensity import JainPropensity


def masking_rates(complete_counts: np.ndarray, model: JainPropensity, n_rows: int) -> np.ndarray:
    """Propensity p with p = model(p T) for each complete count T: the model speaks of the counts that are recorded.

    n / model(n) rises with n, so that n is found by bisection.
    """
    low, high = np.zeros(len(complete_counts)), complete_counts.astype(float)
    for _ in range(60):
        middle = (low + high) / 2
        above = middle * model.inverse(middle, n_rows) > complete_counts
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return high / np.maximum(complete_counts, 1)


def kept_counts(complete_counts: np.ndarray, rates: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Cases of each label that are kept if none is lost or kept by luck: p T, rounded up or down at random."""
    return np.floor(complete_counts * rates + rng.random(len(rates))).astype(np.int64)


def masked(complete: sp.csr_array, model: JainPropensity, seed: int, *, exact: bool) -> sp.csr_array:
    """Keep labels with the model's propensity of the counts that are kept.

    With `exact` a label keeps the share of its rows that the model says, in rows chosen at random. Without it each case
    is kept or lost by itself, so that counts are noisy too.
    """
    rng = np.random.default_rng(seed)
    counts = np.bincount(complete.indices, minlength=complete.shape[1])
    rates = masking_rates(counts, model, complete.shape[0])
    kept = complete.copy()
    if exact:
        order = np.argsort(complete.indices + rng.random(complete.nnz))  # by label, and at random within it
        place = np.empty(complete.nnz, np.int64)
        place[order] = np.arange(complete.nnz) - np.repeat(np.cumsum(counts) - counts, counts)
        keep = place < kept_counts(counts, rates, rng)[complete.indices]
    else:
        keep = rng.random(complete.nnz) < rates[complete.indices]
    kept.data = keep.astype(np.float32)
    kept.eliminate_zeros()
    return kept


def random_forest(n_labels: int, seed: int) -> np.ndarray:
    """Pairs (child, parent): each label but the roots hangs under a random earlier one."""
    rng = np.random.default_rng(seed)
    children = np.arange(1, n_labels)
    parents = (rng.random(n_labels - 1) * children).astype(np.int64)
    return np.column_stack([children, parents])[rng.random(n_labels - 1) > 0.02]


def complete_rows(pairs: np.ndarray, n_labels: int, n_rows: int, per_row: int, seed: int) -> sp.csr_array:
    """Rows with random labels and all their ancestors."""
    rng = np.random.default_rng(seed)
    parent = np.full(n_labels, -1)
    parent[pairs[:, 0]] = pairs[:, 1]
    rows, labels = np.repeat(np.arange(n_rows), per_row), rng.integers(0, n_labels, n_rows * per_row)
    found = [(rows, labels)]
    while len(labels):
        labels = parent[labels]
        rows, labels = rows[labels >= 0], labels[labels >= 0]
        found.append((rows, labels))
    rows, labels = (np.concatenate(parts) for parts in zip(*found, strict=True))
    Y = sp.csr_array((np.ones(len(rows), np.float32), (rows, labels)), shape=(n_rows, n_labels))
    Y.sum_duplicates()
    Y.data[:] = 1
    return Y

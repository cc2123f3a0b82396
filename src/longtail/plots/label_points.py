"""A two-dimensional map of the labels of a model with embeddings, and their nearest neighbours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from longtail.kernels.types import Float32, Float64, Int64
from longtail.metrics import frequency_bins
from longtail.plots.formats import shorten_name

Embeddings = Float32

LEAST = 10
"""Fewest labels of a map."""
CLOSE = 5
"""Number of nearest points that count as close."""

_FREQUENT, _OTHERS = 400, 200
_LISTED = 10
_PERPLEXITY, _STEPS = 30.0, 600
_SEED = 0


@dataclass(frozen=True)
class LabelPair:
    """Two labels and the inner product of their embeddings."""

    label: str
    other: str
    product: float


@dataclass(frozen=True)
class Company:
    """Co-occurrence of neighbouring labels in the test rows.

    `n_labels` labels of the map occur there. `nearest` is the share of them that co-occur with their nearest label of
    the map, `any` the mean share over all other labels.
    """

    n_labels: int
    nearest: float
    any: float


@dataclass(frozen=True)
class LabelMap:
    """Labels as points in the plane, close to each other where their embeddings are."""

    names: tuple[str, ...]  # the most frequent first
    counts: Int64  # training rows
    bins: Int64  # 0, 1 or 2 for head, torso and tail
    positions: Float64  # shape (n, 2)
    n_embedded: int  # labels that have an embedding, on the map or not
    n_frequent: int  # of the names, the first are the most frequent of all labels; the others are sampled
    kept: float  # share of the labels whose nearest label is one of the five nearest points
    company: Company | None  # None where none of the labels occurs in the test rows
    pairs: tuple[LabelPair, ...]  # the nearest pairs of labels on the map, nearest first
    nearest: tuple[LabelPair, ...]  # the nearest of all labels to each of the most frequent ones


def map_labels(
    embeddings: Embeddings, label_counts: Int64, Y: sp.csr_array | None = None, shown: Callable[[int], str] = str
) -> LabelMap | None:
    """Lay out the most frequent labels and a sample of the others by their embeddings; None for fewer than ten.

    Parameters
    ----------
    embeddings : ndarray, shape (n_labels, dimensions)
        Of length 1, or 0 for labels without an embedding.
    label_counts : ndarray of int64, shape (n_labels,)
        Training rows.
    Y : csr_array, optional
        Recorded labels of test rows; it may have more labels than the model.
    shown : callable
        What to call a label, by id, such as `LabelIndex.shown`.

    Examples
    --------
    >>> angles = np.linspace(0, 3, 12)
    >>> found = map_labels(np.column_stack([np.cos(angles), np.sin(angles)]), np.arange(12, 0, -1))
    >>> found.names[0], found.positions.shape, found.nearest[0].other
    ('0', (12, 2), '1')
    """
    known = np.flatnonzero(embeddings.any(axis=1))
    chosen, n_frequent = _chosen(known, label_counts)
    vectors = np.asarray(embeddings[chosen], np.float64)
    if len(np.unique(vectors, axis=0)) < LEAST:
        return None
    products = vectors @ vectors.T
    np.fill_diagonal(products, -np.inf)
    positions = _positions(vectors)
    names = tuple(shorten_name(shown(label)) for label in chosen.tolist())
    return LabelMap(
        names=names,
        counts=label_counts[chosen],
        bins=frequency_bins(label_counts)[0][chosen],
        positions=positions,
        n_embedded=len(known),
        n_frequent=n_frequent,
        kept=_kept(products, positions),
        company=None if Y is None else _company(Y, chosen, products),
        pairs=_pairs(products, names),
        nearest=_nearest(embeddings, known, chosen[:_LISTED], shown),
    )


def _chosen(known: Int64, label_counts: Int64) -> tuple[Int64, int]:
    """Return the labels of the map, the most frequent first, and how many of them are not sampled."""
    order = known[np.argsort(-label_counts[known], kind="stable")]
    others = order[_FREQUENT:]
    sampled = np.random.default_rng(_SEED).permutation(len(others))[:_OTHERS]
    return np.concatenate([order[:_FREQUENT], others[np.sort(sampled)]]), min(_FREQUENT, len(order))


def _positions(vectors: Float64) -> Float64:
    """Run t-SNE on one thread: with several, the order of summation and so the map would vary."""
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    perplexity = min(_PERPLEXITY, (len(vectors) - 1) / 3)
    with threadpool_limits(limits=1):
        layout = TSNE(init="pca", metric="cosine", perplexity=perplexity, random_state=_SEED, max_iter=_STEPS)
        return np.asarray(layout.fit_transform(vectors), np.float64)


def _kept(products: Float64, positions: Float64) -> float:
    distances = ((positions[:, None] - positions[None]) ** 2).sum(axis=2)
    np.fill_diagonal(distances, np.inf)
    close = np.argsort(distances, axis=1, kind="stable")[:, :CLOSE]
    return float((close == products.argmax(axis=1)[:, None]).any(axis=1).mean())


def _company(Y: sp.csr_array, chosen: Int64, products: Float64) -> Company | None:
    recorded = Y[:, chosen].astype(np.int64)
    together = (recorded.T @ recorded).toarray() > 0
    present = np.flatnonzero(together.diagonal())
    if not len(present):
        return None
    np.fill_diagonal(together, False)
    nearest = together[present, products.argmax(axis=1)[present]]
    return Company(len(present), float(nearest.mean()), float(together[present].sum(axis=1).mean() / (len(chosen) - 1)))


def _pairs(products: Float64, names: Sequence[str]) -> tuple[LabelPair, ...]:
    first, second = np.triu_indices(len(names), 1)
    order = np.argsort(-products[first, second], kind="stable")[:_LISTED]
    return tuple(
        LabelPair(names[one], names[other], float(products[one, other]))
        for one, other in zip(first[order].tolist(), second[order].tolist(), strict=True)
    )


def _nearest(embeddings: Embeddings, known: Int64, labels: Int64, shown: Callable[[int], str]) -> tuple[LabelPair, ...]:
    products = np.full((len(labels), len(embeddings)), -np.inf)
    products[:, known] = (embeddings[labels] @ embeddings.T)[:, known]
    products[np.arange(len(labels)), labels] = -np.inf
    best = products.argmax(axis=1)
    return tuple(
        LabelPair(shorten_name(shown(label)), shorten_name(shown(other)), float(product))
        for label, other, product in zip(labels.tolist(), best.tolist(), products.max(axis=1).tolist(), strict=True)
    )

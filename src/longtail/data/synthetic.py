"""Synthetic data sets of any size with a long tail of labels, to test speed, memory and whole runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from longtail.config import own_jobs
from longtail.data.dataset import Dataset
from longtail.errors import ParameterError
from longtail.kernels.types import Float64, Int32, Int64, UInt8
from longtail.runtime.pool import run_blocks
from longtail.validation import SEED, Integer, Number, check

if TYPE_CHECKING:
    from longtail.data.synthetic_kernels import RowModel

_BLOCK_ROWS = 1 << 14
_FEATURE_EXPONENT = 0.9
_TOPICAL = 0.9  # share of the weight that a label may have in its topic that is sampled there


def generate(
    n_rows: int,
    n_labels: int,
    n_features: int,
    *,
    labels_per_row: float = 5.0,
    features_per_row: float = 30.0,
    exponent: float = 0.9,
    random_state: int = 0,
    test_rows: int = 0,
    n_jobs: int | None = None,
) -> Any:
    """Generate a data set with a long tail of labels that can be learned from its features.

    - The r-th most frequent label is sampled in proportion to r to the power of -`exponent`; ids are in random order.
    - Each label belongs to a topic; there are as many topics as labels to the power of 2/3. A row has a topic and
      samples most labels from it. Others, above all frequent ones, are sampled from all labels.
    - Each label and each topic has a few features of its own, sampled by a power law. A row samples its features from
      those of its labels and of their topics, and two fifths of them from all features.
    - Values are (1 + ln of the count) times an inverse document frequency; rows have length 1.

    A row depends on the seed and its number only: more rows or test rows do not change those before them.

    Parameters
    ----------
    n_rows, n_labels, n_features : int
    labels_per_row, features_per_row : float
        Mean of 1 plus a Poisson variable; fewer if there is not enough to choose from.
    exponent : float
        Steepness of the tail, from 0 (all labels equally frequent) to 10.
    random_state : int
        Seed.
    test_rows : int
        Rows of a second data set from the same labels.
    n_jobs : int, optional
        Threads; None as `longtail.config_context` says.

    Returns
    -------
    Dataset, or a pair (train, test) if there are test rows

    Examples
    --------
    >>> train, test = generate(1000, 200, 500, labels_per_row=3, features_per_row=10, test_rows=100)
    >>> train
    Dataset('synthetic:train': 1,000 rows, 500 features, 200 labels, 2.93 labels per row)
    >>> np.sort(train.label_counts)[[0, 100, 199]]
    array([  0,   7, 367])
    """
    for name, value, least in (
        ("n_rows", n_rows, 1), ("n_labels", n_labels, 1), ("n_features", n_features, 1), ("test_rows", test_rows, 0),
    ):  # fmt: skip
        check(name, value, Integer(least, 2**63 - 1))
    check("random_state", random_state, SEED)
    for name, number, most in (
        ("labels_per_row", labels_per_row, n_labels),
        ("features_per_row", features_per_row, n_features),
    ):
        check(name, number, Number(low=1, high=most))
        if number * max(n_rows, test_rows) > 2e9:
            raise ParameterError(name, number, "must leave each matrix with at most 2,000,000,000 entries: take fewer")
    check("exponent", exponent, Number(low=0, high=10))
    means = float(labels_per_row), float(features_per_row)
    model = row_model(int(n_labels), int(n_features), means[1], float(exponent), int(random_state))
    train = range(int(n_rows))
    parts = {"synthetic": train}
    if test_rows:
        parts = {"synthetic:train": train, "synthetic:test": range(len(train), len(train) + int(test_rows))}
    with own_jobs(n_jobs):
        made = tuple(_rows(model, rows, means, random_state, name) for name, rows in parts.items())
    return made if test_rows else made[0]


def row_model(n_labels: int, n_features: int, features_per_row: float, exponent: float, seed: int) -> RowModel:
    """Sample the topics of labels, and the features of labels and topics.

    A label that is more frequent than its topic may be is otherwise sampled among all labels, so that its frequency is
    in proportion to its weight.
    """
    from longtail.data.synthetic_kernels import NOISE, SHARED, RowModel

    rng = np.random.default_rng([seed, 0])
    weights = _power_law(n_labels, exponent, rng)
    n_topics = max(round(n_labels ** (2 / 3)), 1)
    topics = rng.integers(0, n_topics, n_labels, dtype=np.int32)
    in_topic = np.minimum(weights, 1 / (4 * n_topics))
    topic_labels = np.argsort(topics, kind="stable").astype(np.int32)
    topic_starts = np.append(0, np.cumsum(np.bincount(topics, minlength=n_topics)))

    popularity = _power_law(n_features, _FEATURE_EXPONENT, rng)
    noise = np.cumsum(popularity)
    n_own, n_shared = max(round(features_per_row / 3), 3), max(round(features_per_row / 2), 4)
    own = _sampled(noise, (n_labels, n_own), rng)
    shared = _sampled(noise, (n_topics, n_shared), rng)
    share = NOISE * popularity
    share += (1 - NOISE - SHARED) / n_own * _spread(weights, own, n_features)
    of_topics = np.bincount(topics, weights, minlength=n_topics).astype(np.float64)
    share += SHARED / n_shared * _spread(of_topics, shared, n_features)
    return RowModel(
        general=np.cumsum(weights - _TOPICAL * in_topic),
        topical=np.cumsum(in_topic[topic_labels]),
        topic_starts=topic_starts.astype(np.int64),
        topic_labels=topic_labels,
        topics=topics,
        topic_share=float(_TOPICAL * in_topic.sum()),
        noise=noise,
        own=own,
        shared=shared,
        idf=(1 - np.log(-np.expm1(-features_per_row * share))).astype(np.float32),
    )


def _power_law(size: int, exponent: float, rng: np.random.Generator) -> Float64:
    """Return weights that sum to 1, in random order."""
    weights = np.arange(1, size + 1, dtype=np.float64) ** -exponent
    return rng.permutation(weights / weights.sum())


def _sampled(cumulative: Float64, shape: tuple[int, int], rng: np.random.Generator) -> Any:
    places = np.empty(shape, np.int32)
    for start in range(0, shape[0], _BLOCK_ROWS):
        part = places[start : start + _BLOCK_ROWS]
        part[:] = np.searchsorted(cumulative[:-1], rng.random(part.shape) * cumulative[-1], "right")
    return places


def _spread(weights: Float64, features: Int32, n_features: int) -> Any:
    """Return the sum of the weights of the rows of `features` that have each feature."""
    total = np.zeros(n_features)
    for column in features.T:
        total += np.bincount(column, weights, minlength=n_features)
    return total


def _rows(model: RowModel, rows: range, means: tuple[float, float], seed: int, name: str) -> Dataset:
    from longtail.data.synthetic_kernels import sample_rows

    key = np.random.SeedSequence([seed, 1]).generate_state(1, np.uint64)[0]

    def work(block: range, stop: UInt8) -> Any:
        label_indptr, labels, feature_indptr, features, values = sample_rows(
            key, block.start, block.stop, *means, model
        )
        return np.diff(label_indptr), labels, np.diff(feature_indptr), features, values

    blocks = [rows[first : first + _BLOCK_ROWS] for first in range(0, len(rows), _BLOCK_ROWS)]
    parts = run_blocks(work, blocks, description="generating", unit="rows", size=len)
    n_labels, labels, n_features, features, values = (np.concatenate(part) for part in zip(*parts, strict=True))
    return Dataset(
        sp.csr_array((values, features, _offsets(n_features)), shape=(len(rows), len(model.noise))),
        sp.csr_array((np.ones(len(labels), np.float32), labels, _offsets(n_labels)), (len(rows), len(model.general))),
        name=name,
    )


def _offsets(sizes: Int64) -> Int32:
    return np.append(0, np.cumsum(sizes)).astype(np.int32)

"""Data sets made up to any size, with the long tail of real ones: for trials of speed, memory and whole runs."""

from __future__ import annotations

from itertools import pairwise
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from longtail.corpus.dataset import Dataset
from longtail.engine.pool import run_blocks
from longtail.errors import ParameterError

if TYPE_CHECKING:
    from longtail.corpus.generated_kernels import Mould

_BLOCK_ROWS = 1 << 14
_FEATURE_EXPONENT = 0.9
_TOPICAL = 0.9  # of the weight that a label may have in its topic, so much is drawn there


@overload
def generate(  # type: ignore[overload-overlap]
    n_rows: int,
    n_labels: int,
    n_features: int,
    *,
    labels_per_row: float = ...,
    features_per_row: float = ...,
    exponent: float = ...,
    seed: int = ...,
    test_rows: Literal[0] = ...,
    threads: int | None = ...,
) -> Dataset:
    """Make one data set."""


@overload
def generate(
    n_rows: int,
    n_labels: int,
    n_features: int,
    *,
    labels_per_row: float = ...,
    features_per_row: float = ...,
    exponent: float = ...,
    seed: int = ...,
    test_rows: int,
    threads: int | None = ...,
) -> tuple[Dataset, Dataset]:
    """Make train and test."""


def generate(
    n_rows: int,
    n_labels: int,
    n_features: int,
    *,
    labels_per_row: float = 5.0,
    features_per_row: float = 30.0,
    exponent: float = 0.9,
    seed: int = 0,
    test_rows: int = 0,
    threads: int | None = None,
) -> Dataset | tuple[Dataset, Dataset]:
    """Make up a data set with a long tail of labels that can be learned from its features.

    - The r-th most frequent label is drawn in proportion to r to the power of -`exponent`; ids are in no order.
    - Each label belongs to a topic; there are as many topics as labels to the power of 2/3. A row has a topic and draws
      labels from it and, as the head of the tail belongs everywhere, others from all labels.
    - Each label and each topic has a few features of its own, drawn by a power law. A row draws its features from those
      of its labels and of their topics, and two fifths of them from anywhere.
    - Values are (1 + ln of the draws) times an inverse document frequency, each row scaled to length 1.

    A row hangs on the seed and its own number alone: more rows or test rows leave those before them as they are.

    Parameters
    ----------
    n_rows, n_labels, n_features : int
    labels_per_row, features_per_row : float
        Means of 1 and what a Poisson distribution adds; less where there is not enough to choose from.
    exponent : float
        How steep the tail is, at least 0; 0 makes all labels alike.
    seed : int
        The same seed gives the same data, with any number of threads.
    test_rows : int
        Rows of a second data set from the same labels.
    threads : int, optional
        All cores by default.

    Returns
    -------
    Dataset, or train and test
        A pair if there are test rows.

    Examples
    --------
    >>> train, test = generate(1000, 200, 500, labels_per_row=3, features_per_row=10, test_rows=100)
    >>> train
    Dataset('generated:train': 1,000 rows, 500 features, 200 labels, 2.93 labels a row)
    >>> np.sort(train.label_counts)[[0, 100, 199]]
    array([  0,   7, 367])
    """
    for name, value, least in (
        ("n_rows", n_rows, 1), ("n_labels", n_labels, 1), ("n_features", n_features, 1),
        ("seed", seed, 0), ("test_rows", test_rows, 0),
    ):  # fmt: skip
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise ParameterError(name, value, f"must be a whole number of at least {least}")
    for name, number, most in (
        ("labels_per_row", labels_per_row, n_labels),
        ("features_per_row", features_per_row, n_features),
    ):
        if not _is_number(number) or not 1 <= number <= most:
            raise ParameterError(name, number, f"must be a number from 1 to {most}")
        if number * max(n_rows, test_rows) > 2e9:
            raise ParameterError(name, number, "must leave each matrix with at most 2,000,000,000 entries: take fewer")
    if not _is_number(exponent) or not 0 <= exponent <= 10:
        raise ParameterError("exponent", exponent, "must be a number from 0 to 10")
    means = float(labels_per_row), float(features_per_row)
    mould = make_mould(int(n_labels), int(n_features), means[1], float(exponent), int(seed))
    if not test_rows:
        return _rows(mould, (0, int(n_rows)), means, seed, threads, "generated")
    end = int(n_rows) + int(test_rows)
    return (
        _rows(mould, (0, int(n_rows)), means, seed, threads, "generated:train"),
        _rows(mould, (int(n_rows), end), means, seed, threads, "generated:test"),
    )


def make_mould(n_labels: int, n_features: int, features_per_row: float, exponent: float, seed: int) -> Mould:
    """Draw topics, and the features of labels and topics.

    Labels that are more frequent than a topic can be are drawn from their topic as often as fits it, else from
    anywhere; so a label is drawn in proportion to its weight, whatever topics the rows have.
    """
    from longtail.corpus.generated_kernels import NOISE, SHARED, Mould

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
    own = _drawn(noise, (n_labels, n_own), rng)
    shared = _drawn(noise, (n_topics, n_shared), rng)
    share = NOISE * popularity
    share += (1 - NOISE - SHARED) / n_own * _spread(weights, own, n_features)
    of_topics = np.bincount(topics, weights, minlength=n_topics).astype(np.float64)
    share += SHARED / n_shared * _spread(of_topics, shared, n_features)
    return Mould(
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


def _power_law(size: int, exponent: float, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Weights that sum to 1, in random order."""
    weights = np.arange(1, size + 1, dtype=np.float64) ** -exponent
    return rng.permutation(weights / weights.sum())


def _drawn(cumulative: npt.NDArray[np.float64], shape: tuple[int, int], rng: np.random.Generator) -> Any:
    places = np.empty(shape, np.int32)
    for start in range(0, shape[0], _BLOCK_ROWS):
        part = places[start : start + _BLOCK_ROWS]
        part[:] = np.searchsorted(cumulative[:-1], rng.random(part.shape) * cumulative[-1], "right")
    return places


def _spread(weights: npt.NDArray[np.float64], features: npt.NDArray[np.int32], n_features: int) -> Any:
    """Sum the weights of those that have each feature."""
    total = np.zeros(n_features)
    for column in features.T:
        total += np.bincount(column, weights, minlength=n_features)
    return total


def _rows(
    mould: Mould, span: tuple[int, int], means: tuple[float, float], seed: int, threads: int | None, name: str
) -> Dataset:
    from longtail.corpus.generated_kernels import draw_rows

    key = np.random.SeedSequence([seed, 1]).generate_state(1, np.uint64)[0]

    def work(block: tuple[int, int], stop: npt.NDArray[np.uint8]) -> Any:
        return draw_rows(key, *block, *means, mould)

    blocks = list(pairwise([*range(span[0], span[1], _BLOCK_ROWS), span[1]]))
    parts = run_blocks(
        work,
        blocks,
        threads=threads,
        description="generating",
        unit="rows",
        size=lambda block: block[1] - block[0],
    )
    label_sizes, labels, feature_sizes, features, values = zip(*(_with_sizes(part) for part in parts), strict=True)
    Y = np.concatenate(labels)
    return Dataset(
        sp.csr_array(
            (np.concatenate(values), np.concatenate(features), _offsets(feature_sizes)),
            shape=(span[1] - span[0], len(mould.noise)),
        ),
        sp.csr_array((np.ones(len(Y), np.float32), Y, _offsets(label_sizes)), (span[1] - span[0], len(mould.general))),
        name=name,
    )


def _with_sizes(part: Any) -> Any:
    label_indptr, labels, feature_indptr, features, values = part
    return np.diff(label_indptr), labels, np.diff(feature_indptr), features, values


def _offsets(sizes: Any) -> npt.NDArray[np.int32]:
    return np.append(0, np.cumsum(np.concatenate(sizes))).astype(np.int32)


def _is_number(value: object) -> bool:
    real = isinstance(value, int | float | np.integer | np.floating)
    return real and not isinstance(value, bool) and isfinite(value)  # type: ignore[arg-type]

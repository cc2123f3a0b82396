"""The inner loops of generated data: each row draws its labels, then the features of its labels."""

from __future__ import annotations

from math import exp, log, sqrt
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from longtail.engine.block_solver import next_random, random_below
from longtail.engine.jit import kernel

NOISE = 0.4  # share of feature draws that come from anywhere
SHARED = 0.25  # share that are features of a label's topic; the others are the label's own
_TRIES = 20  # draws for each label or feature wanted, before a row makes do with fewer
_PART = 32.0  # exp(-32) is still far from 0


class Mould(NamedTuple):
    """What rows are drawn from.

    Attributes
    ----------
    general : ndarray of float64, shape (n_labels,)
        Cumulative weights of the labels where the topic plays no part.
    topical : ndarray of float64, shape (n_labels,)
        Cumulative weights of `topic_labels`, through all topics.
    topic_starts : ndarray of int64, shape (topics + 1,)
    topic_labels : ndarray of int32, shape (n_labels,)
        The labels of topic t are ``topic_labels[topic_starts[t]:topic_starts[t + 1]]``.
    topics : ndarray of int32, shape (n_labels,)
        Topic of each label.
    topic_share : float
        Share of the labels that are drawn from the row's topic.
    noise : ndarray of float64, shape (n_features,)
        Cumulative weights of the features.
    own, shared : ndarray of int32
        Features of each label, and of each topic.
    idf : ndarray of float32, shape (n_features,)
    """

    general: npt.NDArray[np.float64]
    topical: npt.NDArray[np.float64]
    topic_starts: npt.NDArray[np.int64]
    topic_labels: npt.NDArray[np.int32]
    topics: npt.NDArray[np.int32]
    topic_share: float
    noise: npt.NDArray[np.float64]
    own: npt.NDArray[np.int32]
    shared: npt.NDArray[np.int32]
    idf: npt.NDArray[np.float32]


@kernel
def _uniform(state: npt.NDArray[np.uint64]) -> Any:
    return np.float64(next_random(state) >> np.uint64(11)) * 2.0**-53


@kernel
def _poisson(mean: float, state: npt.NDArray[np.uint64]) -> Any:
    """Count how many uniform numbers can be multiplied before exp(-mean) is reached, a part of the mean at a time."""
    count = 0
    while mean > 0.0:
        limit = exp(-min(mean, _PART))
        product = _uniform(state)
        while product > limit:
            count += 1
            product *= _uniform(state)
        mean -= _PART
    return count


@kernel
def _draw(cumulative: npt.NDArray[np.float64], first: Any, last: Any, state: npt.NDArray[np.uint64]) -> Any:
    """Draw a place from `first` to `last` - 1 in proportion to its weight."""
    below = cumulative[first - 1] if first > 0 else 0.0
    value = below + _uniform(state) * (cumulative[last - 1] - below)
    low, high = first, last - 1
    while low < high:
        middle = (low + high) // 2
        if cumulative[middle] > value:
            high = middle
        else:
            low = middle + 1
    return low


@kernel
def _insert(found: npt.NDArray[np.int32], times: npt.NDArray[np.int32], count: Any, item: Any) -> Any:
    """Add an item to the sorted first `count` ones, or count it once more; give the new number of items."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if found[middle] < item:
            low = middle + 1
        else:
            high = middle
    if low < count and found[low] == item:
        times[low] += 1
        return count
    for place in range(count, low, -1):
        found[place], times[place] = found[place - 1], times[place - 1]
    found[low], times[low] = item, 1
    return count + 1


@kernel
def _start_row(
    key: Any, row: Any, labels_per_row: float, features_per_row: float, mould: Mould, state: npt.NDArray[np.uint64]
) -> Any:
    """Start the row's own random numbers with how many labels and features it wants."""
    state[0] = np.uint64(key) + np.uint64(row)
    state[0] = next_random(state)
    n_labels = min(1 + _poisson(labels_per_row - 1.0, state), mould.general.size)
    return n_labels, min(1 + _poisson(features_per_row - 1.0, state), mould.noise.size)


@kernel
def draw_rows(
    key: Any, first: int, last: int, labels_per_row: float, features_per_row: float, mould: Mould
) -> tuple[
    npt.NDArray[np.int64],
    npt.NDArray[np.int32],
    npt.NDArray[np.int64],
    npt.NDArray[np.int32],
    npt.NDArray[np.float32],
]:
    """Draw the rows `first` to `last` - 1, each from random numbers that hang on `key` and its own number alone.

    Returns
    -------
    label_indptr, labels, feature_indptr, features, values
    """
    n_rows = last - first
    state = np.zeros(1, np.uint64)
    sizes = np.zeros(2, np.int64)
    most = np.zeros(2, np.int64)
    for row in range(first, last):
        wanted = _start_row(key, row, labels_per_row, features_per_row, mould, state)
        for part in range(2):
            sizes[part] += wanted[part]
            most[part] = max(most[part], wanted[part])
    label_indptr, feature_indptr = np.zeros(n_rows + 1, np.int64), np.zeros(n_rows + 1, np.int64)
    labels, features = np.empty(sizes[0], np.int32), np.empty(sizes[1], np.int32)
    values = np.empty(sizes[1], np.float32)
    own_labels, own_features = np.empty(most[0] + 1, np.int32), np.empty(most[1] + 1, np.int32)
    times = np.empty(max(most[0], most[1]) + 1, np.int32)
    for row in range(first, last):
        n_labels, n_features = _start_row(key, row, labels_per_row, features_per_row, mould, state)
        at = row - first

        topic = mould.topics[mould.topic_labels[_draw(mould.topical, 0, mould.topical.size, state)]]
        start, end = mould.topic_starts[topic], mould.topic_starts[topic + 1]
        count = 0
        for _ in range(_TRIES * n_labels):
            if _uniform(state) < mould.topic_share:
                label = mould.topic_labels[_draw(mould.topical, start, end, state)]
            else:
                label = np.int32(_draw(mould.general, 0, mould.general.size, state))
            count = _insert(own_labels, times, count, label)
            if count == n_labels:
                break
        n_labels = count
        begin = label_indptr[at]
        labels[begin : begin + count] = own_labels[:count]
        label_indptr[at + 1] = begin + count

        count = 0
        for _ in range(_TRIES * n_features):
            source = _uniform(state)
            if source < NOISE:
                feature = np.int32(_draw(mould.noise, 0, mould.noise.size, state))
            else:
                label = own_labels[random_below(n_labels, state)]
                if source < NOISE + SHARED:
                    feature = mould.shared[mould.topics[label], random_below(mould.shared.shape[1], state)]
                else:
                    feature = mould.own[label, random_below(mould.own.shape[1], state)]
            count = _insert(own_features, times, count, feature)
            if count == n_features:
                break
        begin = feature_indptr[at]
        squares = 0.0
        for place in range(count):
            value = (1.0 + log(times[place])) * mould.idf[own_features[place]]
            features[begin + place], values[begin + place] = own_features[place], value
            squares += value * value
        values[begin : begin + count] /= np.float32(sqrt(squares))
        feature_indptr[at + 1] = begin + count
    n_found, n_valued = label_indptr[n_rows], feature_indptr[n_rows]
    return label_indptr, labels[:n_found].copy(), feature_indptr, features[:n_valued].copy(), values[:n_valued].copy()

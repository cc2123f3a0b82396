"""Kernels of synthetic data: each row samples its labels, then features of its labels."""

from __future__ import annotations

from math import exp, log, sqrt
from typing import Any, NamedTuple

import numpy as np

from longtail.kernels.jit import kernel
from longtail.kernels.random import next_random, random_below, random_unit
from longtail.kernels.types import Float32, Float64, Int32, Int64, UInt64

NOISE = 0.4  # share of the features that are sampled from all features
SHARED = 0.25  # share that are sampled from a label's topic; the others are the label's own
_TRIES = 20  # samples per label or feature wanted, after which a row has fewer
_PART = 32.0  # exp(-32) is still far from 0


class RowModel(NamedTuple):
    """The distributions that rows are sampled from.

    Attributes
    ----------
    general : ndarray of float64, shape (n_labels,)
        Cumulative weights of the labels when sampled from all.
    topical : ndarray of float64, shape (n_labels,)
        Cumulative weights of `topic_labels` over all topics.
    topic_starts : ndarray of int64, shape (topics + 1,)
    topic_labels : ndarray of int32, shape (n_labels,)
        The labels of topic t are ``topic_labels[topic_starts[t]:topic_starts[t + 1]]``.
    topics : ndarray of int32, shape (n_labels,)
        Topic of each label.
    topic_share : float
        Share of the labels that are sampled from the row's topic.
    noise : ndarray of float64, shape (n_features,)
        Cumulative weights of the features.
    own, shared : ndarray of int32
        Features of each label, and of each topic.
    idf : ndarray of float32, shape (n_features,)
    """

    general: Float64
    topical: Float64
    topic_starts: Int64
    topic_labels: Int32
    topics: Int32
    topic_share: float
    noise: Float64
    own: Int32
    shared: Int32
    idf: Float32


@kernel
def _poisson(mean: float, state: UInt64) -> Any:
    """Sample a Poisson variable: how many uniform numbers have a product above exp(-mean), by parts of the mean."""
    count = 0
    while mean > 0.0:
        limit = exp(-min(mean, _PART))
        product = random_unit(state)
        while product > limit:
            count += 1
            product *= random_unit(state)
        mean -= _PART
    return count


@kernel
def _sample(cumulative: Float64, first: Any, last: Any, state: UInt64) -> Any:
    """Sample an index from `first` to `last` - 1 in proportion to its weight."""
    below = cumulative[first - 1] if first > 0 else 0.0
    value = below + random_unit(state) * (cumulative[last - 1] - below)
    low, high = first, last - 1
    while low < high:
        middle = (low + high) // 2
        if cumulative[middle] > value:
            high = middle
        else:
            low = middle + 1
    return low


@kernel
def _insert(found: Int32, times: Int32, count: Any, item: Any) -> Any:
    """Add an item to the first `count` ones, which are sorted, or raise its count; return the number of items."""
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
def _row_sizes(
    key: Any, row: Any, labels_per_row: float, features_per_row: float, model: RowModel, state: UInt64
) -> Any:
    """Seed the random numbers of a row and return the number of labels and features it wants."""
    state[0] = np.uint64(key) + np.uint64(row)
    state[0] = next_random(state)
    n_labels = min(1 + _poisson(labels_per_row - 1.0, state), model.general.size)
    return n_labels, min(1 + _poisson(features_per_row - 1.0, state), model.noise.size)


@kernel
def _sample_labels(wanted: Any, model: RowModel, state: Any, found: Any, times: Any) -> Any:
    """Sample distinct labels of a row in sorted order; return how many were found."""
    topic = model.topics[model.topic_labels[_sample(model.topical, 0, model.topical.size, state)]]
    start, end = model.topic_starts[topic], model.topic_starts[topic + 1]
    count = 0
    for _ in range(_TRIES * wanted):
        if random_unit(state) < model.topic_share:
            label = model.topic_labels[_sample(model.topical, start, end, state)]
        else:
            label = np.int32(_sample(model.general, 0, model.general.size, state))
        count = _insert(found, times, count, label)
        if count == wanted:
            break
    return count


@kernel
def _sample_features(wanted: Any, labels: Any, model: RowModel, state: Any, found: Any, times: Any) -> Any:
    """Sample distinct features of a row with these labels in sorted order; return how many were found."""
    count = 0
    for _ in range(_TRIES * wanted):
        source = random_unit(state)
        if source < NOISE:
            feature = np.int32(_sample(model.noise, 0, model.noise.size, state))
        else:
            label = labels[random_below(labels.size, state)]
            if source < NOISE + SHARED:
                feature = model.shared[model.topics[label], random_below(model.shared.shape[1], state)]
            else:
                feature = model.own[label, random_below(model.own.shape[1], state)]
        count = _insert(found, times, count, feature)
        if count == wanted:
            break
    return count


@kernel
def sample_rows(
    key: Any, first: int, last: int, labels_per_row: float, features_per_row: float, model: RowModel
) -> tuple[Int64, Int32, Int64, Int32, Float32]:
    """Sample the rows `first` to `last` - 1, each with random numbers that depend on `key` and its number only.

    Returns
    -------
    label_indptr, labels, feature_indptr, features, values
    """
    n_rows = last - first
    state = np.zeros(1, np.uint64)
    sizes = np.zeros(2, np.int64)
    most = np.zeros(2, np.int64)
    for row in range(first, last):  # the sizes of the arrays
        wanted = _row_sizes(key, row, labels_per_row, features_per_row, model, state)
        for part in range(2):
            sizes[part] += wanted[part]
            most[part] = max(most[part], wanted[part])
    label_indptr, feature_indptr = np.zeros(n_rows + 1, np.int64), np.zeros(n_rows + 1, np.int64)
    labels, features = np.empty(sizes[0], np.int32), np.empty(sizes[1], np.int32)
    values = np.empty(sizes[1], np.float32)
    own_labels, own_features = np.empty(most[0] + 1, np.int32), np.empty(most[1] + 1, np.int32)
    times = np.empty(max(most[0], most[1]) + 1, np.int32)
    for row in range(first, last):
        n_labels, n_features = _row_sizes(key, row, labels_per_row, features_per_row, model, state)
        at = row - first
        count = _sample_labels(n_labels, model, state, own_labels, times)
        begin = label_indptr[at]
        labels[begin : begin + count] = own_labels[:count]
        label_indptr[at + 1] = begin + count

        count = _sample_features(n_features, own_labels[:count], model, state, own_features, times)
        begin = feature_indptr[at]
        squares = 0.0
        for place in range(count):
            value = (1.0 + log(times[place])) * model.idf[own_features[place]]
            features[begin + place], values[begin + place] = own_features[place], value
            squares += value * value
        values[begin : begin + count] /= np.float32(sqrt(squares))
        feature_indptr[at + 1] = begin + count
    n_found, n_valued = label_indptr[n_rows], feature_indptr[n_rows]
    return label_indptr, labels[:n_found].copy(), feature_indptr, features[:n_valued].copy(), values[:n_valued].copy()

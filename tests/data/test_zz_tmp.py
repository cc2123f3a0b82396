"""Synthetic data: sampled as described, the same for any thread count, and learnable."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.data import generate
from longtail.data.synthetic import _BLOCK_ROWS, row_model
from longtail.data.synthetic_kernels import NOISE, SHARED, sample_rows
from longtail.errors import ParameterError
from longtail.learners import OneVsRest, Popularity

WORD = 2**64 - 1


class SplitMix:
    """The generator as published (Steele, Lea and Flood 2014), in integers of Python."""

    def __init__(self, state):
        self.state = state & WORD

    def bits(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & WORD
        mixed = self.state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & WORD
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & WORD
        return mixed ^ (mixed >> 31)

    def uniform(self):
        return (self.bits() >> 11) / 2**53

    def below(self, limit):
        return ((self.bits() >> 32) * limit) >> 32

    def poisson(self, mean):
        count = 0
        for part in [*[32.0] * int(mean // 32), mean % 32]:
            product = self.uniform() if part else 0.0
            while product > np.exp(-part):
                count, product = count + 1, product * self.uniform()
        return count

    def place(self, cumulative, first, last):
        below = cumulative[first - 1] if first else 0.0
        value = below + self.uniform() * (cumulative[last - 1] - below)
        return min(first + int(np.searchsorted(cumulative[first:last], value, "right")), last - 1)


def reference_row(key, row, labels_per_row, features_per_row, model):
    rng = SplitMix(SplitMix(key + row).bits())
    n_labels = min(1 + rng.poisson(labels_per_row - 1), len(model.general))
    n_features = min(1 + rng.poisson(features_per_row - 1), len(model.noise))
    topic = model.topics[model.topic_labels[rng.place(model.topical, 0, len(model.topical))]]
    labels = set()
    for _ in range(20 * n_labels):
        if rng.uniform() < model.topic_share:
            labels.add(int(model.topic_labels[rng.place(model.topical, *model.topic_starts[topic : topic + 2])]))
        else:
            labels.add(rng.place(model.general, 0, len(model.general)))
        if len(labels) == n_labels:
            break
    features = Counter()
    for _ in range(20 * n_features):
        source = rng.uniform()
        if source < NOISE:
            features[rng.place(model.noise, 0, len(model.noise))] += 1
        else:
            label = sorted(labels)[rng.below(len(labels))]
            shared, own = model.shared[model.topics[label]], model.own[label]
            members = shared if source < NOISE + SHARED else own
            features[int(members[rng.below(len(members))])] += 1
        if len(features) == n_features:
            break
    values = np.array([(1 + np.log(features[one])) * model.idf[one] for one in sorted(features)])
    return sorted(labels), sorted(features), values / np.sqrt((values**2).sum())


@pytest.mark.parametrize("means", [(1.0, 1.0), (3.5, 8.0), (6.0, 40.0)])
def test_kernel_samples_what_the_reference_samples(means):
    model = row_model(60, 90, means[1], 0.9, 3)
    key = np.uint64(WORD - 5)  # wraps around
    label_indptr, labels, feature_indptr, features, values = sample_rows(key, 10, 40, *means, model)
    for at in range(30):
        expected = reference_row(int(key), at + 10, *means, model)
        assert labels[label_indptr[at] : label_indptr[at + 1]].tolist() == expected[0]
        found = slice(feature_indptr[at], feature_indptr[at + 1])
        assert features[found].tolist() == expected[1]
        np.testing.assert_allclose(values[found], expected[2], rtol=1e-5)


def test_labels_are_sampled_by_weight_whatever_the_topics():
    """Samples from topics and from all labels together follow the power law."""
    model = row_model(1000, 100, 10, 0.9, 0)
    topical = np.empty(1000)
    topical[model.topic_labels] = np.diff(model.topical, prepend=0)
    general = np.diff(model.general, prepend=0)
    total = model.topic_share * topical / topical.sum() + (1 - model.topic_share) * general / general.sum()
    weights = np.arange(1, 1001) ** -0.9
    np.testing.assert_allclose(np.sort(total)[::-1], weights / weights.sum())
    assert (np.diff(model.topic_starts) == np.bincount(model.topics, minlength=100)).all()
    assert 0.4 < model.topic_share < 0.9


def same(left, right):
    return all(
        np.array_equal(getattr(one, part), getattr(other, part))
        for one, other in ((left.X, right.X), (left.Y, right.Y))
        for part in ("data", "indices", "indptr")
    )


def test_threads_change_nothing_and_later_rows_leave_earlier_ones():
    size = 2 * _BLOCK_ROWS + 10
    one = generate(size, 300, 200, labels_per_row=2, features_per_row=4, random_state=5, n_jobs=1)
    assert same(one, generate(size, 300, 200, labels_per_row=2, features_per_row=4, random_state=5, n_jobs=3))
    train, test = generate(size - 40, 300, 200, labels_per_row=2, features_per_row=4, random_state=5, test_rows=40)
    assert same(train, one.take(np.arange(size - 40)))
    assert same(test, one.take(np.arange(size - 40, size)))
    assert not same(one, generate(size, 300, 200, labels_per_row=2, features_per_row=4, random_state=6))


@settings(max_examples=2500, deadline=None)
@given(
    n_rows=st.integers(1, 30),
    n_labels=st.integers(1, 40),
    n_features=st.integers(1, 40),
    exponent=st.floats(0, 3),
    seed=st.integers(0, 2**32 - 1),
    data=st.data(),
)
def test_any_size(n_rows, n_labels, n_features, exponent, seed, data):
    dataset = generate(
        n_rows,
        n_labels,
        n_features,
        labels_per_row=data.draw(st.floats(1, n_labels)),
        features_per_row=data.draw(st.floats(1, n_features)),
        exponent=exponent,
        random_state=seed,
    )
    assert dataset.X.shape == (n_rows, n_features)
    assert dataset.Y.shape == (n_rows, n_labels)
    for matrix in (dataset.X, dataset.Y):
        assert matrix.data.dtype == np.float32
        assert matrix.indices.dtype == matrix.indptr.dtype == np.int32
        assert matrix.has_canonical_format
        assert (np.diff(matrix.indptr) >= 1).all()
        assert (matrix.data > 0).all()
    np.testing.assert_allclose(np.sqrt((dataset.X**2).sum(axis=1)), 1, rtol=1e-5)


@pytest.fixture(scope="module")
def dataset():
    return generate(40_000, 20_000, 5000)


class TestShape:
    def test_means(self, dataset):
        assert dataset.Y.nnz / 40_000 == pytest.approx(5, rel=0.02)
        assert dataset.X.nnz / 40_000 == pytest.approx(30, rel=0.02)
        assert np.var(np.diff(dataset.X.indptr)) == pytest.approx(29, rel=0.1)

    def test_power_law(self, dataset):
        counts = np.sort(dataset.label_counts)[::-1]
        ranks = np.arange(1, len(counts) + 1)
        middle = slice(20, 3000)
        slope = np.polyfit(np.log(ranks[middle]), np.log(counts[middle]), 1)[0]
        assert slope == pytest.approx(-0.9, abs=0.12)
        assert np.median(counts) <= 5
        assert counts[0] > 2000
        assert 0 < (counts == 0).mean() < 0.2

    def test_exponent(self):
        flat = generate(5000, 100, 100, exponent=0, labels_per_row=2).label_counts
        steep = generate(5000, 100, 100, exponent=1.5, labels_per_row=2).label_counts
        assert flat.min() > 50
        assert flat.max() < 200
        assert steep.max() > 1500

    def test_labels_of_a_topic_come_together(self, dataset):
        """The rarer half of the labels says little by chance: there, two of a row are of one topic far too often."""
        topics = row_model(20_000, 5000, 30.0, 0.9, 0).topics
        rare = dataset.label_counts < np.median(dataset.label_counts)
        together = pairs = 0
        for row in range(4000):
            labels = dataset.Y.indices[dataset.Y.indptr[row] : dataset.Y.indptr[row + 1]]
            own = topics[labels[rare[labels]]]
            pairs += len(own) * (len(own) - 1) // 2
            together += sum(own[i] == own[j] for i in range(len(own)) for j in range(i))
        assert pairs > 100
        assert together / pairs > 0.1  # 1 / 737 if there were no topics

    def test_rows_of_a_label_share_its_features(self, dataset):
        own = row_model(20_000, 5000, 30.0, 0.9, 0).own
        by_label = dataset.Y.tocsc()
        features = np.bincount(dataset.X.indices, minlength=5000) / 40_000
        lifts = []
        for label in np.flatnonzero(dataset.label_counts == 20)[:50]:
            rows = by_label.indices[by_label.indptr[label] : by_label.indptr[label + 1]]
            mine = np.unique(own[label])
            mine = mine[features[mine] < 0.01]
            if len(mine):
                lifts.append((dataset.X[rows][:, mine] > 0).mean() / features[mine].mean())
        assert len(lifts) > 30
        assert np.median(lifts) > 10  # 1 if labels had no features of their own


def test_a_linear_model_learns_and_finds_the_tail_harder():
    train, test = generate(4000, 400, 2000, labels_per_row=3, test_rows=800)
    Y = test.Y.toarray() > 0
    frequent, rare = train.label_counts > 60, train.label_counts < 12
    shares = []
    for learner in (Popularity(), OneVsRest()):
        top = learner.fit(train.X, train.Y).predict_topk(test.X, 5)
        hit = np.zeros_like(Y)
        np.put_along_axis(hit, top.labels, True, axis=1)
        hit &= Y
        first = np.take_along_axis(Y, top.labels[:, :1], axis=1).mean()
        shares.append([first, *(hit[:, part].sum() / Y[:, part].sum() for part in (frequent, rare))])
    popular, linear = shares
    assert linear[0] > 2 * popular[0]
    assert linear[1] > linear[2] + 0.2
    assert linear[2] > 0.1 > popular[2]


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"n_rows": 0}, "n_rows"),
        ({"n_labels": 2.5}, "n_labels"),
        ({"n_features": True}, "n_features"),
        ({"labels_per_row": 0.5}, "labels_per_row"),
        ({"labels_per_row": 11}, "labels_per_row"),
        ({"features_per_row": float("nan")}, "features_per_row"),
        ({"features_per_row": "many"}, "features_per_row"),
        ({"n_rows": 10**9, "features_per_row": 10}, "features_per_row"),
        ({"exponent": -1}, "exponent"),
        ({"random_state": -1}, "random_state"),
        ({"test_rows": -1}, "test_rows"),
        ({"n_jobs": 0}, "n_jobs"),
    ],
)
def test_wrong_parameters(change, name):
    with pytest.raises(ParameterError, match=f"^{name} must"):
        generate(
            **({"n_rows": 5, "n_labels": 10, "n_features": 20, "features_per_row": 5, "labels_per_row": 2} | change)
        )

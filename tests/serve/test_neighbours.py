"""Labels that are alike, against plain numpy over dense weights."""

import numpy as np
import pytest
from sklearn.metrics.pairwise import cosine_similarity

from longtail import InstanceForest, LabelTree, Model, OneVsRest, Popularity, TailDial, TAug, Tfidf
from longtail.kernels.lanes import LANES
from longtail.learners.label_trees.chunks import find_weight
from longtail.serve.neighbours import space_of

ROWS = 600


@pytest.fixture(scope="module")
def data(tags):
    return Tfidf().fit_transform(tags.texts[:ROWS]), tags.Y[:ROWS]


@pytest.fixture(scope="module")
def frequent(data):
    return np.argsort(-np.asarray(data[1].sum(axis=0)).ravel())[:8].tolist()


def expected(cosines, label, k):
    cosines = cosines.copy()
    cosines[label] = 0
    best = np.sort(cosines)[::-1][:k]
    return best[best > 1e-6]


@pytest.mark.parametrize("precision", ["bfloat16", "float32"])
def test_one_vs_rest(data, frequent, precision):
    learner = OneVsRest(precision=precision).fit(*data)
    space, coef = space_of(Model(learner)), learner.coef_
    assert space.by == "weights"
    for label in frequent:
        features, values = space.weights(label)
        dense = np.zeros(coef.shape[1])
        dense[features] = values
        np.testing.assert_allclose(dense, coef[[label]].toarray().ravel())
        near = space.nearest(label, 6)
        cosines = cosine_similarity(coef[[label]], coef).ravel()
        np.testing.assert_allclose([value for _, value in near], expected(cosines, label, 6), rtol=1e-3)
        np.testing.assert_allclose([cosines[one] for one, _ in near], [value for _, value in near], rtol=1e-3)


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_label_trees(data, frequent, precision):
    learner = LabelTree(precision=precision, n_trees=2).fit(*data)
    space, forest = space_of(Model(learner)), learner.forest_
    weights = learner.weights_
    everything = np.arange(learner.n_features_in_, dtype=np.int32)

    def dense(node, label):
        first, last = (int(at) * LANES for at in weights.block_starts_[node : node + 2])
        lane = first + int(np.flatnonzero(weights.chunks.members[first:last] == label)[0])
        out = np.zeros(len(everything), np.float32)
        find_weight(weights.chunks, lane // LANES, lane % LANES, everything, out)
        return out

    for label in frequent[:4]:
        holders = forest.holders[forest.labels_ == label]
        features, values = space.weights(label)
        found = np.zeros(len(everything))
        found[features] = values
        np.testing.assert_allclose(
            found, np.mean([dense(node, label) for node in holders], axis=0), rtol=1e-5, atol=1e-7
        )
        cosines = np.zeros(learner.n_labels_)
        for node in holders:
            members = [int(one) for one in forest.labels_under(int(node))]
            matrix = np.array([dense(node, one) for one in members])
            cosines[members] += cosine_similarity(dense(node, label)[None], matrix).ravel() / forest.n_trees_
        near = space.nearest(label, 5)
        np.testing.assert_allclose([value for _, value in near], expected(cosines, label, 5), rtol=1e-4)


def test_trees_over_rows(data, frequent):
    learner = InstanceForest(n_trees=3).fit(*data)
    space, trees = space_of(Model(learner)), learner.trees_
    values = np.zeros((learner.n_labels_, len(trees.label_starts_) - 1))
    for leaf in range(values.shape[1]):
        part = slice(trees.label_starts_[leaf], trees.label_starts_[leaf + 1])
        values[trees.labels_[part], leaf] = trees.values_[part]
    for label in frequent:
        cosines = cosine_similarity(values[[label]], values).ravel()
        near = space.nearest(label, 6)
        np.testing.assert_allclose([value for _, value in near], expected(cosines, label, 6), rtol=1e-5)
    assert space.weights(0) is None


def test_around_others(data, frequent):
    inner = OneVsRest().fit(*data)
    dial = TailDial(learner=OneVsRest(), tail=0.5).fit(*data)
    label = frequent[0]
    assert space_of(Model(dial)).nearest(label, 3) == space_of(Model(inner)).nearest(label, 3)
    sides = TAug(learner=OneVsRest()).fit(*data)
    space = space_of(Model(sides))
    for label in (frequent[0], int(sides.tail_labels_[0])):
        near = space.nearest(label, 3)
        assert all(one != label for one, _ in near)
    assert space_of(Model(Popularity().fit(*data))) is None

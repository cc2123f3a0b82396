"""Search among label embeddings: exact, and by an index."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from longtail.learners.embedding.search import MAX_K, Lanes, PlattScaling, VectorIndex, exact_topk, kind_of_index
from longtail.learners.platt import fit_platt
from longtail.topk import TopK
from tests.learners.rankings import assert_best, assert_ranked

PLAIN = PlattScaling(np.float32(1), np.float32(0))


def clustered(n, width, seed=0, clusters=60):
    """Unit vectors in clusters, as labels are."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(clusters, width))
    vectors = centres[rng.integers(0, clusters, n)] + 0.7 * rng.normal(size=(n, width))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize("n", [3, 64, 100, 17_000])
def test_the_exact_search_is_a_sort(n):
    vectors, queries = clustered(n, 8), clustered(5, 8, seed=1)
    known = np.arange(n) % 7 != 2
    lanes = Lanes.of(vectors, known)
    assert len(lanes.labels) % 64 == 0
    top = exact_topk(queries, lanes, PlattScaling(np.float32(3), np.float32(-1)), 9, None)
    scores = 3 * queries @ vectors.T - 1
    assert_best(top, [{int(label): float(row[label]) for label in np.flatnonzero(known)} for row in scores])


def test_the_exact_search_with_restrictions_and_factors():
    vectors, queries = clustered(300, 8), clustered(4, 8, seed=1)
    rng = np.random.default_rng(2)
    allowed, factors = rng.random(300) < 0.4, rng.uniform(1, 9, 300).astype(np.float32)
    lanes, link = Lanes.of(vectors, np.ones(300, bool)), PlattScaling(np.float32(2), np.float32(0.5))
    scores = 2 * queries @ vectors.T + 0.5
    admitted = np.flatnonzero(allowed)
    top = exact_topk(queries, lanes, link, 12, allowed)
    assert_best(top, [{int(label): float(row[label]) for label in admitted} for row in scores])
    weighted = factors / (1 + np.exp(-scores))
    top = exact_topk(queries, lanes, link, 12, allowed, factors)
    assert_best(top, [{int(label): float(row[label]) for label in admitted} for row in weighted])


@pytest.mark.parametrize("kind", ["hnsw", "ivf"])
def test_an_index_finds_almost_all_of_the_best(kind):
    pytest.importorskip("faiss", reason="the index is one of faiss")
    vectors, queries = clustered(6000, 24), clustered(200, 24, seed=1)
    lanes = Lanes.of(vectors, np.arange(6000) != 17)
    index = VectorIndex.build(lanes, kind, queries[:100], seed=0)
    assert index.recall >= 0.99
    exact, found = exact_topk(queries, lanes, PLAIN, 10, None), index.topk(queries, lanes, PLAIN, 10)
    assert_ranked(found, 200, 10)
    assert index.recall_of(queries[100:], exact.labels[100:], lanes) > 0.97  # of rows it wasn't set up with
    assert 17 not in found.labels
    assert np.isclose(found.scores, exact.scores, atol=1e-5).mean() > 0.97
    again = VectorIndex.from_bytes(index.to_bytes(), kind, index.effort, index.recall)
    np.testing.assert_array_equal(again.topk(queries, lanes, PLAIN, 10).labels, found.labels)


def test_rows_for_which_an_index_finds_too_few_labels_are_searched_through(monkeypatch):
    pytest.importorskip("faiss", reason="the index is one of faiss")
    vectors, queries = clustered(6000, 24), clustered(20, 24, seed=1)
    lanes = Lanes.of(vectors, np.ones(6000, bool))
    index = VectorIndex.build(lanes, "ivf", queries, seed=0)
    index.effort = 1
    monkeypatch.setattr("longtail.learners.embedding.search.RECALL_CUTOFF", 200)  # so that one cell is visited
    assert (index.candidates(queries, 200, lanes) < 0).any()
    found = index.topk(queries, lanes, PLAIN, 200)
    assert (found.labels >= 0).all()
    assert_ranked(found, 20, 200)


def test_no_index_where_none_is_good_enough():
    pytest.importorskip("faiss", reason="the index is one of faiss")
    vectors = clustered(2000, 16)
    lanes = Lanes.of(vectors, np.ones(2000, bool))
    assert VectorIndex.build(lanes, "hnsw", clustered(50, 16, seed=1), seed=0, wanted=1.01) is None
    empty = Lanes.of(vectors[:5], np.zeros(5, bool))
    assert VectorIndex.build(empty, "hnsw", vectors[:3], seed=0) is None


def test_which_search_is_taken():
    assert kind_of_index("auto", 49_999) is None
    assert kind_of_index("exact", 10**7) is None
    assert kind_of_index("hnsw", 10) == "hnsw"
    assert 10 <= MAX_K < 100_000
    pytest.importorskip("faiss", reason="the index is one of faiss")
    assert kind_of_index("auto", 100_000) == "hnsw"
    assert kind_of_index("auto", 3_000_000) == "ivf"


@pytest.mark.parametrize("kind", ["hnsw", "ivf"])
def test_a_learner_with_an_index_ranks_as_without(kind, tmp_path):
    pytest.importorskip("faiss", reason="the index is one of faiss")
    pytest.importorskip("torch", reason="the embeddings are trained with torch")
    from longtail import EmbeddingClassifier, Model, load
    from tests.learners.contract import assert_same, small_data

    X, Y = small_data(n_rows=300, n_labels=200)
    made = {"embedding_dim": 16, "batch_size": 32, "epochs": 4, "learning_rate": 0.02}
    plain = EmbeddingClassifier(**made, search="exact").fit(X, Y)
    fast = EmbeddingClassifier(**made, search=kind).fit(X, Y)
    assert fast.index_kind_ == kind
    assert fast.recall_ >= 0.99
    assert plain.recall_ == 1
    one, other = plain.predict_topk(X, 3), fast.predict_topk(X, 3)
    assert (one.labels == other.labels).mean() > 0.98
    assert_same(fast.predict_topk(X, 3, only=[1, 2, 3, 8]), plain.predict_topk(X, 3, only=[1, 2, 3, 8]))
    assert (fast.predict_topk(X, 3, tail=1.0).labels == plain.predict_topk(X, 3, tail=1.0).labels).mean() > 0.9
    Model(fast).save(tmp_path / "model")
    assert_same(load(tmp_path / "model").predict_topk(X, 3), other)


def test_sigmoids_are_recovered():
    rng = np.random.default_rng(0)
    products = rng.uniform(-1, 1, (2000, 6)).astype(np.float32)
    truth = rng.random((2000, 6)) < 1 / (1 + np.exp(-(7 * products - 2)))
    order = np.argsort(-products, axis=1)
    top = TopK(order.astype(np.int32), np.take_along_axis(products, order, axis=1))
    slope, offset = fit_platt(top, sp.csr_array(truth.astype(np.float32)))
    assert slope == pytest.approx(7, rel=0.06)
    assert offset == pytest.approx(-2, rel=0.08)


def test_uninformative_scores_keep_the_mean_probability():
    """Uninformative scores: the slope is at its minimum, and the mean probability is near the share of true labels."""
    top = TopK(np.array([[0, 1]] * 40, np.int32), np.array([[0.9, 0.1]] * 40, np.float32))
    truth = np.zeros((40, 2), np.float32)
    truth[:10, 0], truth[10:30, 1] = 1, 1
    slope, offset = fit_platt(top, sp.csr_array(truth))
    assert slope == 1.0
    assert (1 / (1 + np.exp(-(slope * top.scores + offset)))).mean() == pytest.approx(31 / 82, abs=1e-4)


def test_sigmoids_keep_the_order():
    top = TopK(np.array([[0, 1]], np.int32), np.array([[0.9, 0.1]], np.float32))
    slope, _ = fit_platt(top, sp.csr_array(np.array([[0, 1]], np.float32)))  # the worse one is true
    assert slope > 0
    assert fit_platt(TopK(top.labels[:0], top.scores[:0]), sp.csr_array((0, 2))) == (1.0, 0.0)


def _damaged(name, change):
    def damage(learner):
        value = getattr(learner, name)
        if isinstance(value, list):
            setattr(learner, name, [change(value[0].copy()), *value[1:]])
        else:
            setattr(learner, name, change(value.copy()))

    return pytest.param(damage, id=name)


def _relabelled(labels):
    labels[0] = 99
    return labels


@pytest.mark.parametrize(
    "damage",
    [
        _damaged("weights_", lambda weights: weights[:-1]),
        _damaged("weights_", lambda weights: weights[:, :-1]),
        _damaged("weights_", lambda weights: weights.astype(np.float64)),
        _damaged("biases_", lambda bias: bias[:-1]),
        _damaged("lanes_", lambda lanes: lanes[:-1]),
        _damaged("lanes_", lambda lanes: lanes[:, :-1]),
        _damaged("lanes_", lambda lanes: np.asfortranarray(lanes)),
        _damaged("lane_labels_", lambda labels: labels[:-1]),
        _damaged("lane_labels_", _relabelled),
        _damaged("lane_labels_", lambda labels: labels.astype(np.int64)),
    ],
)
def test_a_damaged_model_is_refused(damage):
    pytest.importorskip("torch", reason="the embeddings are trained with torch")
    from longtail import EmbeddingClassifier
    from longtail.errors import ModelError
    from tests.learners.contract import small_data

    X, Y = small_data()
    learner = EmbeddingClassifier(embedding_dim=8, batch_size=16, epochs=1).fit(X, Y)
    damage(learner)
    for use in (
        lambda: learner.predict_topk(X, 3),
        lambda: learner.predict_topk(X, 3, only=[0, 1]),
        lambda: learner.predict_topk(X, 3, tail=0.5),
        lambda: learner.explain(X[:1], [0]),
    ):
        with pytest.raises(ModelError, match="its files were changed"):
            use()


def test_a_damaged_index_is_refused():
    pytest.importorskip("faiss", reason="the index is one of faiss")
    pytest.importorskip("torch", reason="the embeddings are trained with torch")
    from longtail import EmbeddingClassifier
    from longtail.errors import ModelError
    from tests.learners.contract import small_data

    X, Y = small_data(n_rows=300, n_labels=200)
    learner = EmbeddingClassifier(embedding_dim=16, batch_size=32, epochs=4, learning_rate=0.02, search="hnsw").fit(
        X, Y
    )
    whole = learner.index_bytes_
    for damaged in (whole[:100], np.zeros_like(whole)):
        learner.index_bytes_ = damaged
        with pytest.raises(ModelError, match="its files were changed"):
            learner.predict_topk(X, 3)
    learner.index_bytes_, learner.index_kind_ = whole, "ivf"
    with pytest.raises(ModelError, match="its files were changed"):
        learner.predict_topk(X, 3)


def test_an_index_can_be_left_out_later():
    pytest.importorskip("faiss", reason="the index is one of faiss")
    pytest.importorskip("torch", reason="the embeddings are trained with torch")
    from longtail import EmbeddingClassifier
    from tests.learners.contract import assert_same, small_data

    X, Y = small_data(n_rows=300, n_labels=200)
    made = {"embedding_dim": 16, "batch_size": 32, "epochs": 4, "learning_rate": 0.02}
    fast = EmbeddingClassifier(**made, search="hnsw").fit(X, Y).set_params(search="exact")
    assert_same(fast.predict_topk(X, 3), EmbeddingClassifier(**made, search="exact").fit(X, Y).predict_topk(X, 3))

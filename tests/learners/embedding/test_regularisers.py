"""Regularisers by their equations."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the embeddings are trained with torch")

from longtail.learners.embedding.regularisers import glas, gravity, laplacian, spread_out  # noqa: E402


def unit_vectors(n, width, seed):
    vectors = np.random.default_rng(seed).normal(size=(n, width))
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.fixture
def labels():
    V = unit_vectors(9, 4, 0)
    U = np.random.default_rng(1).random((9, 9))
    U = (U + U.T) / 2
    np.fill_diagonal(U, 1)
    return torch.from_numpy(V), torch.from_numpy(U), torch.ones(9, dtype=torch.float64)


def test_equations_by_double_sums(labels):
    V, U, ones = labels
    pairs = [(i, j) for i in range(9) for j in range(9)]
    by_hand = {
        glas: sum((float(V[i] @ V[j]) - float(U[i, j])) ** 2 for i, j in pairs),
        spread_out: sum(float(V[i] @ V[j]) ** 2 for i, j in pairs),
        laplacian: sum(float((V[i] - V[j]).square().sum()) * float(U[i, j]) for i, j in pairs),
    }
    for regulariser, total in by_hand.items():
        assert float(regulariser(V @ V.T, U, ones)) == pytest.approx(total / 81)


def test_glas_is_laplacian_plus_spread_out_up_to_a_constant_of_the_graph(labels):
    """Section 3.2: their sum is GLaS less the mean of u^2 - 2u, whatever the embeddings are."""
    _, U, ones = labels
    constant = float((U.square() - 2 * U).mean())
    for seed in range(5):
        V = torch.from_numpy(unit_vectors(9, 4, seed)).requires_grad_()
        G = V @ V.T
        both = laplacian(G, U, ones) + spread_out(G, U, ones)
        assert both.item() == pytest.approx(glas(G, U, ones).item() - constant)
        (one,) = torch.autograd.grad(both, V, retain_graph=True)
        (other,) = torch.autograd.grad(glas(G, U, ones), V)
        np.testing.assert_allclose(one, other, rtol=1e-10)


def test_a_label_sampled_twice_counts_twice(labels):
    V, U, _ = labels
    twice = torch.tensor([0, 1, 1, 2])
    weights = torch.tensor([1.0, 2.0, 1.0], dtype=torch.float64)
    for regulariser in (glas, spread_out, laplacian):
        drawn = regulariser(V[twice] @ V[twice].T, U[twice][:, twice], torch.ones(4, dtype=torch.float64))
        assert float(regulariser(V[:3] @ V[:3].T, U[:3, :3], weights)) == pytest.approx(float(drawn))


def test_gravity_is_the_mean_square_over_labels_summed_over_rows():
    scores = torch.tensor([[1.0, 2.0], [3.0, 0.0]])
    assert float(gravity(scores, torch.tensor([1.0, 1.0]))) == pytest.approx((1 + 4) / 2 + 9 / 2)
    assert float(gravity(scores, torch.tensor([3.0, 1.0]))) == pytest.approx((3 * 1 + 4) / 4 + 27 / 4)

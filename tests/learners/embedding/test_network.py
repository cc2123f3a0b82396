"""The embedding map, in training and after it."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

torch = pytest.importorskip("torch", reason="the embeddings are trained with torch")

from longtail.kernels.arrays import unit_rows  # noqa: E402
from longtail.learners.embedding.mapping import embed_rows, linear_parts  # noqa: E402
from longtail.learners.embedding.network import column_squares, embed, first_parameters, folded  # noqa: E402


@pytest.fixture(params=[(6,), (8, 6), (8, 7, 6)], ids=str)
def widths(request):
    return request.param


@pytest.fixture(params=["relu", "linear"])
def activation(request):
    return request.param


@pytest.fixture
def model(widths):
    rng = np.random.default_rng(0)
    X = sp.csr_array(sp.random_array((11, 20), density=0.3, rng=rng, dtype=np.float32))
    table = rng.normal(size=(20, widths[0])).astype(np.float32)
    parameters = {name: part.values for name, part in first_parameters(20, widths, rng).items()}
    for values in parameters.values():
        values += rng.normal(scale=0.3, size=values.shape).astype(np.float32)
    return X, table, parameters


def trained(model, widths, activation):
    X, table, parameters = model
    lengths = torch.from_numpy(np.sqrt(column_squares(table)).astype(np.float32))
    tensors = {name: torch.from_numpy(values) for name, values in parameters.items()}
    return embed(torch.from_numpy(X @ table), lengths, tensors, len(widths), activation).numpy()


def test_the_map_is_the_same_after_training(model, widths, activation):
    X, table, parameters = model
    weights, biases = folded(table, parameters, len(widths))
    found = embed_rows(X, weights, biases, activation, 0, 11)
    np.testing.assert_allclose(found, trained(model, widths, activation), atol=2e-6)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(embed_rows(X, weights, biases, activation, 4, 7), found[4:7], rtol=1e-5, atol=1e-7)


def test_neurons_of_a_layer_share_one_length(model, widths):
    _, table, parameters = model
    weights, _ = folded(table, parameters, len(widths))
    for number, layer in enumerate(weights):
        lengths = np.linalg.norm(layer, axis=0)
        np.testing.assert_allclose(lengths, np.exp(parameters[f"length{number}"][0]), rtol=1e-5)


def test_the_length_of_a_direction_changes_nothing(model, widths, activation):
    X, table, parameters = model
    scaled = table * np.random.default_rng(1).uniform(0.1, 9, widths[0]).astype(np.float32)
    other = X, scaled, parameters
    np.testing.assert_allclose(
        trained(other, widths, activation), trained(model, widths, activation), rtol=1e-4, atol=1e-5
    )


def test_the_gradient_leaves_out_only_what_lengthens_a_column(model, widths, activation):
    """Lengths are taken as given in a step: the gradient through them is along each column, and only turns matter."""
    X, table, parameters = model
    tensors = {name: torch.from_numpy(values) for name, values in parameters.items()}
    wanted = torch.from_numpy(np.random.default_rng(2).normal(size=(11, widths[-1])).astype(np.float32))
    leaf, rows = torch.from_numpy(table.copy()).requires_grad_(), torch.from_numpy(X.toarray())
    (embed(rows @ leaf, leaf.norm(dim=0), tensors, len(widths), activation) * wanted).sum().backward()
    sums = torch.from_numpy(X @ table).requires_grad_()
    lengths = torch.from_numpy(np.sqrt(column_squares(table)).astype(np.float32))
    (embed(sums, lengths, tensors, len(widths), activation) * wanted).sum().backward()
    sparse = X.T @ sums.grad.numpy()
    units = table / np.linalg.norm(table, axis=0)
    np.testing.assert_allclose(leaf.grad, sparse - units * (units * sparse).sum(axis=0), rtol=1e-3, atol=1e-5)


def test_parts_of_one_row_add_up_to_its_embedding(model, widths, activation):
    X, table, parameters = model
    weights, biases = folded(table, parameters, len(widths))
    for row in range(11):
        parts, rest = linear_parts(X[[row]], weights, biases, activation)
        whole = embed_rows(X, weights, biases, activation, row, row + 1)[0]
        np.testing.assert_allclose(parts.sum(axis=0) + rest, whole, atol=2e-6)


def test_a_row_of_zeros_stays_at_the_origin():
    np.testing.assert_array_equal(unit_rows(np.zeros((2, 3), np.float32)), 0)

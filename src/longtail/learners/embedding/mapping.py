"""The embedding map after training, in numpy: from sparse rows to vectors of norm 1."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from longtail.kernels.arrays import unit_rows
from longtail.kernels.types import Float32
from longtail.learners.embedding.bags import sum_bags
from longtail.learners.embedding.network import EmbeddingActivation

LayerWeights = Sequence[Float32]


def embed_rows(
    X: sp.csr_array, weights: LayerWeights, biases: LayerWeights, activation: EmbeddingActivation, first: int, last: int
) -> Float32:
    """Embed the rows from first to last; a row at the origin stays there.

    Weights and biases are those of each layer, the lowest first; `activation` is that of the last one, the others have
    ReLU.
    """
    values = np.empty((last - first, weights[0].shape[1]), np.float32)
    sum_bags(X.indptr, X.indices, X.data, weights[0], first, last, values)
    values += biases[0]
    for layer, bias in zip(weights[1:], biases[1:], strict=True):
        np.maximum(values, 0, out=values)
        values = values @ layer + bias
    if activation == "relu":
        np.maximum(values, 0, out=values)
    return unit_rows(values)


def linear_parts(
    X: sp.csr_array, weights: LayerWeights, biases: LayerWeights, activation: EmbeddingActivation
) -> tuple[Float32, Float32]:
    """Return the contributions of each entry of one row, and of all biases together, to the row's embedding.

    With the neurons that are active for this row, the map is linear.

    Returns
    -------
    parts : ndarray of float32, shape (entries, dimensions)
    rest : ndarray of float32, shape (dimensions,)
        They add up to the embedding, up to rounding.
    """
    parts = X.data[:, None] * weights[0][X.indices]
    rest = biases[0].copy()
    for layer, bias in zip(weights[1:], biases[1:], strict=True):
        active = parts.sum(axis=0) + rest > 0
        parts, rest = (parts * active) @ layer, (rest * active) @ layer + bias
    whole = parts.sum(axis=0) + rest
    if activation == "relu":
        parts, rest, whole = parts * (whole > 0), rest * (whole > 0), np.maximum(whole, 0)
    length = float(np.sqrt(whole @ whole))
    scale = np.float32(1 / length if length > 1e-12 else 0)
    return parts * scale, rest * scale

"""The embedding map after training, in numpy alone: from sparse rows to vectors of length 1."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from longtail.engine.bags import sum_bags
from longtail.learners.embedding.network import Activation

Weights = Sequence[npt.NDArray[np.float32]]


def embed_rows(
    X: sp.csr_array, weights: Weights, biases: Weights, activation: Activation, first: int, last: int
) -> npt.NDArray[np.float32]:
    """Embed the rows from first to last; a row at the origin stays there.

    Parameters
    ----------
    X : csr_array
    weights, biases : sequences of ndarray of float32
        Of each layer, the lowest first.
    activation : {"relu", "linear"}
        What the last layer ends with; those below it end with ReLU.
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


def unit_rows(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Scale rows to length 1; a row of zeros stays."""
    lengths = np.sqrt(np.einsum("ij,ij->i", values, values, dtype=np.float64))[:, None].astype(np.float32)
    found: npt.NDArray[np.float32] = np.divide(values, lengths, out=np.zeros_like(values), where=lengths > 1e-12)
    return found


def linear_parts(
    X: sp.csr_array, weights: Weights, biases: Weights, activation: Activation
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """What each entry of one row, and the biases together, add to the row's embedding.

    ReLU is linear where it doesn't change its mind: with the neurons that are active for this row, the map is linear.

    Returns
    -------
    parts : ndarray of float32, shape (entries, dimensions)
    rest : ndarray of float32, shape (dimensions,)
        They add up to the embedding, before rounding.
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
